//! What a module gets that was built for the system: clocks, randomness and the
//! log; no files, no arguments, and of the environment what is allowed.

use std::time::{Duration, Instant};

use serde_json::json;

use super::site;
use crate::{guests, support::Gateway};

/// A gateway with `guest` built for WASI. `allow` is part of the module's entry.
fn start(allow: &str, config: &str) -> Gateway {
    let site = site(&[("guest", guests::wasi("wasi"))], &[("a", &format!("plugins: [guest: {config}]"))]);
    let yaml = std::fs::read_to_string(site.path("weir.yaml")).unwrap();
    site.put("weir.yaml", yaml.replace("path: guest.wasm", &format!("path: guest.wasm{allow}")));
    site.start()
}

#[test]
fn nothing_of_the_system_is_seen_that_is_not_allowed() {
    // Each is there for the gateway.
    let file = env!("CARGO_MANIFEST_PATH");
    assert!(std::env::var_os("PATH").is_some() && std::path::Path::new(file).exists());
    let gateway = start("", &format!("{{ env: PATH, file: \"{file}\" }}"));
    let seen = gateway.get("/a").json();
    for (what, nothing) in
        [("env", json!(null)), ("all_env", json!(0)), ("arguments", json!(0)), ("file", json!(false))]
    {
        assert_eq!(seen[what], nothing, "{what}");
    }
}

#[test]
fn an_allowed_variable_is_seen_and_no_other() {
    let gateway = start(", allow: { env: [PATH, WEIR_TEST_NOT_SET] }", "{ env: PATH }");
    let seen = gateway.get("/a").json();
    assert_eq!(seen["env"], std::env::var("PATH").unwrap());
    assert_eq!(seen["all_env"], 1);
}

#[test]
fn what_is_printed_goes_to_the_log() {
    let gateway = start("", "{ print: \"two words\\nINFO forged\" }");
    assert_eq!(gateway.get("/a").status, 200);
    for stream in ["stream=stdout", "stream=stderr"] {
        let line = gateway.log.find(&["two words", "plugin=guest", stream]);
        assert!(line.contains(" INFO two words "), "{line}");
        // A line of its own, with whose it is.
        gateway.log.find(&["INFO forged", "plugin=guest", stream]);
    }
    assert_eq!(gateway.access_log.count("two words"), 0);
}

#[test]
fn clocks_and_randomness_work() {
    // It waits for longer than it may compute.
    let gateway = start(", limits: { recycle_after: 1 }", "{ sleep: 50ms }");
    let begun = Instant::now();
    let (one, two) = (gateway.get("/a").json(), gateway.get("/a").json());
    assert!(begun.elapsed() >= Duration::from_millis(100));
    assert!(one["time"].as_u64().unwrap() > 1_704_067_200, "{one}");
    // Each instance has seeds of its own.
    assert_ne!(one["random"], two["random"]);
}

#[test]
fn the_gateways_own_interfaces_are_there_too() {
    let steps = "{ steps: [{ edit: [{ set: [x-a, \"1\"] }] }, { random: 16 }, now, { lines: [x-a] }] }";
    let gateway = site(&[("guest", guests::wasi("probe"))], &[("a", &format!("plugins: [guest: {steps}]"))]).start();
    let seen = gateway.get("/a").json();
    assert_eq!((&seen["steps"][0], &seen["steps"][1]["len"]), (&json!("ok"), &json!(16)));
    assert_eq!(seen["steps"][3], json!([["x-a", "1"]]));
    assert_eq!(seen["request"]["path"], "/a");
}
