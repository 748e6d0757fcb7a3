//! Plugins: components that are compiled once, linked once, and run in
//! instances that each worker owns.
//!
//! `engine` is wasmtime and its clock, `module` turns bytes into something that
//! can be instantiated, `host` is what a guest may call, `store` are the limits
//! of one instance, `instance` runs a hook, `pool` keeps a worker's instances,
//! `places` bounds how many calls there are at once.

use std::{path::PathBuf, sync::Arc, time::Instant};

use crate::{
    clock::Clock,
    error_response,
    exchange::{Exchange, HeadCaps, joined, known_name},
    logging::Budget,
    metrics::Instances,
    state::Space,
};

pub mod bindings;
pub mod cache;
pub mod engine;
mod host;
pub mod instance;
pub mod module;
pub mod places;
pub mod pool;
pub mod prepared;
pub mod store;
mod wasi;

pub use engine::{EngineOptions, PluginEngine};
pub use instance::Hook;
pub use module::{Plugin, Plugins, Use};
pub use pool::Pool;

/// Longest logged message, in bytes.
const LOG_MESSAGE: usize = 8 << 10;

/// Where a component comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    BuiltIn,
    File(PathBuf),
}

/// What all instances of one plugin share.
pub struct ModuleContext {
    /// The name in the configuration: quotas, metrics and logs go by it.
    pub name: Arc<str>,
    /// The plugin's own version.
    pub version: String,
    /// SHA-256 of the component, in hex.
    pub digest: String,
    /// Whether it imports WASI.
    pub wasi: bool,
    /// What `allow: { env }` lets it see.
    pub env: Vec<(String, String)>,
    /// Its part of the shared state.
    pub space: Arc<Space>,
    pub clock: Arc<Clock>,
    /// For `clock.monotonic`.
    pub started: Instant,
    /// The largest head of any listener.
    pub head: HeadCaps,
    /// Instances alive now, on all workers.
    pub instances: Arc<Instances>,
    log_budget: Budget,
}

impl ModuleContext {
    /// Writes a line to the gateway's log, or counts it only where the plugin
    /// writes too much.
    pub fn log(
        &self,
        level: tracing::Level,
        message: &str,
        exchange: Option<&mut Exchange>,
        stream: Option<&'static str>,
    ) {
        if tracing::level_filters::LevelFilter::current() < level || !self.may_log() {
            return;
        }
        let message = &message[..message.floor_char_boundary(LOG_MESSAGE)];
        let (route, id) = match exchange {
            Some(exchange) => {
                // What is wrong with a request has to be found by its id.
                if level <= tracing::Level::WARN {
                    exchange.id();
                }
                (Some(exchange.snapshot.route_name(exchange.route)), exchange.id.as_deref())
            }
            None => (None, None),
        };
        let plugin = &*self.name;
        match level {
            tracing::Level::ERROR => tracing::error!(plugin, route, id, stream, "{message}"),
            tracing::Level::WARN => tracing::warn!(plugin, route, id, stream, "{message}"),
            tracing::Level::INFO => tracing::info!(plugin, route, id, stream, "{message}"),
            tracing::Level::DEBUG => tracing::debug!(plugin, route, id, stream, "{message}"),
            _ => tracing::trace!(plugin, route, id, stream, "{message}"),
        }
    }

    /// Whether this second has room for one more line.
    pub fn may_log(&self) -> bool {
        let (may, dropped) = self.log_budget.take();
        if dropped > 0 {
            tracing::warn!(plugin = &*self.name, dropped, "the plugin logs too much: lines dropped");
        }
        may
    }
}

impl Exchange {
    /// Recognises a consumer by key, and notes it down.
    pub fn authenticate_key(&mut self, key: &[u8]) -> bool {
        let Some(consumer) = self.snapshot.identity.by_key(key) else { return false };
        let name = consumer.name.clone();
        self.set_consumer(name);
        true
    }

    /// The same by the value of a field; `None` without one.
    pub fn authenticate_key_header(&mut self, name: &str) -> Option<bool> {
        let name = known_name(name)?;
        self.request.look_at(&name);
        let consumer = self.snapshot.identity.by_key(&joined(&self.request.headers, &name)?);
        let name = consumer.map(|consumer| consumer.name.clone());
        let is_known = name.is_some();
        if let Some(name) = name {
            self.set_consumer(name);
        }
        Some(is_known)
    }

    /// The id by which this request is found in the log.
    pub fn id(&mut self) -> &str {
        self.id.get_or_insert_with(|| error_response::request_id().as_str().into())
    }
}
