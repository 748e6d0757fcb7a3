//! What an instance carries, and the limits that it runs under: all of them are
//! applied here.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use wasmtime::{Engine, ResourceLimiter, Store, UpdateDeadline, component::ResourceTable};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use super::{ModuleContext, prepared::Prepared, wasi};
use crate::{config::PluginLimits, error::ErrorKind, exchange::Exchange};

/// CPU time that `configure` may take: parsing a large configuration is slower
/// than a request.
const CONFIGURE_CPU: Duration = Duration::from_millis(500);
const CONFIGURE_WALL: Duration = Duration::from_secs(10);
/// Tables are for indirect calls; no plugin grows them in earnest.
const TABLE_ELEMENTS: usize = 20_000;

/// The data of one instance's store.
pub struct InstanceState {
    /// The request in hand; none outside hooks.
    pub exchange: Option<Box<Exchange>>,
    pub module: Arc<ModuleContext>,
    pub meter: Meter,
    pub prepared: Prepared,
    /// For the key that a limiter makes.
    pub key: Vec<u8>,
    wasi: Option<Box<Wasi>>,
}

struct Wasi {
    context: WasiCtx,
    table: ResourceTable,
}

/// Watches over memory and time.
pub struct Meter {
    limits: PluginLimits,
    /// CPU time of the call in hand, from its first tick on.
    used: Duration,
    allowed: Duration,
    wall: Option<Instant>,
    allowed_wall: Duration,
    /// The thread's CPU clock when the call last got it, in nanoseconds; 0
    /// before the first tick.
    resumed: Arc<AtomicU64>,
    /// Why the call was stopped.
    stopped: Option<ErrorKind>,
    memory_refused: bool,
    counting: bool,
}

/// What a call is for, which decides how long it may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// A hook of a live request, with what is left of the request's own.
    Hook { left: Duration },
    /// `describe`, `configure` and start-up code.
    Setup,
}

/// Makes the store of a new instance, with every limit in force.
pub fn new_store(
    engine: &Engine,
    module: &Arc<ModuleContext>,
    limits: PluginLimits,
    counting: bool,
) -> Store<InstanceState> {
    let state = InstanceState {
        exchange: None,
        module: module.clone(),
        meter: Meter::new(limits, counting),
        prepared: Prepared::default(),
        key: Vec::new(),
        wasi: module.wasi.then(|| Box::new(Wasi { context: wasi::context(module), table: ResourceTable::new() })),
    };
    let mut store = Store::new(engine, state);
    store.limiter(|state| &mut state.meter);
    store.epoch_deadline_callback(|mut store| Ok(store.data_mut().meter.tick()));
    // What a guest hands over in one call: a body and a head.
    store.set_hostcall_fuel((limits.body as usize).saturating_add(module.head.bytes));
    store
}

impl Meter {
    fn new(limits: PluginLimits, counting: bool) -> Self {
        Self {
            limits,
            used: Duration::ZERO,
            allowed: Duration::ZERO,
            wall: None,
            allowed_wall: Duration::ZERO,
            resumed: Arc::new(AtomicU64::new(0)),
            stopped: None,
            memory_refused: false,
            counting,
        }
    }

    /// Starts to measure a call.
    #[inline]
    pub fn begin(&mut self, budget: Budget) {
        (self.allowed, self.allowed_wall) = match budget {
            Budget::Hook { left } => (self.limits.cpu.min(left), self.limits.wall),
            Budget::Setup => (CONFIGURE_CPU, CONFIGURE_WALL),
        };
        self.used = Duration::ZERO;
        self.wall = None;
        self.stopped = None;
        self.memory_refused = false;
        self.resumed.store(0, Ordering::Relaxed);
    }

    pub fn limits(&self) -> &PluginLimits {
        &self.limits
    }

    /// CPU time of the call that is over, from its first tick on.
    pub fn used(&self) -> Duration {
        self.used
    }

    /// Why the call failed, if a limit had a part in it.
    pub fn breach(&self) -> Option<ErrorKind> {
        self.stopped.or(self.memory_refused.then_some(ErrorKind::MemoryLimit))
    }

    /// One tick has passed while the guest ran: charge it, then stop it or give
    /// the thread to somebody else.
    ///
    /// Charged is what the thread has really run, so that a guest never pays
    /// for the time of others on a busy machine. The clock is read from the
    /// first tick on only, because reading it is a system call.
    fn tick(&mut self) -> UpdateDeadline {
        if self.counting {
            return UpdateDeadline::Continue(1);
        }
        let now = thread_cpu();
        let resumed = self.resumed.load(Ordering::Relaxed);
        if resumed > 0 {
            self.used += Duration::from_nanos(now.saturating_sub(resumed));
        }
        let started = *self.wall.get_or_insert_with(Instant::now);
        if self.used > self.allowed {
            self.stopped = Some(ErrorKind::CpuLimit);
            return UpdateDeadline::Interrupt;
        }
        if started.elapsed() > self.allowed_wall {
            self.stopped = Some(ErrorKind::WallLimit);
            return UpdateDeadline::Interrupt;
        }
        let resumed = self.resumed.clone();
        // A plain yield would be polled again before the I/O driver is.
        UpdateDeadline::YieldCustom(
            1,
            Box::pin(async move {
                tokio::task::yield_now().await;
                resumed.store(thread_cpu(), Ordering::Relaxed);
            }),
        )
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let allowed = desired as u64 <= self.limits.memory;
        self.memory_refused |= !allowed;
        Ok(allowed)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let allowed = desired <= TABLE_ELEMENTS;
        self.memory_refused |= !allowed;
        Ok(allowed)
    }
}

impl WasiView for InstanceState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        // Made on the spot for a module that was linked without WASI, which
        // has no import that could get here.
        let module = &self.module;
        let wasi = self
            .wasi
            .get_or_insert_with(|| Box::new(Wasi { context: wasi::context(module), table: ResourceTable::new() }));
        WasiCtxView { ctx: &mut wasi.context, table: &mut wasi.table }
    }
}

/// What this thread has run, in nanoseconds.
fn thread_cpu() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}
