use weir_sdk::testing::{Exchange, Gateway};

use super::*;

fn transformed(config: &str, mut exchange: Exchange) -> Exchange {
    let plugin = Gateway::new().configure::<RequestTransform>(config).unwrap();
    plugin.on_request(&mut exchange).unwrap();
    exchange
}

fn target(config: &str, target: &str) -> String {
    transformed(config, Exchange::get(target)).target()
}

#[test]
fn headers_are_edited() {
    let config = r#"{"headers": {"rename": {"x-old": "x-new"}, "remove": ["x-b"], "set": {"x-c": "3"}}}"#;
    let exchange = Exchange::get("/").with_header("x-old", "1").with_header("x-b", "2");
    let after = transformed(config, exchange);
    let found = ["x-new", "x-old", "x-b", "x-c"].map(|name| after.header(name));
    assert_eq!(found, [Some("1".to_owned()), None, None, Some("3".to_owned())]);
}

#[test]
fn a_query_keeps_what_is_not_named() {
    let config = r#"{"query": {"remove": ["debug"], "set": {"v": "2 +"}}}"#;
    assert_eq!(target(config, "/?b=%20&debug=1&flag&v=1&flag=&b=+&v=9"), "/?b=%20&flag&v=2%20%2B&flag=&b=+");
    assert_eq!(target(config, "/a"), "/a?v=2%20%2B");
}

#[test]
fn a_query_that_becomes_empty_goes() {
    let config = r#"{"query": {"remove": ["a"]}}"#;
    assert_eq!(target(config, "/?a=1&a"), "/");
    assert_eq!(target(config, "/?"), "/?");
    assert_eq!(target(config, "/?b"), "/?b");
}

#[test]
fn a_path_is_changed() {
    assert_eq!(target(r#"{"path": {"set": "/fixed"}}"#, "/a?q"), "/fixed?q");
    assert_eq!(target(r#"{"path": {"strip_prefix": "/api"}}"#, "/api/a%2Fb//c"), "/a%2Fb//c");
    assert_eq!(target(r#"{"path": {"prefix": "/v2"}}"#, "/a"), "/v2/a");
}

#[test]
fn nothing_to_do_costs_nothing() {
    let idle = Gateway::new().configure::<RequestTransform>("{}").unwrap();
    assert!(matches!(idle.plugin().phases().request, Phase::Off));
}

#[test]
fn wrong_configurations_are_refused_with_their_place() {
    let config = r#"{"headers": {"set": {"te": "x"}}, "query": {"remove": ["a", ""], "set": {"": "x"}},
        "path": {"set": "x", "prefix": "/a?b"}}"#;
    let problems = Gateway::new().configure::<RequestTransform>(config).err().unwrap();
    let pointers: Vec<_> = problems.iter().map(|problem| problem.pointer.as_str()).collect();
    let expected = ["/headers/set/te", "/query/remove/1", "/query/set/", "/path/set", "/path/prefix", "/path/set"];
    assert_eq!(pointers, expected);
}
