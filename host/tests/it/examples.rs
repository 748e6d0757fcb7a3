//! Documents that can't rot: each folder of `examples` does what its README says,
//! each curl of a README is asked, and each configuration in a document loads.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use weir::config;

use crate::{
    guests,
    support::{Client, Gate, Gateway, Refusing, Response, Site, Upstream, command, ok, outcome},
};

fn read(path: &str) -> String {
    let path = guests::workspace().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Replaces what must be there once.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from} in:\n{text}");
    text.replace(from, to)
}

/// An example's configuration, on free ports.
fn configuration(name: &str) -> String {
    let text = read(&format!("examples/{name}/weir.yaml"));
    replaced(&replaced(&text, "127.0.0.1:8080", "127.0.0.1:0"), "127.0.0.1:9901", "127.0.0.1:0")
}

#[test]
fn every_example_is_tested_here() {
    let entries = fs::read_dir(guests::workspace().join("examples")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["quickstart", "rust-plugin", "weather-api"]);
}

// Calls of curl.

/// A call as a README shows it.
#[derive(Default)]
struct Curl {
    times: usize,
    /// Lines of header fields.
    fields: String,
    port: String,
    path: String,
}

impl Curl {
    /// All calls in a document, in order.
    fn all(document: &str) -> Vec<Self> {
        document.lines().flat_map(Self::in_line).collect()
    }

    fn in_line(line: &str) -> Option<Self> {
        let (before, call) = line.split_once("curl ")?;
        let times =
            before.split_once("for i in ").map_or(1, |(_, list)| list.split(';').next().unwrap().split(' ').count());
        let end = call.find(['`', ';', '#']).unwrap_or(call.len());
        // Whatever curl says of itself.
        let mut curl = Self { times, fields: "user-agent: curl/8\r\naccept: */*\r\n".into(), ..Self::default() };
        let mut words = call[..end].split('\'').enumerate().flat_map(|(part, text)| match part % 2 {
            1 => vec![text],
            _ => text.split_whitespace().collect(),
        });
        while let Some(word) = words.next() {
            match word {
                "-i" | "-s" | "-si" => {}
                "-H" => curl.fields += &format!("{}\r\n", words.next().unwrap()),
                url => {
                    let (port, path) = url.strip_prefix("http://127.0.0.1:").unwrap().split_once('/').unwrap();
                    (curl.port, curl.path) = (port.to_owned(), format!("/{path}"));
                }
            }
        }
        Some(curl)
    }

    fn ask(&self, gateway: &Gateway) -> Vec<Response> {
        let address = match self.port.as_str() {
            "8080" => gateway.address,
            "9901" => gateway.admin(),
            port => panic!("nobody is on port {port}"),
        };
        (0..self.times).map(|_| Client::connect(address).ask(&self.path, &self.fields)).collect()
    }
}

/// Asks all that a document shows, and tells how often each path was.
fn ask_all(document: &str, gateway: &Gateway, check: impl Fn(&Curl, &[Response])) -> Vec<(String, usize)> {
    let calls = Curl::all(&read(document));
    for call in &calls {
        check(call, &call.ask(gateway));
    }
    calls.into_iter().map(|call| (call.path, call.times)).collect()
}

// The examples.

/// What both READMEs say of the answers.
fn check_quickstart(call: &Curl, answers: &[Response]) {
    let last = answers.last().unwrap();
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    match (call.path.as_str(), call.fields.contains("x-api-key")) {
        ("/private", false) => {
            assert_eq!((statuses, last.header("www-authenticate")), (vec![401], Some("ApiKey realm=\"weir\"")));
        }
        ("/private", true) => {
            let seen = &last.json()["headers"];
            assert_eq!((statuses, &seen["x-consumer"], seen.get("x-api-key")), (vec![200], &"alice".into(), None));
        }
        ("/limited", _) => {
            assert_eq!(statuses, [200, 200, 429]);
            // A minute, and half of the next until the first of them counts no more.
            assert!((1..=90).contains(&last.header("retry-after").unwrap().parse::<u32>().unwrap()));
            assert_eq!(last.header("ratelimit-policy"), Some("\"default\";q=2;w=60"));
            assert!(last.header("ratelimit").unwrap().starts_with("\"default\";r=0;t="), "{last:?}");
        }
        ("/changed", _) => {
            assert_eq!((statuses, last.header("x-served-by")), (vec![200], Some("weir")));
            assert_eq!(last.header("content-type"), None);
            let seen = &last.json()["headers"];
            assert_eq!((&seen["x-added"], seen.get("user-agent")), (&"by-weir".into(), None));
        }
        ("/hello", _) => assert_eq!((statuses, last.text().as_str()), (vec![200], "Hello from a plugin.\n")),
        ("/metrics", _) => assert!(last.text().contains("weir_config_version 1\n")),
        (path, _) => assert_eq!((statuses, &last.json()["path"]), (vec![200], &path.into())),
    }
}

#[test]
fn the_quickstart_does_what_both_readmes_say() {
    let start = || {
        let site = Site::new();
        site.put("weir.yaml", configuration("quickstart"));
        // At the start of a window, so that the third of three is always the one.
        site.start_at(1_796_115_600_123)
    };
    let common = [("/some/path?q=1", 1), ("/private", 1), ("/private", 1), ("/limited", 3), ("/changed", 1)];
    for (readme, last) in [("README.md", "/metrics"), ("examples/quickstart/README.md", "/hello")] {
        let asked = ask_all(readme, &start(), check_quickstart);
        let expected: Vec<_> = common.into_iter().chain([(last, 1)]).map(|(path, n)| (path.to_owned(), n)).collect();
        assert_eq!(asked, expected, "{readme}");
    }
    // And the edit that they ask for, without a restart and with a mistake.
    let gateway = start();
    let text = configuration("quickstart");
    gateway.serve(2, &replaced(&text, "Hello from a plugin.", "Hello again."));
    assert_eq!(gateway.get("/hello").text(), "Hello again.\n");
    gateway.site.put("weir.yaml", replaced(&text, "path: /hello", "paht: /hello"));
    gateway.log.wait_for("unknown key \"paht\" (did you mean \"path\"?)");
    assert_eq!(gateway.get("/hello").text(), "Hello again.\n");
}

/// The configuration of `weather-api`, with other targets.
fn weather(targets: [u16; 3]) -> Gateway {
    let mut text = configuration("weather-api");
    for (port, target) in ["127.0.0.1:9001", "127.0.0.1:9002", "127.0.0.1:9003"].iter().zip(targets) {
        text = replaced(&text, port, &format!("127.0.0.1:{target}"));
    }
    let site = Site::new();
    site.put("weir.yaml", text);
    site.start()
}

#[test]
fn the_weather_api_is_shared_by_weight_and_load() {
    let gate = Gate::default();
    let instances = [1, 2, 3].map(|instance| {
        let gate = gate.clone();
        Upstream::start(move |head| {
            let path = head.split(' ').nth(1).unwrap();
            if path == "/held" {
                gate.pass();
            }
            ok(&format!("{instance} {path}"))
        })
    });
    let gateway = weather(instances.each_ref().map(|instance| instance.address.port()));
    let mut client = gateway.connect();
    let calls = Curl::all(&read("examples/weather-api/README.md"));
    let [call] = &calls[..] else { panic!("{} calls", calls.len()) };
    assert_eq!((call.path.as_str(), call.port.as_str()), ("/api/forecast", "8080"));
    // One after the other, on one worker: all are idle, and take turns by weight.
    let answers: Vec<_> = (0..12).map(|_| client.get(&call.path).text()).collect();
    let count = |text: &str| answers.iter().filter(|answer| *answer == text).count();
    assert_eq!([count("1 /forecast"), count("2 /forecast"), count("3 /forecast")], [6, 3, 3], "{answers:?}");
    for (path, sent) in [("/api", "/"), ("/api/", "/"), ("/api/a/api/b?c=/api", "/a/api/b?c=/api")] {
        assert_eq!(client.get(path).text().split_once(' ').unwrap().1, sent, "{path}");
    }
    assert_eq!(client.get("/forecast").status, 404);
    client.send("POST /api/forecast HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(client.response().status, 404);

    // All at once, on whichever worker: the fewest in hand for their weight.
    let asked = |instance: &Upstream| instance.requests();
    let before = instances.each_ref().map(asked);
    let mut waiting = Vec::new();
    for held in 1..=16 {
        let mut client = gateway.connect();
        client.send("GET /api/held HTTP/1.1\r\nhost: test\r\n\r\n");
        waiting.push(client);
        gate.wait_for(held);
    }
    let held: Vec<_> = instances.iter().map(asked).zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(held, [8, 4, 4]);
    gate.open();
    for mut client in waiting {
        let answer = client.response();
        assert!(answer.status == 200 && answer.text().ends_with(" /held"), "{answer:?}");
    }
}

#[test]
fn the_weather_api_passes_over_an_instance_that_is_gone() {
    let gone = Refusing::new();
    let [second, third] = [2, 3].map(|instance| Upstream::start(move |_| ok(&instance.to_string())));
    let gateway = weather([gone.address().port(), second.address.port(), third.address.port()]);
    let mut client = gateway.connect();
    let mut answers: Vec<_> = (0..12).map(|_| client.get("/api/forecast").text()).collect();
    answers.sort();
    answers.dedup();
    assert_eq!(answers, ["2", "3"]);
}

/// The example as its README wants it built, in a folder of its own that is kept:
/// only what has changed is compiled again.
struct RustPlugin {
    folder: PathBuf,
}

impl RustPlugin {
    fn copy() -> Self {
        let folder = guests::target_dir().join("rust-plugin");
        fs::create_dir_all(folder.join("src")).unwrap();
        for name in ["Cargo.toml", "Cargo.lock", "src/date.rs", "src/lib.rs"] {
            let mut text = read(&format!("examples/rust-plugin/{name}"));
            if name == "Cargo.toml" {
                let sdk = guests::workspace().join("sdk/rust");
                text = replaced(&text, "../../sdk/rust", sdk.to_str().unwrap());
            }
            fs::write(folder.join(name), text).unwrap();
        }
        Self { folder }
    }

    fn edit(&self, from: &str, to: &str) {
        let source = self.folder.join("src/lib.rs");
        fs::write(&source, replaced(&fs::read_to_string(&source).unwrap(), from, to)).unwrap();
    }

    fn build(&self) {
        let mut cargo = guests::clean_cargo();
        cargo.current_dir(&self.folder).args(["build", "--release", "--target", "wasm32-wasip2"]);
        let output = cargo.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_rust_plugin_is_built_run_edited_and_swapped() {
    let readme = read("examples/rust-plugin/README.md");
    assert!(readme.contains("\ncargo build --release --target wasm32-wasip2\n"));
    let plugin = RustPlugin::copy();
    plugin.build();
    let site = Site::new();
    symlink(plugin.folder.join("target"), site.path("target")).unwrap();
    site.put("weir.yaml", configuration("rust-plugin"));
    let said = outcome(&mut command("check", &site.path("weir.yaml")));
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let gateway = site.start();

    let calls = Curl::all(&readme);
    assert_eq!(calls.iter().map(|call| call.path.as_str()).collect::<Vec<_>>(), ["/v1/orders", "/v0/orders"]);
    let answer = calls[0].ask(&gateway).remove(0);
    assert_eq!((answer.status, &answer.json()["path"]), (200, &"/v1/orders".into()));
    for field in ["deprecation", "sunset", "link"] {
        let shown = readme.lines().find_map(|line| line.strip_prefix(&format!("{field}: ")));
        assert_eq!(answer.header(field), Some(shown.unwrap()));
    }
    let gone = calls[1].ask(&gateway).remove(0);
    assert_eq!((gone.status, gone.text().as_str()), (410, "This API has ended.\n"));

    plugin.edit("This API has ended.", "This API is over.");
    plugin.build();
    gateway.log.wait_for("config 2 serving");
    let gone = calls[1].ask(&gateway).remove(0);
    assert_eq!((gone.status, gone.text().as_str()), (410, "This API is over.\n"));
    assert_eq!(calls[0].ask(&gateway).remove(0).status, 200);
}

// Configurations in documents.

/// Every document that may show one.
fn documents() -> Vec<PathBuf> {
    let root = guests::workspace();
    let mut documents = vec![root.join("README.md"), root.join("ARCHITECTURE.md")];
    for folder in ["docs", "examples", "plugins", "sdk"] {
        collect(&root.join(folder), &mut documents);
    }
    documents
}

fn collect(folder: &Path, documents: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, documents);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            documents.push(path);
        }
    }
}

/// What stands between the lines that begin with `open` and `close`.
fn blocks(text: &str, open: &str, close: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while lines.by_ref().any(|line| line.ends_with(open)) {
        blocks.push(lines.by_ref().take_while(|line| *line != close).map(|line| format!("{line}\n")).collect());
    }
    blocks
}

/// A part of a configuration with the rest around it.
fn completed(part: &str) -> String {
    let has = |key: &str| part.lines().any(|line| line.starts_with(key));
    let mut whole = part.to_owned();
    if has("plugins:") {
        let indented: String = part.lines().map(|line| format!("    {line}\n")).collect();
        whole = format!("routes:\n  - name: all\n    upstream: internal:echo\n{indented}");
    }
    for (key, value) in
        [("listen:", "[address: 127.0.0.1:0]"), ("upstreams:", "{ users: { targets: [url: http://users] } }")]
    {
        if !has(key) {
            whole += &format!("{key} {value}\n");
        }
    }
    whole
}

#[test]
fn every_configuration_in_a_document_loads() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        for block in blocks(&text, "```yaml", "```") {
            let site = Site::new();
            site.put("weir.yaml", completed(&block));
            let said = outcome(&mut command("check", &site.path("weir.yaml")));
            checked += 1;
            if said.code != Some(0) {
                wrong.push(format!("{}: {}\n{block}", path.display(), said.stderr));
            }
        }
        // These name a module that is not there, so they are only read.
        for block in blocks(&text, "<<'YAML'", "YAML") {
            checked += 1;
            if let Err(errors) = config::load_text(Path::new("weir.yaml"), &block) {
                wrong.push(format!("{}: {errors}\n{block}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked >= 7, "only {checked} found");
}
