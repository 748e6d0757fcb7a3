//! One instance of a plugin and the calls into it.

use std::{collections::HashSet, fmt, sync::Arc};

use wasmtime::Store;

use super::{
    bindings::{Action, Description, Hooks, Phases, Problem},
    module::{Plugin, SETUP_WAIT, Use},
    prepared::Edits,
    store::{Budget, InstanceState, new_store},
};
use crate::{error::ErrorKind, exchange::Exchange};

/// The hooks that a request can meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    Request,
    Response,
    Finish,
}

impl Hook {
    /// Its name in the contract, for logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Hook::Request => "on-request",
            Hook::Response => "on-response",
            Hook::Finish => "on-finish",
        }
    }
}

/// A component instance with a store of its own. It serves one call at a time,
/// for any of its plugin's uses.
pub struct Instance {
    store: Store<InstanceState>,
    hooks: Hooks,
    /// Hooks called so far.
    pub calls: u64,
    /// Uses that `configure` was called for here.
    configured: HashSet<u32, foldhash::fast::RandomState>,
    last_configured: u32,
    /// Counts this instance among those alive.
    _alive: Alive,
}

struct Alive(std::sync::Arc<super::ModuleContext>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.instances.dropped();
    }
}

/// A call that did not return.
#[derive(Debug)]
pub struct CallError {
    pub kind: ErrorKind,
    /// What was called.
    pub during: &'static str,
    pub cause: wasmtime::Error,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ErrorKind::Trap => write!(f, "{:#}", self.cause),
            kind => write!(f, "{}: {:#}", kind.name(), self.cause),
        }
    }
}

impl Instance {
    /// Instantiates, which runs start-up code of the guest.
    pub async fn new(plugin: &Plugin) -> Result<Self, CallError> {
        let engine = &plugin.engine;
        let mut store = new_store(&engine.engine, &plugin.context, plugin.limits, engine.counting);
        begin(&mut store, Budget::Setup);
        let made = async {
            let instance = plugin.pre.instantiate_async(&mut store).await?;
            plugin.hooks.load(&mut store, &instance)
        };
        let hooks = match tokio::time::timeout(SETUP_WAIT, made).await {
            Ok(Ok(hooks)) => hooks,
            Ok(Err(cause)) => return Err(failure(&store, "start", cause)),
            Err(_) => return Err(too_slow("start")),
        };
        plugin.context.instances.made();
        Ok(Self {
            store,
            hooks,
            calls: 0,
            configured: HashSet::default(),
            last_configured: u32::MAX,
            _alive: Alive(plugin.context.clone()),
        })
    }

    pub async fn describe(&mut self) -> Result<Description, CallError> {
        begin(&mut self.store, Budget::Setup);
        match tokio::time::timeout(SETUP_WAIT, self.hooks.call_describe(&mut self.store)).await {
            Ok(Ok(description)) => Ok(description),
            Ok(Err(cause)) => Err(failure(&self.store, "describe", cause)),
            Err(_) => Err(too_slow("describe")),
        }
    }

    /// Hands a configuration over; the inner error is the plugin's answer.
    pub async fn configure(&mut self, id: u32, config: &str) -> Result<Result<Phases, Vec<Problem>>, CallError> {
        begin(&mut self.store, Budget::Setup);
        let answer =
            match tokio::time::timeout(SETUP_WAIT, self.hooks.call_configure(&mut self.store, id, config)).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(cause)) => return Err(failure(&self.store, "configure", cause)),
                Err(_) => return Err(too_slow("configure")),
            };
        if answer.is_ok() {
            self.configured.insert(id);
            self.last_configured = id;
        }
        Ok(answer)
    }

    /// Edits that it has prepared.
    pub fn edits(&self, id: u32) -> Option<Arc<Edits>> {
        self.store.data().prepared.edits(id).cloned()
    }

    /// Whether this use can be called without `configure`.
    #[inline]
    pub fn knows(&self, id: u32) -> bool {
        self.last_configured == id || self.configured.contains(&id)
    }

    /// Uses that it has been configured for.
    pub fn uses(&self) -> usize {
        self.configured.len()
    }

    /// Calls a hook on an exchange, which stays inside until `take_exchange`.
    pub async fn hook(&mut self, hook: Hook, used: &Use, exchange: Box<Exchange>) -> Result<Action, CallError> {
        let left = self.store.data().meter.limits().request_cpu.saturating_sub(exchange.plugin_cpu);
        self.store.data_mut().exchange = Some(exchange);
        self.calls += 1;
        begin(&mut self.store, Budget::Hook { left });
        let outcome = match hook {
            Hook::Request => self.hooks.call_on_request(&mut self.store, used.id).await,
            Hook::Response => self.hooks.call_on_response(&mut self.store, used.id).await,
            Hook::Finish => self.hooks.call_on_finish(&mut self.store, used.id).await.map(|()| Action::Continue),
        };
        outcome.map_err(|cause| failure(&self.store, hook.name(), cause))
    }

    /// Takes the exchange back, with the CPU time of the call booked on it.
    pub fn take_exchange(&mut self) -> Option<Box<Exchange>> {
        let state = self.store.data_mut();
        let mut exchange = state.exchange.take()?;
        exchange.plugin_cpu += state.meter.used();
        Some(exchange)
    }
}

fn begin(store: &mut Store<InstanceState>, budget: Budget) {
    store.data_mut().meter.begin(budget);
    store.set_epoch_deadline(1);
}

/// A full pool is not the plugin's fault; a limit that had a part in the end of
/// a call is its cause, whatever the guest made of it.
fn failure(store: &Store<InstanceState>, during: &'static str, cause: wasmtime::Error) -> CallError {
    let kind = if cause.is::<wasmtime::PoolConcurrencyLimitError>() {
        ErrorKind::Busy
    } else {
        store.data().meter.breach().unwrap_or(ErrorKind::Trap)
    };
    CallError { kind, during, cause }
}

/// A call that waited for something too long.
pub fn too_slow(during: &'static str) -> CallError {
    CallError { kind: ErrorKind::WallLimit, during, cause: wasmtime::format_err!("not done in time") }
}
