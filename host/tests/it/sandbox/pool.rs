//! Instances: no more than allowed, waiting for one is bounded, and a plugin that
//! only crashes is left alone for a while.

use super::{failures, instances, site, start};
use crate::{
    guests,
    support::{Client, Gateway, eventually},
};

/// Calls on `/a` that last until the client leaves, with these limits.
fn sleeping(limits: &str) -> Gateway {
    let entry =
        format!("plugins: [{{ guest: {{ sleep: 1h }}, limits: {{ cpu: 1h, request_cpu: 1h, wall: 1h, {limits} }} }}]");
    site(&[("guest", guests::wasi("wasi"))], &[("a", &entry), ("other", "plugins: [respond: {}]")]).start()
}

fn send(gateway: &Gateway) -> Client {
    let mut client = gateway.connect();
    client.send("GET /a HTTP/1.1\r\nhost: x\r\n\r\n");
    client
}

#[test]
fn a_call_that_finds_no_instance_in_time_is_answered_with_503() {
    let gateway = sleeping("instances: 2, wait: 100ms");
    let (one, two) = (send(&gateway), send(&gateway));
    eventually("both are taken", || instances(&gateway) == 2);
    let response = gateway.get("/a");
    assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
    let id = response.header("x-request-id").unwrap();
    let logged = gateway.access_log.find(&[id]);
    assert!(logged.contains("\"error\":\"busy\"") && logged.contains("\"answered_by\":\"guest\""), "{logged}");
    assert_eq!(failures(&gateway, "busy"), 1);
    assert_eq!((instances(&gateway), gateway.get("/other").status), (2, 200));
    drop((one, two));
}

#[test]
fn no_more_instances_live_than_allowed_and_who_waits_gets_the_next() {
    let gateway = sleeping("instances: 3, wait: 1h");
    let mut clients: Vec<_> = (0..8).map(|_| send(&gateway)).collect();
    eventually("all have come", || gateway.metric("weir_requests_in_flight") == 8);
    for left in (0..8).rev() {
        eventually("as many as may", || instances(&gateway) == 3.min(left as u64 + 1));
        drop(clients.pop());
        eventually("one has left", || gateway.metric("weir_requests_in_flight") == left as u64);
        assert!(instances(&gateway) <= 3);
        assert_eq!(gateway.get("/other").status, 200);
    }
    assert_eq!(failures(&gateway, "busy"), 0);
}

#[test]
fn an_instance_is_replaced_after_its_calls() {
    // It keeps a MiB for each call, and has room for some.
    let kept = |recycle: &str| {
        format!("plugins: [{{ guest: {{ bytes: 1048576 }}, limits: {{ memory: 4MiB, recycle_after: {recycle} }} }}]")
    };
    let gateway = start("eat_memory", &[("fresh", &kept("1")), ("old", &kept("100"))]);
    let mut client = gateway.connect();
    assert_eq!([(); 10].map(|()| client.get("/fresh").status), [200; 10]);
    assert!([(); 10].map(|()| client.get("/old").status).contains(&500));
}

#[test]
fn a_plugin_that_only_crashes_is_left_alone_and_tried_again() {
    let crashing = "guest: { how: trap, hook: request, only_with: x-crash }";
    let gateway = start(
        "crash",
        &[
            ("deny", &format!("plugins: [{crashing}]")),
            ("skip", &format!("plugins: [{{ {crashing}, on_error: skip }}]")),
            ("other", "plugins: [respond: {}]"),
        ],
    );
    let mut client = gateway.connect();
    eventually("suspended", || match client.ask("/deny", "x-crash: 1\r\n").status {
        500 => false,
        503 => true,
        status => panic!("{status}"),
    });
    gateway.log.find(&["plugin crashes too often: suspended on this worker", "plugin=guest", "seconds=1"]);
    let (crashes, calls) = (failures(&gateway, "trap"), failures(&gateway, "suspended"));
    assert!(crashes >= 20 && calls >= 1, "{crashes}, {calls}");
    assert_eq!((client.get("/skip").status, client.get("/other").status), (200, 200));

    // Whoever asks meanwhile is not served either, and some time later is again.
    let mut refused = None;
    eventually("tried again", || {
        let response = client.get("/deny");
        if response.status == 503 {
            refused = Some(response);
            return false;
        }
        assert_eq!(response.status, 200);
        true
    });
    if let Some(response) = refused {
        let logged = gateway.access_log.find(&[response.header("x-request-id").unwrap()]);
        assert!(logged.contains("\"error\":\"suspended\""), "{logged}");
    }
    assert_eq!(failures(&gateway, "trap"), crashes);
    assert_eq!([(); 5].map(|()| client.get("/deny").status), [200; 5]);
}

#[test]
fn a_plugin_that_crashes_now_and_then_is_called_on() {
    let gateway = start("crash", &[("a", "plugins: [guest: { how: trap, hook: request, only_with: x-crash }]")]);
    let mut client = gateway.connect();
    for _ in 0..100 {
        assert_eq!(client.ask("/a", "x-crash: 1\r\n").status, 500);
        assert_eq!([client.get("/a").status, client.get("/a").status], [200, 200]);
    }
    assert_eq!((failures(&gateway, "trap"), failures(&gateway, "suspended")), (100, 0));
}

/// Calls that were under way when it was suspended say nothing new: each would
/// double the time.
#[test]
fn many_crashes_at_once_suspend_once() {
    let entry =
        "plugins: [{ guest: { hook: request, only_with: x-loop }, limits: { cpu: 1h, request_cpu: 1h, wall: 300ms } }]";
    let gateway = start("loop_forever", &[("a", entry)]);
    let mut clients: Vec<_> = (0..40).map(|_| gateway.connect()).collect();
    // On a busy machine they may be spread over more than the second that counts.
    eventually("suspended", || {
        clients.iter_mut().for_each(|client| client.send("GET /a HTTP/1.1\r\nhost: x\r\nx-loop: 1\r\n\r\n"));
        let statuses: Vec<_> = clients.iter_mut().map(|client| client.response().status).collect();
        assert!(statuses.iter().all(|status| [500, 503].contains(status)), "{statuses:?}");
        gateway.log.count("suspended on this worker") > 0
    });
    assert!(failures(&gateway, "wall_limit") > 20);
    assert_eq!(gateway.log.count("suspended on this worker"), 1);
}

#[test]
fn a_plugin_with_all_its_instances_out_is_in_no_other_ones_way() {
    // As many as there are by default, and as many again that wait for one.
    let gateway = sleeping("wait: 1h");
    let clients: Vec<_> = (0..128).map(|_| send(&gateway)).collect();
    eventually("all have come", || gateway.metric("weir_requests_in_flight") == 128);
    eventually("all are out", || instances(&gateway) == 64);
    for _ in 0..10 {
        assert_eq!(gateway.get("/other").status, 200);
    }
    assert_eq!(instances(&gateway), 64);
    drop(clients);
    eventually("all have left", || gateway.metric("weir_requests_in_flight") == 0);
}
