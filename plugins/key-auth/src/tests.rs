use weir_sdk::testing::{Exchange, Gateway, Use};

use super::*;

fn gateway() -> Gateway {
    let gateway = Gateway::new();
    gateway.add_consumer("alice", &[], &["s3cret"]);
    gateway
}

fn plugin(config: &str) -> Use<KeyAuth> {
    gateway().configure(config).unwrap()
}

fn problem(config: &str) -> String {
    let problems = Gateway::new().configure::<KeyAuth>(config).unwrap_err();
    problems[0].pointer.clone()
}

/// Runs the hook; true if the request goes on.
fn passes(config: &str, exchange: &mut Exchange) -> bool {
    plugin(config).on_request(exchange).unwrap() == Action::Continue
}

#[test]
fn a_known_key_passes_and_names_the_consumer() {
    let mut exchange = Exchange::get("/").with_header("x-api-key", "s3cret").with_header("x-consumer", "root");
    assert!(passes("{}", &mut exchange));
    assert_eq!(exchange.consumer.as_deref(), Some("alice"));
    assert_eq!(exchange.header("x-consumer").as_deref(), Some("alice"));
    assert_eq!(exchange.header("x-api-key"), None);
}

#[test]
fn no_key_and_an_unknown_one_are_refused() {
    for mut exchange in [Exchange::get("/"), Exchange::get("/").with_header("x-api-key", b"\xff")] {
        assert!(!passes("{}", &mut exchange));
        let answer = exchange.response.unwrap();
        assert_eq!(answer.status, 401);
        assert_eq!(answer.header("www-authenticate"), Some("ApiKey realm=\"weir\""));
    }
}

#[test]
fn a_key_that_is_sent_twice_matches_nothing() {
    let twice = Exchange::get("/").with_header("x-api-key", "s3cret").with_header("x-api-key", "s3cret");
    assert!(!passes("{}", &mut twice.clone()));
    assert!(!passes(r#"{"query": "k"}"#, &mut Exchange::get("/?k=s3cret&%6B=s3cret")));
    let twice = Exchange::get("/").with_header("cookie", "k=s3cret").with_header("cookie", "k=s3cret");
    assert!(!passes(r#"{"cookie": "k"}"#, &mut twice.clone()));
}

#[test]
fn a_query_keeps_its_other_bytes() {
    let mut exchange = Exchange::get("/a?x=%20&k=s3cret&flag&x=+");
    assert!(passes(r#"{"query": "k"}"#, &mut exchange));
    assert_eq!(exchange.target(), "/a?x=%20&flag&x=+");

    let mut alone = Exchange::get("/a?k=s3cr%65t");
    assert!(passes(r#"{"query": "k"}"#, &mut alone));
    assert_eq!(alone.target(), "/a");
}

#[test]
fn the_other_cookies_stay() {
    let mut exchange = Exchange::get("/").with_header("cookie", "a=1; k=s3cret; b=2");
    assert!(passes(r#"{"cookie": "k"}"#, &mut exchange));
    assert_eq!(exchange.header("cookie").as_deref(), Some("a=1; b=2"));

    let mut alone = Exchange::get("/").with_header("cookie", "k=s3cret");
    assert!(passes(r#"{"cookie": "k"}"#, &mut alone));
    assert_eq!(alone.header("cookie"), None);
}

#[test]
fn the_key_goes_upstream_if_asked() {
    let mut exchange = Exchange::get("/?k=s3cret");
    assert!(passes(r#"{"query": "k", "forward": true}"#, &mut exchange));
    assert_eq!(exchange.target(), "/?k=s3cret");
    assert_eq!(exchange.header("x-consumer").as_deref(), Some("alice"));
}

#[test]
fn wrong_configurations_are_refused_with_their_place() {
    assert_eq!(problem(r#"{"header": "a b"}"#), "/header");
    assert_eq!(problem(r#"{"header": "Host"}"#), "/header");
    assert_eq!(problem(r#"{"header": "X-Consumer"}"#), "/header");
    assert_eq!(problem(r#"{"header": "a", "query": "b"}"#), "/query");
    assert_eq!(problem(r#"{"header": "a", "cookie": "b"}"#), "/cookie");
    assert_eq!(problem(r#"{"query": ""}"#), "/query");
    assert_eq!(problem(r#"{"cookie": "a;b"}"#), "/cookie");
    assert_eq!(problem(r#"{"forward": "yes"}"#), "/forward");
}
