#![allow(clippy::unwrap_used)]

use super::*;

fn fields(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

/// The names that are left, in order.
fn names(headers: &HeaderMap) -> Vec<&str> {
    let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    names
}

fn stripped_request(lines: &[(&str, &str)]) -> (HeaderMap, bool) {
    let mut headers = fields(lines);
    let seen = Seen::scan(&headers);
    let trailers = strip_request(&mut headers, &seen);
    (headers, trailers)
}

fn framing(lines: &[(&str, &str)], version: Version) -> Result<(), ErrorKind> {
    let headers = fields(lines);
    check_framing(&headers, &Seen::scan(&headers), version)
}

#[test]
fn a_look_over_a_head_finds_all_of_it() {
    assert_eq!(Seen::scan(&fields(&[("accept", "*/*"), ("x-api-key", "k")])), Seen::default());
    for (name, seen) in [
        ("connection", Seen { connection: true, ..Default::default() }),
        ("keep-alive", Seen { keep_alive: true, ..Default::default() }),
        ("proxy-connection", Seen { proxy_connection: true, ..Default::default() }),
        ("te", Seen { te: true, ..Default::default() }),
        ("upgrade", Seen { upgrade: true, ..Default::default() }),
        ("trailer", Seen { trailer: true, ..Default::default() }),
        ("expect", Seen { expect: true, ..Default::default() }),
        ("forwarded", Seen { forwarded: true, ..Default::default() }),
        ("x-forwarded-for", Seen { forwarded: true, ..Default::default() }),
        ("x-forwarded-client-cert", Seen { forwarded: true, ..Default::default() }),
        ("host", Seen { hosts: 1, ..Default::default() }),
        ("content-length", Seen { content_lengths: 1, ..Default::default() }),
        ("transfer-encoding", Seen { transfer_encodings: 1, ..Default::default() }),
    ] {
        assert_eq!(Seen::scan(&fields(&[("accept", "*/*"), (name, "x"), ("x-a", "b")])), seen, "{name}");
        let twice = Seen::scan(&fields(&[(name, "x"), ("x-a", "b"), (name, "y")]));
        let double = |count| count * 2;
        let counts = (double(seen.hosts), double(seen.content_lengths), double(seen.transfer_encodings));
        assert_eq!((twice.hosts, twice.content_lengths, twice.transfer_encodings), counts, "{name}");
    }
    // Another field with two lines is none of these.
    assert_eq!(Seen::scan(&fields(&[("host", "x"), ("a", "1"), ("a", "2")])).hosts, 1);
}

#[test]
fn an_underscore_is_found_wherever_it_stands() {
    for length in 1..=30 {
        let plain = "a-^`zZ~0!".chars().cycle().take(length).collect::<String>();
        assert!(!has_underscore(plain.as_bytes()), "{plain}");
        for place in 0..length {
            let name = format!("{}_{}", &plain[..place], &plain[place + 1..]);
            assert!(has_underscore(name.as_bytes()), "{name}");
        }
    }
}

#[test]
fn names_with_underscores_are_dropped() {
    let mut headers = fields(&[("x_auth_user", "a"), ("x-auth-user", "b"), ("x_auth_user", "c"), ("_", "d")]);
    let seen = Seen::scan(&headers);
    drop_underscores(&mut headers, &seen);
    assert_eq!(names(&headers), ["x-auth-user"]);
}

#[test]
fn a_body_is_framed_in_one_way() {
    let chunked = ("transfer-encoding", "chunked");
    for good in [
        &[][..],
        &[chunked],
        &[("transfer-encoding", "Chunked")],
        &[("content-length", "5")],
        &[("content-length", "5"), ("content-length", "5")],
    ] {
        assert_eq!(framing(good, Version::HTTP_11), Ok(()), "{good:?}");
    }
    for bad in [
        &[chunked, chunked][..],
        &[("transfer-encoding", "chunked, chunked")],
        &[("transfer-encoding", ",chunked")],
        &[("transfer-encoding", "chunked,")],
        &[("transfer-encoding", "gzip, chunked")],
        &[("transfer-encoding", "chunked, gzip")],
        &[("transfer-encoding", "gzip"), chunked],
        &[("transfer-encoding", "identity")],
        &[("transfer-encoding", "xchunked")],
        &[("transfer-encoding", "chunked;a=b")],
        &[("transfer-encoding", "\"chunked\"")],
        &[("transfer-encoding", "\tchunked")],
        &[("transfer-encoding", "")],
        &[chunked, ("content-length", "5")],
        &[("content-length", "5"), ("content-length", "6")],
        &[("content-length", "5"), ("content-length", "05")],
        &[("content-length", "5"), ("content-length", "5"), ("content-length", "6")],
    ] {
        assert!(matches!(framing(bad, Version::HTTP_11), Err(ErrorKind::BadRequest(_))), "{bad:?}");
    }
    assert!(framing(&[chunked], Version::HTTP_10).is_err());
    assert_eq!(framing(&[("content-length", "5")], Version::HTTP_10), Ok(()));
}

#[test]
fn fields_of_the_connection_go_and_no_others() {
    let (headers, trailers) = stripped_request(&[
        ("connection", "keep-alive, Upgrade, HTTP2-Settings"),
        ("connection", " x-secret , ,close"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("te", "trailers, deflate;q=0.5"),
        ("upgrade", "h2c"),
        ("http2-settings", "AAMAAABkAAQAAP__"),
        ("transfer-encoding", "chunked"),
        ("expect", "100-continue"),
        ("x-secret", "a"),
        ("x-secret", "b"),
        ("trailer", "x-sum"),
        ("accept", "*/*"),
        ("proxy-authorization", "Basic eA=="),
    ]);
    assert!(trailers);
    assert_eq!(names(&headers), ["accept", "proxy-authorization", "trailer"]);
}

/// Else a client could make itself pass for the proxy in front, or a message
/// for another one.
#[test]
fn connection_takes_no_essential_away() {
    let essentials = "Host, content-length, content-type, content-encoding, cache-control, forwarded, \
                      X-Forwarded-For, x-forwarded-proto, x-forwarded-host, in valid";
    let lines: Vec<_> = essentials.split(", ").filter(|name| !name.contains(' ')).map(|name| (name, "1")).collect();
    let mut headers = fields(&lines);
    let before = headers.clone();
    headers.insert("connection", HeaderValue::from_static(essentials));
    let seen = Seen::scan(&headers);
    strip_request(&mut headers, &seen);
    assert_eq!(headers, before);
}

#[test]
fn what_the_gateway_sets_later_can_not_be_named() {
    let mut headers = fields(&[("connection", "x-user, authorization"), ("x-user", "evil"), ("authorization", "x")]);
    let seen = Seen::scan(&headers);
    strip_request(&mut headers, &seen);
    headers.insert("x-user", HeaderValue::from_static("alice"));
    // A second look, as a response gets one, finds nothing that names it.
    let seen = Seen::scan(&headers);
    strip_response(&mut headers, &seen);
    assert_eq!(names(&headers), ["x-user"]);
}

#[test]
fn one_content_length_is_left_of_equal_ones() {
    let (headers, _) = stripped_request(&[("content-length", "5"), ("content-length", "5"), ("a", "1"), ("a", "2")]);
    assert_eq!(headers.get_all("content-length").iter().collect::<Vec<_>>(), ["5"]);
    assert_eq!(headers.get_all("a").iter().count(), 2);
}

#[test]
fn trailers_are_for_who_takes_them() {
    for (te, takes) in [
        (&["trailers"][..], true),
        (&["deflate;q=0.5, Trailers"], true),
        (&["gzip", "trailers ; q=1"], true),
        (&["gzip"], false),
        (&["xtrailers, trailers2"], false),
        (&[""], false),
        (&[], false),
    ] {
        let lines: Vec<_> = te.iter().map(|line| ("te", *line)).collect();
        assert_eq!(stripped_request(&lines).1, takes, "{te:?}");
    }
}

#[test]
fn a_response_keeps_its_trailer_field() {
    let mut headers = fields(&[
        ("connection", "close, x-hop"),
        ("x-hop", "1"),
        ("keep-alive", "timeout=5"),
        ("transfer-encoding", "Chunked"),
        ("trailer", "grpc-status"),
        ("set-cookie", "a"),
        ("set-cookie", "b"),
        ("proxy-authenticate", "Basic"),
    ]);
    let seen = Seen::scan(&headers);
    strip_response(&mut headers, &seen);
    assert_eq!(names(&headers), ["proxy-authenticate", "set-cookie", "trailer"]);
    assert_eq!(headers.get_all("set-cookie").iter().collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn lines_are_read_as_one() {
    let headers = fields(&[("a", "1"), ("a", ""), ("a", "2, 3"), ("cookie", "x=1"), ("cookie", "y=2"), ("empty", "")]);
    for (name, value) in [("a", "1, , 2, 3"), ("cookie", "x=1; y=2"), ("empty", "")] {
        let name = HeaderName::from_static(name);
        assert_eq!(joined(&headers, &name).as_deref(), Some(value.as_bytes()));
        assert!(is_joined(&headers, &name, value.as_bytes()));
        for other in ["1", "1, , 2, 3, ", "1, , 2, 4", "x=1, y=2", "x=1; y=2; ", "x=1", " "] {
            assert!(!is_joined(&headers, &name, other.as_bytes()), "{name}: {other}");
        }
    }
    let absent = HeaderName::from_static("absent");
    assert!(joined(&headers, &absent).is_none() && !is_joined(&headers, &absent, b""));
}
