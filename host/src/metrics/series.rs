//! What is counted, in numbers that one thread writes and any may read.
//!
//! Each worker has series of its own for everything, so counting is a load, an
//! addition and a store, without a locked instruction and without a cache line
//! that travels between cores. The exposition adds them up.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use http::StatusCode;

use crate::error::ErrorKind;

/// A number with one writer. A second one would lose counts, nothing worse.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, more: u64) {
        self.0.store(self.get().wrapping_add(more), Relaxed);
    }

    /// For gauges; never below 0.
    pub fn subtract(&self, less: u64) {
        self.0.store(self.get().saturating_sub(less), Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Upper bounds of the classes of a histogram; above the last one there is one
/// more. Each is at least twice the one before.
#[derive(Debug)]
pub struct Bounds {
    /// In nanoseconds.
    pub limits: [u64; BOUNDS],
    /// By the number's bit length, the first class that it can be in. As no two
    /// bounds have the same length, the next one is the only other.
    first: [u8; 65],
}

pub const BOUNDS: usize = 16;

/// For whole requests.
pub static REQUEST_BOUNDS: Bounds = Bounds::new(100_000);

/// For calls of plugins.
pub static CALL_BOUNDS: Bounds = Bounds::new(1_000);

impl Bounds {
    /// Steps of 1, 2.5, 5, 10 and so on from the least bound.
    const fn new(least: u64) -> Self {
        let (mut limits, mut first) = ([0; BOUNDS], [0; 65]);
        let (mut place, mut decade) = (0, least);
        while place < BOUNDS {
            limits[place] = match place % 3 {
                0 => decade,
                1 => decade / 10 * 25,
                _ => decade * 5,
            };
            if place % 3 == 2 {
                decade *= 10;
            }
            place += 1;
        }
        let mut length = 0;
        while length < 65 {
            // The least number of that length.
            let number: u64 = if length == 0 { 0 } else { 1 << (length - 1) };
            let mut class = 0;
            while class < BOUNDS && limits[class] < number {
                class += 1;
            }
            first[length] = class as u8;
            length += 1;
        }
        Self { limits, first }
    }

    fn class(&self, nanoseconds: u64) -> usize {
        let class = usize::from(self.first[64 - nanoseconds.leading_zeros() as usize]);
        class + usize::from(self.limits.get(class).is_some_and(|limit| nanoseconds > *limit))
    }
}

/// Durations by class.
#[derive(Debug, Default)]
pub struct Histogram {
    pub classes: [Counter; BOUNDS + 1],
    /// In nanoseconds.
    pub sum: Counter,
}

impl Histogram {
    pub fn record(&self, bounds: &Bounds, nanoseconds: u64) {
        self.classes[bounds.class(nanoseconds)].add(1);
        self.sum.add(nanoseconds);
    }
}

/// Statuses that are counted one by one, and at the end one for all others of
/// each class.
pub const CODES: [&str; 32] = [
    "200", "201", "202", "204", "206", "301", "302", "304", "307", "308", "400", "401", "403", "404", "405", "408",
    "409", "413", "414", "422", "429", "431", "500", "501", "502", "503", "504", "1xx", "2xx", "3xx", "4xx", "5xx",
];

/// Place in [`CODES`] of each status from 100 on.
static CODE_PLACES: [u8; 500] = {
    let mut places = [0; 500];
    let mut status = 0;
    while status < 500 {
        places[status] = (CODES.len() - 5 + status / 100) as u8;
        status += 1;
    }
    let mut place = 0;
    while place < CODES.len() - 5 {
        let digits = CODES[place].as_bytes();
        let status = (digits[0] - b'0') as usize * 100 + (digits[1] - b'0') as usize * 10 + (digits[2] - b'0') as usize;
        places[status - 100] = place as u8;
        place += 1;
    }
    places
};

fn code_place(status: StatusCode) -> usize {
    let place = usize::from(status.as_u16().saturating_sub(100)).min(CODE_PLACES.len() - 1);
    CODE_PLACES[place].into()
}

/// Requests of one route, in one worker.
#[derive(Debug, Default)]
pub struct RouteSeries(OnceLock<Box<Requests>>);

/// Made at the first request: most of ten thousand routes may never see one.
#[derive(Debug, Default)]
pub struct Requests {
    pub codes: [Counter; CODES.len()],
    pub durations: Histogram,
}

impl RouteSeries {
    /// Counts a request that is over.
    pub fn finish(&self, status: StatusCode, nanoseconds: u64) {
        let requests = self.0.get_or_init(Box::default);
        requests.codes[code_place(status)].add(1);
        requests.durations.record(&REQUEST_BOUNDS, nanoseconds);
    }

    pub fn requests(&self) -> Option<&Requests> {
        self.0.get().map(Box::as_ref)
    }
}

/// What goes to one upstream, from one worker.
#[derive(Debug, Default)]
pub struct UpstreamSeries(OnceLock<Box<Exchanges>>);

#[derive(Debug, Default)]
pub struct Exchanges {
    pub durations: Histogram,
    pub opened: Counter,
    pub errors: [Counter; UPSTREAM_ERRORS.len()],
}

/// The kinds of failure that are an upstream's.
pub const UPSTREAM_ERRORS: [ErrorKind; 5] = [
    ErrorKind::Connect,
    ErrorKind::ConnectTimeout,
    ErrorKind::ResponseTimeout,
    ErrorKind::TotalTimeout,
    ErrorKind::BadResponse,
];

impl UpstreamSeries {
    /// Counts a response by the time from sending to its head.
    pub fn finish(&self, nanoseconds: u64) {
        self.made().durations.record(&REQUEST_BOUNDS, nanoseconds);
    }

    /// Counts a connection opened.
    pub fn opened(&self) {
        self.made().opened.add(1);
    }

    /// Counts a failure; one of another source is not an upstream's.
    pub fn failed(&self, kind: ErrorKind) {
        count_kind(&UPSTREAM_ERRORS, &self.made().errors, kind);
    }

    pub fn exchanges(&self) -> Option<&Exchanges> {
        self.0.get().map(Box::as_ref)
    }

    fn made(&self) -> &Exchanges {
        self.0.get_or_init(Box::default)
    }
}

/// What a plugin is called for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    Configure,
    Request,
    Response,
    Finish,
}

/// The names of the hooks, in order.
pub const HOOKS: [&str; 4] = ["configure", "on_request", "on_response", "on_finish"];

/// The kinds of failure that are a plugin's.
pub const PLUGIN_FAILURES: [ErrorKind; 7] = [
    ErrorKind::Trap,
    ErrorKind::CpuLimit,
    ErrorKind::WallLimit,
    ErrorKind::MemoryLimit,
    ErrorKind::Failed,
    ErrorKind::Busy,
    ErrorKind::Suspended,
];

/// Calls of one plugin, in one worker.
#[derive(Debug, Default)]
pub struct PluginSeries {
    pub calls: [Histogram; HOOKS.len()],
    /// Early answers, by class of status: 1xx to 5xx.
    pub rejections: [Counter; 5],
    pub failures: [Counter; PLUGIN_FAILURES.len()],
}

impl PluginSeries {
    /// Counts a call that is over, failed ones included.
    pub fn call(&self, hook: Hook, nanoseconds: u64) {
        self.calls[hook as usize].record(&CALL_BOUNDS, nanoseconds);
    }

    /// Counts an early answer.
    pub fn rejected(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).clamp(1, 5) - 1;
        self.rejections[class].add(1);
    }

    /// Counts a failure; one of another source is not a plugin's.
    pub fn failed(&self, kind: ErrorKind) {
        count_kind(&PLUGIN_FAILURES, &self.failures, kind);
    }
}

fn count_kind(kinds: &[ErrorKind], counters: &[Counter], kind: ErrorKind) {
    if let Some(place) = kinds.iter().position(|other| *other == kind) {
        counters[place].add(1);
    }
}

/// One listener, in one worker.
#[derive(Debug, Default)]
pub struct ListenerSeries {
    /// Open connections.
    pub connections: Counter,
}

/// One worker.
#[derive(Debug, Default)]
pub struct WorkerSeries {
    /// Requests that are being answered.
    pub in_flight: Counter,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_in_its_class() {
        for bounds in [&REQUEST_BOUNDS, &CALL_BOUNDS] {
            assert!(bounds.limits.windows(2).all(|pair| pair[1] >= 2 * pair[0]));
            let class = |number: u64| bounds.limits.iter().position(|limit| number <= *limit).unwrap_or(BOUNDS);
            let corners = bounds.limits.iter().flat_map(|limit| [limit - 1, *limit, limit + 1]);
            let powers = (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
            for number in corners.chain(powers).chain([u64::MAX]) {
                assert_eq!(bounds.class(number), class(number), "{number}");
            }
        }
        assert_eq!((REQUEST_BOUNDS.limits[15], CALL_BOUNDS.limits[15]), (10_000_000_000, 100_000_000));
    }

    #[test]
    fn statuses_are_counted_by_code_or_class() {
        for (status, code) in [(200, "200"), (429, "429"), (418, "4xx"), (101, "1xx"), (599, "5xx"), (999, "5xx")] {
            let status = StatusCode::from_u16(status).unwrap_or_default();
            assert_eq!(CODES[code_place(status)], code);
        }
    }

    #[test]
    fn a_gauge_stays_above_nothing() {
        let gauge = Counter::default();
        gauge.add(2);
        gauge.subtract(1);
        assert_eq!(gauge.get(), 1);
        gauge.subtract(5);
        assert_eq!(gauge.get(), 0);
    }

    #[test]
    fn failures_of_others_are_not_counted() {
        let plugin = PluginSeries::default();
        plugin.failed(ErrorKind::Connect);
        plugin.failed(ErrorKind::Trap);
        assert_eq!(plugin.failures.iter().map(Counter::get).sum::<u64>(), 1);
    }
}
