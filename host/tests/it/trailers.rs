//! Fields behind a body, in both directions.

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    sync::mpsc,
};

use crate::{
    guests,
    support::{Gateway, PATIENCE, Site, read_until, scripted},
};

fn gateway(upstream: SocketAddr, listener: &str, route: &str) -> Gateway {
    let site = Site::new();
    site.put("probe.wasm", std::fs::read(guests::path("probe")).unwrap());
    let yaml = format!(
        "workers: 1\nmodules: {{ probe: {{ path: probe.wasm }} }}\nlisten: [{{ address: 127.0.0.1:0, {listener} }}]\n\
         routes: [{{ name: all, upstream: \"http://{upstream}\", {route} }}]\n"
    );
    site.put("weir.yaml", yaml);
    site.start()
}

/// Sends a body with trailers that are announced so, and tells how the target is
/// sent the announcement and the trailers.
fn sent(listener: &str, route: &str, announced: &[&str], trailers: &[&str]) -> (Vec<String>, Vec<String>) {
    let announced: Vec<_> = announced.iter().map(|names| format!("Trailer: {names}")).collect();
    sent_behind(listener, route, &announced.join("\r\n"), trailers)
}

/// The same with these lines in the head.
fn sent_behind(listener: &str, route: &str, lines: &str, trailers: &[&str]) -> (Vec<String>, Vec<String>) {
    let (sender, received) = mpsc::channel();
    let upstream = scripted(move |mut stream| {
        let head = read_until(&mut stream, "\r\n\r\n");
        read_until(&mut stream, "2\r\nhi\r\n0\r\n");
        let mut end = read_until(&mut stream, "\r\n");
        while !end.ends_with("\r\n\r\n") && end != "\r\n" {
            end += &read_until(&mut stream, "\r\n");
        }
        sender.send((head, end)).unwrap();
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    });
    let gateway = gateway(upstream, listener, route);
    let mut client = TcpStream::connect(gateway.address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let trailers: String = trailers.iter().map(|name| format!("{name}: from-client\r\n")).collect();
    let head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nX-Stands: s\r\nX-Taken: t\r\n";
    client.write_all(format!("{head}{lines}\r\n\r\n2\r\nhi\r\n0\r\n{trailers}\r\n").as_bytes()).unwrap();
    assert!(read_until(&mut client, "\r\n\r\n").starts_with("HTTP/1.1 204"));
    let (head, end) = received.recv_timeout(PATIENCE).unwrap();
    let told = head.lines().filter(|line| line.to_lowercase().starts_with("trailer:")).map(str::to_owned).collect();
    (told, end.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

#[test]
fn announced_fields_come_behind_a_requests_body() {
    let (told, came) = sent("", "", &["X-Sum, x-second", "x-third"], &["x-second", "X-Sum", "x-fourth"]);
    assert_eq!(told, ["trailer: x-sum, x-second, x-third"]);
    assert_eq!(came.len(), 2, "{came:?}");
    assert!(came.contains(&"x-sum: from-client".into()) && came.contains(&"x-second: from-client".into()), "{came:?}");
}

#[test]
fn nothing_gets_past_the_head_behind_the_body() {
    let refused = "host content-length transfer-encoding connection keep-alive proxy-connection upgrade te trailer expect \
        http2-settings authorization proxy-authorization cookie set-cookie forwarded x-forwarded-for x-forwarded-secret \
        if-match if-none-match if-modified-since if-unmodified-since if-range range pragma via cache-control x_under \
        x-stands";
    for name in refused.split(' ') {
        assert_eq!(sent("", "", &[name], &[name]), (vec![], vec![]), "{name}");
    }
    assert_eq!(sent("", "", &["no token"], &["x-other"]), (vec![], vec![]));
    let (told, _) = sent("underscore_headers: allow", "", &["x_under"], &["x_under"]);
    assert_eq!(told, ["trailer: x_under"]);
}

#[test]
fn what_connection_names_goes_no_further_behind_the_body() {
    // RFC 9110 section 7.6.1: any header or trailer field.
    let head = "x-hop: 1\r\nConnection: x-hop, X-Gone\r\nTrailer: x-hop, x-gone, x-left";
    let (told, came) = sent_behind("", "", head, &["x-hop", "x-gone", "x-left"]);
    assert_eq!((&*told, &*came), (&["trailer: x-left".to_owned()][..], &["x-left: from-client".to_owned()][..]));
    assert_eq!(sent_behind("", "", "Connection: trailer\r\nTrailer: x-left", &["x-left"]), (vec![], vec![]));
}

#[test]
fn what_was_looked_for_and_not_there_does_not_come_behind() {
    let counted = "plugins: [{ rate-limit: { limit: 9, window: 1m, by: { header: x-tenant } } }]";
    let renamed = "plugins: [{ request-transform: { headers: { rename: { x-tenant: x-owner } } } }]";
    let routed = "match: { headers: { x-stands: s } } }, \
        { name: other, upstream: internal:echo, match: { headers: { x-tenant: a } }";
    let probe = |step: &str| format!("plugins: [{{ probe: {{ steps: [{step}], report: nowhere }} }}]");
    let (read, listed) = (probe("{ header: x-tenant }"), probe("{ lines: [x-a, x-tenant] }"));
    for route in [counted, renamed, routed, &*read, &*listed] {
        let (told, came) = sent("", route, &["x-tenant, x-left"], &["x-tenant", "x-left"]);
        assert_eq!((&*told, &*came), (&["trailer: x-left".to_owned()][..], &["x-left: from-client".to_owned()][..]));
    }
    // Who reads all has looked for each.
    assert_eq!(sent("", &probe("{ lines: [] }"), &["x-left"], &["x-left"]), (vec![], vec![]));
}

#[test]
fn what_a_plugin_decides_of_a_request_is_not_undone_behind_its_body() {
    let edits = "plugins: [{ request-transform: { headers: { set: { x-set: s }, append: { x-added: a }, remove: [x-taken, x-absent] } } }]";
    let names = ["x-set", "x-added", "x-taken", "x-absent", "x-left"];
    let (told, came) = sent("", edits, &[&names.join(", ")], &names);
    assert_eq!(told, ["trailer: x-left"]);
    assert_eq!(came, ["x-left: from-client"]);
}

#[test]
fn what_a_plugin_decides_of_a_response_is_not_undone_behind_its_body() {
    let upstream = scripted(|mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, x-taken\r\nTrailer: x-set\r\n\r\n";
        let _ =
            stream.write_all(format!("{head}2\r\nhi\r\n0\r\nx-taken: 1\r\nx-sum: 42\r\nx-set: 2\r\n\r\n").as_bytes());
    });
    let by_plan = "response-transform: { headers: { set: { x-set: s }, remove: [x-taken] } }";
    let by_hook = "response-transform: { status: 201, headers: { set: { x-set: s }, remove: [x-taken] } }";
    for plugin in [by_plan, by_hook] {
        let gateway = gateway(upstream, "", &format!("plugins: [{{ {plugin} }}]"));
        let mut client = TcpStream::connect(gateway.address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nTE: trailers\r\nConnection: te\r\n\r\n").unwrap();
        let all = read_until(&mut client, "0\r\nx-sum: 42\r\n\r\n");
        assert!(all.contains("\r\ntrailer: x-sum\r\n") && all.contains("\r\nx-set: s\r\n"), "{all}");
        assert!(!all.contains("x-taken"), "{all}");
    }
}

#[test]
fn fields_of_the_targets_connection_do_not_come_behind_a_response() {
    let names = "connection, keep-alive, upgrade, proxy-connection, te, x-hop, set-cookie";
    let upstream = scripted(move |mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        let head = format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: x-hop\r\nTrailer: {names}, x-sum\r\n\r\n"
        );
        let behind: String = names.split(", ").map(|name| format!("{name}: up\r\n")).collect();
        let _ = stream.write_all(format!("{head}2\r\nhi\r\n0\r\n{behind}x-sum: 42\r\n\r\n").as_bytes());
    });
    let gateway = gateway(upstream, "", "");
    let mut client = TcpStream::connect(gateway.address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nTE: trailers\r\nConnection: te\r\n\r\n").unwrap();
    let all = read_until(&mut client, "x-sum: 42\r\n\r\n");
    assert!(all.contains("\r\ntrailer: x-sum\r\n") && all.ends_with("0\r\nx-sum: 42\r\n\r\n"), "{all}");
}
