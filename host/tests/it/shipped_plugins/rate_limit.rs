//! `rate-limit`: exact over all workers, and the client is told exactly how it
//! stands. Time is a script.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use super::{Response, site};
use crate::support::{Client, Gateway, eventually};

/// A Wednesday; a whole number of minutes.
const NOW: u64 = 1_796_115_600_000;

const ALGORITHMS: [&str; 3] = ["fixed_window", "sliding_window", "token_bucket"];

fn start(routes: &[(&str, &str)]) -> Gateway {
    let routes: Vec<_> =
        routes.iter().map(|(name, config)| (*name, format!("{config}, {{ respond: {{}} }}"))).collect();
    let routes: Vec<_> = routes.iter().map(|(name, plugins)| (*name, plugins.as_str())).collect();
    site("internal:echo", &routes).start_at(NOW)
}

/// Moves the clock, and waits until that is seen: by a limit, say, that has been
/// used up.
fn move_clock(gateway: &Gateway, to: u64, is_seen: impl FnMut() -> bool) {
    gateway.site.put("clock", to.to_string());
    eventually("the clock is read", is_seen);
}

/// Status and the fields: `ratelimit-policy`, `ratelimit`, `x-ratelimit-limit`,
/// `-remaining`, `-reset`, `retry-after`.
fn standing(response: &Response) -> (u16, [&str; 6]) {
    let names = [
        "ratelimit-policy",
        "ratelimit",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "retry-after",
    ];
    (response.status, names.map(|name| response.header(name).unwrap_or("-")))
}

#[test]
fn a_client_is_told_exactly_how_it_stands() {
    let limit = |algorithm: &str| format!("{{ rate-limit: {{ limit: 3, window: 1m, algorithm: {algorithm} }} }}");
    let configs = ALGORITHMS.map(limit);
    let gateway = start(&[
        ("fixed", &configs[0]),
        ("sliding", &configs[1]),
        ("bucket", &configs[2]),
        ("tick", "{ rate-limit: { limit: 1, window: 1s } }"),
    ]);
    let mut client = gateway.connect();
    let policy = "\"default\";q=3;w=60";
    // The window ends in 60 seconds; a token comes back every 20.
    let resets = [["60"; 3], ["120"; 3], ["20", "40", "60"]];
    let again = [("60", "60"), ("120", "80"), ("60", "20")];
    for (path, (resets, (reset, retry_after))) in
        ["/fixed", "/sliding", "/bucket"].into_iter().zip(resets.into_iter().zip(again))
    {
        for (left, reset) in ["2", "1", "0"].into_iter().zip(resets) {
            let limit = format!("\"default\";r={left};t={reset}");
            assert_eq!(standing(&client.get(path)), (200, [policy, &limit, "3", left, reset, "-"]), "{path}");
        }
        let response = client.get(path);
        let limit = format!("\"default\";r=0;t={reset}");
        assert_eq!(standing(&response), (429, [policy, &limit, "3", "0", reset, retry_after]), "{path}");
        assert_eq!(response.text(), "Too many requests.\n");
    }

    // 20.5 seconds later.
    assert_eq!(client.get("/tick").status, 200);
    assert_eq!(client.get("/tick").status, 429);
    move_clock(&gateway, NOW + 20_500, || client.get("/tick").status == 200);
    for (path, status, left, reset, retry_after) in [
        ("/fixed", 429, "0", "40", "40"),
        ("/sliding", 429, "0", "100", "60"),
        ("/bucket", 200, "0", "60", "-"),
        ("/bucket", 429, "0", "60", "20"),
    ] {
        let limit = format!("\"default\";r={left};t={reset}");
        assert_eq!(standing(&client.get(path)), (status, [policy, &limit, "3", left, reset, retry_after]), "{path}");
    }
}

#[test]
fn the_tightest_of_several_limits_is_told() {
    let gateway = start(&[
        (
            "a",
            "{ rate-limit: { limits: [{ limit: 2, window: 1s }, { limit: 3, window: 1h }, { limit: 9, window: 1500ms }] } }",
        ),
        ("tick", "{ rate-limit: { limit: 1, window: 1s } }"),
    ]);
    let mut client = gateway.connect();
    let policy = "\"1s\";q=2;w=1, \"1h\";q=3;w=3600, \"1500ms\";q=9";
    assert_eq!(standing(&client.get("/a")), (200, [policy, "\"1s\";r=1;t=1", "2", "1", "1", "-"]));
    assert_eq!(standing(&client.get("/a")), (200, [policy, "\"1s\";r=0;t=1", "2", "0", "1", "-"]));
    // Refused by one it counts for none.
    assert_eq!(standing(&client.get("/a")), (429, [policy, "\"1s\";r=0;t=1", "2", "0", "1", "1"]));
    assert_eq!(client.get("/tick").status, 200);
    move_clock(&gateway, NOW + 1000, || client.get("/tick").status == 200);
    assert_eq!(standing(&client.get("/a")), (200, [policy, "\"1h\";r=0;t=3599", "3", "0", "3599", "-"]));
    assert_eq!(standing(&client.get("/a")), (429, [policy, "\"1h\";r=0;t=3599", "3", "0", "3599", "3599"]));
}

#[test]
fn what_the_upstream_says_of_limits_is_replaced() {
    let upstream = crate::support::Upstream::start(|_| {
        "HTTP/1.1 200 OK\r\nratelimit: upstream\r\nRateLimit-Policy: upstream\r\nx-ratelimit-limit: 7\r\n\
         x-ratelimit-limit: 8\r\ncontent-length: 0\r\n\r\n"
            .to_owned()
    });
    let gateway = site(&upstream.url(), &[("a", "{ rate-limit: { limit: 3, window: 1m } }")]).start_at(NOW);
    let response = gateway.get("/a");
    assert_eq!(super::values(&response, "ratelimit"), ["\"default\";r=2;t=60"]);
    assert_eq!(super::values(&response, "ratelimit-policy"), ["\"default\";q=3;w=60"]);
    assert_eq!(super::values(&response, "x-ratelimit-limit"), ["3"]);
}

#[test]
fn who_lacks_what_counts_is_counted_once_by_each() {
    let by = |by: &str| format!("{{ rate-limit: {{ limit: 2, window: 3m, by: {by} }} }}");
    let chain = [by("address"), by("consumer"), by("{ header: X-A }"), by("{ header: X-B }")].join(", ");
    let gateway = start(&[("a", &chain)]);
    let mut client = gateway.connect();
    for status in [200, 200, 429] {
        assert_eq!(client.ask("/a", "").status, status);
    }
}

#[test]
fn requests_are_counted_by_what_is_said() {
    let by = |by: &str| format!("{{ rate-limit: {{ limit: 1, window: 1m, by: {by} }} }}");
    let consumer = format!("{{ key-auth: {{ header: x-key }} }}, {}", by("consumer"));
    let anonymous = by("consumer");
    let (address, header, route, other) = (by("address"), by("{ header: X-Tenant }"), by("route"), by("route"));
    let shared = "{ rate-limit: { limit: 1, window: 2m, by: address, shared: true } }";
    let gateway = start(&[
        ("address", &address),
        ("header", &header),
        ("consumer", &consumer),
        ("anonymous", &anonymous),
        ("route", &route),
        ("other", &other),
        ("shared-a", shared),
        ("shared-b", shared),
    ]);
    let mut client = gateway.connect();
    let from = |address: &str| format!("x-forwarded-for: {address}\r\n");
    for (path, headers, status) in [
        ("/address", from("192.0.2.1"), 200),
        ("/address", from("192.0.2.1"), 429),
        ("/address", from("192.0.2.2"), 200),
        // A /64 is one client; its mapped address is the same as the plain one.
        ("/address", from("2001:db8::1"), 200),
        ("/address", from("2001:db8::ffff:2"), 429),
        ("/address", from("2001:db8:0:1::1"), 200),
        ("/address", from("::ffff:192.0.2.2"), 429),
        ("/header", "x-tenant: a\r\n".to_owned(), 200),
        ("/header", "X-TENANT: a\r\n".to_owned(), 429),
        ("/header", "x-tenant: b\r\n".to_owned(), 200),
        ("/header", String::new(), 200),
        ("/header", String::new(), 429),
        ("/consumer", "x-key: alice-key\r\n".to_owned(), 200),
        ("/consumer", "x-key: second-key\r\n".to_owned(), 429),
        ("/consumer", "x-key: bob-key\r\n".to_owned(), 200),
        ("/consumer", "x-key: nobody\r\n".to_owned(), 401),
        ("/anonymous", from("192.0.2.1"), 200),
        ("/anonymous", from("192.0.2.1"), 429),
        ("/anonymous", from("192.0.2.2"), 200),
        ("/route", from("192.0.2.1"), 200),
        ("/route", from("192.0.2.2"), 429),
        ("/other", from("192.0.2.2"), 200),
        ("/shared-a", from("192.0.2.1"), 200),
        ("/shared-b", from("192.0.2.1"), 429),
        ("/shared-b", from("192.0.2.2"), 200),
    ] {
        assert_eq!(client.ask(path, &headers).status, status, "{path} {headers:?}");
    }
}

/// Requests in one window, on so many connections to both workers.
const REQUESTS: usize = 10_000;
const CONNECTIONS: usize = 8;
const LIMIT: usize = 6_173;

#[test]
fn exactly_the_limit_is_allowed_over_all_workers() {
    let configs = ALGORITHMS
        .map(|name| format!("{{ rate-limit: {{ limit: {LIMIT}, window: 1d, by: route, algorithm: {name} }} }}"));
    let routes: Vec<_> = ALGORITHMS.into_iter().zip(configs.iter().map(String::as_str)).collect();
    let gateway = start(&routes);
    for name in ALGORITHMS {
        let (allowed, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                scope.spawn(|| many(&mut gateway.connect(), name, &allowed, &refused));
            }
        });
        let seen = (allowed.into_inner(), refused.into_inner());
        assert_eq!(seen, (LIMIT, REQUESTS - LIMIT), "{name}");
    }
}

/// One connection's share, some of it under way at any time.
fn many(client: &mut Client, route: &str, allowed: &AtomicUsize, refused: &AtomicUsize) {
    const AT_ONCE: usize = 10;
    let batch = format!("GET /{route} HTTP/1.1\r\nhost: x\r\n\r\n").repeat(AT_ONCE);
    for _ in 0..REQUESTS / CONNECTIONS / AT_ONCE {
        client.send(&batch);
        for _ in 0..AT_ONCE {
            match client.response().status {
                200 => allowed.fetch_add(1, Ordering::Relaxed),
                429 => refused.fetch_add(1, Ordering::Relaxed),
                status => panic!("{status}"),
            };
        }
    }
}

#[test]
fn a_window_passes_with_the_clock() {
    let config = |name: &str| format!("{{ rate-limit: {{ limit: 10, window: 1m, by: route, algorithm: {name} }} }}");
    let configs = ALGORITHMS.map(config);
    let routes: Vec<_> = ALGORITHMS.into_iter().zip(configs.iter().map(String::as_str)).collect();
    let gateway = start(&[&routes[..], &[("tick", "{ rate-limit: { limit: 1, window: 1ms } }")]].concat());
    let mut client = gateway.connect();
    assert_eq!(client.get("/tick").status, 200);
    // Allowed at each time, of twenty requests.
    for (later, allowed) in [
        (0, [10, 10, 10]),
        (59_999, [0, 0, 9]),
        // A new window, of which the last one still covers all.
        (60_000, [10, 0, 1]),
        (90_000, [0, 5, 5]),
        (119_999, [0, 4, 4]),
        (600_000, [10, 10, 10]),
    ] {
        if later > 0 {
            move_clock(&gateway, NOW + later, || client.get("/tick").status == 200);
        }
        for (name, allowed) in ALGORITHMS.into_iter().zip(allowed) {
            let statuses: Vec<_> = (0..20).map(|_| client.get(&format!("/{name}")).status).collect();
            let passed = statuses.iter().filter(|status| **status == 200).count();
            assert_eq!(passed, allowed, "{name} at {later}: {statuses:?}");
        }
    }
}
