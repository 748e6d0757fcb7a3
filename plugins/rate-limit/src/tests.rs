use std::time::Duration;

use weir_sdk::{
    store::StoreError,
    testing::{Answer, Exchange, Gateway, Use},
};

use super::*;

const TWO_PER_MINUTE: &str = r#"{"limit": 2, "window": "1m"}"#;

fn problems(config: &str) -> Vec<String> {
    match Gateway::new().configure::<RateLimit>(config) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.into_iter().map(|problem| problem.pointer).collect(),
    }
}

/// Sends the request, and gives what the client gets.
fn send(plugin: &Use<RateLimit>, mut exchange: Exchange) -> Answer {
    if plugin.on_request(&mut exchange).unwrap() == Action::Continue {
        exchange.response = Some(Answer::new(200));
        plugin.on_response(&mut exchange).unwrap();
    }
    exchange.response.unwrap()
}

fn get(plugin: &Use<RateLimit>) -> Answer {
    send(plugin, Exchange::get("/"))
}

fn from(address: &str) -> Exchange {
    let mut exchange = Exchange::get("/");
    exchange.client_address = address.parse().unwrap();
    exchange
}

#[test]
fn the_third_of_two_is_refused() {
    let gateway = Gateway::new();
    let plugin = gateway.configure::<RateLimit>(TWO_PER_MINUTE).unwrap();

    let first = get(&plugin);
    assert_eq!(first.status, 200);
    assert_eq!(first.header("ratelimit-policy"), Some("\"default\";q=2;w=60"));
    assert_eq!(first.header("ratelimit"), Some("\"default\";r=1;t=60"));
    assert_eq!(first.header("x-ratelimit-limit"), Some("2"));
    assert_eq!(first.header("x-ratelimit-remaining"), Some("1"));
    assert_eq!(first.header("x-ratelimit-reset"), Some("60"));
    assert_eq!(first.header("retry-after"), None);
    assert_eq!(get(&plugin).status, 200);

    gateway.advance(Duration::from_millis(10_500));
    let third = get(&plugin);
    assert_eq!(third.status, 429);
    assert_eq!(third.header("ratelimit"), Some("\"default\";r=0;t=50"));
    assert_eq!(third.header("retry-after"), Some("50"));
    assert_eq!(third.header("x-ratelimit-remaining"), Some("0"));

    gateway.advance(Duration::from_secs(50));
    assert_eq!(get(&plugin).status, 200);
}

#[test]
fn each_address_has_its_own_count() {
    let plugin = Gateway::new().configure(r#"{"limit": 1, "window": "1m"}"#).unwrap();
    assert_eq!(send(&plugin, from("192.0.2.1")).status, 200);
    assert_eq!(send(&plugin, from("192.0.2.2")).status, 200);
    assert_eq!(send(&plugin, from("::ffff:192.0.2.1")).status, 429);
    assert_eq!(send(&plugin, from("2001:db8::1")).status, 200);
    assert_eq!(send(&plugin, from("2001:db8::2")).status, 429);
    assert_eq!(send(&plugin, from("2001:db8:0:1::1")).status, 200);
}

#[test]
fn routes_share_only_if_told() {
    let on = |plugin: &Use<RateLimit>, route: &str| {
        let mut exchange = Exchange::get("/");
        exchange.route = route.to_owned();
        send(plugin, exchange).status
    };
    let apart = Gateway::new().configure(r#"{"limit": 1, "window": "1m", "by": "route"}"#).unwrap();
    assert_eq!([on(&apart, "a"), on(&apart, "b"), on(&apart, "a")], [200, 200, 429]);
    let shared = Gateway::new().configure(r#"{"limit": 1, "window": "1m", "shared": true}"#).unwrap();
    assert_eq!([on(&shared, "a"), on(&shared, "b")], [200, 429]);
}

#[test]
fn without_a_consumer_the_address_counts() {
    let plugin = Gateway::new().configure(r#"{"limit": 1, "window": "1m", "by": "consumer"}"#).unwrap();
    let of = |consumer: Option<&str>| {
        let mut exchange = Exchange::get("/");
        exchange.consumer = consumer.map(str::to_owned);
        send(&plugin, exchange).status
    };
    assert_eq!([of(Some("a")), of(Some("b")), of(None)], [200, 200, 200]);
    assert_eq!([of(Some("a")), of(None)], [429, 429]);
}

#[test]
fn a_header_counts_by_its_value() {
    let plugin = Gateway::new().configure(r#"{"limit": 1, "window": "1m", "by": {"header": "x-tenant"}}"#).unwrap();
    let of = |value: &[u8]| send(&plugin, Exchange::get("/").with_header("x-tenant", value)).status;
    assert_eq!([of(b"a"), of(b"\xff"), get(&plugin).status], [200, 200, 200]);
    assert_eq!([of(b"a"), of(b"\xff"), get(&plugin).status], [429, 429, 429]);
}

#[test]
fn all_of_several_limits_hold() {
    let config = r#"{"limits": [{"limit": 3, "window": "1m"}, {"limit": 1, "window": "100ms"}]}"#;
    let gateway = Gateway::new();
    let plugin = gateway.configure(config).unwrap();
    let first = get(&plugin);
    assert_eq!(first.header("ratelimit-policy"), Some("\"1m\";q=3;w=60, \"100ms\";q=1"));
    assert_eq!(first.header("ratelimit"), Some("\"100ms\";r=0;t=1"));
    assert_eq!(get(&plugin).header("retry-after"), Some("1"));
    gateway.advance(Duration::from_millis(100));
    assert_eq!(get(&plugin).status, 200);
}

#[test]
fn a_store_that_fails_denies_or_allows() {
    let gateway = Gateway::new();
    gateway.fail_store(Some(StoreError::Unavailable));
    let deny = gateway.configure::<RateLimit>(TWO_PER_MINUTE).unwrap();
    assert!(deny.on_request(&mut Exchange::get("/")).is_err());
    let allow = gateway.configure::<RateLimit>(r#"{"limit": 2, "window": "1m", "on_store_error": "allow"}"#).unwrap();
    let answer = get(&allow);
    assert_eq!((answer.status, answer.header("ratelimit")), (200, None));
}

#[test]
fn wrong_configurations_are_refused_with_their_place() {
    assert_eq!(problems("{}"), [""]);
    assert_eq!(problems(r#"{"limit": 1}"#), [""]);
    assert_eq!(problems(r#"{"limit": 0, "window": "0s"}"#), ["/limit", "/window"]);
    assert_eq!(problems(r#"{"limit": 1, "window": "1w"}"#), ["/window"]);
    assert_eq!(problems(r#"{"limit": 1, "window": "367d"}"#), ["/window"]);
    assert_eq!(problems(r#"{"limit": 1, "window": "1m", "limits": [{"limit": 1, "window": "1s"}]}"#), ["/limits"]);
    let twice = r#"{"limits": [{"limit": 1, "window": "60s"}, {"limit": 0, "window": "1m"}]}"#;
    assert_eq!(problems(twice), ["/limits/1/limit", "/limits/1/window"]);
    assert_eq!(problems(r#"{"limit": 1, "window": "1m", "by": {"header": "a b"}}"#), ["/by/header"]);
    assert_eq!(problems(r#"{"limit": 1, "window": "1m", "algorithm": "leaky"}"#), ["/algorithm"]);
}
