#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::*;
use crate::config::{HostPattern, PathPattern, Segment};

#[test]
fn durations() {
    for (text, millis) in
        [("100ms", 100), ("1s", 1_000), ("90s", 90_000), ("1m", 60_000), ("2h", 7_200_000), ("1d", 86_400_000)]
    {
        assert_eq!(units::duration(text), Ok(Duration::from_millis(millis)), "{text}");
    }
    assert_eq!(units::duration("365d"), Ok(units::LONGEST));
    for text in ["", "1", "s", "1 s", "1.5s", "-1s", "+1s", "1S", "1h30m", "1us", "366d", "18446744073709551616ms"] {
        assert!(units::duration(text).is_err(), "{text}");
    }
    assert!(units::duration("0s").is_ok());
    assert!(units::some_duration("0s").is_err());
}

#[test]
fn sizes() {
    let all = 0..=u64::MAX;
    for (text, bytes) in [("0", 0), ("512", 512), ("64KiB", 64 << 10), ("16MiB", 16 << 20), ("1GiB", 1 << 30)] {
        assert_eq!(units::size(text, all.clone()), Ok(bytes), "{text}");
    }
    for text in ["", "KiB", "1KB", "1k", "1 KiB", "1.5MiB", "-1", "0x10", "1e3", "18446744073709551615KiB"] {
        assert!(units::size(text, all.clone()).is_err(), "{text}");
    }
    let hint = |text| units::size(text, 1024..=3 << 20).unwrap_err().hint.unwrap();
    assert_eq!(hint("1023"), "at least 1KiB");
    assert_eq!(hint("4MiB"), "at most 3MiB");
}

#[test]
fn hosts_have_one_form() {
    let exact = |host: &str| Ok(HostPattern::Exact(host.to_owned()));
    assert_eq!(host::pattern("API.Example.com"), exact("api.example.com"));
    assert_eq!(host::pattern("*.Example.com"), Ok(HostPattern::Wildcard("example.com".to_owned())));
    assert_eq!(host::pattern("127.0.0.1"), exact("127.0.0.1"));
    assert_eq!(host::pattern("[0:0::1]"), exact("[::1]"));
    assert_eq!(host::pattern("my_host"), exact("my_host"));
    let long = format!("{}.example", "a".repeat(64));
    for text in ["", "*", "*.", "**.a", "a..b", ".a", "a b", "a/b", "*.[::1]", "[::1", "a:80", "a.", &long] {
        assert!(host::pattern(text).is_err(), "{text}");
    }
}

#[test]
fn targets() {
    let target = |text: &str| {
        address::target(text).map(|target| format!("{}|{}|{}", target.host, target.port, target.authority))
    };
    assert_eq!(target("http://a.example"), Ok("a.example|80|a.example".to_owned()));
    assert_eq!(target("HTTP://A.example:80"), Ok("a.example|80|a.example".to_owned()));
    assert_eq!(target("http://127.0.0.1:9001"), Ok("127.0.0.1|9001|127.0.0.1:9001".to_owned()));
    assert_eq!(target("http://[::1]"), Ok("::1|80|[::1]".to_owned()));
    assert_eq!(target("http://[::1]:81"), Ok("::1|81|[::1]:81".to_owned()));
    for text in ["", "a", "http:", "http://", "http://:80", "http://a:", "http://a:+1", "http://a:0", "http://a?x"] {
        assert!(target(text).is_err(), "{text}");
    }
}

#[test]
fn a_password_in_a_url_is_not_repeated() {
    for text in ["http://u:hidden@a", "https://u:hidden@a", "u:hidden@a", "http://u:hidden@a/x"] {
        let fault = address::target(text).unwrap_err();
        assert!(!format!("{fault:?}").contains("hidden"), "{fault:?}");
    }
}

#[test]
fn networks() {
    assert_eq!(address::network("10.1.2.3").map(|network| network.to_string()), Ok("10.1.2.3/32".to_owned()));
    assert_eq!(address::network("fd00::/8").map(|network| network.to_string()), Ok("fd00::/8".to_owned()));
    assert_eq!(address::network("10.1.2.3/8").unwrap_err().hint.unwrap(), "write 10.0.0.0/8");
}

#[test]
fn templates() {
    let literal = |text: &str| Segment::Literal(text.to_owned());
    let parameter = |name: &str| Segment::Parameter(name.to_owned());
    let template = |segments: Vec<Segment>| Ok(PathPattern::Template(segments));
    assert_eq!(path::template("/"), template(vec![literal("")]));
    assert_eq!(path::template("/users"), template(vec![literal("users")]));
    assert_eq!(path::template("/users/"), template(vec![literal("users"), literal("")]));
    assert_eq!(path::template("/u/{id}/{x_1}"), template(vec![literal("u"), parameter("id"), parameter("x_1")]));
    assert!(path::template("/u/{id").is_err());
}

#[test]
fn prefixes_have_no_slash_at_the_end() {
    assert_eq!(path::prefix("/"), Ok(String::new()));
    assert_eq!(path::prefix("/users"), Ok("/users".to_owned()));
    assert_eq!(path::prefix("/users/"), Ok("/users".to_owned()));
}

/// The normal form has to be one itself, or the hint would be no help.
#[test]
fn the_normal_form_that_an_error_shows_is_taken() {
    for text in ["/a//b", "//", "/..", "/a/..", "/a/../..//b/.", "/%7e%2f%3a", "/a b", "/é/%c3%A9", "/%2E%2e/x"] {
        let hint = path::prefix(text).unwrap_err().hint.unwrap();
        let normal = hint.strip_prefix("write \"").and_then(|rest| rest.strip_suffix('"')).unwrap();
        assert!(path::prefix(normal).is_ok(), "{text}: {normal}");
    }
}

#[test]
fn sha256_is_hex() {
    let mut digest = [0xab; 32];
    digest[0] = 0x01;
    let text = format!("01{}", "aB".repeat(31));
    assert_eq!(name::sha256(&text), Ok(digest));
    for text in [String::new(), text[1..].to_owned(), text + "0", "g".repeat(64), "é".repeat(32)] {
        assert!(name::sha256(&text).is_err(), "{text}");
    }
}

#[test]
fn near_names_are_found() {
    let names = ["key-auth", "rate-limit", "respond", "on"];
    assert_eq!(nearest("key-auht", names), Some("did you mean \"key-auth\"?".to_owned()));
    assert_eq!(nearest("rate_limit", names), Some("did you mean \"rate-limit\"?".to_owned()));
    assert_eq!(nearest("no", names), Some("did you mean \"on\"?".to_owned()));
    assert_eq!(nearest("geo-block", names), None);
}

#[test]
fn long_texts_are_cut() {
    assert_eq!(quoted("a\"\n"), r#""a\"\n""#);
    let cut = quoted(&"é".repeat(1_000));
    assert_eq!(cut.chars().count(), MAX_QUOTED + 3);
}
