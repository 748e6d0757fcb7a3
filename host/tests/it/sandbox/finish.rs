//! `on-finish` runs exactly once for each request that has reached its plugin,
//! however the request ends.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
};

use super::{ENDLESS, site};
use crate::{
    guests,
    support::{Gateway, eventually, read_until, scripted},
};

/// The plugin that tells of each end, first in all chains.
const TELL: &str = "{ guest: { hook: finish, report: log } }";

/// An upstream that does what the path says.
fn upstream() -> SocketAddr {
    scripted(|mut stream| {
        loop {
            let head = read_until(&mut stream, "\r\n\r\n");
            let path = head.split(' ').nth(1).unwrap();
            let what = path.split('/').nth(1).unwrap();
            let answer = match what {
                "empty" => "HTTP/1.1 204 No Content\r\n\r\n",
                "stalls" | "upload" | "times-out" => "",
                "cut" | "body-stalls" | "body-times-out" => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
                "cut-head" => "HTTP/1.1 200",
                _ if head.starts_with("HEAD") => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            };
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
            match what {
                "cut" | "cut-head" => return drop(stream.shutdown(Shutdown::Both)),
                "upload" | "stalls" | "times-out" | "body-stalls" | "body-times-out" => {
                    // Until the gateway gives up.
                    return drop(stream.read_to_end(&mut Vec::new()));
                }
                _ => {}
            }
        }
    })
}

/// Nobody listens there.
fn closed_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn start() -> Gateway {
    let modules =
        [("guest", guests::path("probe")), ("crash", guests::path("crash")), ("looping", guests::path("loop_forever"))];
    let looping = format!("{{ looping: {{ hook: request }}, {ENDLESS} }}");
    let looping_up = format!("{{ looping: {{ hook: response }}, {ENDLESS} }}");
    let (upstream, closed) = (upstream(), closed_port());
    let route = |name: &'static str, plugins: &str, rest: &str| {
        let target = if name == "refused" { closed } else { upstream };
        (name, format!("upstream: \"http://{target}\", plugins: [{TELL}{plugins}]{rest}"))
    };
    let routes = [
        route("plain", "", ""),
        route("empty", "", ""),
        route("answered", ", { respond: { status: 403 } }", ""),
        route("crash-request", ", { crash: { how: trap, hook: request } }", ""),
        route("crash-response", ", { crash: { how: trap, hook: response } }", ""),
        route("crash-finish", ", { crash: { how: trap, hook: finish } }", ""),
        route("slow-plugin", ", { looping: { hook: request } }", ""),
        route("stalls", "", ""),
        route("loops", &format!(", {looping}"), ""),
        route("loops-response", &format!(", {looping_up}"), ""),
        route("upload", "", ""),
        route("body-stalls", "", ""),
        route("cut", "", ""),
        route("cut-head", "", ""),
        route("refused", "", ""),
        route("times-out", "", ", timeouts: { response: 100ms }"),
        route("body-times-out", "", ", timeouts: { total: 100ms }"),
        route("too-large", "", ", max_body: 10"),
    ];
    site(&modules, &routes.each_ref().map(|(name, rest)| (*name, rest.as_str()))).start()
}

/// Waits for the end of the request to this path: what the plugin has seen of it.
fn end_of(gateway: &Gateway, path: &str) -> String {
    gateway.log.find(&[&format!("\"path\":\"{path}\""), "\"finish\":"])
}

fn ends(gateway: &Gateway) -> u64 {
    gateway.metric("weir_plugin_calls_total{plugin=\"guest\",hook=\"on_finish\"}")
}

#[test]
fn requests_that_are_answered_end_once() {
    let gateway = start();
    let mut client = gateway.connect();
    let cases = [
        ("/plain", 200),
        ("/empty", 204),
        ("/answered", 403),
        ("/crash-request", 500),
        ("/crash-response", 500),
        ("/crash-finish", 200),
        ("/slow-plugin", 500),
        ("/cut-head", 502),
        ("/refused", 502),
        ("/times-out", 504),
    ];
    for (path, status) in cases {
        assert_eq!(client.get(path).status, status, "{path}");
        let line = end_of(&gateway, path);
        assert!(line.contains("\"ending\":\"Ending::Complete\""), "{line}");
        assert!(line.contains(&format!("\"status\":{status}")), "{line}");
    }
    client.send("HEAD /plain/head HTTP/1.1\r\nhost: x\r\n\r\n");
    assert!(end_of(&gateway, "/plain/head").contains("\"ending\":\"Ending::Complete\""));
    once(&gateway, cases.len() + 1);
}

#[test]
fn requests_on_one_connection_end_once_each() {
    let gateway = start();
    let mut client = gateway.connect();
    client.send(&(0..10).map(|i| format!("GET /answered/{i} HTTP/1.1\r\nhost: x\r\n\r\n")).collect::<String>());
    for i in 0..10 {
        assert_eq!(client.response().status, 403);
        end_of(&gateway, &format!("/answered/{i}"));
    }
    once(&gateway, 10);
}

#[test]
fn requests_whose_client_leaves_end_once() {
    let gateway = start();
    for (path, ending) in [
        ("/stalls", "ClientGone"),
        ("/loops", "ClientGone"),
        ("/loops-response", "ClientGone"),
        ("/body-stalls", "ClientGone"),
        ("/upload", "ClientGone"),
    ] {
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        let body = if path == "/upload" { "content-length: 100\r\n\r\nhalf" } else { "\r\n" };
        stream.write_all(format!("POST {path} HTTP/1.1\r\nhost: x\r\n{body}").as_bytes()).unwrap();
        if path == "/body-stalls" {
            read_until(&mut stream, "half");
        }
        eventually("it is under way", || gateway.metric("weir_requests_in_flight") == 1);
        drop(stream);
        let line = end_of(&gateway, path);
        assert!(line.contains(&format!("\"ending\":\"Ending::{ending}\"")), "{path}: {line}");
    }
    eventually("none is left", || gateway.metric("weir_requests_in_flight") == 0);
    once(&gateway, 5);
}

#[test]
fn requests_whose_response_is_cut_end_once() {
    let gateway = start();
    for (path, ending) in [("/cut", "UpstreamCut"), ("/body-times-out", "Stopped")] {
        let mut client = gateway.connect();
        client.send(&format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n"));
        assert!(client.try_response().is_err());
        let line = end_of(&gateway, path);
        assert!(line.contains(&format!("\"ending\":\"Ending::{ending}\"")) && line.contains("\"sent\":4"), "{line}");
    }
    once(&gateway, 2);
}

#[test]
fn requests_that_have_not_reached_the_plugin_do_not_end_for_it() {
    let gateway = start();
    let mut client = gateway.connect();
    client.send("POST /too-large HTTP/1.1\r\nhost: x\r\ncontent-length: 11\r\n\r\n");
    assert_eq!(client.response().status, 413);
    assert_eq!(gateway.get("/nowhere").status, 404);
    assert_eq!(gateway.get("/plain").status, 200);
    end_of(&gateway, "/plain");
    once(&gateway, 1);
}

/// Exactly so many calls, and a line for each request.
fn once(gateway: &Gateway, requests: usize) {
    // What came before this one has ended before it.
    assert_eq!(gateway.get("/plain/last").status, 200);
    end_of(gateway, "/plain/last");
    eventually("the last one is counted", || ends(gateway) > requests as u64);
    assert_eq!(ends(gateway), requests as u64 + 1);
    assert_eq!(gateway.log.count("\"finish\":"), requests + 1);
}
