use super::*;

fn headers(hosts: &[&str]) -> HeaderMap {
    hosts
        .iter()
        .filter_map(|host| HeaderValue::from_bytes(host.as_bytes()).ok())
        .map(|host| (header::HOST, host))
        .collect()
}

fn asked(target: Option<&str>, hosts: &[&str], version: Version) -> Result<String, ErrorKind> {
    let target: Option<Authority> = target.and_then(|target| target.parse().ok());
    let headers = headers(hosts);
    let authority = authority(target.as_ref(), &headers, &Seen::scan(&headers), version)?;
    Ok(authority.to_str().unwrap_or("?").to_owned())
}

fn host(host: &str) -> Result<String, ErrorKind> {
    asked(None, &[host], Version::HTTP_11)
}

#[test]
fn an_authority_has_one_form() {
    for (sent, authority, name) in [
        ("example.com", "example.com", "example.com"),
        ("Example.COM", "example.com", "example.com"),
        ("x", "x", "x"),
        ("a_b-c.1", "a_b-c.1", "a_b-c.1"),
        ("x:8082", "x:8082", "x"),
        ("X:65535", "x:65535", "x"),
        ("x:80", "x", "x"),
        ("x:080", "x", "x"),
        ("x:08080", "x:8080", "x"),
        ("x:443", "x:443", "x"),
        ("x:", "x", "x"),
        ("example.com.", "example.com.", "example.com"),
        ("example.com.:80", "example.com.", "example.com"),
        ("127.0.0.1:9000", "127.0.0.1:9000", "127.0.0.1"),
        ("[::1]", "[::1]", "[::1]"),
        ("[::1]:80", "[::1]", "[::1]"),
        ("[::1]:65535", "[::1]:65535", "[::1]"),
        ("[1:2:3:4:5:6:7:8]:8", "[1:2:3:4:5:6:7:8]:8", "[1:2:3:4:5:6:7:8]"),
        ("a.:8", "a.:8", "a"),
        ("[0:0::0:A]:8080", "[::a]:8080", "[::a]"),
    ] {
        assert_eq!(host(sent), Ok(authority.to_owned()), "{sent}");
        assert_eq!(host(authority), Ok(authority.to_owned()), "{sent}: not final");
        assert_eq!(host_of(&HeaderValue::from_static(authority)), name);
    }
}

#[test]
fn what_is_no_authority_is_refused() {
    for sent in [
        "",
        ".",
        "..",
        ".a",
        "a..b",
        "a..",
        ":80",
        "user@x",
        "user:pw@x",
        "x y",
        "x/y",
        "x?y",
        "x#y",
        "x,y",
        "x\\y",
        "x%20",
        "x:y",
        "x:8a",
        "x:-1",
        "x:+1",
        "x:0",
        "x:65536",
        "x:100000",
        "x:80:80",
        "x: 80",
        "::1",
        "[::1",
        "::1]",
        "[::1]x",
        "[::1]80",
        "[::1]:x",
        "[]",
        "[x]",
        "[::1%25lo]",
        "[fe80::1%eth0]",
        "é",
        "x\u{80}",
        "http://x",
    ] {
        assert!(matches!(host(sent), Err(ErrorKind::BadRequest(_))), "{sent}");
        assert!(
            !is_authority(&HeaderValue::from_bytes(sent.as_bytes()).unwrap_or(HeaderValue::from_static(""))),
            "{sent}"
        );
    }
}

/// The short way and the long one agree, on every short text of these but for
/// IPv6 addresses, which have no short way.
#[test]
fn what_is_canonical_would_not_be_rewritten() {
    let letters = b"a1.:-_~089A@%";
    for count in 1..=4 {
        for mut number in 0..letters.len().pow(count) {
            let mut text = Vec::new();
            for _ in 0..count {
                text.push(letters[number % letters.len()]);
                number /= letters.len();
            }
            let as_it_is = rewritten(&text).is_ok_and(|value| value.as_bytes() == text);
            let text = String::from_utf8_lossy(&text);
            assert_eq!(is_canonical(text.as_bytes()), as_it_is, "{text}");
        }
    }
}

#[test]
fn a_request_has_one_host() {
    for version in [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2] {
        assert!(asked(None, &["a", "a"], version).is_err());
        assert!(asked(Some("x"), &["a", "b"], version).is_err());
        assert!(asked(None, &["a b"], version).is_err());
    }
    assert!(asked(None, &[], Version::HTTP_11).is_err());
    assert_eq!(asked(None, &[], Version::HTTP_10), Ok(String::new()));
    assert!(asked(None, &[], Version::HTTP_2).is_err());
}

#[test]
fn the_target_wins_over_host() {
    assert_eq!(asked(Some("Target:80"), &["other"], Version::HTTP_11), Ok("target".to_owned()));
    assert_eq!(asked(Some("target:8080"), &[], Version::HTTP_10), Ok("target:8080".to_owned()));
    assert_eq!(asked(Some("target"), &[], Version::HTTP_2), Ok("target".to_owned()));
    // Which does not make up for a Host that is wrong or missing.
    assert!(asked(Some("target"), &["a b"], Version::HTTP_11).is_err());
    assert!(asked(Some("target"), &[], Version::HTTP_11).is_err());
    assert!(asked(Some("user@target"), &["target"], Version::HTTP_11).is_err());
    assert!(asked(Some("target:99999"), &["target"], Version::HTTP_11).is_err());
}

/// What is in order is not copied.
#[test]
fn a_canonical_host_is_shared() {
    let headers: HeaderMap = [(header::HOST, HeaderValue::from_static("example.com:8080"))].into_iter().collect();
    let authority = authority(None, &headers, &Seen::scan(&headers), Version::HTTP_11);
    assert_eq!(authority.map(|it| it.as_bytes().as_ptr()), Ok(headers[header::HOST].as_bytes().as_ptr()));
}
