//! Every metric of the gateway: its name, its labels, and where it is counted.
//!
//! Series belong to names, not to configurations: a route that is there again
//! after a reload goes on where it was, and one that is gone keeps its counts,
//! because counters must not go back. So that names that change with every
//! reload can't fill the memory, the names of a kind are limited; what comes
//! later is counted under `other`.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

mod series;
mod text;

#[cfg(test)]
mod tests;

use series::{CALL_BOUNDS, CODES, HOOKS, PLUGIN_FAILURES, REQUEST_BOUNDS, UPSTREAM_ERRORS};
pub use series::{Counter, Hook, ListenerSeries, PluginSeries, RouteSeries, UpstreamSeries, WorkerSeries};
pub use text::CONTENT_TYPE;
use text::{Kind, Metric, Page, Seconds, Times};

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, help }
}

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, help }
}

const fn histogram(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, help }
}

const REQUESTS: Metric =
    counter("weir_requests_total", "Requests that are over, by route and status code (rare codes by class).");
const REQUEST_DURATION: Metric =
    histogram("weir_request_duration_seconds", "From a request's head to its answer's end, by route.");
const IN_FLIGHT: Metric = gauge("weir_requests_in_flight", "Requests that are being answered.");
const CONNECTIONS: Metric = gauge("weir_connections", "Open downstream connections, by listener.");
const UPSTREAM_DURATION: Metric =
    histogram("weir_upstream_duration_seconds", "From sending a request to its response's head, by upstream.");
const UPSTREAM_OPENED: Metric = counter("weir_upstream_connections_opened_total", "Connections opened, by upstream.");
const UPSTREAM_FAILED: Metric = counter("weir_upstream_errors_total", "Failed exchanges, by upstream and kind.");
const PLUGIN_CALLS: Metric = counter("weir_plugin_calls_total", "Calls, by plugin and hook.");
const PLUGIN_SECONDS: Metric =
    counter("weir_plugin_duration_seconds_total", "Time that calls took, waiting included, by plugin and hook.");
const PLUGIN_DURATION: Metric = histogram("weir_plugin_duration_seconds", "The same for each call.");
const PLUGIN_REJECTIONS: Metric =
    counter("weir_plugin_rejections_total", "Requests that a plugin answered itself, by plugin and class of status.");
const PLUGIN_FAILURES_TOTAL: Metric = counter("weir_plugin_failures_total", "Calls that failed, by plugin and kind.");
const PLUGIN_INSTANCES: Metric = gauge("weir_plugin_instances", "Live instances, by module and digest of its file.");
const CONFIG_VERSION: Metric = gauge("weir_config_version", "Number of the configuration that is served.");
const CONFIG_ERROR: Metric =
    gauge("weir_config_last_error", "1 if the newest configuration was refused, so that an older one is served.");
const RELOADS: Metric = counter("weir_reloads_total", "Reloads, by outcome.");
const LOG_DROPPED: Metric =
    counter("weir_access_log_dropped_total", "Lines of the access log that nobody took off in time.");

/// Names of a kind that have series of their own.
const MAX_NAMES: usize = 20_000;

/// Where all other names are counted.
const OTHER: &str = "other";

/// How a reload ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// A new configuration serves.
    Applied,
    /// Nothing had changed.
    Unchanged,
    /// The new one was refused; the old one goes on.
    Refused,
}

const RELOAD_OUTCOMES: [&str; 3] = ["applied", "unchanged", "refused"];

/// All that is counted, of all workers.
#[derive(Debug)]
pub struct Metrics {
    workers: Vec<Arc<WorkerSeries>>,
    routes: Family<RouteSeries>,
    upstreams: Family<UpstreamSeries>,
    plugins: Family<PluginSeries>,
    listeners: Family<ListenerSeries>,
    instances: Mutex<BTreeMap<ModuleFile, Arc<Instances>>>,
    config_version: AtomicU64,
    config_error: AtomicU64,
    reloads: [AtomicU64; RELOAD_OUTCOMES.len()],
    log_dropped: Arc<AtomicU64>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ModuleFile {
    module: Box<str>,
    digest: Box<str>,
}

/// Live instances of one module file, on all workers.
#[derive(Debug, Default)]
pub struct Instances(AtomicU64);

impl Instances {
    pub fn made(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// For one that was counted as made.
    pub fn dropped(&self) {
        self.0.fetch_sub(1, Relaxed);
    }

    pub fn live(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Metrics {
    pub fn new(workers: usize) -> Self {
        Self {
            workers: (0..workers).map(|_| Arc::default()).collect(),
            routes: Family::new(workers, MAX_NAMES),
            upstreams: Family::new(workers, MAX_NAMES),
            plugins: Family::new(workers, MAX_NAMES),
            listeners: Family::new(workers, MAX_NAMES),
            instances: Mutex::default(),
            config_version: AtomicU64::new(0),
            config_error: AtomicU64::new(0),
            reloads: Default::default(),
            log_dropped: Arc::default(),
        }
    }

    /// The series that one worker writes, and no other thread. There are as many
    /// workers as were told at the beginning.
    pub fn worker(&self, index: usize) -> Worker<'_> {
        Worker { metrics: self, index }
    }

    /// The gauge of a module file's instances. Once nobody holds it any more and
    /// no instance lives, it is forgotten.
    pub fn instances(&self, module: &str, digest: &str) -> Arc<Instances> {
        let mut instances = lock(&self.instances);
        instances.retain(|_, gauge| Arc::strong_count(gauge) > 1 || gauge.live() > 0);
        instances.entry(ModuleFile { module: module.into(), digest: digest.into() }).or_default().clone()
    }

    /// Notes which configuration is served; it is the newest.
    pub fn config_serving(&self, version: u64) {
        self.config_version.store(version, Relaxed);
        self.config_error.store(0, Relaxed);
    }

    /// Notes that the newest configuration was refused.
    pub fn config_refused(&self) {
        self.config_error.store(1, Relaxed);
    }

    pub fn config_version(&self) -> u64 {
        self.config_version.load(Relaxed)
    }

    pub fn reloaded(&self, outcome: Reload) {
        self.reloads[outcome as usize].fetch_add(1, Relaxed);
    }

    /// Where lines of the access log that were dropped are counted.
    pub fn log_dropped(&self) -> Arc<AtomicU64> {
        self.log_dropped.clone()
    }

    /// All of it, for Prometheus.
    pub fn exposition(&self) -> String {
        let mut page = Page::default();
        self.write_requests(&mut page);
        self.write_upstreams(&mut page);
        self.write_plugins(&mut page);
        self.write_gateway(&mut page);
        page.finish()
    }

    fn write_requests(&self, page: &mut Page) {
        let routes = self.routes.all();
        page.begin(&REQUESTS);
        for (route, workers) in &routes {
            for (place, code) in CODES.iter().enumerate() {
                let used = workers.iter().filter_map(|series| series.requests());
                let count: u64 = used.map(|requests| requests.codes[place].get()).sum();
                if count > 0 {
                    page.sample(&REQUESTS, &[("route", route), ("code", code)], count);
                }
            }
        }
        page.begin(&REQUEST_DURATION);
        for (route, workers) in &routes {
            let used = workers.iter().filter_map(|series| series.requests());
            let times = Times::new(&REQUEST_BOUNDS, used.map(|requests| &requests.durations));
            if times.count() > 0 {
                page.histogram(&REQUEST_DURATION, &[("route", route)], &times);
            }
        }
        page.begin(&IN_FLIGHT);
        page.sample(&IN_FLIGHT, &[], self.workers.iter().map(|series| series.in_flight.get()).sum::<u64>());
        page.begin(&CONNECTIONS);
        for (listener, workers) in &self.listeners.all() {
            let open: u64 = workers.iter().map(|series| series.connections.get()).sum();
            page.sample(&CONNECTIONS, &[("listener", listener)], open);
        }
    }

    fn write_upstreams(&self, page: &mut Page) {
        let upstreams = self.upstreams.all();
        let used = |workers: &PerWorker<UpstreamSeries>| workers.iter().any(|series| series.exchanges().is_some());
        let upstreams: Vec<_> = upstreams.iter().filter(|(_, workers)| used(workers)).collect();
        page.begin(&UPSTREAM_DURATION);
        for (upstream, workers) in &upstreams {
            let exchanges = workers.iter().filter_map(|series| series.exchanges());
            let times = Times::new(&REQUEST_BOUNDS, exchanges.map(|exchanges| &exchanges.durations));
            page.histogram(&UPSTREAM_DURATION, &[("upstream", upstream)], &times);
        }
        page.begin(&UPSTREAM_OPENED);
        for (upstream, workers) in &upstreams {
            let exchanges = workers.iter().filter_map(|series| series.exchanges());
            let opened: u64 = exchanges.map(|exchanges| exchanges.opened.get()).sum();
            page.sample(&UPSTREAM_OPENED, &[("upstream", upstream)], opened);
        }
        page.begin(&UPSTREAM_FAILED);
        for (upstream, workers) in &upstreams {
            for (place, kind) in UPSTREAM_ERRORS.iter().enumerate() {
                let exchanges = workers.iter().filter_map(|series| series.exchanges());
                let failed: u64 = exchanges.map(|exchanges| exchanges.errors[place].get()).sum();
                page.sample(&UPSTREAM_FAILED, &[("upstream", upstream), ("kind", kind.name())], failed);
            }
        }
    }

    fn write_plugins(&self, page: &mut Page) {
        let plugins = self.plugins.all();
        let mut calls = Vec::new();
        for (plugin, workers) in &plugins {
            for (place, hook) in HOOKS.into_iter().enumerate() {
                let times = Times::new(&CALL_BOUNDS, workers.iter().map(|series| &series.calls[place]));
                if times.count() > 0 {
                    calls.push(([("plugin", &**plugin), ("hook", hook)], times));
                }
            }
        }
        page.begin(&PLUGIN_CALLS);
        calls.iter().for_each(|(labels, times)| page.sample(&PLUGIN_CALLS, labels, times.count()));
        page.begin(&PLUGIN_SECONDS);
        calls.iter().for_each(|(labels, times)| page.sample(&PLUGIN_SECONDS, labels, Seconds(times.sum)));
        page.begin(&PLUGIN_DURATION);
        calls.iter().for_each(|(labels, times)| page.histogram(&PLUGIN_DURATION, labels, times));
        page.begin(&PLUGIN_REJECTIONS);
        for (plugin, workers) in &plugins {
            for (place, class) in ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().enumerate() {
                let rejected: u64 = workers.iter().map(|series| series.rejections[place].get()).sum();
                if rejected > 0 {
                    page.sample(&PLUGIN_REJECTIONS, &[("plugin", plugin), ("status", class)], rejected);
                }
            }
        }
        page.begin(&PLUGIN_FAILURES_TOTAL);
        for (plugin, workers) in &plugins {
            for (place, kind) in PLUGIN_FAILURES.iter().enumerate() {
                let failed: u64 = workers.iter().map(|series| series.failures[place].get()).sum();
                page.sample(&PLUGIN_FAILURES_TOTAL, &[("plugin", plugin), ("kind", kind.name())], failed);
            }
        }
    }

    fn write_gateway(&self, page: &mut Page) {
        page.begin(&PLUGIN_INSTANCES);
        for (ModuleFile { module, digest }, gauge) in &*lock(&self.instances) {
            page.sample(&PLUGIN_INSTANCES, &[("module", module), ("digest", digest)], gauge.live());
        }
        page.begin(&CONFIG_VERSION);
        page.sample(&CONFIG_VERSION, &[], self.config_version());
        page.begin(&CONFIG_ERROR);
        page.sample(&CONFIG_ERROR, &[], self.config_error.load(Relaxed));
        page.begin(&RELOADS);
        for (outcome, count) in RELOAD_OUTCOMES.into_iter().zip(&self.reloads) {
            page.sample(&RELOADS, &[("outcome", outcome)], count.load(Relaxed));
        }
        page.begin(&LOG_DROPPED);
        page.sample(&LOG_DROPPED, &[], self.log_dropped.load(Relaxed));
    }
}

/// One worker's way to its series. The same name gives the same series, so ask
/// when a configuration is built, and keep what comes.
#[derive(Debug, Clone, Copy)]
pub struct Worker<'a> {
    metrics: &'a Metrics,
    index: usize,
}

impl Worker<'_> {
    /// Of requests that no route matches, too: the name is empty then.
    pub fn route(&self, name: &str) -> Arc<RouteSeries> {
        self.metrics.routes.get(name, self.index)
    }

    pub fn upstream(&self, name: &str) -> Arc<UpstreamSeries> {
        self.metrics.upstreams.get(name, self.index)
    }

    pub fn plugin(&self, name: &str) -> Arc<PluginSeries> {
        self.metrics.plugins.get(name, self.index)
    }

    pub fn listener(&self, address: &str) -> Arc<ListenerSeries> {
        self.metrics.listeners.get(address, self.index)
    }

    /// The worker as a whole.
    pub fn own(&self) -> Arc<WorkerSeries> {
        self.metrics.workers[self.index].clone()
    }
}

/// What a name has in each worker.
type PerWorker<S> = Arc<[Arc<S>]>;

/// Series by name, one for each worker.
#[derive(Debug)]
struct Family<S> {
    workers: usize,
    max_names: usize,
    by_name: Mutex<BTreeMap<Arc<str>, PerWorker<S>>>,
}

impl<S: Default> Family<S> {
    fn new(workers: usize, max_names: usize) -> Self {
        Self { workers, max_names, by_name: Mutex::default() }
    }

    fn get(&self, name: &str, worker: usize) -> Arc<S> {
        let mut by_name = lock(&self.by_name);
        let is_free = by_name.len() < self.max_names || by_name.contains_key(name);
        let name = if is_free { name } else { OTHER };
        if let Some(series) = by_name.get(name) {
            return series[worker].clone();
        }
        let series: PerWorker<S> = (0..self.workers).map(|_| Arc::default()).collect();
        by_name.entry(name.into()).or_insert(series)[worker].clone()
    }

    /// All of it, without holding the lock while it is written out.
    fn all(&self) -> Vec<(Arc<str>, PerWorker<S>)> {
        lock(&self.by_name).iter().map(|(name, series)| (name.clone(), series.clone())).collect()
    }
}

/// Nothing panics under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
