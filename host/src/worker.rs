//! One worker: a thread with everything that a request needs, shared with no
//! other thread.
//!
//! A worker learns of a new configuration twice: first it is asked to prepare,
//! which builds its own part (plugin instances, upstream pools) while the old
//! one serves; then the number of the serving version moves, and the next
//! request takes the new one. So a swap is one store in one place, and a
//! request never waits for it.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    net::{SocketAddr, TcpListener},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, mpsc, oneshot};

use crate::{
    access_log::{AccessLog, Writer},
    admin::AdminState,
    clock::Clock,
    exchange::Exchange,
    gateway::{Active, Gateway},
    logging::Budget,
    metrics::{Metrics, WorkerSeries},
    plugin::{PluginEngine, Pool, engine::CallGauge, instance::CallError, places::Places},
    server,
    state::State,
    timer::Timer,
    upstream,
};

/// Plugin calls that may be under way at once on one worker. Beyond it requests
/// wait, so that I/O gets its turn. Several times what one plugin may have by
/// default: one that is slow must not take the turns of all others.
const CALLS: u32 = 512;
/// Exchanges kept for their buffers.
const SPARE_EXCHANGES: usize = 64;
/// How often unused instances and connections are let go.
const SWEEP: Duration = Duration::from_secs(15);
/// How long a line of the access log may wait for others.
const FLUSH: Duration = Duration::from_millis(200);

/// What all workers share.
pub struct Shared {
    /// Number of the configuration that serves.
    pub serving: AtomicU64,
    pub metrics: Arc<Metrics>,
    pub targets: Arc<upstream::Targets>,
    pub access_log: Writer,
    /// For failures that are not a client's.
    pub failure_log: Budget,
    pub admin: Arc<AdminState>,
    /// What plugins have stored.
    pub state: Arc<State>,
    pub clock: Arc<Clock>,
    /// How long requests in flight may go on then.
    pub drain_ms: AtomicU64,
}

/// What a worker is told.
pub enum Command {
    /// Build this configuration's part and say when it stands.
    Prepare(Arc<Gateway>, oneshot::Sender<Result<(), String>>),
    /// Forget what was prepared: another worker could not.
    Discard,
    /// Accept connections on a socket of its own.
    Listen(SocketAddr, TcpListener),
    /// Accept no more there, and let its connections finish.
    Close(SocketAddr, Duration),
    /// Finish what is under way, then end.
    Drain(Duration),
}

/// The worker's state.
pub struct Worker {
    pub id: usize,
    pub shared: Arc<Shared>,
    pub timer: Rc<Timer>,
    /// Turns to run a plugin call.
    pub calls: Places,
    pub access_log: AccessLog,
    pub series: Arc<WorkerSeries>,
    pub upstreams: upstream::Pools,
    gauge: CallGauge,
    active: RefCell<Rc<Active>>,
    prepared: RefCell<Option<Rc<Active>>>,
    pools: RefCell<HashMap<u64, Rc<Pool>>>,
    // Boxed, because they go in and out at every request.
    #[allow(clippy::vec_box)]
    spare: RefCell<Vec<Box<Exchange>>>,
    /// Connections and requests that have not ended.
    open: Cell<usize>,
    pub closed: Notify,
}

impl Worker {
    /// The configuration for a request that begins now.
    #[inline]
    pub fn active(&self) -> Rc<Active> {
        if self.shared.serving.load(Ordering::Acquire) != self.active.borrow().version() {
            self.switch();
        }
        self.active.borrow().clone()
    }

    #[cold]
    fn switch(&self) {
        let serving = self.shared.serving.load(Ordering::Acquire);
        if self.prepared.borrow().as_ref().is_some_and(|prepared| prepared.version() == serving)
            && let Some(prepared) = self.prepared.borrow_mut().take()
        {
            *self.active.borrow_mut() = prepared;
        }
    }

    /// This worker's instances of a plugin.
    pub fn pool(&self, plugin: &Arc<crate::plugin::Plugin>) -> Rc<Pool> {
        let mut pools = self.pools.borrow_mut();
        pools.entry(plugin.id).or_insert_with(|| Rc::new(Pool::new(plugin.clone()))).clone()
    }

    /// Counts a plugin call for as long as the value lives.
    pub fn count_call(&self) -> CountedCall<'_> {
        self.gauge.begin();
        CountedCall(&self.gauge)
    }

    pub fn spare_exchange(&self) -> Option<Box<Exchange>> {
        self.spare.borrow_mut().pop()
    }

    /// Keeps an exchange's buffers for a later request.
    pub fn keep_exchange(&self, mut exchange: Box<Exchange>) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_EXCHANGES {
            exchange.retire();
            spare.push(exchange);
        }
    }

    /// Counts something that must end before the worker may.
    pub fn open(self: &Rc<Self>) -> Open {
        self.open.set(self.open.get() + 1);
        Open(self.clone())
    }

    async fn prepare(self: &Rc<Self>, gateway: Arc<Gateway>) -> Result<(), CallError> {
        let active = Active::build(self, gateway);
        active.warm().await?;
        // The one prepared before may serve already, without a request that has
        // noticed.
        drop(self.active());
        *self.prepared.borrow_mut() = Some(Rc::new(active));
        Ok(())
    }

    /// Forgets what was prepared and is not to serve.
    fn discard(&self) {
        // If this worker's part never stood, what is there is from the time
        // before: it serves, and no request has noticed yet.
        drop(self.active());
        drop(self.prepared.borrow_mut().take());
    }

    /// Goes over to the configuration that serves, where no request has done so,
    /// and lets go of all instances of plugins that none on this worker names
    /// any more. Many swaps in a row would pile them up.
    fn let_go(&self) {
        drop(self.active());
        self.pools.borrow_mut().retain(|_, pool| Rc::strong_count(pool) > 1);
    }

    /// Lets go of instances and connections that were idle since the last sweep,
    /// and of targets that no configuration on this worker names any more.
    fn sweep(&self) {
        self.pools.borrow().values().for_each(|pool| pool.sweep());
        self.upstreams.sweep();
    }
}

/// A plugin call under way.
pub struct CountedCall<'a>(&'a CallGauge);

impl Drop for CountedCall<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Something under way that a worker waits for when it is to end.
pub struct Open(Rc<Worker>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        if self.0.open.get() == 0 {
            self.0.closed.notify_one();
        }
    }
}

/// Runs a worker until it is told to drain. Called on the worker's thread.
pub fn run(
    id: usize,
    shared: Arc<Shared>,
    engine: Arc<PluginEngine>,
    first: Arc<Gateway>,
    mut commands: mpsc::UnboundedReceiver<Command>,
    ready: oneshot::Sender<Result<(), String>>,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async move {
        let timer = Timer::start();
        let worker = Rc::new(Worker {
            id,
            timer: timer.clone(),
            calls: Places::new(CALLS),
            access_log: AccessLog::new(shared.access_log.clone()),
            series: shared.metrics.worker(id).own(),
            upstreams: upstream::Pools::new(timer),
            gauge: engine.gauge(),
            active: RefCell::new(Rc::new(Active::unprepared(first.clone()))),
            prepared: RefCell::default(),
            pools: RefCell::default(),
            spare: RefCell::default(),
            open: Cell::new(0),
            closed: Notify::new(),
            shared,
        });
        let outcome = worker.prepare(first).await;
        let _ = ready.send(outcome.map_err(|error| format!("{} failed: {error}", error.during)));
        tokio::task::spawn_local(housekeeping(worker.clone()));
        let mut listeners = server::Listeners::default();
        while let Some(command) = commands.recv().await {
            match command {
                Command::Prepare(gateway, ready) => {
                    let worker = worker.clone();
                    tokio::task::spawn_local(async move {
                        let outcome = worker.prepare(gateway).await;
                        let _ = ready.send(outcome.map_err(|error| format!("{} failed: {error}", error.during)));
                    });
                }
                Command::Discard => worker.discard(),
                Command::Listen(address, socket) => listeners.open(&worker, address, socket),
                Command::Close(address, drain) => listeners.close(address, drain),
                Command::Drain(deadline) => {
                    listeners.close_all(deadline);
                    let all_closed = async {
                        while worker.open.get() > 0 {
                            worker.closed.notified().await;
                        }
                    };
                    if worker.timer.timeout(deadline, all_closed).await.is_err() {
                        tracing::warn!(open = worker.open.get(), "not drained in time: the rest is closed");
                    }
                    break;
                }
            }
        }
        worker.access_log.flush();
    });
    Ok(())
}

/// Flushes the log and sweeps, for as long as the worker lives.
async fn housekeeping(worker: Rc<Worker>) {
    let mut since_sweep = Duration::ZERO;
    loop {
        tokio::time::sleep(FLUSH).await;
        worker.access_log.flush();
        worker.shared.state.sweep(worker.shared.clock.now_ms());
        worker.let_go();
        since_sweep += FLUSH;
        if since_sweep >= SWEEP {
            since_sweep = Duration::ZERO;
            worker.sweep();
        }
    }
}
