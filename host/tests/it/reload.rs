//! Live change: whichever way files change, the new configuration serves once
//! it stands, and one that does not stand changes nothing and says why.

use std::{
    fs::{self, File},
    io::Write,
    net::{SocketAddr, TcpListener},
    os::unix::fs::symlink,
    time::SystemTime,
};

use rustix::process::Signal;

use crate::{
    guests,
    support::{Client, Gateway, Site, Upstream, eventually, ok, refuses},
};

/// A configuration that answers with a text.
fn saying(text: &str) -> String {
    config(&format!("plugins: [respond: {{ body: {text} }}]"))
}

/// One route on one listener. `rest` are further keys of the route.
fn config(rest: &str) -> String {
    format!(
        "listen: [address: 127.0.0.1:0]\nadmin: {{ address: 127.0.0.1:0 }}\nroutes:\n  - name: all\n    upstream: internal:echo\n    {rest}\n"
    )
}

/// The same with a module `guest` in the file `guest.wasm`.
fn with_guest(rest: &str) -> String {
    format!("modules:\n  guest: {{ path: guest.wasm }}\n{}", config(rest))
}

/// A gateway that says "one".
fn saying_one() -> Gateway {
    let site = Site::new();
    site.put("weir.yaml", saying("one"));
    site.start()
}

/// A gateway that runs version "a" of `stamp`.
fn stamping() -> Gateway {
    let site = Site::new();
    site.put("guest.wasm", stamp("a"));
    site.put("weir.yaml", with_guest("plugins: [guest: {}]"));
    site.start()
}

fn stamp(version: &str) -> Vec<u8> {
    fs::read(guests::stamp(version)).unwrap()
}

/// Which build of `stamp` serves.
fn stamped(gateway: &Gateway) -> String {
    gateway.get("/").header("x-stamp-version").unwrap_or_default().to_owned()
}

// How files change.

#[test]
fn a_file_edited_in_place_is_served() {
    let gateway = saying_one();
    fs::write(gateway.site.path("weir.yaml"), saying("two")).unwrap();
    gateway.log.wait_for("config 2 serving");
    assert_eq!(gateway.get("/").text(), "two");
    assert_eq!(gateway.metric("weir_config_version"), 2);
    assert_eq!(gateway.metric("weir_reloads_total{outcome=\"applied\"}"), 1);
}

#[test]
fn a_file_renamed_into_place_is_served() {
    let gateway = saying_one();
    for (version, text) in [(2, "two"), (3, "three"), (4, "four")] {
        gateway.serve(version, &saying(text));
        assert_eq!(gateway.get("/").text(), text);
    }
}

/// As Kubernetes mounts a ConfigMap: what is edited is a link two links away.
#[test]
fn a_flipped_link_changes_config_and_module_at_once() {
    let site = Site::new();
    for (folder, build) in [("..v1", "a"), ("..v2", "b")] {
        fs::create_dir(site.path(folder)).unwrap();
        fs::write(site.path(folder).join("guest.wasm"), stamp(build)).unwrap();
        let yaml = with_guest(&format!("plugins: [guest: {{ value: {folder} }}]"));
        fs::write(site.path(folder).join("weir.yaml"), yaml).unwrap();
    }
    let point = |folder: &str, site: &Site| {
        symlink(folder, site.path("..new")).unwrap();
        fs::rename(site.path("..new"), site.path("..data")).unwrap();
    };
    point("..v1", &site);
    symlink("..data/weir.yaml", site.path("weir.yaml")).unwrap();
    symlink("..data/guest.wasm", site.path("guest.wasm")).unwrap();
    let gateway = site.start();
    assert_eq!(stamped(&gateway), "a");
    for (version, folder, build) in [(2, "..v2", "b"), (3, "..v1", "a")] {
        point(folder, &gateway.site);
        gateway.log.wait_for(&format!("config {version} serving"));
        let response = gateway.get("/");
        assert_eq!((response.header("x-stamp"), response.header("x-stamp-version")), (Some(folder), Some(build)));
    }
    assert_eq!(gateway.log.count("refused"), 0);
}

#[test]
fn a_file_written_in_parts_is_served_when_it_is_whole() {
    let gateway = saying_one();
    let text = saying("\"two\"");
    let (start, rest) = text.split_at(text.find("wo\"").unwrap());
    fs::write(gateway.site.path("weir.yaml"), start).unwrap();
    gateway.log.wait_for("config refused");
    assert_eq!(gateway.get("/").text(), "one");
    File::options().append(true).open(gateway.site.path("weir.yaml")).unwrap().write_all(rest.as_bytes()).unwrap();
    gateway.log.wait_for("config 2 serving");
    assert_eq!(gateway.get("/").text(), "two");
}

#[test]
fn a_deleted_file_serves_on_and_its_return_is_seen() {
    let gateway = saying_one();
    fs::remove_file(gateway.site.path("weir.yaml")).unwrap();
    gateway.log.wait_for("config refused, 1 problems; config 1 goes on");
    assert_eq!(gateway.get("/").text(), "one");
    assert_eq!(gateway.metric("weir_config_last_error"), 1);
    gateway.site.put("weir.yaml", saying("one"));
    eventually("seen again", || gateway.metric("weir_config_last_error") == 0);
    assert_eq!(gateway.metric("weir_config_version"), 1);
    gateway.serve(2, &saying("two"));
}

#[test]
fn a_deleted_module_serves_on_and_its_return_is_seen() {
    let gateway = stamping();
    fs::remove_file(gateway.site.path("guest.wasm")).unwrap();
    gateway.log.wait_for("modules.guest: module \"guest\": can't read");
    assert_eq!(stamped(&gateway), "a");
    gateway.site.put("guest.wasm", stamp("b"));
    gateway.log.wait_for("config 2 serving");
    assert_eq!(stamped(&gateway), "b");
}

#[test]
fn the_same_content_makes_no_new_version() {
    let gateway = stamping();
    let unchanged = || gateway.metric("weir_reloads_total{outcome=\"unchanged\"}");
    let touch = |name: &str| {
        let file = File::options().append(true).open(gateway.site.path(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    };
    let changes: [&dyn Fn(); 4] = [
        &|| touch("weir.yaml"),
        &|| touch("guest.wasm"),
        &|| gateway.site.put("weir.yaml", with_guest("plugins: [guest: {}]")),
        &|| gateway.site.put("guest.wasm", stamp("a")),
    ];
    for change in changes {
        let before = unchanged();
        change();
        eventually("looked at", || unchanged() > before);
    }
    assert_eq!(gateway.metric("weir_config_version"), 1);
    assert_eq!(gateway.log.count("serving"), 1);
}

#[test]
fn sighup_reloads_and_says_what_came_of_it() {
    let gateway = saying_one();
    gateway.signal(Signal::HUP);
    gateway.log.wait_for("config unchanged");
    gateway.site.put("weir.yaml", "listen: []\n");
    gateway.log.wait_for("config refused");
    // A refusal is told once, but to whoever asks again.
    gateway.signal(Signal::HUP);
    gateway.log.wait_for("config refused");
    gateway.site.put("weir.yaml", saying("two"));
    gateway.signal(Signal::HUP);
    gateway.log.wait_for("config 2 serving");
    assert_eq!(gateway.get("/").text(), "two");
}

// What is refused.

#[test]
fn a_mistake_is_told_with_its_place_and_the_old_config_goes_on() {
    let gateway = saying_one();
    let bad = saying("one").replace("upstream: internal:echo", "upstraem: internal:echo\n    timeouts: { total: 1x }");
    gateway.site.put("weir.yaml", bad);
    let problems = [
        "weir.yaml:4:5: routes[0]: \"upstream\" is missing",
        "weir.yaml:5:5: routes[0]: unknown key \"upstraem\" (did you mean \"upstream\"?)",
        "weir.yaml:6:24: routes[0].timeouts.total: \"1x\" is no duration",
    ];
    gateway.log.wait_for("config refused, 3 problems; config 1 goes on");
    let readiness = gateway.admin_get("/readyz");
    assert_eq!(readiness.status, 200);
    let told = readiness.json()["config_error"].as_str().unwrap().to_owned();
    for problem in problems {
        assert_eq!((gateway.log.count(problem), told.contains(problem)), (1, true), "{problem}\n{told}");
    }
    let metrics = |gateway: &Gateway| {
        ["weir_config_version", "weir_config_last_error", "weir_reloads_total{outcome=\"refused\"}"]
            .map(|name| gateway.metric(name))
    };
    assert_eq!(metrics(&gateway), [1, 1, 1]);
    assert_eq!(gateway.get("/").text(), "one");

    gateway.serve(2, &saying("two"));
    assert_eq!(metrics(&gateway), [2, 0, 1]);
    assert_eq!(gateway.admin_get("/readyz").json()["config_error"], serde_json::Value::Null);
}

#[test]
fn a_change_of_workers_is_refused_by_name() {
    let site = Site::new();
    site.put("weir.yaml", format!("workers: 1\n{}", saying("one")));
    let gateway = site.start();
    gateway.site.put("weir.yaml", format!("workers: 2\n{}", saying("two")));
    gateway.log.wait_for("weir.yaml:1:10: workers: can't change while the gateway runs (restart it)");
    assert_eq!(gateway.get("/").text(), "one");
}

#[test]
fn ruined_modules_are_refused_by_name_and_cause() {
    let gateway = stamping();
    let good = stamp("a");
    let built_for = |from: &str, to: &str| replaced(&good, from, to);
    let machine_code = fs::read(env!("CARGO_BIN_EXE_weir")).unwrap()[..4096].to_vec();
    let cases: [(&str, Vec<u8>, &str); 11] = [
        ("cut short", good[..good.len() / 2].to_vec(), "not a valid component"),
        ("cut in its header", good[..6].to_vec(), "the file is cut short"),
        ("empty", Vec::new(), "the file is empty"),
        ("text", b"not wasm at all".to_vec(), "not a WebAssembly file"),
        ("a core module", guests::core_module("probe"), "a core module, not a component"),
        ("machine code", machine_code, "machine code, not a component"),
        ("a byte wrong", flipped(&good), "not a valid component"),
        ("no exports", b"\0asm\x0d\0\x01\0".to_vec(), "not a plugin: it exports nothing"),
        ("another world", built_for("weir:plugin/hooks@", "weir:plugin/socks@"), "not a plugin: it exports weir:"),
        ("another version", built_for("@0.1.0", "@0.2.0"), "built for weir:plugin@0.2.0; this gateway speaks 0.1"),
        ("an unknown import", built_for("weir:plugin/log@", "weir:plugin/lag@"), "imports weir:plugin/lag@0.1.0"),
    ];
    for (name, bytes, cause) in cases {
        gateway.site.put("guest.wasm", bytes);
        let line = gateway.log.wait_for("weir.yaml:2:10: modules.guest: ");
        assert!(line.contains(&format!("module \"guest\": {cause}")), "{name}: {line}");
        gateway.log.wait_for("config refused, 1 problems; config 1 goes on");
        assert_eq!(stamped(&gateway), "a", "{name}");
    }
    gateway.site.put("guest.wasm", stamp("b"));
    gateway.log.wait_for("config 2 serving");
    assert_eq!(stamped(&gateway), "b");
}

/// All places of a text in a component, which has the length in front of each.
fn replaced(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = bytes.to_vec();
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(from.len()).position(|window| window == from.as_bytes()) {
        bytes[at + found..][..to.len()].copy_from_slice(to.as_bytes());
        at += found + to.len();
    }
    bytes
}

/// One bit wrong in the first core module's code.
fn flipped(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let module = bytes.windows(8).position(|window| window == b"\0asm\x01\0\0\0").unwrap();
    bytes[module + 9] ^= 0x40;
    bytes
}

#[test]
fn an_enormous_file_is_no_module() {
    let gateway = stamping();
    let beside = File::create(gateway.site.path("beside")).unwrap();
    beside.set_len(65 << 20).unwrap();
    fs::rename(gateway.site.path("beside"), gateway.site.path("guest.wasm")).unwrap();
    gateway.log.wait_for("guest.wasm has 68157440 bytes: more than 67108864");
    assert_eq!(stamped(&gateway), "a");
}

#[test]
fn what_a_plugin_refuses_has_its_place_in_the_file() {
    let site = Site::new();
    site.put("guest.wasm", fs::read(guests::path("probe")).unwrap());
    site.put("weir.yaml", with_guest("plugins: [guest: {}]"));
    let gateway = site.start();
    let probing = |config: &str| with_guest(&format!("plugins:\n      - guest:\n          {config}"));
    for (config, problem) in [
        // By its own code, by its schema.
        ("hook: finish\n          report: answer", "weir.yaml:11:19: routes[0].plugins[0].guest.report: must be `log`"),
        ("hook: never", "weir.yaml:10:17: routes[0].plugins[0].guest.hook: "),
        ("steps: [{ set_status: many }]", "weir.yaml:10:"),
    ] {
        gateway.site.put("weir.yaml", probing(config));
        let line = gateway.log.wait_for("weir.yaml:");
        assert!(line.contains(problem), "{line}");
        gateway.log.wait_for("config refused");
        assert_eq!(gateway.get("/").status, 200);
    }
}

#[test]
fn a_plugin_that_breaks_down_in_configure_is_refused() {
    let site = Site::new();
    site.put("crash.wasm", fs::read(guests::path("crash")).unwrap());
    site.put("loop.wasm", fs::read(guests::path("loop_forever")).unwrap());
    site.put("weir.yaml", saying("one"));
    let gateway = site.start();
    for (plugin, cause) in [
        ("crash: { how: trap, hook: configure }", "plugin \"crash\" failed in configure: "),
        ("crash: { how: panic, hook: configure }", "plugin \"crash\" failed in configure: "),
        ("crash: { how: stack, hook: configure }", "plugin \"crash\" failed in configure: "),
        ("loop: { hook: configure }", "plugin \"loop\" failed in configure: cpu_limit"),
    ] {
        let modules = "modules: { crash: { path: crash.wasm }, loop: { path: loop.wasm } }";
        gateway.site.put("weir.yaml", format!("{modules}\n{}", config(&format!("plugins: [{plugin}]"))));
        gateway.log.wait_for(&format!("routes[0].plugins[0].{}: {cause}", plugin.split(':').next().unwrap()));
        gateway.log.wait_for("config 1 goes on");
        assert_eq!(gateway.get("/").text(), "one");
    }
}

/// A plugin that could be configured for the check but not in the instances that
/// are to serve: the configuration from just before goes on, even where no
/// request has come since it serves.
#[test]
fn a_plugin_that_does_not_get_warm_is_refused() {
    let site = Site::new();
    site.put("crash.wasm", fs::read(guests::path("crash")).unwrap());
    site.put("weir.yaml", saying("one"));
    let gateway = site.start();
    let mut version = 1;
    loop {
        version += 1;
        let text = format!("v{version}");
        // The same files in both, so that nothing but a change makes it look.
        let module = "modules: { crash: { path: crash.wasm } }\n";
        gateway.serve(version, &format!("{module}{}", saying(&text)));
        let crashing = "crash: { how: trap, hook: configure, sometimes: true }";
        gateway.site.put("weir.yaml", format!("{module}# {text}\n{}", config(&format!("plugins: [{crashing}]"))));
        let (outcome, line) = gateway.log.wait_for_any(&["serving", "did not get warm", "failed in configure"]);
        match outcome {
            0 => version += 1,
            1 => {
                assert!(line.contains("a plugin did not get warm: configure failed"), "{line}");
                gateway.log.wait_for("goes on");
                assert_eq!(gateway.get("/").text(), text);
                return;
            }
            _ => drop(gateway.log.wait_for("goes on")),
        }
    }
}

// Modules.

#[test]
fn a_module_file_alone_is_swapped() {
    let gateway = stamping();
    gateway.site.put("guest.wasm", stamp("b"));
    gateway.log.wait_for("config 2 serving");
    assert_eq!(stamped(&gateway), "b");

    // Written in place, in two parts.
    let bytes = stamp("a");
    let (start, rest) = bytes.split_at(bytes.len() / 3);
    fs::write(gateway.site.path("guest.wasm"), start).unwrap();
    gateway.log.wait_for("config refused");
    assert_eq!(stamped(&gateway), "b");
    File::options().append(true).open(gateway.site.path("guest.wasm")).unwrap().write_all(rest).unwrap();
    gateway.log.wait_for("config 3 serving");
    assert_eq!(stamped(&gateway), "a");
}

/// The state between is refused, the state at the end serves, whichever of the
/// two files comes first.
#[test]
fn config_and_module_changed_together_converge() {
    let pinned = |build: &str| {
        let digest = weir::plugin::cache::hex(&<sha2::Sha256 as sha2::Digest>::digest(stamp(build)));
        with_guest("plugins: [guest: {}]").replace("guest.wasm }", &format!("guest.wasm, sha256: {digest} }}"))
    };
    let site = Site::new();
    site.put("guest.wasm", stamp("a"));
    site.put("weir.yaml", pinned("a"));
    let gateway = site.start();

    gateway.site.put("weir.yaml", pinned("b"));
    gateway.log.wait_for("module \"guest\": the file's sha256 is ");
    assert_eq!(stamped(&gateway), "a");
    gateway.site.put("guest.wasm", stamp("b"));
    gateway.log.wait_for("config 2 serving");
    assert_eq!(stamped(&gateway), "b");

    gateway.site.put("guest.wasm", stamp("a"));
    gateway.log.wait_for("module \"guest\": the file's sha256 is ");
    assert_eq!(stamped(&gateway), "b");
    gateway.site.put("weir.yaml", pinned("a"));
    gateway.log.wait_for("config 3 serving");
    assert_eq!(stamped(&gateway), "a");
}

/// The module that a refused configuration names is waited for.
#[test]
fn a_missing_module_may_come_later() {
    let gateway = saying_one();
    gateway.site.put("weir.yaml", with_guest("plugins: [guest: {}]"));
    gateway.log.wait_for("module \"guest\": can't read");
    gateway.site.put("guest.wasm", stamp("a"));
    gateway.log.wait_for("config 2 serving");
    assert_eq!(stamped(&gateway), "a");
}

// Listeners.

/// Two loopback addresses, so that both may ask for any port.
fn listening(addresses: &[&str], rest: &str) -> String {
    let listen: Vec<_> = addresses.iter().map(|address| format!("address: {address}")).collect();
    config(rest).replace("address: 127.0.0.1:0]", &format!("{}]", listen.join(", ")))
}

/// Where the listener is that the log tells of next.
fn opened(gateway: &Gateway) -> SocketAddr {
    gateway.log.wait_for("listening on ").split(" on ").nth(1).unwrap().parse().unwrap()
}

#[test]
fn listeners_come_and_go() {
    let site = Site::new();
    site.put("weir.yaml", listening(&["127.0.0.1:0"], ""));
    let gateway = site.start();
    let first = gateway.address;
    let mut kept = Client::connect(first);
    assert_eq!(kept.get("/").status, 200);

    gateway.site.put("weir.yaml", listening(&["127.0.0.1:0", "127.0.0.2:0"], ""));
    let second = opened(&gateway);
    gateway.log.wait_for("config 2 serving");
    assert_eq!(Client::connect(second).get("/").status, 200);
    // One that stays keeps its socket and its connections.
    assert_eq!(kept.get("/").status, 200);
    assert_eq!(Client::connect(first).get("/").status, 200);

    gateway.site.put("weir.yaml", listening(&["127.0.0.2:0"], ""));
    gateway.log.wait_for("closing 127.0.0.1:0");
    gateway.log.wait_for("config 3 serving");
    eventually("the first is closed", || refuses(first));
    assert_eq!(Client::connect(second).get("/").status, 200);

    // And back, in place of the other one.
    gateway.site.put("weir.yaml", listening(&["127.0.0.1:0"], ""));
    let third = opened(&gateway);
    gateway.log.wait_for("config 4 serving");
    eventually("the second is closed", || refuses(second));
    assert_eq!(Client::connect(third).get("/").status, 200);
}

#[test]
fn connections_of_a_closed_listener_finish() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let upstream = Upstream::start(move |head| {
        if head.starts_with("GET /held ") {
            held.lock().unwrap().recv().unwrap();
        }
        ok("done")
    });
    let yaml = |address: &str| listening(&[address], "").replace("internal:echo", &upstream.url());
    let site = Site::new();
    site.put("weir.yaml", yaml("127.0.0.1:0"));
    let gateway = site.start();
    let (mut busy, mut idle, mut fresh) = (gateway.connect(), gateway.connect(), gateway.connect());
    assert_eq!(idle.get("/").text(), "done");
    busy.send("GET /held HTTP/1.1\r\nhost: test\r\n\r\n");
    eventually("held", || upstream.requests() == 2);
    eventually("accepted", || gateway.metric("weir_connections") == 3);

    gateway.site.put("weir.yaml", yaml("127.0.0.2:0"));
    gateway.log.wait_for("config 2 serving");
    eventually("closed", || refuses(gateway.address));
    // A connection on which nothing has come yet may still bring one request.
    let last = fresh.get("/");
    assert_eq!((last.text().as_str(), last.header("connection")), ("done", Some("close")));
    assert!(idle.is_ended());
    assert!(!busy.has_answer());
    release.send(()).unwrap();
    let answer = busy.response();
    assert_eq!((answer.text().as_str(), answer.header("connection")), ("done", Some("close")));
    assert!(busy.is_ended());
}

#[test]
fn a_port_that_is_taken_is_refused_with_its_place() {
    let gateway = saying_one();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let yaml = listening(&["127.0.0.1:0", &address], "plugins: [respond: { body: two }]");
    gateway.site.put("weir.yaml", yaml);
    gateway.log.wait_for(&format!("weir.yaml:1:41: listen[1].address: can't listen on {address}: "));
    gateway.log.wait_for("config refused, 1 problems; config 1 goes on");
    assert_eq!(gateway.get("/").text(), "one");
    drop(taken);
    gateway.signal(Signal::HUP);
    gateway.log.wait_for(&format!("listening on {address}"));
    gateway.log.wait_for("config 2 serving");
    assert_eq!(Client::connect(address.parse().unwrap()).get("/").text(), "two");
    assert_eq!(gateway.get("/").text(), "two");
}

#[test]
fn the_admin_address_moves() {
    let gateway = saying_one();
    let first = gateway.admin();
    let elsewhere = saying("one").replace("admin: { address: 127.0.0.1:0 }", "admin: { address: 127.0.0.2:0 }");
    gateway.site.put("weir.yaml", elsewhere);
    gateway.log.wait_for("admin on 127.0.0.2:");
    gateway.log.wait_for("config 2 serving");
    eventually("the old one is closed", || refuses(first));
    let second = gateway.admin();
    assert_ne!(first, second);
    assert_eq!(gateway.admin_get("/readyz").json()["config_version"], 2);

    gateway.serve(3, &saying("one").replace("admin: { address: 127.0.0.1:0 }\n", ""));
    eventually("closed", || refuses(second));
    assert_eq!(gateway.get("/").text(), "one");
}
