//! Crashes in each hook: the entry's `on_error` decides about the request, and
//! nobody sees what the hook had done until then.

use std::fs;

use serde_json::Value;

use super::{failures, instances, site, start, told};
use crate::{
    guests,
    support::{Gateway, Lines, Response, eventually},
};

const WAYS: [&str; 4] = ["trap", "panic", "fail", "stack"];

/// A module for each way to crash, so that none is suspended for its many
/// crashes, and a route for each case.
fn crashing(on_error: &str) -> Gateway {
    let mut routes = vec![("calm".to_owned(), chain("request-transform: {}"))];
    for way in WAYS {
        for hook in ["request", "response"] {
            for after_edits in [false, true] {
                let guest = format!("guest-{way}: {{ how: {way}, hook: {hook}, after_edits: {after_edits} }}");
                routes.push((format!("{way}-{hook}-{after_edits}"), chain(&format!("{guest}, on_error: {on_error}"))));
            }
        }
    }
    let crash = guests::path("crash");
    let names = WAYS.map(|way| format!("guest-{way}"));
    let modules: Vec<_> = names.iter().map(|name| (name.as_str(), crash.clone())).collect();
    let routes: Vec<_> = routes.iter().map(|(name, chain)| (name.as_str(), chain.as_str())).collect();
    site(&modules, &routes).start()
}

/// The entry between others that leave their mark on request and response.
fn chain(entry: &str) -> String {
    let marks = |name| {
        format!(
            "request-transform: {{ headers: {{ set: {{ x-{name}: in }} }} }} }}, \
             {{ response-transform: {{ headers: {{ set: {{ x-{name}: out }} }} }}"
        )
    };
    format!("plugins: [{{ {} }}, {{ {entry} }}, {{ {} }}]", marks("before"), marks("after"))
}

fn cases() -> impl Iterator<Item = (&'static str, &'static str, String)> {
    WAYS.into_iter().flat_map(|way| {
        ["request", "response"]
            .into_iter()
            .flat_map(move |hook| [false, true].map(|after_edits| (way, hook, format!("/{way}-{hook}-{after_edits}"))))
    })
}

/// What the upstream was sent but for the path, and the response's fields but
/// for the ones that change.
fn seen(response: &Response) -> (u16, Value, Vec<(String, String)>) {
    let mut sent = response.json();
    sent.as_object_mut().unwrap().remove("path");
    let mut fields = response.headers.clone();
    fields.retain(|(name, _)| !["date", "content-length"].contains(&name.as_str()));
    (response.status, sent, fields)
}

#[test]
fn a_skipped_crash_leaves_the_request_as_it_was() {
    let gateway = crashing("skip");
    let calm = gateway.get("/calm");
    assert_eq!((calm.header("x-before"), calm.header("x-after")), (Some("out"), Some("out")));
    for (way, hook, path) in cases() {
        assert_eq!(seen(&gateway.get(&path)), seen(&calm), "{path}");
        told_of(&gateway.log, way, hook, &path[1..]);
    }
    assert_eq!(gateway.metric("weir_requests_total{route=\"calm\",code=\"200\"}"), 1);
    assert_eq!(gateway.metric("weir_requests_total"), cases().count() as u64 + 1);
}

#[test]
fn a_denied_crash_is_an_error_without_half_done_edits() {
    let gateway = crashing("deny");
    for (way, hook, path) in cases() {
        let response = gateway.get(&path);
        assert_eq!(response.status, 500, "{path}");
        assert_eq!(response.header("x-crash"), None, "{path}");
        // It passes the hooks of the plugins before, and no later one has made it
        // look good.
        assert_eq!(response.header("x-before"), Some("out"), "{path}");
        assert_eq!(response.header("x-after"), None, "{path}");
        let id = response.header("x-request-id").unwrap();
        assert!(response.text().contains(id) && !response.text().contains("as told"), "{}", response.text());
        let line = told_of(&gateway.log, way, hook, &path[1..]);
        assert!(line.contains(&format!("id={id}")), "{line}");
        let logged = gateway.access_log.find(&[id]);
        assert!(logged.contains(&format!("\"answered_by\":\"guest-{way}\"")), "{logged}");
        assert!(logged.contains("\"error_source\":\"plugin\""), "{logged}");
    }
}

/// The line that tells of a crash: for a `fail` the plugin's own, else the
/// gateway's with a backtrace.
fn told_of(log: &Lines, way: &str, hook: &str, route: &str) -> String {
    let (plugin, route) = (format!("plugin=guest-{way}"), format!("route={route}"));
    if way == "fail" {
        return log.find(&["failed as told", &plugin, &route]);
    }
    if way == "panic" {
        log.find(&["panicked at ", "crash.rs:", "crash as told", &plugin, &route]);
    }
    let line = log.find(&["kind=trap", &format!("during=on-{hook}"), "version=0.1.0", &plugin, &route]);
    assert!(line.contains("wasm backtrace"), "{line}");
    line
}

/// The first one sets all there is, and then fails for the length of its report.
#[test]
fn every_kind_of_edit_is_undone() {
    let edits = "set_method: PUT }, { set_authority: evil }, { set_path: /evil }, { set_query: evil=1 }, \
        { set_attribute: [a, evil] }, { set_consumer: alice }, { edit: [{ set: [x-a, evil] }, { remove: x-b }, { append: [x-c, evil] }] }";
    let first = format!(
        "{{ guest: {{ steps: [{{ {edits}, {{ lines: [] }}, {{ lines: [] }}], report: header }}, on_error: skip }}"
    );
    let second = "guest: { steps: [{ attribute: a }], report: header }";
    let chain = format!("plugins: [{first}, {second}]");
    let site = site(&[("guest", guests::path("probe"))], &[("a", &chain), ("calm", &format!("plugins: [{second}]"))]);
    let yaml = fs::read_to_string(site.path("weir.yaml")).unwrap();
    site.put("weir.yaml", format!("consumers: [{{ name: alice, keys: [alice-key] }}]\n{yaml}"));
    let gateway = site.start();
    let ask = |path: &str| {
        let long = "l".repeat(12_000);
        let headers = format!("x-a: 1\r\nx-b: 2\r\nx-b: 3\r\nx-c: 4\r\nx-long: {long}\r\n");
        let response = gateway.connect().ask(path, &headers);
        let probe: Value = serde_json::from_str(response.header("x-probe").unwrap()).unwrap();
        let mut upstream = response.json();
        sort(&mut upstream["headers"]);
        (response.status, upstream, probe)
    };
    let (status, upstream, mut probe) = ask("/a?b=%20");
    assert_eq!((status, &upstream["method"], &upstream["path"]), (200, &"GET".into(), &"/a?b=%20".into()));
    let (_, calm, mut calm_probe) = ask("/calm");
    assert_eq!(upstream["headers"], calm["headers"]);
    assert_eq!((&probe["steps"][0], &probe["request"]["consumer"]), (&Value::Null, &Value::Null));
    for probe in [&mut probe, &mut calm_probe] {
        let request = probe["request"].as_object_mut().unwrap();
        ["path", "raw_path", "query", "route"].iter().for_each(|name| drop(request.remove(*name)));
        sort(&mut request["headers"]);
    }
    assert_eq!(probe, calm_probe);
    assert_eq!(failures(&gateway, "failed"), 1);
    gateway.log.find(&["edit refused: More fields", "plugin=guest", "route=a"]);
}

/// Fields of different names have no order.
fn sort(fields: &mut Value) {
    if let Some(lines) = fields.as_array_mut() {
        lines.sort_by_key(|line| line[0].to_string());
    }
}

/// Together they set more bytes than plugins may add to a head, and none is there.
#[test]
fn edits_that_are_undone_use_nothing_up() {
    let crash = "{ guest: { how: trap, hook: request, after_edits: true }, on_error: skip }";
    let chain =
        format!("plugins: [{}, request-transform: {{ headers: {{ set: {{ x-a: b }} }} }}]", [crash; 15].join(", "));
    let site = site(&[("guest", guests::path("crash"))], &[("a", &chain)]);
    let yaml = fs::read_to_string(site.path("weir.yaml")).unwrap();
    site.put("weir.yaml", yaml.replace("[address: 127.0.0.1:0]", "[{ address: 127.0.0.1:0, limits: { head: 256 } }]"));
    let gateway = site.start();
    let response = gateway.get("/a");
    assert_eq!((response.status, &response.json()["headers"]["x-a"]), (200, &"b".into()), "{}", response.text());
    assert_eq!(failures(&gateway, "trap"), 15);
}

#[test]
fn a_crash_costs_one_instance_and_no_other_request() {
    let gateway = start("crash", &[("a", "plugins: [guest: { how: trap, hook: request, only_with: x-crash }]")]);
    let mut client = gateway.connect();
    for done in 1..=5 {
        assert_eq!(client.get("/a").status, 200);
        assert_eq!(client.ask("/a", "x-crash: 1\r\n").status, 500);
        assert_eq!(failures(&gateway, "trap"), done);
        assert_eq!(instances(&gateway), 0);
    }
    assert_eq!(client.get("/a").status, 200);
    assert_eq!(instances(&gateway), 1);
}

#[test]
fn a_crash_at_the_end_is_told_and_hurts_nobody() {
    let finish = |how| format!("plugins: [guest: {{ how: {how}, hook: finish }}]");
    let gateway = start("crash", &[("trap", &finish("trap")), ("panic", &finish("panic"))]);
    for path in ["/trap", "/panic"] {
        assert_eq!(gateway.get(path).status, 200);
        gateway.log.find(&["kind=trap", "during=on-finish", "plugin=guest", &format!("route={}", &path[1..])]);
    }
    gateway.log.find(&["panicked at ", "crash.rs:", "crash as told", "plugin=guest", "route=panic"]);
}

#[test]
fn a_crash_in_configure_during_a_request_costs_that_request() {
    // Each call gets a fresh instance, which crashes in its `configure` every
    // other time; so it takes some luck to load.
    let entry = "{ guest: { how: panic, hook: configure, sometimes: true }, limits: { recycle_after: 1 } }";
    let gateway = site(&[("guest", guests::path("crash"))], &[("a", "plugins: []")]).start();
    let yaml = fs::read_to_string(gateway.site.path("weir.yaml")).unwrap();
    let mut version = 1;
    loop {
        // Something else in between, because the same refusal is told once.
        version += 1;
        gateway.serve(version, &yaml.replace("plugins: []", &format!("plugins: [respond: {{ body: v{version} }}]")));
        gateway.site.put("weir.yaml", yaml.replace("plugins: []", &format!("plugins: [{entry}]")));
        version += 1;
        if gateway.log.wait_for_any(&["config refused", &format!("config {version} serving")]).0 == 1 {
            break;
        }
        version -= 1;
    }
    let (mut answered, mut failed) = (0, 0);
    eventually("both have happened", || {
        let response = gateway.get("/a");
        match response.status {
            200 => answered += 1,
            500 => {
                failed += 1;
                told(&gateway, &response, &["kind=trap", "during=configure"]);
            }
            status => panic!("{status}"),
        }
        answered > 0 && failed > 0
    });
    assert_eq!(failures(&gateway, "trap"), failed);
}
