#![allow(clippy::unwrap_used)]

use super::*;
use crate::config::{Balance, HostPattern, OnError, PathPattern, PluginLimits, Target, UpstreamKind};

fn load_ok(text: &str) -> Config {
    let text = format!("listen: [{{ address: 127.0.0.1:8080 }}]\n{text}");
    load_text(Path::new("etc/weir.yaml"), &text).map_err(|errors| errors.to_string()).unwrap()
}

#[test]
fn defaults_hold_where_nothing_is_written() {
    let config = load_ok("routes: [{ name: a, upstream: internal:echo }]\nmodules: { m: { path: m.wasm } }");
    assert_eq!((config.workers, config.admin, config.access_log), (None, None, true));
    assert_eq!(config.drain.as_secs(), 30);
    assert_eq!(config.listeners[0].limits, Default::default());
    assert_eq!(config.listeners[0].timeouts, Default::default());
    let route = &config.routes[0];
    assert_eq!(route.matches.path, PathPattern::Prefix(String::new()));
    assert!(route.preserve_host && route.max_body.is_none() && route.strip_prefix.is_none());
    assert_eq!(route.timeouts, Default::default());
    assert_eq!(config.modules[0].limits, PluginLimits::default());
    assert!(config.modules[0].env.is_empty());
}

#[test]
fn module_paths_lead_on_from_the_files_folder() {
    let config = load_ok("modules: { a: { path: p/a.wasm }, b: { path: /b.wasm } }");
    assert_eq!(config.modules[0].path, Path::new("etc/p/a.wasm"));
    assert_eq!(config.modules[1].path, Path::new("/b.wasm"));
}

#[test]
fn routes_share_an_upstream_by_name_and_by_url() {
    let config = load_ok(
        "upstreams: { users: { targets: [{ url: 'http://a', weight: 3 }] }, unused: { targets: [{ url: 'http://b' }] } }\n\
         routes:\n\
         - { name: a, match: { path: /a }, upstream: users }\n\
         - { name: b, match: { path: /b }, upstream: 'http://a:80' }\n\
         - { name: c, match: { path: /c }, upstream: 'http://A' }\n\
         - { name: d, match: { path: /d }, upstream: internal:echo }\n",
    );
    let places: Vec<_> = config.routes.iter().map(|route| route.upstream).collect();
    assert_eq!(places, [0, 2, 2, 3]);
    let names: Vec<_> = config.upstreams.iter().map(|upstream| upstream.name.as_ref()).collect();
    assert_eq!(names, ["users", "unused", "http://a", "internal:echo"]);
    let target = Target { host: "a".into(), port: 80, authority: "a".into(), weight: 3 };
    let expected = UpstreamKind::Targets { balance: Balance::RoundRobin, targets: vec![target] };
    assert_eq!(config.upstreams[0].kind, expected);
    assert_eq!(config.upstreams[3].kind, UpstreamKind::Echo);
}

#[test]
fn match_conditions_have_one_form() {
    let config = load_ok(
        "routes:\n\
         - name: a\n  upstream: internal:echo\n  strip_prefix: /a/\n  \
           match: { hosts: [A.example, a.EXAMPLE, '*.B.example'], methods: [PUT, GET, PUT], \
                    headers: { X-B: '1', X-A: '2' }, query: { b: '', a: 'x y' } }\n",
    );
    let matches = &config.routes[0].matches;
    let hosts = [HostPattern::Exact("a.example".into()), HostPattern::Wildcard("b.example".into())];
    assert_eq!(matches.hosts, hosts);
    assert_eq!(matches.methods, ["GET", "PUT"].map(|method| method.parse::<http::Method>().unwrap()));
    let headers: Vec<_> = matches.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(headers, [("x-a", "2"), ("x-b", "1")]);
    let query: Vec<_> = matches.query.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(query, [("a", "x y"), ("b", "")]);
    assert_eq!(config.routes[0].strip_prefix.as_deref(), Some("/a"));
}

#[test]
fn plugin_configurations_become_json() {
    let config = load_ok(
        "routes:\n\
         - name: a\n  upstream: internal:echo\n  plugins:\n  \
           - respond: { z: [1, -2, 1.5, 0x10, 1e2], a: [~, true, off, 007, '5'], 404: { '': é }, b: }\n  \
           - key-auth:\n  \
           - key-auth: text\n",
    );
    let configs: Vec<_> = config.routes[0].plugins.iter().map(|used| used.config.as_ref()).collect();
    let first = r#"{"z":[1,-2,1.5,16,100.0],"a":[null,true,"off","007","5"],"404":{"":"é"},"b":null}"#;
    assert_eq!(configs, [first, "{}", "\"text\""]);
}

#[test]
fn a_use_sets_its_limits_on_top_of_its_modules() {
    let config = load_ok(
        "modules: { m: { path: m.wasm, limits: { memory: 1MiB, instances: 2 } } }\n\
         routes:\n\
         - { name: a, upstream: internal:echo, plugins: [{ m: , limits: { memory: 2MiB }, on_error: skip }, { m: }] }\n",
    );
    let [first, second] = config.routes[0].plugins.as_slice() else { unreachable!() };
    assert_eq!((first.limits.memory, first.limits.instances), (2 << 20, 2));
    assert_eq!((second.limits.memory, second.limits.instances), (1 << 20, 2));
    assert_eq!((first.on_error, second.on_error), (OnError::Skip, OnError::Deny));
}

#[test]
fn secrets_are_not_in_what_is_printed() {
    let config = load_ok("consumers: [{ name: a, keys: [hidden] }]");
    assert_eq!(config.consumers[0].keys[0].expose(), "hidden");
    assert!(!format!("{config:?}").contains("hidden"));
}
