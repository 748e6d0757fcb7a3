//! What tests start and talk to: the real binary on free ports, upstreams of
//! our own, and clients that see every byte.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

mod upstream;

pub use upstream::*;

/// Longer than anything takes, on the slowest machine: reached only where
/// something is wrong.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something holds that nothing tells of.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "still not: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A folder with the files of a configuration.
pub struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file beside and renames it into place.
    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let beside = self.path(".beside");
        fs::write(&beside, content).unwrap();
        fs::rename(&beside, self.path(name)).unwrap();
    }

    pub fn start(self) -> Gateway {
        Gateway::start(self, &[])
    }

    /// Has the configuration checked: the exit code, and what is said.
    pub fn check(&self) -> (Option<i32>, String) {
        let output = command("check", &self.path("weir.yaml")).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// With the time from `clock`, which holds milliseconds.
    pub fn start_at(self, now: u64) -> Gateway {
        self.put("clock", now.to_string());
        let clock = self.path("clock");
        Gateway::start(self, &["--test-clock", clock.to_str().unwrap()])
    }
}

/// A running gateway; killed when dropped.
pub struct Gateway {
    pub site: Site,
    pub log: Lines,
    pub access_log: Lines,
    pub address: SocketAddr,
    child: Child,
}

impl Gateway {
    fn start(site: Site, arguments: &[&str]) -> Self {
        let mut child = command("run", &site.path("weir.yaml"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Lines::read(child.stderr.take().unwrap());
        let access_log = Lines::read(child.stdout.take().unwrap());
        let mut gateway = Self { site, log, access_log, address: ([0, 0, 0, 0], 0).into(), child };
        let line = gateway.log.wait_for("listening on ");
        gateway.address = address_in(&line);
        gateway.log.wait_for("config 1 serving");
        gateway
    }

    /// Writes the configuration, and waits until it serves.
    pub fn serve(&self, version: u64, yaml: &str) {
        self.site.put("weir.yaml", yaml);
        self.log.wait_for(&format!("config {version} serving"));
    }

    pub fn admin(&self) -> SocketAddr {
        address_in(&self.log.all().iter().rfind(|line| line.contains("admin on ")).unwrap().clone())
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// One request on a connection of its own.
    pub fn get(&self, path: &str) -> Response {
        self.connect().get(path)
    }

    pub fn admin_get(&self, path: &str) -> Response {
        Client::connect(self.admin()).get(path)
    }

    /// The sum of all samples that start like this: a metric's name, and as
    /// much of its labels as matters.
    pub fn metric(&self, start: &str) -> u64 {
        let page = self.admin_get("/metrics").text();
        let samples = page.lines().filter(|line| line.starts_with(start));
        samples.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum::<f64>() as u64
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the gateway has ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- the gateway's log:\n{}", self.log.all().join("\n"));
        }
    }
}

/// The binary under test: the one built with the tests, or the one that
/// `WEIR_TEST_BINARY` names.
pub fn binary() -> PathBuf {
    std::env::var_os("WEIR_TEST_BINARY").map_or_else(|| env!("CARGO_BIN_EXE_weir").into(), PathBuf::from)
}

/// The binary with a command, without what the surroundings say.
pub fn command(verb: &str, config: &Path) -> Command {
    let mut command = Command::new(binary());
    command.arg(verb).arg("--config").arg(config).arg("--cache-dir").arg(cache());
    command.env_remove("WEIR_LOG");
    command
}

/// What a process has said that has ended by itself.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a process to its end.
pub fn outcome(command: &mut Command) -> Outcome {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (stdout, stderr) = (Lines::read(child.stdout.take().unwrap()), Lines::read(child.stderr.take().unwrap()));
    let start = Instant::now();
    let mut has_ended = false;
    while !has_ended && start.elapsed() < PATIENCE {
        has_ended = child.try_wait().unwrap().is_some();
        thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    let status = child.wait().unwrap();
    let text = |lines: &Lines| lines.to_end().iter().map(|line| format!("{line}\n")).collect::<String>();
    let (stdout, stderr) = (text(&stdout), text(&stderr));
    assert!(has_ended, "does not end by itself:\n{stdout}{stderr}");
    Outcome { code: status.code(), stdout, stderr }
}

/// Compiled once for all tests.
fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled")
}

fn address_in(line: &str) -> SocketAddr {
    line.split(" on ").nth(1).unwrap().trim().parse().unwrap()
}

/// Lines that a process writes.
pub struct Lines(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    lines: Vec<String>,
    /// Lines before this one have been waited for.
    seen: usize,
    ended: bool,
}

impl Lines {
    fn read(from: impl Read + Send + 'static) -> Self {
        let shared: Arc<(Mutex<State>, Condvar)> = Arc::default();
        let writer = shared.clone();
        thread::spawn(move || {
            for line in BufReader::new(from).lines() {
                let Ok(line) = line else { break };
                lock(&writer.0).lines.push(line);
                writer.1.notify_all();
            }
            lock(&writer.0).ended = true;
            writer.1.notify_all();
        });
        Self(shared)
    }

    /// The next line with this in it, of those behind the last one waited for.
    pub fn wait_for(&self, text: &str) -> String {
        self.wait_for_any(&[text]).1
    }

    /// The same for whichever comes first.
    pub fn wait_for_any(&self, texts: &[&str]) -> (usize, String) {
        let start = Instant::now();
        let mut state = lock(&self.0.0);
        loop {
            for at in state.seen..state.lines.len() {
                state.seen = at + 1;
                let line = &state.lines[at];
                if let Some(which) = texts.iter().position(|text| line.contains(text)) {
                    return (which, line.clone());
                }
            }
            let told = || format!("no line with {texts:?} in:\n{}", state.lines.join("\n"));
            assert!(!state.ended && start.elapsed() < PATIENCE, "{}", told());
            state = self.0.1.wait_timeout(state, Duration::from_secs(1)).unwrap().0;
        }
    }

    /// The first line with all of these in it, wherever it stands; waited for.
    pub fn find(&self, texts: &[&str]) -> String {
        let found = || self.all().into_iter().find(|line| texts.iter().all(|text| line.contains(text)));
        eventually(&format!("a line with {texts:?}"), || found().is_some());
        found().unwrap()
    }

    pub fn all(&self) -> Vec<String> {
        lock(&self.0.0).lines.clone()
    }

    /// All of them, once no more can come.
    pub fn to_end(&self) -> Vec<String> {
        eventually("the last line is written", || lock(&self.0.0).ended);
        self.all()
    }

    pub fn count(&self, text: &str) -> usize {
        self.all().iter().filter(|line| line.contains(text)).count()
    }
}

/// A test that has failed holds no lock that matters.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client's connection.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    pub fn get(&mut self, path: &str) -> Response {
        self.ask(path, "")
    }

    /// With further header lines, each with CR LF.
    pub fn ask(&mut self, path: &str, headers: &str) -> Response {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: test\r\n{headers}\r\n"));
        self.response()
    }

    pub fn send(&mut self, text: &str) {
        self.send_bytes(text.as_bytes());
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// All that comes until the connection ends.
    pub fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest);
        String::from_utf8_lossy(&rest).into_owned()
    }

    pub fn response(&mut self) -> Response {
        self.try_response().unwrap()
    }

    pub fn try_response(&mut self) -> std::io::Result<Response> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head)? == 0 {
                return Err(std::io::Error::other(format!("the connection ended after {head:?}")));
            }
        }
        let (first, rest) = head.split_once("\r\n").unwrap();
        let fields = rest.lines().filter_map(|line| line.split_once(": "));
        let headers: Vec<_> = fields.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        let status = first.split(' ').nth(1).unwrap().parse().unwrap();
        let mut response = Response { status, headers, body: Vec::new() };
        if let Some(length) = response.header("content-length") {
            response.body.resize(length.parse().unwrap(), 0);
            self.stream.read_exact(&mut response.body)?;
        } else if response.header("transfer-encoding") == Some("chunked") {
            loop {
                let mut size = String::new();
                self.stream.read_line(&mut size)?;
                let size = usize::from_str_radix(size.trim(), 16).unwrap();
                let mut chunk = vec![0; size + 2];
                self.stream.read_exact(&mut chunk)?;
                response.body.extend_from_slice(&chunk[..size]);
                if size == 0 {
                    break;
                }
            }
        }
        Ok(response)
    }

    /// Whether the other side has ended the connection, which is waited for.
    pub fn is_ended(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0) | Err(_))
    }

    /// Whether there is something to read yet.
    pub fn has_answer(&mut self) -> bool {
        let stream = self.stream.get_ref();
        stream.set_nonblocking(true).unwrap();
        let has = stream.peek(&mut [0]).is_ok();
        stream.set_nonblocking(false).unwrap();
        has
    }
}

#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}
