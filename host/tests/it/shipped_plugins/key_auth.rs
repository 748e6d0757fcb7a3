//! `key-auth`: who has a key passes, by name; the key stays here.

use super::{ask, sent, site, start, target};
use crate::support::{Gateway, Upstream, ok};

const ROUTES: [(&str, &str); 8] = [
    ("default", "{ key-auth: {} }"),
    ("header", "{ key-auth: { header: X-Secret } }"),
    ("query", "{ key-auth: { query: api_key } }"),
    ("cookie", "{ key-auth: { cookie: key } }"),
    ("forward-header", "{ key-auth: { forward: true } }"),
    ("forward-query", "{ key-auth: { query: api_key, forward: true } }"),
    ("forward-cookie", "{ key-auth: { cookie: key, forward: true } }"),
    ("authorization", "{ key-auth: { header: authorization } }"),
];

#[test]
fn a_key_names_its_consumer_wherever_it_is() {
    let gateway = start(&ROUTES);
    for (path, headers) in [
        ("/default", "X-API-Key: alice-key\r\n"),
        ("/default", "x-api-key: second-key\r\n"),
        ("/header", "x-secret: alice-key\r\n"),
        ("/query?api_key=alice-key", ""),
        ("/query?api%5Fkey=alice%2Dkey", ""),
        ("/cookie", "cookie: key=alice-key\r\n"),
        ("/cookie", "cookie: a=1; key=alice-key\r\n"),
        ("/authorization", "authorization: alice-key\r\n"),
    ] {
        // Whom the client says to be does not count.
        let response = ask(&gateway, path, &format!("{headers}x-consumer: root\r\nX-Consumer: bob\r\n"));
        assert_eq!(sent(&response, "x-consumer"), ["alice"], "{path} {headers:?}");
    }
    assert_eq!(sent(&ask(&gateway, "/default", "x-api-key: bob-key\r\n"), "x-consumer"), ["bob"]);
    gateway.access_log.find(&["\"path\":\"/cookie\"", "\"consumer\":\"alice\""]);
}

#[test]
fn who_has_no_key_gets_401_and_a_challenge() {
    let upstream = Upstream::start(ok);
    let gateway = site(&upstream.url(), &ROUTES).start();
    for (path, headers) in [
        ("/default", ""),
        ("/default", "x-api-key: \r\n"),
        ("/default", "x-api-key: unknown\r\n"),
        ("/default", "x-api-key: alice-ke\r\n"),
        ("/default", "x-api-key: alice-keyy\r\n"),
        ("/default", "x-api-key: ALICE-KEY\r\n"),
        ("/default", "authorization: alice-key\r\n"),
        ("/default?x-api-key=alice-key", ""),
        ("/header", "x-api-key: alice-key\r\n"),
        ("/query", "api_key: alice-key\r\n"),
        ("/query?api_key", ""),
        ("/query?API_KEY=alice-key", ""),
        ("/query?api_key=alice-key%00", ""),
        ("/query#api_key=alice-key", ""),
        ("/cookie", "cookie: keys=alice-key\r\n"),
        ("/cookie", "cookie: key=\"alice-key\"\r\n"),
        // Twice is no key, whichever of them the upstream would take.
        ("/default", "x-api-key: alice-key\r\nx-api-key: alice-key\r\n"),
        ("/default", "x-api-key: alice-key\r\nx-api-key: bob-key\r\n"),
        ("/default", "x-api-key: alice-key, bob-key\r\n"),
        ("/query?api_key=alice-key&api_key=alice-key", ""),
        ("/query?api_key=alice-key&api%5fkey=x", ""),
        ("/query?api_key=alice-key&api_key", ""),
        ("/cookie", "cookie: key=alice-key; key=bob-key\r\n"),
        ("/cookie", "cookie: key=alice-key\r\ncookie: key=alice-key\r\n"),
    ] {
        let response = ask(&gateway, path, headers);
        assert_eq!(response.status, 401, "{path} {headers:?}");
        assert_eq!(response.header("www-authenticate"), Some("ApiKey realm=\"weir\""));
        assert!(!response.text().contains("alice"), "{}", response.text());
    }
    assert_eq!(upstream.requests(), 0);
}

/// What the upstream is sent, with the key if it is in there anywhere.
fn whole(gateway: &Gateway, path: &str, headers: &str) -> String {
    let response = ask(gateway, path, headers);
    assert_eq!(response.status, 200, "{path}: {}", response.text());
    response.text()
}

#[test]
fn the_key_goes_no_further_unless_told() {
    let gateway = start(&ROUTES);
    for (path, headers) in [
        ("/default", "x-api-key: alice-key\r\n"),
        ("/header", "X-SECRET: alice-key\r\n"),
        ("/query?a=1&api_key=alice-key", ""),
        ("/cookie", "cookie: a=1; key=alice-key; b=2\r\n"),
        ("/authorization", "authorization: alice-key\r\n"),
    ] {
        let head = whole(&gateway, path, headers).to_lowercase();
        for gone in ["alice-key", "x-api-key", "x-secret", "api_key", "key=", "authorization:"] {
            assert!(!head.contains(gone), "{path}: {head}");
        }
    }
    for (path, headers) in [
        ("/forward-header", "x-api-key: alice-key\r\n"),
        ("/forward-query?api_key=alice-key", ""),
        ("/forward-cookie", "cookie: key=alice-key\r\n"),
    ] {
        let head = whole(&gateway, path, headers);
        assert_eq!(head.matches("alice-key").count(), 1, "{head}");
    }
}

#[test]
fn taking_the_key_out_leaves_every_other_byte() {
    let gateway = start(&ROUTES);
    for (query, left) in [
        ("?api_key=alice-key", ""),
        ("?api_key=alice-key&", ""),
        ("?a=%20&api_key=alice-key&b=+&flag&flag=&%7e=~", "?a=%20&b=+&flag&flag=&%7e=~"),
        ("?%61pi_key=alice-key&%e4&x=%2f/?", "?%e4&x=%2f/?"),
        ("?&&api_key=alice-key&=&a=&a=", "?&&=&a=&a="),
        ("?api_keys=1&api_key=alice-key&xapi_key=2", "?api_keys=1&xapi_key=2"),
    ] {
        let response = ask(&gateway, &format!("/query/%7Ea//b{query}"), "");
        assert_eq!(target(&response), format!("/query/%7Ea//b{left}"), "{query}");
    }
    for (cookie, left) in [
        ("key=alice-key", &[][..]),
        ("a=1; key=alice-key; b=\"2 3\"; c", &["a=1; b=\"2 3\"; c"]),
        ("key=alice-key; a=b=c; keys=1", &["a=b=c; keys=1"]),
    ] {
        let response = ask(&gateway, "/cookie", &format!("cookie: {cookie}\r\n"));
        assert_eq!(sent(&response, "cookie"), left, "{cookie}");
    }
}
