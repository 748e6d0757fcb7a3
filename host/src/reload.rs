//! Live change: files change, a new gateway is built beside the old one, one
//! number moves, the old one drains.
//!
//! Nothing of the old gateway is touched before the new one stands on every
//! worker. A configuration that does not stand changes nothing; why is in the
//! log and in the metrics.

use std::{
    collections::HashSet,
    fmt,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering, mpsc},
};

use tokio::sync::{mpsc as async_mpsc, oneshot};

use crate::{
    config::{self, Config, ConfigError, ConfigErrors, Origin},
    gateway::Gateway,
    metrics::Reload,
    plugin::Plugins,
    server,
    worker::{Command, Shared},
};

pub mod watch;

use watch::Watcher;

/// Why to look at the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// One of them may have changed.
    Changed,
    /// Somebody has sent SIGHUP.
    Asked,
}

/// What came of a change.
#[derive(Debug)]
pub enum Outcome {
    /// The same content as what serves.
    Unchanged,
    /// A new configuration serves, under this number.
    Serving(u64),
    /// The old one goes on.
    Refused(ConfigErrors),
}

/// What makes one built gateway differ from another.
#[derive(Clone, PartialEq, Eq)]
struct Fingerprint {
    text: [u8; 32],
    /// Name and digest of each module in use.
    modules: Vec<(Arc<str>, String)>,
}

/// Sockets that a configuration needs anew.
#[derive(Default)]
struct Opened {
    listeners: Vec<Bound>,
    /// None where the admin address stays.
    admin: Option<Option<TcpListener>>,
}

/// Sockets for an address, one for each worker.
struct Bound {
    configured: SocketAddr,
    actual: SocketAddr,
    sockets: Vec<TcpListener>,
}

/// Owns what serves, and changes it.
pub struct Controller {
    path: PathBuf,
    plugins: Plugins,
    shared: Arc<Shared>,
    workers: Vec<async_mpsc::UnboundedSender<Command>>,
    serving: Arc<Gateway>,
    fingerprint: Fingerprint,
    /// Takes the admin socket, whenever it is another one.
    admin: async_mpsc::UnboundedSender<Option<TcpListener>>,
    /// Why the files that are there now were refused.
    refused: Option<ConfigErrors>,
}

/// How often a file is read that is replaced each time before its modules are.
const READS: usize = 5;

/// Reads and builds a configuration, without touching anything.
///
/// A file that is replaced while its modules are read is read again: a link that
/// is flipped exchanges all of them at once, and the old file is not to be put
/// together with new modules.
pub fn build(path: &Path, version: u64, plugins: &mut Plugins) -> Result<Gateway, ConfigErrors> {
    let mut reads = 1;
    loop {
        let before = watch::signature(path);
        let built = config::load(path).and_then(|config| Gateway::build(config, version, plugins));
        if reads == READS || watch::signature(path) == before {
            return built;
        }
        reads += 1;
    }
}

impl Controller {
    /// Takes over a gateway that serves.
    pub fn new(
        path: PathBuf,
        plugins: Plugins,
        shared: Arc<Shared>,
        workers: Vec<async_mpsc::UnboundedSender<Command>>,
        serving: Arc<Gateway>,
        admin: async_mpsc::UnboundedSender<Option<TcpListener>>,
    ) -> Self {
        let fingerprint = fingerprint(&serving);
        Self { path, plugins, shared, workers, serving, fingerprint, admin, refused: None }
    }

    /// Opens the listeners of the first configuration. None is open if one
    /// can't be.
    pub fn listen(&self) -> Result<(), ConfigErrors> {
        let opened = self.bind(&self.serving.config, None)?;
        self.hand_out(opened);
        Ok(())
    }

    /// Changes whatever has changed, until nobody can tell of changes any more.
    pub fn run(mut self, events: &mpsc::Receiver<Event>, watcher: &Watcher) {
        let mut files = Vec::new();
        let mut event = Event::Changed;
        loop {
            let outcome = self.reload();
            self.report(&outcome, event == Event::Asked);
            let wanted = self.files();
            if wanted != files {
                // Whatever has changed before they were watched is seen now.
                watcher.set(wanted.clone());
                (files, event) = (wanted, Event::Changed);
                continue;
            }
            event = match events.recv() {
                Ok(event) => event,
                Err(_) => return,
            };
        }
    }

    /// Tells what came of a change. A refusal is told once, though its files
    /// are looked at again for other reasons.
    fn report(&mut self, outcome: &Outcome, asked: bool) {
        let told = match outcome {
            Outcome::Refused(errors) => self.refused.replace(errors.clone()).as_ref() == Some(errors),
            Outcome::Unchanged | Outcome::Serving(_) => {
                self.refused = None;
                self.shared.admin.config_serving(self.serving.version);
                false
            }
        };
        if told && !asked {
            return;
        }
        // Before it is logged: whoever waits for the line finds it counted.
        self.shared.metrics.reloaded(match outcome {
            Outcome::Unchanged => Reload::Unchanged,
            Outcome::Serving(_) => Reload::Applied,
            Outcome::Refused(_) => Reload::Refused,
        });
        match outcome {
            Outcome::Unchanged if asked => tracing::info!("config unchanged"),
            Outcome::Unchanged => {}
            Outcome::Serving(version) => tracing::info!("config {version} serving"),
            Outcome::Refused(errors) => {
                self.shared.admin.config_refused(errors.to_string());
                for error in errors.iter() {
                    tracing::error!("{error}");
                }
                let serving = self.serving.version;
                tracing::error!("config refused, {} problems; config {serving} goes on", errors.count());
            }
        }
    }

    /// Builds what the files say now and, if it stands and is new, serves it.
    fn reload(&mut self) -> Outcome {
        let version = self.serving.version + 1;
        let gateway = match build(&self.path, version, &mut self.plugins) {
            Ok(built) => built,
            Err(errors) => return Outcome::Refused(errors),
        };
        let fingerprint = fingerprint(&gateway);
        if fingerprint == self.fingerprint {
            return Outcome::Unchanged;
        }
        match self.serve(gateway) {
            Ok(()) => {
                self.fingerprint = fingerprint;
                Outcome::Serving(version)
            }
            Err(errors) => Outcome::Refused(errors),
        }
    }

    fn serve(&mut self, gateway: Gateway) -> Result<(), ConfigErrors> {
        if gateway.config.workers != self.serving.config.workers {
            let error = gateway.config.error_at(
                &Origin::ROOT,
                "/workers",
                "can't change while the gateway runs".into(),
                Some("restart it".into()),
            );
            return Err(ConfigErrors::from(vec![error]));
        }
        let open: HashSet<SocketAddr> = addresses(&self.serving.config);
        let opened = self.bind(&gateway.config, Some(&self.serving.config))?;
        let gateway = Arc::new(gateway);
        self.prepare(&gateway)?;
        self.shared.serving.store(gateway.version, Ordering::Release);
        self.shared.drain_ms.store(gateway.config.drain.as_millis() as u64, Ordering::Relaxed);
        self.hand_out(opened);
        let wanted = addresses(&gateway.config);
        for address in open.difference(&wanted) {
            tracing::info!("closing {address}");
            self.tell(|| Command::Close(*address, gateway.config.drain));
        }
        self.plugins.retain(&gateway.uses());
        self.serving = gateway;
        Ok(())
    }

    /// Has every worker build and warm its part; all of them, or none serves.
    fn prepare(&self, gateway: &Arc<Gateway>) -> Result<(), ConfigErrors> {
        let answers: Vec<_> = self
            .workers
            .iter()
            .map(|worker| {
                let (ready, answer) = oneshot::channel();
                let _ = worker.send(Command::Prepare(gateway.clone(), ready));
                answer
            })
            .collect();
        let problems: Vec<String> = answers.into_iter().filter_map(|answer| wait(answer).err()).collect();
        let Some(problem) = problems.into_iter().next() else { return Ok(()) };
        self.tell(|| Command::Discard);
        let error =
            gateway.config.error_at(&Origin::ROOT, "/routes", format!("a plugin did not get warm: {problem}"), None);
        Err(ConfigErrors::from(vec![error]))
    }

    fn tell(&self, command: impl Fn() -> Command) {
        for worker in &self.workers {
            let _ = worker.send(command());
        }
    }

    /// Opens what a configuration listens on beside what is open already.
    fn bind(&self, config: &Config, serving: Option<&Config>) -> Result<Opened, ConfigErrors> {
        let open = serving.map(addresses).unwrap_or_default();
        let mut opened = Opened::default();
        let mut problems = Vec::new();
        for listener in config.listeners.iter().filter(|listener| !open.contains(&listener.address)) {
            match server::bind(listener.address, self.workers.len()) {
                Ok((actual, sockets)) => {
                    opened.listeners.push(Bound { configured: listener.address, actual, sockets });
                }
                Err(error) => {
                    problems.push(cannot_listen(config, &listener.origin, "/address", listener.address, &error))
                }
            }
        }
        if serving.is_none_or(|serving| serving.admin != config.admin) {
            match config.admin.map(|address| (address, server::bind_admin(address))) {
                None => opened.admin = Some(None),
                Some((_, Ok(socket))) => opened.admin = Some(Some(socket)),
                Some((address, Err(error))) => {
                    problems.push(cannot_listen(config, &Origin::ROOT, "/admin/address", address, &error));
                }
            }
        }
        if problems.is_empty() { Ok(opened) } else { Err(ConfigErrors::from(problems)) }
    }

    fn hand_out(&self, opened: Opened) {
        for Bound { configured, actual, sockets } in opened.listeners {
            for (worker, socket) in self.workers.iter().zip(sockets) {
                let _ = worker.send(Command::Listen(configured, socket));
            }
            tracing::info!("listening on {actual}");
        }
        if let Some(admin) = opened.admin {
            if let Some(address) = admin.as_ref().and_then(|socket| socket.local_addr().ok()) {
                tracing::info!("admin on {address}");
            }
            let _ = self.admin.send(admin);
        }
    }

    /// Every file that the configuration is made of, wanted or in use.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = vec![self.path.clone()];
        // What a refused configuration names is watched as well: the missing
        // module may come yet.
        let wanted = self.refused.as_ref().and_then(|_| config::load(&self.path).ok());
        for config in [Some(&self.serving.config), wanted.as_ref()].into_iter().flatten() {
            files.extend(config.modules.iter().map(|module| module.path.clone()));
        }
        files.sort();
        files.dedup();
        files
    }
}

fn addresses(config: &Config) -> HashSet<SocketAddr> {
    config.listeners.iter().map(|listener| listener.address).collect()
}

fn cannot_listen(
    config: &Config,
    origin: &Origin,
    pointer: &str,
    address: SocketAddr,
    error: &dyn fmt::Display,
) -> ConfigError {
    config.error_at(origin, pointer, format!("can't listen on {address}: {error}"), None)
}

fn fingerprint(gateway: &Gateway) -> Fingerprint {
    let context = |used: &crate::plugin::Use| (used.plugin.context.name.clone(), used.plugin.context.digest.clone());
    let mut modules: Vec<_> = gateway.uses().iter().map(context).collect();
    modules.sort();
    modules.dedup();
    Fingerprint { text: gateway.config.digest, modules }
}

/// Waits for a worker's answer, which comes in bounded time: whatever a plugin
/// does while it is warmed is under a limit.
fn wait(answer: oneshot::Receiver<Result<(), String>>) -> Result<(), String> {
    answer.blocking_recv().unwrap_or_else(|_| Err("the worker has ended".into()))
}
