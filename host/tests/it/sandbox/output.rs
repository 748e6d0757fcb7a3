//! Memory, and what a guest hands over: bodies, fields, attributes, log lines.
//! Nothing of it is let grow without end.

use super::{ENDLESS, failures, instances, start, told};
use crate::support::{Client, eventually};

/// How many requests in a row are answered with 200 before one is not.
fn served(client: &mut Client, path: &str) -> (usize, u16) {
    (0..).map(|done| (done, client.get(path).status)).find(|(_, status)| *status != 200).unwrap()
}

#[test]
fn memory_is_bounded_for_each_instance_by_the_limit_of_its_use() {
    let eating = |limit: &str| format!("plugins: [{{ guest: {{ bytes: 1048576 }}, limits: {{ {limit} }} }}]");
    let gateway = start(
        "eat_memory",
        &[
            ("small", &eating("memory: 4MiB")),
            ("medium", &eating("memory: 8MiB")),
            ("all", &format!("plugins: [{{ guest: {{ only_with: x-eat }}, {ENDLESS} }}]")),
        ],
    );
    let mut client = gateway.connect();
    let (small, status) = served(&mut client, "/small");
    assert_eq!(status, 500);
    assert!((1..4).contains(&small), "{small}");
    assert_eq!(failures(&gateway, "memory_limit"), 1);
    // A fresh instance holds as much once more.
    assert_eq!(served(&mut client, "/small"), (small, 500));
    assert_eq!(failures(&gateway, "memory_limit"), 2);
    assert_eq!(served(&mut client, "/medium"), (small + 4, 500));

    let live = instances(&gateway);
    let response = client.ask("/all", "x-eat: 1\r\n");
    assert_eq!(response.status, 500);
    told(&gateway, &response, &["kind=memory_limit", "during=on-request", "route=all"]);
    assert_eq!(instances(&gateway), live - 1);
    assert_eq!(client.get("/all").status, 200);
}

#[test]
fn a_body_is_bounded() {
    let limits = "limits: { body: 64KiB, memory: 64MiB, cpu: 1h, request_cpu: 1h, wall: 1h }";
    let answering = |bytes: u64| format!("plugins: [{{ guest: {{ body: {bytes} }}, {limits} }}]");
    let gateway = start(
        "big_output",
        &[("most", &answering(65_536)), ("more", &answering(65_537)), ("much", &answering(16 << 20))],
    );
    assert_eq!(gateway.get("/most").body.len(), 65_536);
    let response = gateway.get("/more");
    assert_eq!(response.status, 500);
    told(&gateway, &response, &["edit refused: A body longer than the plugin's output limit"]);
    // So much that the gateway does not even look at it.
    let response = gateway.get("/much");
    assert_eq!(response.status, 500);
    told(&gateway, &response, &["kind=trap"]);
    assert_eq!((failures(&gateway, "failed"), failures(&gateway, "trap")), (1, 1));
    assert_eq!(gateway.get("/most").status, 200);
}

#[test]
fn fields_are_bounded_in_number_and_bytes_on_requests_and_answers() {
    for answer in ["", "body: 1, "] {
        let setting =
            |fields: usize, value: usize| format!("plugins: [guest: {{ {answer}fields: {fields}, value: {value} }}]");
        let routes = [
            ("few", setting(50, 1)),
            ("many", setting(170, 1)),
            ("long", setting(50, 600)),
            ("longer", setting(60, 600)),
        ];
        let gateway = start("big_output", &routes.each_ref().map(|(name, rest)| (*name, rest.as_str())));
        for path in ["/few", "/long"] {
            let response = gateway.get(path);
            assert_eq!(response.status, 200, "{path}");
            let seen = if answer.is_empty() { response.text() } else { format!("{:?}", response.headers) };
            assert!(seen.contains("x-big-49"), "{seen}");
        }
        for path in ["/many", "/longer"] {
            let response = gateway.get(path);
            assert_eq!(response.status, 500, "{path}");
            assert!(response.header("x-big-0").is_none());
            told(&gateway, &response, &["edit refused: More fields", &format!("route={}", &path[1..])]);
        }
        assert_eq!(failures(&gateway, "failed"), 2);
    }
}

#[test]
fn attributes_are_bounded_in_number_and_bytes() {
    let setting =
        |attributes: usize, value: usize| format!("plugins: [guest: {{ attributes: {attributes}, value: {value} }}]");
    let gateway = start(
        "big_output",
        &[
            ("most", &setting(64, 900)),
            ("longest", &setting(7, 8192)),
            ("many", &setting(65, 1)),
            ("long", &setting(1, 8193)),
            ("much", &setting(8, 8192)),
        ],
    );
    for (path, status) in [("/most", 200), ("/longest", 200), ("/many", 500), ("/long", 500), ("/much", 500)] {
        let response = gateway.get(path);
        assert_eq!(response.status, status, "{path}");
        if status == 500 {
            told(&gateway, &response, &["edit refused: ", &format!("route={}", &path[1..])]);
        }
    }
}

#[test]
fn log_lines_are_bounded_in_number_and_length() {
    let gateway = start(
        "big_output",
        &[
            ("long", "plugins: [guest: { log_lines: 1, log_line: 20000 }]"),
            ("one", "plugins: [guest: { log_lines: 1, log_line: 3 }]"),
            ("many", &format!("plugins: [{{ guest: {{ log_lines: 1000, log_line: 5 }}, {ENDLESS} }}]")),
        ],
    );
    assert_eq!(gateway.get("/long").status, 200);
    let line = gateway.log.find(&["llll", "route=long"]);
    assert_eq!(line.bytes().filter(|byte| *byte == b'l').count() - "plugin=route=long".matches('l').count(), 8 << 10);

    assert_eq!(gateway.get("/many").status, 200);
    // What is left out is told with the first line of another second.
    eventually("lines are dropped, and told", || {
        assert_eq!(gateway.get("/one").status, 200);
        gateway.log.count("the plugin logs too much: lines dropped") > 0
    });
    let lines = gateway.log.count("route=many");
    assert!((1..=200).contains(&lines), "{lines} lines in at most two seconds");
    assert_eq!(gateway.metric("weir_plugin_failures_total"), 0);
}
