//! What an operator looks at: health, readiness, metrics, and the access log.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    guests,
    prometheus::{Page, check_histograms},
    support::{Client, Gate, Gateway, Refusing, Response, Site, Upstream, eventually, ok},
};

const SERVERS: &str = "listen: [address: 127.0.0.1:0]\nadmin: { address: 127.0.0.1:0 }\n";

/// With one route, which has these further keys.
fn start(settings: &str, route: &str) -> Gateway {
    let site = Site::new();
    site.put("weir.yaml", format!("{SERVERS}{settings}\nroutes:\n  - {{ name: all, {route} }}\n"));
    site.start()
}

// Answers.

#[test]
fn the_admin_address_answers_three_paths() {
    let gateway = start("", "upstream: internal:echo");
    let health = gateway.admin_get("/healthz");
    assert_eq!((health.status, health.json()), (200, json!({ "status": "ok" })));
    let readiness = gateway.admin_get("/readyz");
    assert_eq!((readiness.status, &readiness.json()["ready"]), (200, &Value::Bool(true)));
    let metrics = gateway.admin_get("/metrics");
    assert_eq!(metrics.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for path in ["/", "/healthz/", "/metrics/x", "/config", "/some/path"] {
        assert_eq!(gateway.admin_get(path).status, 404, "{path}");
    }
    // They are not the gateway's own paths.
    assert_eq!(gateway.get("/healthz").json()["path"], "/healthz");
}

fn admin_ask(gateway: &Gateway, method: &str, path: &str) -> Client {
    let mut client = Client::connect(gateway.admin());
    client.send(&format!("{method} {path} HTTP/1.1\r\nhost: admin\r\ncontent-length: 0\r\n\r\n"));
    client
}

#[test]
fn other_methods_are_refused_and_head_has_no_body() {
    let gateway = start("", "upstream: internal:echo");
    for path in ["/healthz", "/readyz", "/metrics"] {
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            let refused = admin_ask(&gateway, method, path).response();
            assert_eq!((refused.status, refused.header("allow")), (405, Some("GET, HEAD")), "{method} {path}");
        }
        let head = admin_ask(&gateway, "HEAD", path).rest();
        assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    }
    let length = gateway.admin_get("/healthz").body.len();
    let head = admin_ask(&gateway, "HEAD", "/healthz").rest();
    assert!(head.contains(&format!("\r\ncontent-length: {length}\r\n")), "{head}");
}

#[test]
fn it_is_not_ready_while_it_drains() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::start(move |_| {
        held.pass();
        ok("late")
    });
    let mut gateway = start("", &format!("upstream: \"{}\"", upstream.url()));
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    gate.wait_for(1);
    assert_eq!(gateway.metric("weir_requests_in_flight"), 1);
    assert_eq!(gateway.admin_get("/readyz").status, 200);
    gateway.signal(Signal::TERM);
    gateway.log.wait_for("draining");
    let readiness = gateway.admin_get("/readyz");
    let told = json!({ "ready": false, "reasons": ["draining"], "config_version": 1 });
    assert_eq!((readiness.status, readiness.json()), (503, told));
    assert_eq!(gateway.admin_get("/healthz").status, 200);
    assert_eq!(gateway.metric("weir_requests_in_flight"), 1);
    gate.open();
    assert_eq!(client.response().status, 200);
    assert_eq!(gateway.wait().code(), Some(0));
}

// Metrics.

fn page(gateway: &Gateway) -> Page {
    Page::read(&gateway.admin_get("/metrics").text())
}

/// A route for each way that a request can end.
fn counting(upstream: &Upstream, dead: &Refusing) -> String {
    format!(
        "workers: 2
access_log: off
{SERVERS}consumers: [{{ name: alice, keys: [alice-key] }}]
modules: {{ crash: {{ path: crash.wasm }} }}
upstreams:
  users: {{ targets: [{{ url: \"{}\" }}] }}
  dead: {{ targets: [{{ url: \"http://{}\" }}] }}
routes:
  - {{ name: guarded, match: {{ path: /guarded }}, upstream: users, plugins: [key-auth: {{}}] }}
  - {{ name: crashing, match: {{ path: /crashing }}, upstream: users, plugins: [crash: {{ how: trap, hook: request }}] }}
  - {{ name: dead, match: {{ path: /dead }}, upstream: dead }}
  - {{ name: 'a \"b\\c', match: {{ path: /quoted }}, upstream: internal:echo }}
",
        upstream.url(),
        dead.address()
    )
}

fn counts<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, f64> {
    counts.map(|(labels, count)| (labels.to_owned(), count as f64)).into()
}

#[test]
fn every_request_is_counted_once_whichever_worker_it_meets() {
    let (upstream, dead) = (Upstream::start(|_| ok("hello")), Refusing::new());
    let site = Site::new();
    site.put("crash.wasm", fs::read(guests::path("crash")).unwrap());
    site.put("weir.yaml", counting(&upstream, &dead));
    let gateway = site.start();
    let mut clients = Vec::new();
    // Each worker opens one connection to it.
    eventually("both workers have had requests", || {
        let mut client = gateway.connect();
        assert_eq!(client.ask("/guarded", "x-api-key: alice-key\r\n").status, 200);
        clients.push(client);
        upstream.connections() == 2 && clients.len() >= 4
    });
    for client in &mut clients {
        for (path, status, times) in [("/guarded", 401, 4), ("/none", 404, 3), ("/dead", 502, 2), ("/quoted", 200, 5)] {
            (0..times).for_each(|_| assert_eq!(client.get(path).status, status, "{path}"));
        }
    }
    (0..3).for_each(|_| assert_eq!(clients[0].get("/crashing").status, 500));
    let (n, crashes) = (clients.len(), 3);
    // The last bytes are there before it is counted.
    let total = n * 15 + crashes;
    eventually("all counted", || gateway.metric("weir_requests_total") == total as u64);

    let page = page(&gateway);
    let requests = counts([
        ("200 guarded", n),
        ("401 guarded", n * 4),
        ("404 ", n * 3),
        ("502 dead", n * 2),
        ("200 a \"b\\c", n * 5),
        ("500 crashing", crashes),
    ]);
    assert_eq!(page.samples("weir_requests_total"), requests);
    let durations =
        counts([("guarded", n * 5), ("", n * 3), ("dead", n * 2), ("a \"b\\c", n * 5), ("crashing", crashes)]);
    assert_eq!(page.samples("weir_request_duration_seconds_count"), durations);
    assert_eq!(page.samples("weir_requests_in_flight"), counts([]));
    assert_eq!(page.samples("weir_connections"), counts([("127.0.0.1:0", n)]));

    assert_eq!(page.samples("weir_upstream_duration_seconds_count"), counts([("users", n), ("internal:echo", n * 5)]));
    assert_eq!(page.samples("weir_upstream_connections_opened_total"), counts([("users", 2)]));
    assert_eq!(page.samples("weir_upstream_errors_total"), counts([("connect dead", n * 2)]));

    let calls = counts([("on_request key-auth", n * 5), ("on_request crash", crashes)]);
    assert_eq!(page.samples("weir_plugin_calls_total"), calls);
    assert_eq!(page.samples("weir_plugin_duration_seconds_count"), calls);
    let seconds = page.samples("weir_plugin_duration_seconds_total");
    assert_eq!(seconds, page.samples("weir_plugin_duration_seconds_sum"));
    assert!(seconds.values().all(|seconds| (0.0..60.0).contains(seconds)), "{seconds:?}");
    assert_eq!(page.samples("weir_plugin_rejections_total"), counts([("key-auth 4xx", n * 4)]));
    assert_eq!(page.samples("weir_plugin_failures_total"), counts([("trap crash", crashes)]));
    assert_eq!(page.samples("weir_access_log_dropped_total"), counts([]));
    assert!(check_histograms(&page) >= 9);

    // A connection that ends is no longer counted.
    drop(clients);
    eventually("all closed", || gateway.metric("weir_connections") == 0);
}

#[test]
fn instances_are_counted_by_module_and_content() {
    let (upstream, dead) = (Upstream::start(|_| ok("hello")), Refusing::new());
    let site = Site::new();
    let [crash, stamp] = [guests::path("crash"), guests::stamp("a")].map(|path| fs::read(path).unwrap());
    let digest = |bytes: &[u8]| weir::plugin::cache::hex(&Sha256::digest(bytes));
    site.put("crash.wasm", &crash);
    site.put("weir.yaml", counting(&upstream, &dead));
    let gateway = site.start();
    let of_crash = |gateway: &Gateway| {
        let mut instances = page(gateway).samples("weir_plugin_instances");
        instances.retain(|labels, _| labels.ends_with(" crash"));
        instances
    };
    // Warm, one in each worker.
    assert_eq!(of_crash(&gateway), counts([(&format!("{} crash", digest(&crash)), 2)]));
    let all = page(&gateway).samples("weir_plugin_instances");
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all.iter().any(|(labels, live)| labels.ends_with(" key-auth") && *live == 2.0), "{all:?}");

    // Other content under the same name; the old instances go.
    let yaml = fs::read_to_string(gateway.site.path("weir.yaml")).unwrap();
    gateway.site.put("stamp.wasm", &stamp);
    gateway.serve(2, &yaml.replace("crash.wasm", "stamp.wasm").replace("how: trap, hook: request", "value: x"));
    let expected = counts([(&format!("{} crash", digest(&stamp)), 2)]);
    eventually("only those of the new content live", || of_crash(&gateway) == expected);
}

#[test]
fn reloads_are_counted_by_outcome() {
    let gateway = start("", "upstream: internal:echo");
    let reloads = |gateway: &Gateway| {
        let mut reloads = page(gateway).samples("weir_reloads_total");
        // The files are looked at as often as it takes.
        reloads.remove("unchanged");
        reloads
    };
    let good = fs::read_to_string(gateway.site.path("weir.yaml")).unwrap();
    assert_eq!(reloads(&gateway), counts([]));
    gateway.serve(2, &format!("# 2\n{good}"));
    gateway.serve(3, &format!("# 3\n{good}"));
    gateway.site.put("weir.yaml", "listen: []\n");
    gateway.log.wait_for("config refused");
    eventually("counted", || reloads(&gateway) == counts([("applied", 2), ("refused", 1)]));
    let page = page(&gateway);
    assert_eq!(page.samples("weir_config_version"), counts([("", 3)]));
    assert_eq!(page.samples("weir_config_last_error"), counts([("", 1)]));
}

// The access log.

/// Waits for so many lines, and reads each.
fn logged(gateway: &Gateway, lines: usize) -> Vec<Value> {
    eventually("logged", || gateway.access_log.all().len() >= lines);
    let all = gateway.access_log.all();
    assert_eq!(all.len(), lines, "{all:?}");
    all.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Takes out how long it took, which is not known before.
fn take_durations(line: &mut Value) -> (f64, Option<f64>) {
    let members = line.as_object_mut().unwrap();
    let took = members.remove("duration_ms").and_then(|number| number.as_f64()).expect("a duration");
    (took, members.remove("upstream_ms").map(|number| number.as_f64().expect("a number")))
}

#[test]
fn a_line_tells_of_one_request() {
    let upstream = Upstream::start(|_| ok("hello"));
    let site = Site::new();
    site.put(
        "weir.yaml",
        format!(
            "workers: 1
listen: [{{ address: 127.0.0.1:0, trusted_proxies: [127.0.0.1] }}]
consumers: [{{ name: alice, keys: [alice-key] }}]
routes: [{{ name: users, match: {{ path_prefix: /users }}, upstream: \"{}\", plugins: [key-auth: {{}}] }}]
",
            upstream.url()
        ),
    );
    // 2026-12-01 at 09:00.
    let gateway = site.start_at(1_796_115_600_123);
    let mut client = gateway.connect();
    let fields = "x-api-key: alice-key\r\nuser-agent: test/1\r\nx-forwarded-for: 203.0.113.9\r\n";
    assert_eq!(client.ask("/users?page=2", fields).text(), "hello");
    assert_eq!(client.get("/users").status, 401);
    client.send("HEAD /none HTTP/1.0\r\n\r\n");
    assert!(client.rest().starts_with("HTTP/1.0 404 "));
    let mut lines = logged(&gateway, 3);
    let (took, upstream_took) = take_durations(&mut lines[0]);
    assert!(upstream_took.is_some_and(|upstream_took| 0.0 < upstream_took && upstream_took <= took));
    assert_eq!(take_durations(&mut lines[1]).1, None);
    assert_eq!(take_durations(&mut lines[2]).1, None);
    let time = "2026-12-01T09:00:00.123Z";
    let expected = json!({
        "time": time, "client": "203.0.113.9", "method": "GET", "host": "test", "path": "/users?page=2",
        "version": "1.1", "status": 200, "bytes_sent": 5, "upstream": upstream.address.to_string(),
        "route": "users", "consumer": "alice", "user_agent": "test/1",
    });
    assert_eq!(lines[0], expected);
    let bytes = lines[1]["bytes_sent"].clone();
    let expected = json!({
        "time": time, "client": "127.0.0.1", "method": "GET", "host": "test", "path": "/users", "version": "1.1",
        "status": 401, "bytes_sent": bytes, "route": "users", "answered_by": "key-auth",
    });
    assert_eq!(lines[1], expected);
    let id = lines[2]["id"].clone();
    let expected = json!({
        "time": time, "id": id, "client": "127.0.0.1", "method": "HEAD", "host": "", "path": "/none",
        "version": "1.0", "status": 404, "bytes_sent": 0, "error": "no_route", "error_source": "downstream",
    });
    assert_eq!(lines[2], expected);
}

/// The id that the client has been told leads to the line, and to the log.
#[test]
fn an_error_has_the_same_id_everywhere() {
    let (upstream, dead) = (Upstream::start(|_| ok("hello")), Refusing::new());
    let site = Site::new();
    site.put("crash.wasm", fs::read(guests::path("crash")).unwrap());
    site.put("weir.yaml", counting(&upstream, &dead).replace("access_log: off", "access_log: on"));
    let gateway = site.start();
    let mut ids = HashSet::new();
    for (place, (path, status, error, source)) in
        [("/dead", 502, "connect", "upstream"), ("/crashing", 500, "trap", "plugin")].into_iter().enumerate()
    {
        let as_json = gateway.connect().ask(path, "accept: application/json\r\n");
        let as_text = gateway.get(path);
        let lines = logged(&gateway, place * 2 + 2);
        let id_of = |response: &Response| response.header("x-request-id").unwrap().to_owned();
        assert_eq!(as_json.json()["error"]["id"], id_of(&as_json));
        assert!(as_text.text().contains(&format!("(id {})", id_of(&as_text))), "{}", as_text.text());
        for response in [&as_json, &as_text] {
            let id = id_of(response);
            assert_eq!(response.status, status);
            let found: Vec<_> = lines.iter().filter(|line| line["id"] == id.as_str()).collect();
            let [line] = found[..] else { panic!("{found:?} for {id}") };
            assert_eq!((&line["error"], &line["error_source"]), (&json!(error), &json!(source)));
            assert_eq!(line["answered_by"], if source == "plugin" { json!("crash") } else { Value::Null });
            assert_eq!(gateway.log.count(&format!("id={id}")), 1, "{id}");
            assert!(ids.insert(id));
        }
    }
}

#[test]
fn heads_that_can_not_be_read_are_counted_and_logged() {
    let site = Site::new();
    site.put("weir.yaml", "workers: 1\nlisten: [address: 127.0.0.1:0]\nadmin: { address: 127.0.0.1:0 }\nroutes: []\n");
    let gateway = site.start();
    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(64 << 10));
    let heads = [
        ("no request\r\n\r\n", 400, "bad_request"),
        (&*long, 431, "head_too_large"),
        ("GET /?q=\" HTTP/1.1\r\n\r\n", 400, "bad_request"),
    ];
    for (place, (head, status, error)) in heads.into_iter().enumerate() {
        let mut client = gateway.connect();
        client.send(head);
        assert!(client.rest().starts_with(&format!("HTTP/1.1 {status} ")));
        let line = logged(&gateway, place + 1).remove(place);
        assert_eq!((&line["status"], &line["error"]), (&json!(status), &json!(error)));
    }
    assert_eq!(gateway.metric("weir_requests_total"), 3);
}

#[test]
fn nothing_that_a_client_sends_breaks_a_line() {
    let site = Site::new();
    let name = "a \"b\\c \u{e9}\u{202e}";
    site.put(
        "weir.yaml",
        format!(
            "workers: 1\nlisten: [address: 127.0.0.1:0]\nroutes: [{{ name: '{name}', upstream: internal:echo }}]\n"
        ),
    );
    let mut gateway = site.start();
    let agents: [&[u8]; 6] = [
        b"\"}{\"status\": 200",
        b"back\\slash\\",
        b"tab\tbell \xc2\x9b[2J",
        b"\xff\xfe\x80 no text",
        "\u{e9} \u{6f22} \u{2028}".as_bytes(),
        &[b'"'; 2_000],
    ];
    for agent in agents {
        let request = [b"GET /x\"?y=\\}, HTTP/1.1\r\nhost: test\r\nuser-agent: ", agent, b"\r\n\r\n"].concat();
        let mut client = gateway.connect();
        client.send_bytes(&request);
        assert_eq!(client.response().status, 200);
    }
    let lines = logged(&gateway, agents.len());
    for (line, agent) in lines.iter().zip(agents) {
        assert_eq!(line["route"], name);
        assert_eq!(line["path"], "/x\"?y=\\},");
        assert_eq!(line["user_agent"], *String::from_utf8_lossy(&agent[..agent.len().min(512)]));
    }
    // And neither log has a line of the other.
    gateway.signal(Signal::TERM);
    gateway.wait();
    let (log, access_log) = (gateway.log.to_end(), gateway.access_log.to_end());
    assert!(log.iter().any(|line| line.contains("config 1 serving")) && !log.iter().any(|line| line.contains('{')));
    assert_eq!(access_log.len(), agents.len());
    assert!(!access_log.concat().chars().any(char::is_control));
}

#[test]
fn the_access_log_can_be_turned_off_and_on() {
    let mut gateway = start("access_log: off", "upstream: internal:echo");
    let off = fs::read_to_string(gateway.site.path("weir.yaml")).unwrap();
    (0..3).for_each(|_| assert_eq!(gateway.get("/off").status, 200));
    gateway.serve(2, &off.replace("access_log: off", "access_log: on"));
    assert_eq!(gateway.get("/on").status, 200);
    gateway.serve(3, &off);
    assert_eq!(gateway.get("/off").status, 200);
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait().code(), Some(0));
    // All that was written is there, and no more.
    let lines = gateway.access_log.to_end();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("\"/on\""), "{lines:?}");
}
