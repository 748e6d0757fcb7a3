//! The process: arguments, exit codes, what it says before it serves, and how it
//! ends. What a running gateway refuses is in `reload`.

use std::{
    fs::{self, Permissions},
    net::TcpListener,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::Path,
    process::Command,
};

use rustix::process::Signal;

use crate::{
    guests,
    support::{Gate, Gateway, Outcome, Site, Upstream, binary, command, eventually, ok, outcome, refuses},
};

const FAILURE: Option<i32> = Some(1);
const USAGE: Option<i32> = Some(2);
const BAD_CONFIG: Option<i32> = Some(78);

const VERBS: [&str; 2] = ["run", "check"];

fn weir(arguments: &[&str]) -> Outcome {
    outcome(Command::new(binary()).args(arguments).env_remove("WEIR_LOG"))
}

/// What a command with a configuration says that does not get far.
fn says(verb: &str, config: &Path) -> Outcome {
    outcome(&mut command(verb, config))
}

/// A configuration that answers with a text on these addresses.
fn saying(text: &str, listen: &str, admin: &str) -> String {
    format!(
        "listen: [address: {listen}]\nadmin: {{ address: {admin} }}\n\
         routes: [{{ name: all, upstream: internal:echo, plugins: [respond: {{ body: {text} }}] }}]\n"
    )
}

// Arguments.

#[test]
fn help_and_version_are_asked_for() {
    for (arguments, text) in [
        (&["--help"][..], "Usage: weir <COMMAND>"),
        (&["help"], "Usage: weir <COMMAND>"),
        (&["run", "--help"], "--config <FILE>"),
        (&["check", "--help"], "--config <FILE>"),
        (&["--version"], concat!("weir ", env!("CARGO_PKG_VERSION"), "\n")),
    ] {
        let said = weir(arguments);
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        assert!(said.stdout.contains(text), "{arguments:?}: {}", said.stdout);
    }
}

#[test]
fn wrong_usage_has_a_code_of_its_own() {
    for (arguments, text) in [
        (&[][..], "Usage: weir <COMMAND>"),
        (&["serve"], "'serve'"),
        (&["run", "--confg", "x"], "'--confg'"),
        (&["run", "--config"], "--config <FILE>"),
        (&["check", "weir.yaml"], "'weir.yaml'"),
    ] {
        let said = weir(arguments);
        assert_eq!((said.code, said.stdout.as_str()), (USAGE, ""), "{arguments:?}");
        assert!(said.stderr.contains(text), "{arguments:?}: {}", said.stderr);
    }
    let said = outcome(command("check", Path::new("none.yaml")).env("WEIR_LOG", "verbose"));
    assert_eq!(said.code, USAGE);
    assert!(said.stderr.contains("WEIR_LOG") && said.stderr.contains("\"verbose\""), "{}", said.stderr);
}

// What is wrong with files.

#[test]
fn check_and_run_tell_all_problems_with_their_places() {
    let unread = "listen: [address: 127.0.0.1:0]
routes:
  - name: a
    upstraem: internal:echo
  - name: b
    match: { path_prefix: /b }
    upstream: users
    timeouts: { total: 1x }
";
    let read_but_not_built = "listen: [address: 127.0.0.1:0]
modules: { gone: { path: gone.wasm } }
routes:
  - name: a
    upstream: internal:echo
    plugins: [key-auth: { heeder: x }]
  - name: b
    match: { path_prefix: /b }
    upstream: internal:echo
    plugins: [gone: {}, respond: { status: 99 }]
";
    let cases = [
        (
            unread,
            &[
                "3:5: routes[0]: \"upstream\" is missing",
                "4:5: routes[0]: unknown key \"upstraem\" (did you mean \"upstream\"?)",
                "7:15: routes[1].upstream: no upstream \"users\" (a name under upstreams, or a URL ",
                "8:24: routes[1].timeouts.total: \"1x\" is no duration",
            ][..],
        ),
        (
            read_but_not_built,
            &[
                "2:18: modules.gone: module \"gone\": can't read ",
                "6:25: routes[0].plugins[0].key-auth: ",
                "10:44: routes[1].plugins[1].respond.status: ",
            ],
        ),
    ];
    for (yaml, problems) in cases {
        let site = Site::new();
        site.put("weir.yaml", yaml);
        for verb in VERBS {
            let said = says(verb, &site.path("weir.yaml"));
            assert_eq!((said.code, said.stdout.as_str()), (BAD_CONFIG, ""), "{verb}: {}", said.stderr);
            let lines: Vec<_> = said.stderr.lines().collect();
            assert_eq!(lines.len(), problems.len(), "{verb}: {}", said.stderr);
            for (line, problem) in lines.iter().zip(problems) {
                let start = format!("{}:{problem}", site.path("weir.yaml").display());
                assert!(line.starts_with(&start), "{verb}: no {start}\n{line}");
            }
        }
    }
}

#[test]
fn problems_beyond_what_anybody_reads_are_counted() {
    let site = Site::new();
    site.put("weir.yaml", (0..2_000).map(|key| format!("k{key}: 1\n")).collect::<String>());
    let said = says("check", &site.path("weir.yaml"));
    assert_eq!((said.code, said.stderr.lines().count()), (BAD_CONFIG, 1_001));
    assert!(said.stderr.ends_with("\nand 1001 more\n"), "each key, and the missing listeners");
}

#[test]
fn a_file_that_is_none_is_a_bad_configuration() {
    let site = Site::new();
    site.put("binary.yaml", b"listen: [address: 127.0.0.1:0]\n# \xff\n");
    for (name, problem) in [
        ("none.yaml", ": the file can't be read: "),
        (".", ": this is no regular file\n"),
        ("binary.yaml", ":2:3: the file is no UTF-8 from here on\n"),
        ("binary.yaml/weir.yaml", ": the file can't be read: "),
    ] {
        for verb in VERBS {
            let said = says(verb, &site.path(name));
            assert_eq!((said.code, said.stdout.as_str()), (BAD_CONFIG, ""), "{verb} {name}");
            let start = format!("{}{problem}", site.path(name).display());
            assert!(said.stderr.starts_with(&start), "{verb}: {}", said.stderr);
            assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
        }
    }
}

/// Root may read everything, so the binary is run as somebody else where the
/// tests are run by root.
#[test]
fn a_file_that_may_not_be_read_is_a_bad_configuration() {
    const NOBODY: u32 = 65_534;
    let site = Site::new();
    site.put("weir.yaml", saying("one", "127.0.0.1:0", "127.0.0.1:0"));
    fs::set_permissions(site.path("weir.yaml"), Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(site.path("."), Permissions::from_mode(0o755)).unwrap();
    fs::copy(binary(), site.path("weir")).unwrap();
    let is_root = fs::metadata(site.path("weir")).unwrap().uid() == 0;
    for verb in VERBS {
        let mut command = Command::new(site.path("weir"));
        command.arg(verb).arg("--config").arg(site.path("weir.yaml")).arg("--cache-dir").arg(site.path("cache"));
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        let said = outcome(&mut command);
        assert_eq!(said.code, BAD_CONFIG, "{verb}: {}", said.stderr);
        let problem = format!("{}: the file can't be read: ", site.path("weir.yaml").display());
        assert!(said.stderr.contains(&problem), "{verb}: {}", said.stderr);
    }
}

/// In a running gateway each is refused in `reload`; here all at once, before
/// there is one.
#[test]
fn modules_that_are_none_are_told_with_their_places() {
    let site = Site::new();
    let good = fs::read(guests::stamp("a")).unwrap();
    site.put("cut.wasm", &good[..good.len() / 2]);
    site.put("empty.wasm", "");
    site.put("core.wasm", guests::core_module("probe"));
    site.put("world.wasm", b"\0asm\x0d\0\x01\0");
    site.put("stamp.wasm", &good);
    fs::File::create(site.path("huge.wasm")).unwrap().set_len(65 << 20).unwrap();
    fs::create_dir(site.path("folder.wasm")).unwrap();
    let modules = [
        ("cut", "cut.wasm", "not a valid component: "),
        ("empty", "empty.wasm", "the file is empty (build a component: "),
        ("core", "core.wasm", "a core module, not a component (build a component: "),
        ("world", "world.wasm", "not a plugin: it exports nothing, "),
        ("huge", "huge.wasm", "has 68157440 bytes: more than 67108864"),
        ("folder", "folder.wasm", "is no regular file"),
        // One that is read for ever would be no answer.
        ("device", "/dev/null", "is no regular file"),
        ("gone", "gone.wasm", "can't read "),
        ("good", "stamp.wasm", ""),
    ];
    let mut yaml = "listen: [address: 127.0.0.1:0]\nmodules:\n".to_owned();
    modules.iter().for_each(|(name, path, _)| yaml += &format!("  {name}: {{ path: {path} }}\n"));
    yaml += "routes:\n";
    for (name, ..) in modules {
        // Twice: it is told once however many routes use it.
        for path in [format!("/{name}"), format!("/{name}/too")] {
            yaml += &format!(
                "  - {{ name: \"{path}\", match: {{ path: {path} }}, upstream: internal:echo, plugins: [{name}: {{}}] }}\n"
            );
        }
    }
    site.put("weir.yaml", yaml);
    for verb in VERBS {
        let said = says(verb, &site.path("weir.yaml"));
        assert_eq!(said.code, BAD_CONFIG, "{verb}: {}", said.stderr);
        let lines: Vec<_> = said.stderr.lines().collect();
        assert_eq!(lines.len(), modules.len() - 1, "{verb}: {}", said.stderr);
        for (place, (name, _, problem)) in modules[..lines.len()].iter().enumerate() {
            let (line, column) = (place + 3, name.len() + 5);
            let start =
                format!("{}:{line}:{column}: modules.{name}: module \"{name}\": ", site.path("weir.yaml").display());
            assert!(lines[place].starts_with(&start) && lines[place].contains(problem), "{start}\n{}", lines[place]);
        }
    }
}

#[test]
fn check_says_what_is_well() {
    let site = Site::new();
    site.put("weir.yaml", saying("one", "127.0.0.1:0", "127.0.0.1:0"));
    let said = says("check", &site.path("weir.yaml"));
    let expected = format!("{}: ok, 1 routes, 1 plugin configurations\n", site.path("weir.yaml").display());
    assert_eq!((said.code, said.stdout, said.stderr.as_str()), (Some(0), expected, ""));
}

// Sockets.

#[test]
fn ports_that_are_taken_are_a_failure() {
    let taken = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [listen, admin] = taken.each_ref().map(|socket| socket.local_addr().unwrap().to_string());
    let site = Site::new();
    let path = site.path("weir.yaml");
    let listen_problem = format!("{}:1:19: listen[0].address: can't listen on {listen}: ", path.display());
    let admin_problem = format!("{}:2:19: admin.address: can't listen on {admin}: ", path.display());
    for (yaml, problems) in [
        (saying("one", &listen, "127.0.0.1:0"), &[&listen_problem][..]),
        (saying("one", "127.0.0.1:0", &admin), &[&admin_problem]),
        (saying("one", &listen, &admin), &[&listen_problem, &admin_problem]),
    ] {
        site.put("weir.yaml", yaml);
        let said = says("run", &path);
        assert_eq!((said.code, said.stdout.as_str()), (FAILURE, ""), "{}", said.stderr);
        let lines: Vec<_> = said.stderr.lines().collect();
        assert_eq!(lines.len(), problems.len(), "{}", said.stderr);
        lines.iter().zip(problems).for_each(|(line, problem)| assert!(line.starts_with(*problem), "{line}"));
        // Which `check` does not look at.
        assert_eq!(says("check", &path).code, Some(0));
    }
}

/// Listeners are shared among workers by `SO_REUSEPORT`, which would let a second
/// process take half of the connections.
#[test]
fn a_second_gateway_takes_no_connection_of_the_first() {
    let start = |text: &str, listen: &str| {
        let site = Site::new();
        site.put("weir.yaml", format!("workers: 2\n{}", saying(text, listen, "127.0.0.1:0")));
        site
    };
    let first = start("first", "127.0.0.1:0").start();
    let port = first.address.port();
    for listen in [first.address.to_string(), format!("0.0.0.0:{port}")] {
        let second = start("second", &listen);
        let said = says("run", &second.path("weir.yaml"));
        assert_eq!(said.code, FAILURE, "{}", said.stderr);
        assert!(said.stderr.contains(&format!("can't listen on {listen}: ")), "{}", said.stderr);
    }
    let site = start("third", "127.0.0.1:0");
    site.put("weir.yaml", saying("third", "127.0.0.1:0", &first.admin().to_string()));
    let said = says("run", &site.path("weir.yaml"));
    assert_eq!(said.code, FAILURE);
    assert!(said.stderr.contains(&format!("admin.address: can't listen on {}: ", first.admin())), "{}", said.stderr);
    for _ in 0..20 {
        assert_eq!(first.get("/").text(), "first");
    }
}

// The end.

/// A gateway whose upstream holds every request.
fn holding(settings: &str) -> (Gate, Gateway) {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::start(move |_| {
        held.pass();
        ok("late")
    });
    let site = Site::new();
    let listen = "listen: [address: 127.0.0.1:0]";
    let yaml = format!("{settings}\n{listen}\nroutes: [{{ name: all, upstream: \"{}\" }}]\n", upstream.url());
    site.put("weir.yaml", yaml);
    (gate, site.start())
}

const GET: &str = "GET / HTTP/1.1\r\nhost: test\r\n\r\n";

#[test]
fn a_signal_drains() {
    for signal in [Signal::TERM, Signal::INT] {
        let (gate, mut gateway) = holding("workers: 2");
        let mut busy = [gateway.connect(), gateway.connect(), gateway.connect()];
        busy.iter_mut().for_each(|client| client.send(GET));
        gate.wait_for(busy.len());
        gateway.signal(signal);
        gateway.log.wait_for("draining for at most 30 s");
        eventually("new connections are refused", || refuses(gateway.address));
        assert!(!busy.iter_mut().any(|client| client.has_answer()));
        gate.open();
        for client in &mut busy {
            let answer = client.response();
            assert_eq!((answer.status, answer.text().as_str()), (200, "late"));
            assert_eq!(answer.header("connection"), Some("close"));
            assert!(client.is_ended());
        }
        assert_eq!(gateway.wait().code(), Some(0));
        gateway.log.wait_for("drained");
    }
}

#[test]
fn a_drain_has_a_deadline() {
    let (gate, mut gateway) = holding("drain_timeout: 200ms");
    let mut busy = gateway.connect();
    busy.send(GET);
    gate.wait_for(1);
    gateway.signal(Signal::TERM);
    gateway.log.wait_for("draining for at most 0.2 s");
    assert_eq!(gateway.wait().code(), Some(0));
    assert!(busy.try_response().is_err(), "it has not been answered");
}

#[test]
fn a_second_signal_does_not_wait() {
    let (gate, mut gateway) = holding("drain_timeout: 1h");
    let mut busy = gateway.connect();
    busy.send(GET);
    gate.wait_for(1);
    gateway.signal(Signal::TERM);
    gateway.log.wait_for("draining for at most 3600 s");
    gateway.signal(Signal::TERM);
    gateway.log.wait_for("ended without draining");
    assert_eq!(gateway.wait().code(), Some(0));
    assert!(busy.try_response().is_err(), "it has not been answered");
}
