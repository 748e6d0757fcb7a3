//! Hostile guests against the running gateway: whatever a plugin does costs it
//! one instance and one request, is told, and is nobody else's business.
//!
//! `load` is what is refused before it serves, `time` the limits of CPU and wall
//! clock, `crash` traps and what is undone then, `output` memory and what a guest
//! hands over, `pool` places and the breaker, `prepared` what `configure` leaves
//! for the hooks, `finish` the end of each request,
//! `wasi` what a module of the system's kind is given.

use std::{fs, path::PathBuf};

use crate::{
    guests,
    support::{Gateway, Response, Site},
};

mod crash;
mod finish;
mod load;
mod output;
mod pool;
mod prepared;
mod time;
mod wasi;

/// Limits that nothing here reaches.
const ENDLESS: &str = "limits: { cpu: 1h, request_cpu: 1h, wall: 1h }";

/// A site with modules and routes. Each route is `/<name>`, and goes to the echo
/// unless it names an upstream.
fn site(modules: &[(&str, PathBuf)], routes: &[(&str, &str)]) -> Site {
    let site = Site::new();
    let mut yaml = "workers: 1\nlisten: [address: 127.0.0.1:0]\nadmin: { address: 127.0.0.1:0 }\nmodules:\n".to_owned();
    for (name, path) in modules {
        site.put(&format!("{name}.wasm"), fs::read(path).unwrap());
        yaml += &format!("  {name}: {{ path: {name}.wasm }}\n");
    }
    yaml += "routes:\n";
    for (name, rest) in routes {
        let upstream = if rest.contains("upstream: ") { "" } else { "upstream: internal:echo, " };
        yaml += &format!("  - {{ name: {name}, match: {{ path_prefix: /{name} }}, {upstream}{rest} }}\n");
    }
    site.put("weir.yaml", yaml);
    site
}

/// A gateway with the guest as the module `guest`.
fn start(guest: &str, routes: &[(&str, &str)]) -> Gateway {
    site(&[("guest", guests::path(guest))], routes).start()
}

/// Waits for the line of the log with these texts about a failed request. The
/// client is told the id of it, and nothing of what is inside.
fn told(gateway: &Gateway, response: &Response, texts: &[&str]) -> String {
    let id = response.header("x-request-id").unwrap();
    let text = response.text();
    assert!(text.contains(id), "{text}");
    assert!(!text.contains("guest") && !text.contains("wasm"), "{text}");
    gateway.log.find(&[&[&*format!("id={id}"), "plugin=guest"], texts].concat())
}

fn failures(gateway: &Gateway, kind: &str) -> u64 {
    gateway.metric(&format!("weir_plugin_failures_total{{plugin=\"guest\",kind=\"{kind}\"}}"))
}

fn instances(gateway: &Gateway) -> u64 {
    gateway.metric("weir_plugin_instances{module=\"guest\"")
}
