//! Benchmark plugin: API-key check against a fixed list, a token bucket per key
//! in plugin-local memory, one response header added.
//!
//! Configuration text, one item a line: mode ("full" or "noop"), tokens per
//! second, burst, then one key per line.
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType, LogLevel};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Warn);
    proxy_wasm::set_root_context(|_| Box::new(Root::default()));
}}

struct Bucket {
    tokens: f64,
    last: SystemTime,
}

#[derive(Default)]
struct Policy {
    rate: f64,
    burst: f64,
    buckets: RefCell<HashMap<String, Bucket>>,
}

impl Policy {
    /// Status to deny with, or None to let the request through.
    fn check(&self, key: Option<&str>, now: SystemTime) -> Option<u32> {
        let mut buckets = self.buckets.borrow_mut();
        let Some(b) = key.and_then(|k| buckets.get_mut(k)) else {
            return Some(401);
        };
        let dt = now.duration_since(b.last).unwrap_or(Duration::ZERO);
        b.tokens = (b.tokens + dt.as_secs_f64() * self.rate).min(self.burst);
        b.last = now;
        if b.tokens < 1.0 {
            return Some(429);
        }
        b.tokens -= 1.0;
        None
    }
}

#[derive(Default)]
struct Root {
    noop: bool,
    policy: Rc<Policy>,
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, _size: usize) -> bool {
        let raw = self.get_plugin_configuration().unwrap_or_default();
        let text = String::from_utf8_lossy(&raw);
        let mut lines = text.lines();
        self.noop = lines.next() == Some("noop");
        let rate = lines.next().and_then(|l| l.parse().ok()).unwrap_or(0.0);
        let burst = lines.next().and_then(|l| l.parse().ok()).unwrap_or(0.0);
        let last = self.get_current_time();
        let buckets = lines.map(|k| (k.to_string(), Bucket { tokens: burst, last })).collect();
        self.policy = Rc::new(Policy { rate, burst, buckets: RefCell::new(buckets) });
        true
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, _id: u32) -> Option<Box<dyn HttpContext>> {
        Some(if self.noop { Box::new(Noop) } else { Box::new(KeyAuth(self.policy.clone())) })
    }
}

struct Noop;
impl Context for Noop {}
impl HttpContext for Noop {}

struct KeyAuth(Rc<Policy>);

impl Context for KeyAuth {}

impl HttpContext for KeyAuth {
    fn on_http_request_headers(&mut self, _n: usize, _end: bool) -> Action {
        let key = self.get_http_request_header("x-api-key");
        match self.0.check(key.as_deref(), self.get_current_time()) {
            Some(status) => {
                self.send_http_response(status, vec![], None);
                Action::Pause
            }
            None => Action::Continue,
        }
    }

    fn on_http_response_headers(&mut self, _n: usize, _end: bool) -> Action {
        self.add_http_response_header("x-plugin", "1");
        Action::Continue
    }
}
