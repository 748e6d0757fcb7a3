//! Runs the gateway under a counting tool. A request's cost is the difference
//! between a long and a short run, by the difference of requests: so neither
//! start nor end is in it.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::traffic;

/// Requests of the short and the long run.
const SHORT: usize = 200;
const LONG: usize = 1200;
/// Of so many the median counts.
const RUNS: usize = 3;

/// What one request costs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub instructions: f64,
    pub allocations: f64,
    pub system_calls: f64,
}

pub struct Scenario {
    pub name: &'static str,
    path: &'static str,
    /// UPSTREAM stands for the upstream's URL.
    config: String,
}

impl Scenario {
    pub fn new(name: &'static str, path: &'static str, config: String) -> Self {
        Self { name, path, config }
    }

    pub fn measure(&self) -> Counts {
        let folder = tempfile::tempdir().unwrap();
        let upstream = format!("http://{}", traffic::upstream());
        let head = "workers: 1\naccess_log: off\nlisten: [{ address: 127.0.0.1:0 }]\n";
        fs::write(folder.path().join("weir.yaml"), head.to_owned() + &self.config.replace("UPSTREAM", &upstream))
            .unwrap();
        // Compiles the plugins, so that no counted run does.
        Running::start(weir(folder.path())).end();

        let runs: Vec<_> = (0..RUNS).map(|_| self.difference(folder.path(), callgrind)).collect();
        let of = |count: fn(&[f64; 2]) -> f64| median(runs.iter().map(count).collect());
        let system_calls = (0..RUNS).map(|_| self.difference(folder.path(), strace)[0]).collect();
        Counts { instructions: of(|run| run[0]), allocations: of(|run| run[1]), system_calls: median(system_calls) }
    }

    fn difference(&self, folder: &Path, count: fn(&Self, &Path, usize) -> [f64; 2]) -> [f64; 2] {
        let (short, long) = (count(self, folder, SHORT), count(self, folder, LONG));
        [0, 1].map(|at| (long[at] - short[at]) / (LONG - SHORT) as f64)
    }
}

fn median(mut counts: Vec<f64>) -> f64 {
    counts.sort_by(f64::total_cmp);
    counts[counts.len() / 2]
}

/// Instructions and calls of the allocator of a run.
fn callgrind(scenario: &Scenario, folder: &Path, requests: usize) -> [f64; 2] {
    let profile = folder.join("profile");
    let mut valgrind = Command::new("valgrind");
    valgrind.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", profile.display()));
    let running = Running::start(under(valgrind, &weir(folder)));
    traffic::ask(running.address, scenario.path, requests);
    running.end();
    let profile = fs::read_to_string(&profile).unwrap();
    let totals = profile.lines().find_map(|line| line.strip_prefix("totals: ")).expect("no totals");
    [totals.trim().parse().unwrap(), allocations(&profile)]
}

/// System calls of a run.
fn strace(scenario: &Scenario, folder: &Path, requests: usize) -> [f64; 2] {
    let summary = folder.join("calls");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-U", "calls,name", "-o"]).arg(&summary);
    let running = Running::start(under(strace, &weir(folder)));
    traffic::ask(running.address, scenario.path, requests);
    running.end();
    let summary = fs::read_to_string(&summary).unwrap();
    let total = summary.lines().rfind(|line| line.trim_end().ends_with("total")).expect("no total");
    [total.split_whitespace().next().unwrap().parse().unwrap(), 0.0]
}

/// How often anybody but the allocator itself has called a function of it that
/// gives memory. In a profile a name is written out once, and is a number from
/// there on.
fn allocations(profile: &str) -> f64 {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let (mut inside, mut asked, mut count) = (false, false, 0.0);
    for line in profile.lines() {
        if let Some(caller) = line.strip_prefix("fn=") {
            inside = is_allocator(name(&mut names, caller));
        } else if let Some(callee) = line.strip_prefix("cfn=") {
            asked = gives(name(&mut names, callee));
        } else if let Some(calls) = line.strip_prefix("calls=").filter(|_| asked && !inside) {
            count += calls.split(' ').next().unwrap().parse::<f64>().unwrap();
        }
    }
    count
}

fn name<'a>(names: &mut HashMap<&'a str, &'a str>, text: &'a str) -> &'a str {
    match text.split_once(' ') {
        Some((number, name)) => {
            names.insert(number, name);
            name
        }
        None => names[text],
    }
}

fn is_allocator(name: &str) -> bool {
    name.starts_with("mi_") || name.starts_with("_mi_")
}

fn gives(name: &str) -> bool {
    ["mi_malloc", "mi_zalloc", "mi_calloc", "mi_realloc"].iter().any(|start| name.starts_with(start))
}

fn weir(folder: &Path) -> Command {
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("compiled");
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.arg("run").arg("--count-mode").arg("--config").arg(folder.join("weir.yaml")).arg("--cache-dir").arg(cache);
    weir.env_remove("WEIR_LOG");
    weir
}

fn under(mut tool: Command, command: &Command) -> Command {
    tool.arg(command.get_program()).args(command.get_args()).env_remove("WEIR_LOG");
    tool
}

/// A gateway that serves, and has looked at its files for the last time.
struct Running {
    child: Child,
    address: SocketAddr,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        let mut wait_for = |text: &str| loop {
            let Some(line) = log.next() else { panic!("not said: {text}, but:\n{}", said.join("\n")) };
            said.push(line.unwrap());
            if let Some((_, rest)) = said[said.len() - 1].split_once(text) {
                return rest.trim().to_owned();
            }
        };
        let address = wait_for("listening on ").parse().unwrap();
        wait_for("config 1 serving");
        // What it does by itself after the start comes before what it is told to.
        signal(&child, Signal::HUP);
        wait_for("config unchanged");
        // Nobody may be held up by a full pipe.
        thread::spawn(move || log.for_each(drop));
        Self { child, address }
    }

    /// Lets it end by itself, which writes what was counted.
    fn end(mut self) {
        signal(&self.child, Signal::TERM);
        assert!(self.child.wait().unwrap().success());
    }
}

/// Tells the gateway, which is the tool's process or the child of that.
fn signal(tool: &Child, signal: Signal) {
    let process = first_child(tool.id()).unwrap_or(tool.id());
    kill_process(Pid::from_raw(process as i32).unwrap(), signal).unwrap();
}

/// strace runs the gateway as a process of its own; valgrind is the gateway's.
fn first_child(process: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    children.split(' ').next()?.parse().ok()
}
