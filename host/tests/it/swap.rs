//! Swaps of config and module under load: no request fails, each is answered by
//! one version, and what has nothing to do with the change goes on.

use std::{
    fs,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{
    guests,
    support::{Client, Gateway, Response, Site, Upstream, eventually, ok},
};

/// Names its version in two ways: `x-config` is set by a built-in, `x-stamp` and
/// `x-stamp-version` by a module, the latter in its compiled code.
fn config(version: usize, upstream: &Upstream, workers: usize, limit: u64) -> String {
    format!(
        "workers: {workers}
listen: [address: 127.0.0.1:0]
admin: {{ address: 127.0.0.1:0 }}
access_log: off
modules:
  stamp: {{ path: stamp.wasm }}
routes:
  - name: all
    upstream: {}
    plugins:
      - response-transform: {{ headers: {{ set: {{ x-config: \"{version}\" }} }} }}
      - rate-limit: {{ limit: {limit}, window: 1d }}
      - stamp: {{ value: \"{version}\", response_hook: true }}
",
        upstream.url()
    )
}

const BUILDS: [&str; 2] = ["a", "b"];

fn start(upstream: &Upstream, workers: usize) -> Gateway {
    let site = Site::new();
    site.put("stamp.wasm", fs::read(guests::stamp(BUILDS[0])).unwrap());
    site.put("weir.yaml", config(0, upstream, workers, LIMIT));
    site.start_at(0)
}

const LIMIT: u64 = 1_000_000_000;

/// The states that the gateway goes through: each swap with an odd number changes
/// the config, each other one the module.
struct Swaps<'a> {
    gateway: &'a Gateway,
    upstream: &'a Upstream,
    workers: usize,
    done: usize,
}

impl Swaps<'_> {
    fn next(&mut self) {
        self.done += 1;
        if self.done % 2 == 1 {
            self.gateway.site.put("weir.yaml", config(self.done, self.upstream, self.workers, LIMIT));
        } else {
            self.gateway.site.put("stamp.wasm", fs::read(guests::stamp(build_of(self.done))).unwrap());
        }
        self.gateway.log.wait_for(&format!("config {} serving", self.done + 1));
    }
}

fn build_of(state: usize) -> &'static str {
    BUILDS[state / 2 % 2]
}

/// Which state has given this answer; an error if it was not exactly one.
fn state_of(response: &Response) -> Result<usize, String> {
    let config = response.header("x-config").and_then(|version| version.parse::<usize>().ok());
    match (response.status, config, response.header("x-stamp-version")) {
        (200, Some(config), Some(build)) if response.header("x-stamp") == response.header("x-config") => {
            [config, config + 1].into_iter().find(|state| build_of(*state) == build).ok_or("no such state".into())
        }
        _ => Err(format!("{} {:?}", response.status, response.headers)),
    }
}

/// Clients that ask one request after the other, each on one connection.
struct Load {
    shared: Arc<LoadState>,
    clients: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct LoadState {
    /// The newest state that is known to serve.
    serving: AtomicUsize,
    /// The newest state whose files are there, or are about to be.
    begun: AtomicUsize,
    answers: AtomicUsize,
    ended: AtomicBool,
    failures: Mutex<Vec<String>>,
    /// Clients that are to ask, and those that do.
    paused: Mutex<bool>,
    resumed: Condvar,
    busy: AtomicUsize,
}

impl Load {
    fn start(gateway: &Gateway, connections: usize) -> Self {
        let shared: Arc<LoadState> = Arc::default();
        let clients = (0..connections).map(|_| {
            let (shared, client) = (shared.clone(), gateway.connect());
            thread::spawn(move || shared.ask(client))
        });
        Self { clients: clients.collect(), shared }
    }

    fn pause(&self) {
        *self.shared.paused.lock().unwrap() = true;
        eventually("paused", || self.shared.busy.load(Ordering::SeqCst) == 0);
    }

    fn resume(&self) {
        *self.shared.paused.lock().unwrap() = false;
        self.shared.resumed.notify_all();
    }

    fn end(self) -> Arc<LoadState> {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.resume();
        self.clients.into_iter().for_each(|client| client.join().unwrap());
        self.shared
    }
}

impl LoadState {
    fn ask(&self, mut client: Client) {
        while !self.ended.load(Ordering::SeqCst) {
            drop(self.resumed.wait_while(self.paused.lock().unwrap(), |paused| *paused).unwrap());
            self.busy.fetch_add(1, Ordering::SeqCst);
            let outcome = self.ask_once(&mut client);
            self.busy.fetch_sub(1, Ordering::SeqCst);
            match outcome {
                Ok(()) => drop(self.answers.fetch_add(1, Ordering::SeqCst)),
                Err(failure) => return self.failures.lock().unwrap().push(failure),
            }
        }
    }

    fn ask_once(&self, client: &mut Client) -> Result<(), String> {
        let oldest = self.serving.load(Ordering::SeqCst);
        client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
        let response = client.try_response().map_err(|error| error.to_string())?;
        let state = state_of(&response)?;
        let newest = self.begun.load(Ordering::SeqCst);
        match (oldest..=newest).contains(&state) {
            true => Ok(()),
            false => Err(format!("answered by state {state}, not one of {oldest} to {newest}")),
        }
    }
}

/// What the process costs the machine in KiB, as its proportional set size would be
/// if no other had its program and libraries mapped: how many gateways of other
/// tests do changes from one moment to the next.
fn pss(gateway: &Gateway) -> u64 {
    let proc = format!("/proc/{}", gateway.pid());
    let program = fs::read_link(format!("{proc}/exe")).unwrap();
    let maps = fs::read_to_string(format!("{proc}/smaps")).unwrap();
    let (mut what, mut sum) = ("", 0);
    for line in maps.lines() {
        let key = line.split(' ').next().unwrap();
        if !key.ends_with(':') {
            // `7f00-7f01 r-xp 00000000 fe:00 1234  /path`, before what is told of it.
            let is_shared = line.ends_with(program.to_str().unwrap()) || line.contains(".so");
            what = if is_shared { "Rss:" } else { "Pss:" };
        } else if key == what {
            sum += line[what.len()..].trim().trim_end_matches(" kB").parse::<u64>().unwrap();
        }
    }
    assert!(sum > 0, "{maps}");
    sum
}

/// The promise of live change, whole.
#[test]
fn two_hundred_swaps_under_load_lose_nothing() {
    const CONNECTIONS: usize = 8;
    /// After which memory has to be what it was before; with this pause, so that
    /// what is swept has been swept.
    const SETTLED: Duration = Duration::from_secs(10);
    let upstream = Upstream::start(|_| ok("hello"));
    let gateway = start(&upstream, 2);
    let load = Load::start(&gateway, CONNECTIONS);
    let mut swaps = Swaps { gateway: &gateway, upstream: &upstream, workers: 2, done: 0 };
    let mut sizes = Vec::new();
    while swaps.done < 200 {
        load.shared.begun.store(swaps.done + 1, Ordering::SeqCst);
        swaps.next();
        load.shared.serving.store(swaps.done, Ordering::SeqCst);
        if swaps.done == 20 || swaps.done == 200 {
            load.pause();
            thread::sleep(SETTLED);
            sizes.push(pss(&gateway));
            load.resume();
        }
    }
    let load = load.end();
    assert_eq!(*load.failures.lock().unwrap(), Vec::<String>::new());
    assert_eq!(gateway.log.count("refused"), 0);
    let [early, late] = sizes[..] else { panic!("{sizes:?}") };
    assert!(late * 100 <= early * 105, "{early} KiB after 20 swaps, {late} KiB after 200");

    // Every request has been counted once, whichever version it met.
    let answers = load.answers.load(Ordering::SeqCst) as u64;
    let remaining: u64 = gateway.get("/").header("x-ratelimit-remaining").unwrap().parse().unwrap();
    assert_eq!(LIMIT - remaining, answers + 1);
    // And no swap has cost a connection: one for each request that is under way.
    assert!(upstream.connections() <= CONNECTIONS + 1, "{}", upstream.connections());
    assert_eq!(gateway.metric("weir_upstream_connections_opened_total"), upstream.connections() as u64);
}

#[test]
fn a_request_ends_on_the_version_that_it_began_on() {
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let upstream = Upstream::start(move |head| {
        if head.starts_with("GET /held ") {
            held.lock().unwrap().recv().unwrap();
        }
        ok("hello")
    });
    let gateway = start(&upstream, 1);
    let mut client = gateway.connect();
    client.send("GET /held HTTP/1.1\r\nhost: test\r\n\r\n");
    eventually("held", || upstream.requests() == 1);
    let mut swaps = Swaps { gateway: &gateway, upstream: &upstream, workers: 1, done: 0 };
    for _ in 0..3 {
        swaps.next();
        assert_eq!(state_of(&gateway.get("/")), Ok(swaps.done));
    }
    assert!(!client.has_answer());
    release.send(()).unwrap();
    // Its response hook as well is that of the old module.
    assert_eq!(state_of(&client.response()), Ok(0));
    assert_eq!(state_of(&client.get("/")), Ok(3));
}

#[test]
fn swaps_open_no_upstream_connection_and_limits_go_on_falling() {
    let upstream = Upstream::start(|_| ok("hello"));
    let gateway = start(&upstream, 1);
    let mut client = gateway.connect();
    let mut swaps = Swaps { gateway: &gateway, upstream: &upstream, workers: 1, done: 0 };
    let remaining = |response: &Response| response.header("x-ratelimit-remaining").unwrap().parse::<u64>().unwrap();
    for asked in 1..=10 {
        let response = client.get("/");
        assert_eq!((state_of(&response), remaining(&response)), (Ok(swaps.done), LIMIT - asked));
        swaps.next();
    }
    // Another limit goes on from the same count.
    gateway.serve(12, &config(11, &upstream, 1, 100));
    assert_eq!(remaining(&client.get("/")), 89);
    assert_eq!(upstream.connections(), 1);
    assert_eq!(gateway.metric("weir_upstream_connections_opened_total"), 1);
}
