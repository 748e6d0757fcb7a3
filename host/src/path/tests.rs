#![allow(clippy::panic)]

use super::*;

/// Both forms, which have to be read alike.
fn forms(raw: &str) -> (String, String) {
    let Ok(paths) = normalise(raw) else { panic!("{raw} is refused") };
    (paths.normal.into_owned(), paths.upstream.into_owned())
}

#[test]
fn each_spelling_has_its_two_forms() {
    for (raw, normal, upstream) in [
        ("/", "/", "/"),
        ("/a/b", "/a/b", "/a/b"),
        ("/a/", "/a/", "/a/"),
        // Unreserved octets are decoded, others keep their escape.
        ("/%61dmin", "/admin", "/%61dmin"),
        ("/%2D%2e%5f%7E", "/-._~", "/%2D%2e%5f%7E"),
        ("/a%2fb", "/a%2Fb", "/a%2fb"),
        ("/a%20b%c3%A9", "/a%20b%C3%A9", "/a%20b%c3%A9"),
        ("/%25%36%31", "/%2561", "/%25%36%31"),
        ("/%252e%252e/a", "/%252e%252e/a", "/%252e%252e/a"),
        ("/a%5c..%5cb", "/a%5C..%5Cb", "/a%5c..%5cb"),
        // Dots that are no segment of their own stay.
        ("/.a/..b/c../...", "/.a/..b/c../...", "/.a/..b/c../..."),
        ("/api../foo", "/api../foo", "/api../foo"),
        ("/a/..;/b", "/a/..;/b", "/a/..;/b"),
        // Those that are go, in every spelling.
        ("/a/./b", "/a/b", "/a/b"),
        ("/a/%2e/b", "/a/b", "/a/b"),
        ("/a/../b", "/b", "/b"),
        ("/a/.%2E/b", "/b", "/b"),
        ("/a/%2e%2e/%62", "/b", "/%62"),
        ("/a/.", "/a/", "/a/"),
        ("/a/b/..", "/a/", "/a/"),
        ("/..", "/", "/"),
        ("/.", "/", "/"),
        ("/a/../../../b", "/b", "/b"),
        ("/a%2f../b", "/a%2F../b", "/a%2f../b"),
        // Doubled slashes are one for whoever decides.
        ("//admin", "/admin", "//admin"),
        ("/a//b///", "/a/b/", "/a//b///"),
        ("//", "/", "//"),
        ("/aGk//Zm9v", "/aGk/Zm9v", "/aGk//Zm9v"),
        // `..` takes a name with it, and the empty segments behind that.
        ("/a//../b", "/b", "/b"),
        ("//../b", "/b", "/b"),
        ("/a/b//../c", "/a/c", "/a/c"),
        ("/a/b//..", "/a/", "/a/"),
        ("/a//b/..", "/a/", "/a//"),
        ("/a/..//b", "/b", "//b"),
    ] {
        assert_eq!(forms(raw), (normal.to_owned(), upstream.to_owned()), "{raw}");
    }
}

#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    for raw in [
        "", "a", "*", "a/b", "%2Fa", "\\a", "/%00", "/a/%00b", "/%", "/a%", "/%2", "/%2/a", "/%zz", "/%+1", "/% 1",
        "/a\\b", "/\\..\\a", "/é", "/%c3é", "/a\u{7f}", "/a b", "/a\tb", "/\n", "/a\0",
    ] {
        assert!(matches!(normalise(raw), Err(ErrorKind::BadRequest(_))), "{raw:?}");
    }
}

/// The look at whole runs finds an odd byte wherever it stands.
#[test]
fn length_makes_no_difference() {
    for length in 0..3 * RUN {
        let plain = format!("/{}", "a".repeat(length));
        assert!(matches!(normalise(&plain), Ok(Paths { normal: Cow::Borrowed(_), upstream: Cow::Borrowed(_) })));
        for place in 1..=length {
            let with = |text: &str| format!("{}{text}{}", &plain[..place], &plain[place + 1..]);
            assert!(normalise(&with("\\")).is_err());
            assert!(normalise(&with(" ")).is_err());
            assert!(normalise(&with("\u{7f}")).is_err());
            assert_eq!(forms(&with("%41")).0, with("A"));
            assert_eq!(forms(&with("//")).0, if place == 1 { with("").to_owned() } else { with("/") });
            assert_eq!(forms(&with("/x/../")).1, with("/"));
        }
    }
}

/// All paths of up to so many of these pieces.
fn all_paths(pieces: &[&str], most: usize) -> Vec<String> {
    let mut paths = vec![String::new()];
    let mut from = 0;
    for _ in 0..most {
        let to = paths.len();
        for place in from..to {
            let longer: Vec<String> = pieces.iter().map(|piece| format!("{}/{piece}", paths[place])).collect();
            paths.extend(longer);
        }
        from = to;
    }
    paths.split_off(1)
}

const PIECES: [&str; 9] = ["", "a", "%61", "b%2Fc", ".", "%2e", "..", "%2E.", "..b"];

/// Whoever decides by what goes upstream reads the same path as the router, and
/// finds nothing left to resolve, whether it merges slashes or not.
#[test]
fn there_is_one_reading() {
    for raw in all_paths(&PIECES, 5) {
        let (normal, upstream) = forms(&raw);
        assert_eq!(forms(&upstream), (normal.clone(), upstream.clone()), "{raw}: what goes upstream is not final");
        assert_eq!(forms(&normal).0, normal, "{raw}: the normal form is not final");
        assert!(normal.starts_with('/') && !normal.contains("//"), "{raw}: {normal}");
        assert!(upstream.starts_with('/'), "{raw}: {upstream}");
        let resolved = upstream.to_ascii_lowercase().replace("%2e", ".");
        assert!(resolved.split('/').all(|segment| segment != "." && segment != ".."), "{raw}: {upstream}");
    }
}

/// The name that each raw segment has left in the normal form is its own.
#[test]
fn what_goes_upstream_are_the_clients_bytes() {
    for raw in all_paths(&PIECES, 4) {
        let sent: Vec<&str> = raw.split('/').collect();
        let (_, upstream) = forms(&raw);
        assert!(upstream.split('/').all(|segment| sent.contains(&segment)), "{raw}: {upstream}");
    }
}

#[test]
fn a_prefix_is_stripped_by_whole_segments() {
    for (upstream, prefix, left) in [
        ("/api/x", "/api", "/x"),
        ("/api", "/api", "/"),
        ("/api/", "/api", "/"),
        ("/api/v1/x/", "/api/v1", "/x/"),
        // The leading one alone.
        ("/api/api/x", "/api", "/api/x"),
        // In other spellings than the normal one.
        ("/%61pi/%78", "/api", "/%78"),
        ("//api/x", "/api", "/x"),
        ("//api///v1/x//y", "/api/v1", "/x//y"),
        // No authority.
        ("/api//evil.example/x", "/api", "/evil.example/x"),
        ("/api////evil", "/api", "/evil"),
        ("//api//", "/api", "/"),
        ("/api/..b", "/api", "/..b"),
        ("/api/%2F%2Fevil", "/api", "/%2F%2Fevil"),
        // More than there is.
        ("/api", "/api/v1", "/"),
        ("/", "/api", "/"),
    ] {
        assert_eq!(strip_prefix(upstream, prefix), left, "{upstream}");
    }
}

/// Stripping and normalising can be done in either order.
#[test]
fn stripping_agrees_with_the_normal_form() {
    let mut matched = 0;
    for raw in all_paths(&PIECES, 5) {
        let (normal, upstream) = forms(&raw);
        let Some(rest) = normal.strip_prefix("/a").filter(|rest| rest.is_empty() || rest.starts_with('/')) else {
            continue;
        };
        matched += 1;
        let left = strip_prefix(&upstream, "/a");
        assert!(left.starts_with('/') && !left.starts_with("//"), "{raw}: {left}");
        assert_eq!(forms(&left).0, if rest.is_empty() { "/" } else { rest }, "{raw}: {left}");
    }
    assert!(matched > 1000);
}
