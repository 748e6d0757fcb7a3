//! The plugins that come with the gateway, in the gateway: what they do to real
//! requests and answers. What they make of odd configurations is tested beside
//! their code.

use std::fs;

use crate::{
    guests,
    support::{Client, Gateway, Response, Site, Upstream, ok},
};

mod key_auth;
mod rate_limit;
mod transform;

/// Two consumers, and routes `/<name>` to an upstream.
fn site(upstream: &str, routes: &[(&str, &str)]) -> Site {
    let site = Site::new();
    let mut yaml = "workers: 2\nlisten: [{ address: 127.0.0.1:0, trusted_proxies: [127.0.0.0/8] }]\n\
        admin: { address: 127.0.0.1:0 }\nconsumers:\n  - { name: alice, keys: [alice-key, second-key] }\n  \
        - { name: bob, keys: [bob-key] }\nroutes:\n"
        .to_owned();
    for (name, plugins) in routes {
        yaml += &format!(
            "  - {{ name: {name}, match: {{ path_prefix: /{name} }}, upstream: \"{upstream}\", plugins: [{plugins}] }}\n"
        );
    }
    site.put("weir.yaml", yaml);
    site
}

/// A gateway before an upstream that answers with the head it was sent.
fn start(routes: &[(&str, &str)]) -> Gateway {
    site(&Upstream::start(ok).url(), routes).start()
}

/// The target that the upstream was sent.
fn target(response: &Response) -> String {
    response.text().split(' ').nth(1).unwrap().to_owned()
}

/// The values of the lines of that name that the upstream was sent.
fn sent(response: &Response, name: &str) -> Vec<String> {
    assert_eq!(response.status, 200, "{}", response.text());
    let text = response.text();
    let fields = text.lines().filter_map(|line| line.split_once(": "));
    fields.filter(|(other, _)| *other == name).map(|(_, value)| value.to_owned()).collect()
}

/// The values of the response's lines of that name.
fn values<'a>(response: &'a Response, name: &str) -> Vec<&'a str> {
    response.headers.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_str()).collect()
}

#[test]
fn respond_answers_and_the_upstream_is_not_asked() {
    let upstream = Upstream::start(ok);
    let routes = [
        ("text", "{ respond: { body: \"hi\\n\" } }"),
        ("status", "{ respond: { status: 308, headers: { location: /new, x-a: [\"1\", \"2\"] } } }"),
        ("empty", "{ respond: { status: 204 } }"),
        ("before", "{ response-transform: { headers: { set: { x-b: \"1\" } } } }, { respond: {} }, { key-auth: {} }"),
    ];
    let gateway = site(&upstream.url(), &routes).start();
    let mut client = gateway.connect();
    let text = client.get("/text");
    assert_eq!((text.status, text.text().as_str()), (200, "hi\n"));
    assert_eq!(text.header("content-type"), Some("text/plain; charset=utf-8"));
    assert!(text.header("date").is_some());
    let moved = client.get("/status");
    assert_eq!(
        (moved.status, moved.header("location"), moved.header("content-length")),
        (308, Some("/new"), Some("0"))
    );
    assert_eq!(values(&moved, "x-a"), ["1", "2"]);
    let empty = client.get("/empty");
    assert_eq!((empty.status, empty.header("content-length")), (204, None));
    // Those before see it pass, those after it are not called.
    let before = client.get("/before");
    assert_eq!((before.status, before.header("x-b")), (200, Some("1")));
    assert_eq!(gateway.metric("weir_plugin_calls_total{plugin=\"key-auth\""), 0);
    assert_eq!(gateway.metric("weir_plugin_rejections_total{plugin=\"respond\",status=\"3xx\"}"), 1);
    assert_eq!(upstream.requests(), 0);
}

#[test]
fn a_module_of_the_same_name_replaces_a_built_in() {
    let site = site("internal:echo", &[("a", "{ respond: { value: mine } }")]);
    site.put("stamp.wasm", fs::read(guests::stamp("a")).unwrap());
    let yaml = fs::read_to_string(site.path("weir.yaml")).unwrap();
    site.put("weir.yaml", format!("modules: {{ respond: {{ path: stamp.wasm }} }}\n{yaml}"));
    let gateway = site.start();
    let response = gateway.get("/a");
    assert_eq!((response.header("x-stamp"), response.header("x-stamp-version")), (Some("mine"), Some("a")));
    // Without the entry the built-in is there again.
    gateway.serve(2, &yaml.replace("value: mine", "body: built-in"));
    assert_eq!(gateway.get("/a").text(), "built-in");
}

/// One request with these header lines, on a connection of its own.
fn ask(gateway: &Gateway, path: &str, headers: &str) -> Response {
    Client::connect(gateway.address).ask(path, headers)
}
