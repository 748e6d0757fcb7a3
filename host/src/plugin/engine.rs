//! The one wasmtime engine, its epoch ticker and the linkers.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

/// Address space set aside for each linear memory: with all 4 GiB that 32 bits
/// can reach, no access needs a bounds check.
const RESERVATION: u64 = 4 << 30;
/// Instances that can live at once. A slot that is not in use is address space
/// only.
const SLOTS: u32 = 8192;
/// Bytes of a memory that keep their pages when its instance is gone.
const KEEP_RESIDENT: usize = 256 << 10;
/// How often the epoch moves: the longest time that a plugin has the thread for
/// itself.
pub const TICK: Duration = Duration::from_millis(1);
/// Ticks without a call after which the ticker goes to sleep.
const IDLE_TICKS: u32 = 50;
/// The longest sleep: bounds what a call loses that begins just as the ticker
/// nods off.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// How an engine is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct EngineOptions {
    /// For counting instructions: little address space, a tick of 10 s.
    pub counting: bool,
}

/// An engine with its clock.
pub struct PluginEngine {
    pub engine: Engine,
    pub counting: bool,
    ticker: Arc<Ticker>,
}

#[derive(Default)]
struct Ticker {
    thread: OnceLock<thread::Thread>,
    asleep: AtomicBool,
    /// Calls in flight, of each worker.
    gauges: Mutex<Vec<Arc<AtomicU32>>>,
}

/// Counts the calls in flight of one worker, so that the epoch stands still
/// only while none is.
pub struct CallGauge {
    calls: Arc<AtomicU32>,
    ticker: Arc<Ticker>,
}

impl PluginEngine {
    /// Fails where the address space can't be had, or the machine is not one
    /// that code can be compiled for.
    pub fn new(options: EngineOptions) -> wasmtime::Result<Self> {
        let engine = Engine::new(&config(options))?;
        let ticker = Arc::new(Ticker::default());
        let (clock, shared) = (engine.clone(), ticker.clone());
        let tick = if options.counting { Duration::from_secs(10) } else { TICK };
        let thread = thread::Builder::new().name("epoch".into()).spawn(move || shared.run(&clock, tick))?;
        let _ = ticker.thread.set(thread.thread().clone());
        Ok(Self { engine, counting: options.counting, ticker })
    }

    /// A gauge for one worker.
    pub fn gauge(&self) -> CallGauge {
        let calls = Arc::new(AtomicU32::new(0));
        lock(&self.ticker.gauges).push(calls.clone());
        CallGauge { calls, ticker: self.ticker.clone() }
    }
}

impl CallGauge {
    /// A call begins. Only this worker writes, so no atomic addition is needed.
    #[inline]
    pub fn begin(&self) {
        self.calls.store(self.calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if self.ticker.asleep.load(Ordering::Relaxed) {
            self.ticker.asleep.store(false, Ordering::Relaxed);
            if let Some(thread) = self.ticker.thread.get() {
                thread.unpark();
            }
        }
    }

    /// It is over.
    #[inline]
    pub fn end(&self) {
        self.calls.store(self.calls.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
    }
}

impl Drop for CallGauge {
    fn drop(&mut self) {
        lock(&self.ticker.gauges).retain(|gauge| !Arc::ptr_eq(gauge, &self.calls));
    }
}

impl Ticker {
    fn run(&self, engine: &Engine, tick: Duration) {
        let mut idle = 0;
        loop {
            thread::sleep(tick);
            engine.increment_epoch();
            let busy = lock(&self.gauges).iter().any(|gauge| gauge.load(Ordering::Relaxed) > 0);
            idle = if busy { 0 } else { idle + 1 };
            if idle > IDLE_TICKS {
                self.asleep.store(true, Ordering::Relaxed);
                thread::park_timeout(LONGEST_SLEEP);
                // Where no call has woken it, one tick tells whether to go on sleeping.
                if !self.asleep.swap(false, Ordering::Relaxed) {
                    idle = 0;
                }
            }
        }
    }
}

/// A panic elsewhere leaves a list of gauges as good as it was.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn config(options: EngineOptions) -> Config {
    let reservation = if options.counting { 64 << 20 } else { RESERVATION };
    let slots = if options.counting { 64 } else { SLOTS };
    let mut pool = PoolingAllocationConfig::new();
    pool.total_memories(slots)
        .total_tables(slots * 2)
        .total_core_instances(slots * 4)
        .total_component_instances(slots)
        .total_stacks(slots)
        .max_memory_size(reservation as usize)
        .table_elements(20_000)
        .linear_memory_keep_resident(KEEP_RESIDENT)
        .pagemap_scan(Enabled::Auto);
    let mut config = Config::new();
    config
        // Synchronous component calls only: two to five times cheaper.
        .concurrency_support(false)
        .epoch_interruption(true)
        .memory_reservation(reservation)
        .max_wasm_stack(512 << 10)
        .async_stack_size(1 << 20)
        .wasm_backtrace_max_frames(std::num::NonZeroUsize::new(32))
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}
