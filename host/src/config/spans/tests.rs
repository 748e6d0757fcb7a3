#![allow(clippy::unwrap_used)]

use std::path::Path;

use crate::config::{Config, load_text};

const TEXT: &str = "\
listen: [{ address: 127.0.0.1:0 }]
routes:
  - name: a
    upstream: internal:echo
    plugins:
      - key-auth:
      - rate-limit:
          limit: 1
          by: { \"a/b\": [x, y], \"~\": 1, \"x y\": 2 }
";

fn config() -> Config {
    load_text(Path::new("f.yaml"), TEXT).map_err(|errors| errors.to_string()).unwrap()
}

fn at(pointer: &str) -> String {
    let config = config();
    config.error_at(&config.routes[0].plugins[1].origin, pointer, "wrong".into(), None).to_string()
}

#[test]
fn a_pointer_leads_to_a_place() {
    assert_eq!(at(""), "f.yaml:8:11: routes[0].plugins[1].rate-limit: wrong");
    assert_eq!(at("/limit"), "f.yaml:8:18: routes[0].plugins[1].rate-limit.limit: wrong");
    assert_eq!(at("/by/a~1b/1"), "f.yaml:9:28: routes[0].plugins[1].rate-limit.by.\"a/b\"[1]: wrong");
    assert_eq!(at("/by/~0"), "f.yaml:9:37: routes[0].plugins[1].rate-limit.by.\"~\": wrong");
    assert_eq!(at("/by/x y"), "f.yaml:9:47: routes[0].plugins[1].rate-limit.by.\"x y\": wrong");
}

#[test]
fn what_does_not_exist_is_placed_as_near_as_can_be() {
    assert_eq!(at("/by/other/limit"), "f.yaml:9:15: routes[0].plugins[1].rate-limit.by.other.limit: wrong");
    assert_eq!(at("/by/a~1b/2"), "f.yaml:9:24: routes[0].plugins[1].rate-limit.by.\"a/b\".2: wrong");
    assert_eq!(at("/limit/x"), "f.yaml:8:18: routes[0].plugins[1].rate-limit.limit.x: wrong");
    assert_eq!(at("no pointer"), at(""));
}

#[test]
fn a_configuration_left_out_is_at_the_plugins_name() {
    let config = config();
    let error = config.error_at(&config.routes[0].plugins[0].origin, "/header", "wrong".into(), Some("so".into()));
    assert_eq!(error.to_string(), "f.yaml:6:9: routes[0].plugins[0].key-auth.header: wrong (so)");
}

#[test]
fn listeners_and_routes_have_places() {
    let config = config();
    let listener = config.error_at(&config.listeners[0].origin, "/address", "in use".into(), None);
    assert_eq!(listener.to_string(), "f.yaml:1:21: listen[0].address: in use");
    let route = config.error_at(&config.routes[0].origin, "", "wrong".into(), None);
    assert_eq!(route.to_string(), "f.yaml:3:5: routes[0]: wrong");
}
