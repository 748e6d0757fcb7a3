#![allow(clippy::unwrap_used)]

use super::*;

/// What becomes of these fields when they come over a connection from
/// `10.0.0.1`, with these networks trusted.
fn told(fields: &[(&str, &str)], trusted: &[&str]) -> (String, HeaderMap) {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    let trusted: Vec<IpNet> = trusted.iter().map(|net| net.parse().unwrap()).collect();
    let authority = HeaderValue::from_static("gateway.example");
    let client = HeaderValue::from_static("10.0.0.1");
    let forwarded = forward(&mut headers, "10.0.0.1".parse().unwrap(), &client, &authority, &trusted);
    assert_eq!(headers[X_FORWARDED_PROTO], forwarded.scheme);
    (format!("{} {}", forwarded.client, forwarded.scheme), headers)
}

fn lines<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
}

const PROXIES: &[&str] = &["10.0.0.0/8", "fd00::/8"];

#[test]
fn a_stranger_is_not_believed() {
    let fields = [
        ("x-forwarded-for", "1.2.3.4"),
        ("x-forwarded-for", "10.0.0.9"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "evil.example"),
        ("x-forwarded-port", "443"),
        ("x-forwarded-client-cert", "x"),
        ("forwarded", "for=1.2.3.4"),
        ("x-forwarded", "stays"),
    ];
    for trusted in [&[][..], &["192.0.2.0/24"]] {
        let (client, headers) = told(&fields, trusted);
        assert_eq!(client, "10.0.0.1 http");
        assert_eq!(lines(&headers, "x-forwarded-for"), ["10.0.0.1"]);
        assert_eq!(lines(&headers, "x-forwarded-host"), ["gateway.example"]);
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["x-forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"]);
    }
}

#[test]
fn the_client_is_the_last_that_is_not_trusted() {
    for (way, client) in [
        (&["1.2.3.4"][..], "1.2.3.4"),
        (&["6.6.6.6, 1.2.3.4"], "1.2.3.4"),
        (&["6.6.6.6, 1.2.3.4, 10.0.0.2,10.0.0.3"], "1.2.3.4"),
        (&["6.6.6.6", "1.2.3.4", "10.0.0.2"], "1.2.3.4"),
        // All of it is trusted: the first.
        (&["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        (&["[2001:db8::1]:443, fd00::2"], "2001:db8::1"),
        (&["[2001:db8::1]"], "2001:db8::1"),
        (&["2001:db8::1"], "2001:db8::1"),
        (&["1.2.3.4:5678"], "1.2.3.4"),
        (&["::ffff:1.2.3.4"], "1.2.3.4"),
        (&["1.2.3.4, ::ffff:10.0.0.2"], "1.2.3.4"),
        // What is no address tells nothing, nor does what stands before it.
        (&["1.2.3.4, unknown"], "10.0.0.1"),
        (&["1.2.3.4, garbage, 10.0.0.2"], "10.0.0.2"),
        (&["1.2.3.4, "], "10.0.0.1"),
        (&["1.2.3.4", ""], "10.0.0.1"),
        (&["1.2.3.4,,10.0.0.2"], "10.0.0.2"),
        (&["01.2.3.4"], "10.0.0.1"),
        (&["1.2.3.4é"], "10.0.0.1"),
        (&[""], "10.0.0.1"),
        (&[], "10.0.0.1"),
    ] {
        let fields: Vec<_> = way.iter().map(|line| ("x-forwarded-for", *line)).collect();
        assert_eq!(told(&fields, PROXIES).0, format!("{client} http"), "{way:?}");
    }
}

#[test]
fn the_way_grows_by_the_proxy() {
    let (_, headers) = told(&[("x-forwarded-for", "6.6.6.6,1.2.3.4"), ("x-forwarded-for", "x")], PROXIES);
    assert_eq!(lines(&headers, "x-forwarded-for"), ["6.6.6.6,1.2.3.4, x, 10.0.0.1"]);
    for empty in [&[("x-forwarded-for", " ")][..], &[("x-forwarded-proto", "http")], &[]] {
        assert_eq!(lines(&told(empty, PROXIES).1, "x-forwarded-for"), ["10.0.0.1"]);
    }
}

#[test]
fn scheme_and_host_are_believed_if_they_are_clear() {
    for (proto, scheme) in [
        (&["https"][..], "https"),
        (&["HTTPS"], "https"),
        (&["http"], "http"),
        (&["https, http"], "http"),
        (&["https", "https"], "http"),
        (&["ws"], "http"),
        (&[""], "http"),
    ] {
        let fields: Vec<_> = proto.iter().map(|line| ("x-forwarded-proto", *line)).collect();
        let (client, headers) = told(&fields, PROXIES);
        assert_eq!(client, format!("10.0.0.1 {scheme}"), "{proto:?}");
        assert_eq!(lines(&headers, "x-forwarded-proto"), [scheme]);
    }
    for (host, passed) in [
        (&["front.example:8443"][..], "front.example:8443"),
        (&["a, b"], "gateway.example"),
        (&["a", "b"], "gateway.example"),
        (&["user@a"], "gateway.example"),
        (&[""], "gateway.example"),
    ] {
        let fields: Vec<_> = host.iter().map(|line| ("x-forwarded-host", *line)).collect();
        assert_eq!(lines(&told(&fields, PROXIES).1, "x-forwarded-host"), [passed], "{host:?}");
    }
}

#[test]
fn without_a_host_none_is_told() {
    let mut headers: HeaderMap = [(X_FORWARDED_HOST, HeaderValue::from_static("a, b"))].into_iter().collect();
    let client = HeaderValue::from_static("::1");
    let trusted = ["::1/128".parse().unwrap()];
    forward(&mut headers, "::1".parse().unwrap(), &client, &HeaderValue::from_static(""), &trusted);
    assert!(!headers.contains_key(X_FORWARDED_HOST));
    assert_eq!(headers[X_FORWARDED_FOR], "::1");
}
