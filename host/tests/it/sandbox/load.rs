//! What is refused before it serves: the check says why, and a gateway that runs
//! goes on with what it has.

use std::{fs, path::PathBuf};

use super::{instances, site};
use crate::guests;

/// What `weir check` says of one use of a module.
fn refusal(module: PathBuf, config: &str) -> String {
    let entry = format!("plugins: [{{ guest: {config} }}]");
    let (code, said) = site(&[("guest", module)], &[("a", &entry)]).check();
    assert_eq!(code, Some(78), "{said}");
    said
}

#[test]
fn a_configure_that_never_returns_is_a_load_error() {
    let said = refusal(guests::path("loop_forever"), "{ hook: configure }");
    assert!(said.contains("plugin \"guest\" failed in configure: cpu_limit"), "{said}");
}

#[test]
fn a_configure_that_crashes_is_a_load_error_with_its_last_words() {
    for (how, last_words) in [("trap", "wasm backtrace"), ("panic", "crash as told"), ("stack", "wasm backtrace")] {
        let said = refusal(guests::path("crash"), &format!("{{ how: {how}, hook: configure }}"));
        assert!(said.contains("plugin \"guest\" failed in configure: "), "{said}");
        assert!(said.contains(last_words), "{how}: {said}");
    }
    let said = refusal(guests::path("crash"), "{ how: fail, hook: configure }");
    assert!(said.contains("routes[0].plugins[0].guest.how: failed as told"), "{said}");
}

#[test]
fn a_plugin_that_wants_bodies_is_told_that_it_gets_none() {
    for phase in ["buffered", "streamed"] {
        let said = refusal(guests::path("wants_body"), &format!("{{ phase: {phase} }}"));
        assert!(said.contains("asks for the request's body, which this version does not hand over"), "{said}");
        assert!(said.contains("weir.yaml:7:") && said.contains("routes[0].plugins[0].guest: "), "{said}");
    }
}

#[test]
fn a_module_that_wants_more_than_it_may_is_refused_by_what_it_imports() {
    let said = refusal(guests::wasi("sockets"), "{ address: 127.0.0.1:1 }");
    assert!(said.contains("module \"guest\": imports wasi:sockets/"), "{said}");
    assert!(said.contains("which this gateway does not offer"), "{said}");
    assert!(said.contains("weir.yaml:5:"), "told where the module is named: {said}");
}

#[test]
fn a_running_gateway_goes_on_with_what_it_has() {
    let gateway = site(&[("guest", guests::path("crash"))], &[("a", "plugins: [respond: { body: old }]")]).start();
    let yaml = fs::read_to_string(gateway.site.path("weir.yaml")).unwrap();
    for (how, why) in [("panic", "failed in configure"), ("fail", "failed as told")] {
        let entry = format!("guest: {{ how: {how}, hook: configure }}");
        gateway.site.put("weir.yaml", yaml.replace("respond: { body: old }", &entry));
        let line = gateway.log.wait_for("config refused");
        assert!(line.contains("config 1 goes on"), "{line}");
        gateway.log.find(&["ERROR", why]);
        assert_eq!(gateway.get("/a").text(), "old");
    }
    gateway.log.find(&["panicked at ", "crash.rs:", "crash as told", "plugin=guest"]);
    assert_eq!(instances(&gateway), 0);
}
