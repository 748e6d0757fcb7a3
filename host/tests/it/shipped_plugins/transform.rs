//! `request-transform` and `response-transform`: the edits that are named, and
//! every other byte as it was.

use super::{ask, sent, start, target, values};
use crate::support::Upstream;

const HEADERS: &str = "headers: { rename: { x-old: x-new, x-none: x-never }, remove: [x-gone, cookie], \
    set: { x-set: \"1\", X-Many: one }, append: { x-tag: [b, c], x-added: \"1\" } }";

#[test]
fn header_fields_of_requests_are_edited() {
    let gateway = start(&[("a", &format!("{{ request-transform: {{ {HEADERS} }} }}"))]);
    let headers = "X-Old: 1\r\nx-old: 2\r\nx-new: lost\r\nx-gone: 1\r\nX-GONE: 2\r\ncookie: a=b\r\nx-set: 0\r\nx-many: 1\r\nx-many: 2\r\n\
        x-tag: a\r\nx-kept: a,  b\r\nx-kept: \"c\"\r\nx-bytes: \u{e4}\r\n";
    let response = ask(&gateway, "/a", headers);
    for (name, expected) in [
        ("x-old", &[][..]),
        ("x-new", &["1", "2"]),
        ("x-never", &[]),
        ("x-gone", &[]),
        ("cookie", &[]),
        ("x-set", &["1"]),
        ("x-many", &["one"]),
        ("x-tag", &["a", "b", "c"]),
        ("x-added", &["1"]),
        ("x-kept", &["a,  b", "\"c\""]),
        ("x-bytes", &["\u{e4}"]),
        ("host", &["test"]),
    ] {
        assert_eq!(sent(&response, name), expected, "{name}");
    }
}

#[test]
fn header_fields_and_status_of_responses_are_edited() {
    let fields = "x-old: 1\r\nx-old: 2\r\nx-new: lost\r\nx-gone: 1\r\ncookie: a\r\nx-set: 0\r\nx-many: 1\r\nx-many: 2\r\n\
        x-tag: a\r\nset-cookie: a=1, b\r\nset-cookie: c=2\r\n";
    let answer = format!("HTTP/1.1 200 OK\r\n{fields}content-length: 2\r\n\r\nhi");
    let upstream = Upstream::start(move |_| answer.clone());
    let planned = HEADERS.replace("rename: { x-old: x-new, x-none: x-never }, ", "");
    let routes = [
        ("called", format!("{{ response-transform: {{ {HEADERS}, status: 203 }} }}")),
        ("planned", format!("{{ response-transform: {{ {planned} }} }}")),
        ("answered", format!("{{ response-transform: {{ {HEADERS}, status: 203 }} }}, {{ key-auth: {{}} }}")),
    ];
    let gateway = super::site(&upstream.url(), &routes.each_ref().map(|(name, plugins)| (*name, &**plugins))).start();
    let called = gateway.get("/called");
    assert_eq!((called.status, called.text().as_str()), (203, "hi"));
    assert_eq!((values(&called, "x-old"), values(&called, "x-new")), (vec![], vec!["1", "2"]));
    let planned = gateway.get("/planned");
    assert_eq!((planned.status, planned.text().as_str()), (200, "hi"));
    assert_eq!((values(&planned, "x-old"), values(&planned, "x-new")), (vec!["1", "2"], vec!["lost"]));
    for response in [called, planned] {
        for (name, expected) in [
            ("x-never", &[][..]),
            ("x-gone", &[]),
            ("cookie", &[]),
            ("x-set", &["1"]),
            ("x-many", &["one"]),
            ("x-tag", &["a", "b", "c"]),
            ("x-added", &["1"]),
            ("set-cookie", &["a=1, b", "c=2"]),
            ("content-length", &["2"]),
        ] {
            assert_eq!(values(&response, name), expected, "{name}");
        }
    }
    // Whoever has made it.
    let answered = gateway.get("/answered");
    assert_eq!((answered.status, answered.header("x-set")), (203, Some("1")));
    assert!(answered.header("www-authenticate").is_some());
}

#[test]
fn query_edits_leave_every_other_byte() {
    let gateway = start(&[
        ("remove", "{ request-transform: { query: { remove: [debug, \"a b\"] } } }"),
        ("set", "{ request-transform: { query: { set: { v: \"2 \u{fc}&=\" } } } }"),
        ("both", "{ request-transform: { query: { remove: [v], set: { v: \"2\" } } } }"),
    ]);
    for (before, after) in [
        ("/remove", "/remove"),
        ("/remove?", "/remove?"),
        ("/remove?debug", "/remove"),
        ("/remove?debug=1&debug=2", "/remove"),
        ("/remove?x", "/remove?x"),
        ("/remove?&&x=&=&debug&%zz&%", "/remove?&&x=&=&%zz&%"),
        ("/remove?%64ebug=1&d=%2F%2f&e=+&e=%20", "/remove?d=%2F%2f&e=+&e=%20"),
        ("/remove?a+b=1&a%20b=2&a%2Bb=3&q='{}|^`~", "/remove?a%2Bb=3&q='{}|^`~"),
        ("/remove?debugger=1&DEBUG=2&xdebug=3", "/remove?debugger=1&DEBUG=2&xdebug=3"),
        ("/remove?a?b=/c:@&debug=%&d;e", "/remove?a?b=/c:@&d;e"),
        ("/set", "/set?v=2%20%C3%BC%26%3D"),
        ("/set?", "/set?v=2%20%C3%BC%26%3D"),
        ("/set?a=%7e&v=1&b=+&v=3&", "/set?a=%7e&v=2%20%C3%BC%26%3D&b=+&"),
        ("/set?vv=1&&", "/set?vv=1&&&v=2%20%C3%BC%26%3D"),
        ("/both?a=%41&v=1&b", "/both?a=%41&b&v=2"),
    ] {
        let response = gateway.get(before);
        assert_eq!(response.status, 200, "{before}");
        assert_eq!(target(&response), after, "{before}");
    }
}

#[test]
fn path_edits_leave_every_other_byte() {
    let gateway = start(&[
        ("set", "{ request-transform: { path: { set: /else/%7ewhere } } }"),
        ("prefix", "{ request-transform: { path: { prefix: /v2/ } } }"),
        ("strip", "{ request-transform: { path: { strip_prefix: /strip/old } } }"),
        ("swap", "{ request-transform: { path: { strip_prefix: /swap, prefix: /new } } }"),
        (
            "later",
            "{ request-transform: { path: { set: /strip/old } } }, { request-transform: { path: { prefix: /x } } }",
        ),
    ]);
    for (before, after) in [
        ("/set/a?b=%20&&c", "/else/%7ewhere?b=%20&&c"),
        ("/prefix/%7Ea/%2f//b/?", "/v2/prefix/%7Ea/%2f//b/?"),
        ("/strip/old/%41/%2e%2f;p=1//?q", "/%41/%2e%2f;p=1//?q"),
        ("/strip/old", "/"),
        ("/strip/old?a", "/?a"),
        ("/strip/older/a", "/strip/older/a"),
        ("/strip/%6fld/a", "/a"),
        ("/swap/a%20b/!$&'()*+,;=:@", "/new/a%20b/!$&'()*+,;=:@"),
        ("/swap", "/new"),
        // The route was chosen before.
        ("/later", "/x/strip/old"),
    ] {
        let response = gateway.get(before);
        assert_eq!(response.status, 200, "{before}");
        assert_eq!(target(&response), after, "{before}");
    }
}
