//! From a command line to threads that serve, and back to an orderly end.

use std::{
    io,
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc as async_mpsc, oneshot},
};

use crate::{
    access_log::Writer,
    admin::{self, AdminState},
    cli::{Common, Run},
    clock::Clock,
    config::{self, ConfigErrors},
    gateway::Gateway,
    logging::Budget,
    metrics::Metrics,
    plugin::{EngineOptions, PluginEngine, Plugins},
    reload::{Controller, Event, watch::Watcher},
    state::{Quota, State},
    upstream,
    worker::{self, Command, Shared},
};

/// Why the process ends early.
pub enum Failure {
    Config(ConfigErrors),
    /// Addresses that can't be listened on, by their places in the file.
    Listen(ConfigErrors),
    Other(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Other(error.to_string())
    }
}

/// Everything that compiles and keeps plugins.
pub fn plugins(
    common: &Common,
    counting: bool,
    state: Arc<State>,
    clock: Arc<Clock>,
    metrics: Arc<Metrics>,
) -> Result<Plugins, Failure> {
    let other = |error: wasmtime::Error| Failure::Other(format!("the plugin engine can't start: {error:#}"));
    let engine = PluginEngine::new(EngineOptions { counting }).map_err(other)?;
    Plugins::new(engine, &common.cache_root(), state, clock, metrics).map_err(other)
}

/// The signals that are handled, from when this is made.
struct Signals {
    hang_up: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Called in the runtime that waits for them.
    fn handle() -> io::Result<Self> {
        Ok(Self {
            hang_up: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }
}

struct Workers {
    commands: Vec<async_mpsc::UnboundedSender<Command>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// Serves until a signal ends it.
pub fn run(run: &Run) -> Result<(), Failure> {
    let path = &run.common.config;
    let config = config::load(path).map_err(Failure::Config)?;
    let count = config.workers.unwrap_or_else(|| thread::available_parallelism().map_or(1, |cores| cores.get()));
    let metrics = Arc::new(Metrics::new(count));
    let state = Arc::new(State::new(Quota::default()));
    let clock = Arc::new(match &run.test_clock {
        Some(path) => Clock::scripted(path)?,
        None => Clock::system(),
    });
    let mut plugins = plugins(&run.common, run.count_mode, state.clone(), clock.clone(), metrics.clone())?;
    let gateway = Arc::new(Gateway::build(config, 1, &mut plugins).map_err(Failure::Config)?);
    plugins.retain(&gateway.uses());
    let shared = Arc::new(Shared {
        serving: AtomicU64::new(1),
        access_log: Writer::start(&metrics)?,
        failure_log: Budget::default(),
        admin: Arc::new(AdminState::new(metrics.clone())),
        metrics: metrics.clone(),
        state,
        clock,
        targets: Arc::new(upstream::Targets::default()),
        drain_ms: AtomicU64::new(gateway.config.drain.as_millis() as u64),
    });
    let workers = start_workers(count, &shared, plugins.engine(), &gateway)?;
    let (admin_sockets, admin_changes) = async_mpsc::unbounded_channel();
    let controller =
        Controller::new(path.clone(), plugins, shared.clone(), workers.commands.clone(), gateway, admin_sockets);
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    // Before anybody can know that it serves: a signal that is not handled ends
    // the process there and then.
    let signals = {
        let _context = runtime.enter();
        Signals::handle()?
    };
    controller.listen().map_err(Failure::Listen)?;
    shared.admin.config_serving(1);
    shared.admin.listening();
    tracing::info!("config 1 serving");

    let (reload, events) = mpsc::channel();
    let watcher = Watcher::start(reload.clone())?;
    thread::Builder::new().name("reload".into()).spawn(move || controller.run(&events, &watcher))?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, supervise(shared.clone(), workers, signals, admin_changes, reload));
    drop(tasks);
    // A thread that is still blocked somewhere must not hold up the end.
    runtime.shutdown_background();
    shared.access_log.finish();
    Ok(())
}

fn start_workers(
    count: usize,
    shared: &Arc<Shared>,
    engine: &Arc<PluginEngine>,
    gateway: &Arc<Gateway>,
) -> Result<Workers, Failure> {
    let mut workers = Workers { commands: Vec::new(), threads: Vec::new() };
    let mut answers = Vec::new();
    for id in 0..count {
        let (sender, commands) = async_mpsc::unbounded_channel();
        let (ready, answer) = oneshot::channel();
        let (shared, engine, gateway) = (shared.clone(), engine.clone(), gateway.clone());
        let run = move || worker::run(id, shared, engine, gateway, commands, ready);
        workers.threads.push(thread::Builder::new().name(format!("worker-{id}")).spawn(run)?);
        workers.commands.push(sender);
        answers.push(answer);
    }
    for answer in answers {
        match answer.blocking_recv() {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return Err(Failure::Other(format!("a plugin did not get warm: {why}"))),
            Err(_) => return Err(Failure::Other("a worker did not start".into())),
        }
    }
    Ok(workers)
}

/// Serves the admin address and passes signals on. The first that says to end
/// drains, the second does not wait.
async fn supervise(
    shared: Arc<Shared>,
    workers: Workers,
    mut signals: Signals,
    mut admin_changes: async_mpsc::UnboundedReceiver<Option<TcpListener>>,
    reload: mpsc::Sender<Event>,
) {
    let mut _admin = None;
    loop {
        tokio::select! {
            Some(socket) = admin_changes.recv() => {
                _admin = socket.map(|socket| admin::Server::start(socket, shared.admin.clone()));
            }
            _ = signals.hang_up.recv() => drop(reload.send(Event::Asked)),
            () = either(&mut signals.terminate, &mut signals.interrupt) => break,
        }
    }
    shared.admin.draining();
    let drain = Duration::from_millis(shared.drain_ms.load(Ordering::Relaxed));
    tracing::info!("draining for at most {} s", drain.as_secs_f32());
    for worker in &workers.commands {
        let _ = worker.send(Command::Drain(drain));
    }
    let ended = tokio::task::spawn_blocking(move || workers.threads.into_iter().for_each(|thread| drop(thread.join())));
    tokio::select! {
        _ = ended => tracing::info!("drained"),
        () = either(&mut signals.terminate, &mut signals.interrupt) => tracing::warn!("ended without draining"),
    }
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
