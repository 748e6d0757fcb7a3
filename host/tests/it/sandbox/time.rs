//! Limits of CPU and wall clock: a call that goes on for too long is stopped, and
//! while it goes on it is in nobody's way.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use super::{ENDLESS, failures, site, start, told};
use crate::{
    guests,
    support::{Gateway, eventually},
};

#[test]
fn a_hook_that_never_returns_is_stopped_and_costs_its_request_only() {
    let looping = |hook: &str| format!("plugins: [guest: {{ hook: {hook}, only_with: x-loop }}]");
    let gateway = start("loop_forever", &[("request", &looping("request")), ("response", &looping("response"))]);
    let mut client = gateway.connect();
    for (done, (path, during)) in [("/request", "on-request"), ("/response", "on-response")].into_iter().enumerate() {
        let response = client.ask(path, "x-loop: 1\r\n");
        assert_eq!(response.status, 500);
        told(&gateway, &response, &["kind=cpu_limit", &format!("during={during}"), &format!("route={}", &path[1..])]);
        assert_eq!(failures(&gateway, "cpu_limit"), done as u64 + 1);
        // The same plugin and connection, a moment later.
        assert_eq!(client.get(path).status, 200);
    }
    assert_eq!(gateway.metric("weir_plugin_failures_total"), 2);
    assert_eq!(gateway.metric("weir_plugin_calls_total{plugin=\"guest\",hook=\"on_request\"}"), 2);
    assert_eq!(gateway.metric("weir_requests_total{route=\"request\",code=\"500\"}"), 1);
}

#[test]
fn a_loop_after_the_answer_keeps_nobody_waiting() {
    let gateway = start("loop_forever", &[("a", "plugins: [guest: { hook: finish }]")]);
    let mut client = gateway.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/a").status, 200);
    }
    eventually("all are stopped", || failures(&gateway, "cpu_limit") == 3);
    gateway.log.find(&["kind=cpu_limit", "during=on-finish"]);
}

#[test]
fn others_on_the_worker_are_answered_while_a_hook_burns_or_waits() {
    let burning = format!("plugins: [{{ guest: {{ hook: request, only_with: x-loop }}, {ENDLESS} }}]");
    let waiting = format!("plugins: [{{ waiter: {{ sleep: 1h }}, {ENDLESS} }}]");
    let routes = [("burning", &*burning), ("waiting", &*waiting), ("other", "plugins: [respond: { body: hello }]")];
    let modules = [("guest", guests::path("loop_forever")), ("waiter", guests::wasi("wasi"))];
    let gateway = site(&modules, &routes).start();
    let mut burner = gateway.connect();
    burner.send("GET /burning HTTP/1.1\r\nhost: x\r\nx-loop: 1\r\n\r\n");
    let mut waiter = gateway.connect();
    waiter.send("GET /waiting HTTP/1.1\r\nhost: x\r\n\r\n");
    eventually("both are under way", || gateway.metric("weir_requests_in_flight") == 2);
    let mut client = gateway.connect();
    for _ in 0..20 {
        assert_eq!(client.get("/other").text(), "hello");
        assert_eq!(client.get("/burning").status, 200);
    }
    assert!(!burner.has_answer() && !waiter.has_answer());
    assert_eq!(gateway.metric("weir_requests_in_flight"), 2);
    // Whoever leaves takes the call along.
    drop((burner, waiter));
    eventually("both are over", || gateway.metric("weir_requests_in_flight") == 0);
    assert_eq!(gateway.metric("weir_plugin_failures_total"), 0);
}

#[test]
fn a_hook_that_takes_too_long_is_stopped_whether_it_works_or_waits() {
    let limits = "limits: { cpu: 1h, request_cpu: 1h, wall: 100ms }";
    let burning = format!("plugins: [{{ guest: {{ hook: request }}, {limits} }}]");
    let waiting = format!("plugins: [{{ waiter: {{ sleep: 1h }}, {limits} }}]");
    let modules = [("guest", guests::path("loop_forever")), ("waiter", guests::wasi("wasi"))];
    let gateway = site(&modules, &[("burning", &burning), ("waiting", &waiting)]).start();
    for (path, plugin) in [("/burning", "guest"), ("/waiting", "waiter")] {
        let response = gateway.get(path);
        assert_eq!(response.status, 500);
        let id = response.header("x-request-id").unwrap();
        gateway.log.find(&[&format!("id={id}"), &format!("plugin={plugin}"), "kind=wall_limit", "during=on-request"]);
        let wall = format!("weir_plugin_failures_total{{plugin=\"{plugin}\",kind=\"wall_limit\"}}");
        assert_eq!(gateway.metric(&wall), 1);
    }
}

/// Work that takes some milliseconds of CPU time, on whatever machine.
const ROUNDS: u64 = 500;

#[test]
fn all_calls_of_a_request_share_one_limit() {
    let chain = |uses: usize, limit: &str| {
        let used = format!("{{ guest: {{ hook: request, rounds: {ROUNDS} }}, limits: {{ {limit}, wall: 1h }} }}");
        format!("plugins: [{}]", vec![used; uses].join(", "))
    };
    let scarce = "cpu: 1h, request_cpu: 100ms";
    let gateway = start(
        "loop_forever",
        &[
            ("one", &chain(1, scarce)),
            ("many", &chain(100, scarce)),
            ("unlimited", &chain(100, "cpu: 1h, request_cpu: 1h")),
        ],
    );
    assert_eq!(gateway.get("/one").status, 200);
    let response = gateway.get("/many");
    assert_eq!(response.status, 500);
    told(&gateway, &response, &["kind=cpu_limit"]);
    assert_eq!(gateway.get("/unlimited").status, 200);
}

/// A route `working`, on which a plugin needs about an eighth of its limit, and
/// `burning` for others.
fn working_and_burning() -> Gateway {
    let modules = [("guest", guests::path("loop_forever")), ("burner", guests::path("loop_forever"))];
    let limits = "limits: { cpu: 100ms, request_cpu: 100ms, wall: 1h }";
    let working = format!("plugins: [{{ guest: {{ hook: request, rounds: {ROUNDS} }}, {limits} }}]");
    let burning = format!("plugins: [{{ burner: {{ hook: request }}, {ENDLESS} }}]");
    site(&modules, &[("working", &working), ("burning", &burning)]).start()
}

#[test]
fn what_others_run_on_the_worker_is_not_charged() {
    let gateway = working_and_burning();
    let mut burners: Vec<_> = (0..50).map(|_| gateway.connect()).collect();
    burners.iter_mut().for_each(|burner| burner.send("GET /burning HTTP/1.1\r\nhost: x\r\n\r\n"));
    eventually("all burn", || gateway.metric("weir_requests_in_flight") == 50);
    let mut client = gateway.connect();
    assert_eq!([(); 3].map(|()| client.get("/working").status), [200; 3]);
    assert!(burners.iter_mut().all(|burner| !burner.has_answer()));
    assert_eq!(gateway.metric("weir_plugin_failures_total"), 0);
}

#[test]
fn what_others_run_on_the_machine_is_not_charged() {
    let gateway = working_and_burning();
    let mut client = gateway.connect();
    let stop = AtomicBool::new(false);
    let statuses = thread::scope(|scope| {
        // The worker gets a twentieth of a core.
        for _ in 0..20 * thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let statuses = [(); 3].map(|()| client.get("/working").status);
        stop.store(true, Ordering::Relaxed);
        statuses
    });
    assert_eq!(statuses, [200; 3]);
    assert_eq!(gateway.metric("weir_plugin_failures_total"), 0);
}
