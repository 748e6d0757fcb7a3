//! What goes upstream and what comes back: fields, hosts, paths, errors.

use std::sync::{Arc, Mutex};

use crate::support::{Client, Gateway, Response, Site, Upstream, ok};

/// An upstream that keeps the heads of the requests that reach it.
struct Recorder {
    upstream: Upstream,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    fn start(answer: &'static str) -> Self {
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = heads.clone();
        let upstream = Upstream::start(move |head| {
            kept.lock().unwrap().push(head.to_owned());
            if answer.is_empty() { ok("hi") } else { answer.to_owned() }
        });
        Self { upstream, heads }
    }

    /// The only head that has come.
    fn head(&self) -> String {
        let heads = self.heads.lock().unwrap();
        assert_eq!(heads.len(), 1, "{heads:?}");
        heads[0].clone()
    }

    fn line(&self) -> String {
        self.head().lines().next().unwrap().to_owned()
    }
}

fn gateway(upstream: &Upstream, listener: &str, route: &str) -> Gateway {
    let site = Site::new();
    site.put(
        "weir.yaml",
        format!(
            "listen:\n  - {{ address: 127.0.0.1:0, {listener} }}\n\
             routes:\n  - {{ name: all, upstream: \"{}\", {route} }}\n",
            upstream.url()
        ),
    );
    site.start()
}

/// Sends bytes and reads one response.
fn exchange(gateway: &Gateway, request: &str) -> Response {
    let mut client = gateway.connect();
    client.send(request);
    client.response()
}

fn has_field(head: &str, name: &str) -> bool {
    head.lines().any(|line| line.to_lowercase().starts_with(&format!("{name}:")))
}

#[test]
fn fields_of_the_clients_connection_go_no_further() {
    // CVE-2021-32813 and RFC 9110 section 7.6.1.
    let recorder = Recorder::start("");
    let gateway = gateway(&recorder.upstream, "", "");
    let request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close, X-Secret, X-Forwarded-For\r\nX-Secret: 1\r\n\
                   Keep-Alive: 5\r\nProxy-Connection: x\r\nTE: gzip\r\nUpgrade: h2c\r\nX-Kept: 1\r\n\r\n";
    assert_eq!(exchange(&gateway, request).status, 200);
    let head = recorder.head();
    for gone in ["connection", "x-secret", "keep-alive", "proxy-connection", "te", "upgrade"] {
        assert!(!has_field(&head, gone), "{gone} in {head}");
    }
    assert!(has_field(&head, "x-kept"));
    assert!(head.contains("x-forwarded-for: 127.0.0.1\r\n"), "{head}");
}

#[test]
fn fields_of_the_upstreams_connection_go_no_further() {
    let answer = "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
                  Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Kept: 1\r\nSet-Cookie: c=3\r\nContent-Length: 0\r\n\r\n";
    let recorder = Recorder::start(answer);
    let response = gateway(&recorder.upstream, "", "").get("/");
    for gone in ["connection", "x-hop", "keep-alive"] {
        assert_eq!(response.header(gone), None);
    }
    assert_eq!(response.header("x-kept"), Some("1"));
    let cookies: Vec<_> = response.headers.iter().filter(|(name, _)| name == "set-cookie").map(|(_, v)| &**v).collect();
    assert_eq!(cookies, ["a=1", "b=2", "c=3"]);
}

#[test]
fn nobody_is_believed_who_is_not_trusted() {
    let lie =
        "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nForwarded: for=6.6.6.6\r\n";
    let recorder = Recorder::start("");
    let plain = gateway(&recorder.upstream, "", "");
    assert_eq!(exchange(&plain, &format!("GET / HTTP/1.1\r\nHost: x\r\n{lie}\r\n")).status, 200);
    let head = recorder.head();
    assert!(head.contains("x-forwarded-for: 127.0.0.1\r\n") && head.contains("x-forwarded-proto: http\r\n"), "{head}");
    assert!(head.contains("x-forwarded-host: x\r\n") && !has_field(&head, "forwarded"), "{head}");

    let recorder = Recorder::start("");
    let trusting = gateway(&recorder.upstream, "trusted_proxies: [127.0.0.0/8]", "");
    assert_eq!(exchange(&trusting, &format!("GET / HTTP/1.1\r\nHost: x\r\n{lie}\r\n")).status, 200);
    let head = recorder.head();
    assert!(head.contains("x-forwarded-for: 6.6.6.6, 127.0.0.1\r\n"), "{head}");
    assert!(head.contains("x-forwarded-proto: https\r\n"), "{head}");
}

#[test]
fn names_with_underscores_are_dropped_unless_allowed() {
    for (listener, kept) in [("", false), ("underscore_headers: allow", true)] {
        let recorder = Recorder::start("");
        let gateway = gateway(&recorder.upstream, listener, "");
        exchange(&gateway, "GET / HTTP/1.1\r\nHost: x\r\nX_Auth_User: root\r\n\r\n");
        assert_eq!(has_field(&recorder.head(), "x_auth_user"), kept);
    }
}

#[test]
fn host_goes_upstream_as_it_came_or_is_the_targets() {
    let recorder = Recorder::start("");
    exchange(&gateway(&recorder.upstream, "", ""), "GET / HTTP/1.1\r\nHost: Example.com:8082\r\n\r\n");
    assert!(recorder.head().to_lowercase().contains("host: example.com:8082\r\n"), "{}", recorder.head());

    let recorder = Recorder::start("");
    exchange(&gateway(&recorder.upstream, "", "preserve_host: false"), "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n");
    assert!(recorder.head().contains(&format!("host: {}\r\n", recorder.upstream.address)), "{}", recorder.head());

    // RFC 9112 section 3.2.2: an absolute target wins over Host.
    let recorder = Recorder::start("");
    exchange(&gateway(&recorder.upstream, "", ""), "GET http://right/a HTTP/1.1\r\nHost: wrong\r\n\r\n");
    assert!(recorder.head().contains("host: right\r\n") && !recorder.head().contains("wrong"), "{}", recorder.head());
    assert_eq!(recorder.line(), "GET /a HTTP/1.1");
    // It may lack a path, which the target in origin form may not (section 3.2.1).
    for (target, line) in [("http://a", "GET / HTTP/1.1"), ("http://a?x=1", "GET /?x=1 HTTP/1.1")] {
        let recorder = Recorder::start("");
        let gateway = gateway(&recorder.upstream, "", "");
        exchange(&gateway, &format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(recorder.line(), line);
        let path = line.split(' ').nth(1).unwrap();
        gateway.access_log.find(&[&format!("\"path\":\"{path}\"")]);
    }
}

#[test]
fn what_could_be_read_in_two_ways_is_refused_and_never_sent() {
    let recorder = Recorder::start("");
    let gateway = gateway(&recorder.upstream, "", "");
    for request in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: user@a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "GET /a%00b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a\\b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a%zz HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let mut client = gateway.connect();
        client.send(request);
        let response = client.try_response().unwrap_or_else(|error| panic!("{request:?}: {error}"));
        assert_eq!(response.status, 400, "{request:?}");
        assert!(client.is_ended(), "{request:?}");
    }
    assert_eq!(recorder.upstream.requests(), 0);
    let refused = exchange(&gateway, "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(refused.status, 501);
}

#[test]
fn a_length_beside_chunks_goes_no_further_nor_does_what_follows() {
    let lines = ["Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n"];
    for (first, second) in [(0, 1), (1, 0)] {
        let recorder = Recorder::start("");
        let gateway = gateway(&recorder.upstream, "", "");
        let mut client = gateway.connect();
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{}{}\r\n", lines[first], lines[second]);
        client.send(&format!("{head}0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.try_response().unwrap().status, 200);
        assert!(client.is_ended());
        // The recorder takes the chunks for a head of their own.
        let heads = recorder.heads.lock().unwrap().concat();
        assert!(heads.contains("transfer-encoding: chunked\r\n"), "{heads}");
        assert!(!heads.contains("content-length") && !heads.contains("smuggled"), "{heads}");
    }
}

#[test]
fn no_spelling_of_a_path_gets_past_its_route() {
    // One reading for the router and the upstream: `/admin` needs a key however
    // it is written.
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = heads.clone();
    let upstream = Upstream::start(move |head| {
        kept.lock().unwrap().push(head.lines().next().unwrap().to_owned());
        ok("secret")
    });
    let site = Site::new();
    site.put(
        "weir.yaml",
        format!(
            "listen: [{{ address: 127.0.0.1:0 }}]\nroutes:\n\
             - {{ name: admin, match: {{ path_prefix: /admin }}, upstream: \"{0}\", plugins: [{{ key-auth: {{}} }}] }}\n\
             - {{ name: rest, upstream: \"{0}\" }}\n",
            upstream.url()
        ),
    );
    let gateway = site.start();
    for path in [
        "/admin",
        "/admin/",
        "/admin/x",
        "//admin",
        "/./admin",
        "/x/../admin",
        "/%61dmin",
        "/%2e/admin",
        "/x/%2e%2e/admin",
        "/x/%2E./admin/y",
        "/x//../admin",
        "/..//admin",
        "/admin?x=/../y",
        "/%41/../admin",
    ] {
        assert_eq!(gateway.get(path).status, 401, "{path}");
    }
    assert_eq!(heads.lock().unwrap().len(), 0);
    for (path, sent) in [
        ("/adminx", "/adminx"),
        ("/a//b", "/a//b"),
        ("/a/../b?q=%20+&flag", "/b?q=%20+&flag"),
        ("/a%2Fb", "/a%2Fb"),
        ("/%7Euser", "/%7Euser"),
    ] {
        assert_eq!(gateway.get(path).status, 200, "{path}");
        assert_eq!(heads.lock().unwrap().pop().unwrap(), format!("GET {sent} HTTP/1.1"));
    }
}

#[test]
fn a_prefix_is_taken_off_once_and_never_leaves_an_authority() {
    for (path, sent) in
        [("/api", "/"), ("/api/x", "/x"), ("/api/api/x", "/api/x"), ("/api//evil/x", "/evil/x"), ("/%61pi/x", "/x")]
    {
        let recorder = Recorder::start("");
        let gateway = gateway(&recorder.upstream, "", "match: { path_prefix: /api }, strip_prefix: /api");
        assert_eq!(gateway.get(path).status, 200, "{path}");
        assert_eq!(recorder.line(), format!("GET {sent} HTTP/1.1"), "{path}");
    }
}

#[test]
fn the_most_specific_route_wins_whatever_the_order() {
    let site = Site::new();
    let route = |name: &str, matches: &str| {
        format!(
            "- {{ name: {name}, match: {{ {matches} }}, upstream: \"internal:echo\", plugins: [{{ respond: {{ body: {name} }} }}] }}\n"
        )
    };
    site.put(
        "weir.yaml",
        [
            "listen: [{ address: 127.0.0.1:0 }]\nroutes:\n".to_owned(),
            route("any", "path_prefix: /"),
            route("prefix", "path_prefix: /users"),
            route("template", "path: \"/users/{id}\""),
            route("exact", "path: /users/me"),
            route("wildcard", "hosts: [\"*.example.com\"], path_prefix: /"),
            route("host", "hosts: [api.example.com], path_prefix: /users"),
            route("post", "path_prefix: /users, methods: [POST]"),
            route("beta", "path_prefix: /users, headers: { x-beta: \"1\" }"),
        ]
        .concat(),
    );
    let gateway = site.start();
    let ask = |method: &str, host: &str, path: &str, headers: &str| {
        exchange(&gateway, &format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n{headers}\r\n"))
            .text()
    };
    for (method, host, path, headers, name) in [
        ("GET", "x", "/", "", "any"),
        ("GET", "x", "/usersfoo", "", "any"),
        ("GET", "x", "/users", "", "prefix"),
        ("GET", "x", "/users/1/2", "", "prefix"),
        ("GET", "x", "/users/1", "", "template"),
        ("GET", "x", "/users/me", "", "exact"),
        ("GET", "a.b.example.com:81", "/users/me", "", "wildcard"),
        ("GET", "API.example.com", "/users/me", "", "host"),
        ("GET", "api.example.com", "/other", "", "wildcard"),
        ("GET", "example.com", "/other", "", "any"),
        ("POST", "x", "/users", "", "post"),
        ("GET", "x", "/users", "X-Beta: 1\r\n", "beta"),
    ] {
        assert_eq!(ask(method, host, path, headers).trim(), name, "{method} {host}{path} {headers}");
    }
}

#[test]
fn failures_say_what_they_are_and_can_be_found_in_the_log() {
    let site = Site::new();
    site.put(
        "weir.yaml",
        "listen: [{ address: 127.0.0.1:0, limits: { target: 256, fields: 10 } }]\nroutes:\n\
         - { name: dead, match: { path_prefix: /dead }, upstream: \"http://127.0.0.1:1\" }\n\
         - { name: small, match: { path_prefix: /small }, upstream: \"internal:echo\", max_body: 4 }\n",
    );
    let gateway = site.start();
    let fields = (0..20).map(|n| format!("x-{n}: 1\r\n")).collect::<String>();
    for (request, status) in [
        ("GET /none HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), 404),
        ("GET /dead HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), 502),
        (format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(300)), 414),
        (format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\n"), 431),
        (format!("GET / HTTP/1.1\r\nHost: x\r\nx: {}\r\n\r\n", "a".repeat(70_000)), 431),
        ("POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde".to_owned(), 413),
        (
            "POST /small HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n".to_owned(),
            413,
        ),
    ] {
        assert_eq!(exchange(&gateway, &request).status, status, "{}", &request[..request.len().min(80)]);
    }
    let response = exchange(&gateway, "GET /dead HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\r\n");
    let id = response.header("x-request-id").unwrap().to_owned();
    assert_eq!(response.json()["error"]["id"], id.as_str());
    assert_eq!(response.json()["error"]["status"], 502);
    gateway.log.wait_for(&id);
    let line: serde_json::Value = serde_json::from_str(&gateway.access_log.wait_for(&id)).unwrap();
    assert_eq!(
        (&line["error"], &line["error_source"], &line["route"]),
        (&"connect".into(), &"upstream".into(), &"dead".into())
    );
    // What is logged is not told.
    assert!(!response.text().contains("127.0.0.1"));
}

#[test]
fn a_head_may_have_so_many_bytes_and_no_more() {
    // 8 KiB is what hyper reads at least.
    for (limit, bytes) in [("4KiB", 4096), ("32KiB", 32_768)] {
        let site = Site::new();
        let listen = format!("[{{ address: 127.0.0.1:0, limits: {{ head: {limit} }} }}]");
        site.put("weir.yaml", format!("listen: {listen}\nroutes: [{{ name: all, upstream: \"internal:echo\" }}]\n"));
        let gateway = site.start();
        let fixed = "GET / HTTP/1.1\r\nHost:x\r\nx:\r\n".len();
        for (size, status) in [(bytes - 100, 200), (bytes, 200), (bytes + 1, 431), (bytes + 9000, 431)] {
            let head = format!("GET / HTTP/1.1\r\nHost:x\r\nx:{}\r\n\r\n", "a".repeat(size - fixed));
            assert_eq!(exchange(&gateway, &head).status, status, "{limit} {size}");
        }
    }
}

#[test]
fn garbage_from_an_upstream_is_a_bad_gateway() {
    for answer in [
        "hello there\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ] {
        let recorder = Recorder::start(answer);
        assert_eq!(gateway(&recorder.upstream, "", "").get("/").status, 502, "{answer:?}");
    }
}

#[test]
fn a_request_in_flight_finishes_before_the_end() {
    let (reached, arrived) = std::sync::mpsc::channel();
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let (reached, gate) = (Mutex::new(reached), Mutex::new(gate));
    let upstream = Upstream::start(move |_| {
        reached.lock().unwrap().send(()).unwrap();
        let _ = gate.lock().unwrap().recv();
        ok("late")
    });
    let mut gateway = gateway(&upstream, "", "");
    let mut idle = gateway.connect();
    let mut busy = Client::connect(gateway.address);
    busy.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    arrived.recv().unwrap();
    gateway.signal(rustix::process::Signal::TERM);
    gateway.log.wait_for("draining");
    go.send(()).unwrap();
    let response = busy.response();
    assert_eq!((response.status, response.text().as_str()), (200, "late"));
    assert!(busy.is_ended());
    assert!(idle.is_ended());
    assert_eq!(gateway.wait().code(), Some(0));
}
