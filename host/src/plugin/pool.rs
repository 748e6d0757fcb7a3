//! The instances of one plugin on one worker.

use std::{
    cell::{Cell, RefCell},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use super::{
    bindings::Action,
    instance::{CallError, Hook, Instance, too_slow},
    module::{Plugin, Use},
    places::{Place, Places},
};
use crate::{error::ErrorKind, exchange::Exchange, worker::Worker};

/// Uses beyond twice those alive that an instance may have been configured for
/// before it is replaced: there is no taking one back.
const DEAD_USES: usize = 64;

/// A worker's instances of one plugin. One call at a time in each.
pub struct Pool {
    pub plugin: Arc<Plugin>,
    // Boxed, because they go in and out at every request.
    #[allow(clippy::vec_box)]
    idle: RefCell<Vec<Box<Instance>>>,
    /// The fewest instances that were idle since the last sweep: so many were
    /// not needed.
    spare: Cell<usize>,
    places: Places,
    breaker: Breaker,
}

impl Pool {
    pub fn new(plugin: Arc<Plugin>) -> Self {
        let places = Places::new(plugin.limits.instances);
        Self { plugin, idle: RefCell::default(), spare: Cell::new(0), places, breaker: Breaker::default() }
    }

    /// Makes sure that an instance stands ready, configured for these uses.
    pub async fn warm(&self, uses: impl Iterator<Item = &Use>) -> Result<(), CallError> {
        let idle = self.idle.borrow_mut().pop();
        let mut instance = match idle {
            Some(instance) if self.is_fresh(&instance) => instance,
            _ => Box::new(Instance::new(&self.plugin).await?),
        };
        for used in uses {
            self.configure(&mut instance, used).await?;
        }
        self.idle.borrow_mut().push(instance);
        Ok(())
    }

    /// Calls a hook. The exchange is in its slot again when this ends, however
    /// it ends, without the hook's edits if it failed.
    pub async fn call(
        &self,
        worker: &Worker,
        hook: Hook,
        used: &Use,
        slot: &mut Option<Box<Exchange>>,
    ) -> Result<Action, ErrorKind> {
        if !self.breaker.admits() {
            return Err(ErrorKind::Suspended);
        }
        let _place = match self.places.try_take() {
            Some(place) => place,
            None => self.wait(worker, &self.places).await?,
        };
        let _turn = match worker.calls.try_take() {
            Some(turn) => turn,
            None => self.wait(worker, &worker.calls).await?,
        };
        let _counted = worker.count_call();
        let mut lent = Lent { pool: self, slot, instance: None };
        match lent.run(worker, hook, used).await {
            Ok(action) => {
                self.breaker.passed();
                lent.give_back();
                Ok(action)
            }
            Err(error) => {
                lent.drop_instance();
                if error.kind != ErrorKind::Busy {
                    self.breaker.crashed(&self.plugin);
                    self.report(&error, lent.slot.as_deref_mut());
                }
                Err(error.kind)
            }
        }
    }

    #[cold]
    fn wait<'a>(
        &'a self,
        worker: &'a Worker,
        places: &'a Places,
    ) -> impl Future<Output = Result<Place<'a>, ErrorKind>> + 'a {
        let place = worker.timer.timeout(self.plugin.limits.wait, places.wait());
        async { place.await.map_err(|_| ErrorKind::Busy) }
    }

    /// Sees to it that the instance knows the use. One that has others may have no
    /// room left for it: that is not the configuration's fault, and a new one takes
    /// its place.
    async fn configure(&self, instance: &mut Box<Instance>, used: &Use) -> Result<(), CallError> {
        if instance.knows(used.id) {
            return Ok(());
        }
        let is_shared = instance.uses() > 0;
        let outcome = Self::configure_once(instance, used).await;
        if outcome.is_ok() || !is_shared {
            return outcome;
        }
        **instance = Instance::new(&self.plugin).await?;
        Self::configure_once(instance, used).await
    }

    async fn configure_once(instance: &mut Instance, used: &Use) -> Result<(), CallError> {
        match instance.configure(used.id, &used.config).await? {
            Ok(_) => Ok(()),
            // It took the same text when it was loaded.
            Err(problems) => Err(CallError {
                kind: ErrorKind::Failed,
                during: "configure",
                cause: wasmtime::format_err!(
                    "refused a configuration that it took before ({} problems)",
                    problems.len()
                ),
            }),
        }
    }

    fn report(&self, error: &CallError, exchange: Option<&mut Exchange>) {
        let context = &self.plugin.context;
        if !context.may_log() {
            return;
        }
        let (plugin, version) = (&*context.name, context.version.as_str());
        let (kind, during) = (error.kind.name(), error.during);
        let backtrace = format!("{:?}", error.cause);
        match exchange {
            Some(exchange) => {
                let route = exchange.snapshot.route_name(exchange.route).to_owned();
                let id = exchange.id();
                tracing::error!(plugin, version, kind, during, route, id, "plugin failed: {backtrace}");
            }
            None => tracing::error!(plugin, version, kind, during, "plugin failed: {backtrace}"),
        }
    }

    /// Drops the instances that were not needed since the last sweep, but one.
    pub fn sweep(&self) {
        let mut idle = self.idle.borrow_mut();
        let spare = self.spare.get().min(idle.len().saturating_sub(1));
        // The newest are at the end, and warm.
        idle.drain(..spare);
        self.spare.set(idle.len());
    }

    /// Whether an instance may serve once more.
    fn is_fresh(&self, instance: &Instance) -> bool {
        let alive = self.plugin.live_uses.load(Ordering::Relaxed) as usize;
        instance.calls < self.plugin.limits.recycle_after && instance.uses() <= 2 * alive + DEAD_USES
    }
}

/// An instance that is out for a call. Dropped in the middle, because the
/// client has gone, it takes the instance along and puts the exchange back.
struct Lent<'a> {
    pool: &'a Pool,
    slot: &'a mut Option<Box<Exchange>>,
    instance: Option<Box<Instance>>,
}

impl Lent<'_> {
    async fn run(&mut self, worker: &Worker, hook: Hook, used: &Use) -> Result<Action, CallError> {
        let idle = self.pool.idle.borrow_mut().pop();
        let instance = match idle {
            Some(instance) => self.instance.insert(instance),
            None => self.instance.insert(Box::new(Instance::new(&self.pool.plugin).await?)),
        };
        let spare = self.pool.idle.borrow().len();
        self.pool.spare.set(self.pool.spare.get().min(spare));
        if !instance.knows(used.id) {
            self.pool.configure(instance, used).await?;
        }
        let Some(exchange) = self.slot.take() else {
            return Err(CallError {
                kind: ErrorKind::Internal,
                during: hook.name(),
                cause: wasmtime::format_err!("no exchange to call it for"),
            });
        };
        let wait = self.pool.plugin.limits.wall;
        match worker.timer.timeout(wait, instance.hook(hook, used, exchange)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(too_slow(hook.name())),
        }
    }

    fn give_back(&mut self) {
        let Some(mut instance) = self.instance.take() else { return };
        if let Some(exchange) = instance.take_exchange() {
            *self.slot = Some(exchange);
        }
        if self.pool.is_fresh(&instance) {
            self.pool.idle.borrow_mut().push(instance);
        }
    }

    fn drop_instance(&mut self) {
        let Some(mut instance) = self.instance.take() else { return };
        if let Some(mut exchange) = instance.take_exchange() {
            exchange.roll_back();
            *self.slot = Some(exchange);
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.drop_instance();
    }
}

/// Leaves a plugin alone for a while that does little but crash.
///
/// A plugin that fails now and then is called on: each failure costs one
/// request and one instance. One of which most calls in a second crash costs
/// its worker an instantiation each, and is suspended, for longer each time.
#[derive(Default)]
struct Breaker {
    window: Cell<Option<Instant>>,
    calls: Cell<u32>,
    crashes: Cell<u32>,
    open_until: Cell<Option<Instant>>,
    pause: Cell<Duration>,
}

impl Breaker {
    const WINDOW: Duration = Duration::from_secs(1);
    const CRASHES: u32 = 20;
    const SHORTEST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(30);

    #[inline]
    fn admits(&self) -> bool {
        match self.open_until.get() {
            None => true,
            Some(until) if Instant::now() < until => false,
            Some(_) => {
                self.open_until.set(None);
                self.start_window();
                true
            }
        }
    }

    #[inline]
    fn passed(&self) {
        self.calls.set(self.calls.get().wrapping_add(1));
    }

    fn crashed(&self, plugin: &Plugin) {
        let now = Instant::now();
        if self.window.get().is_none_or(|since| now - since > Self::WINDOW) {
            if self.crashes.get() < Self::CRASHES {
                self.pause.set(Duration::ZERO);
            }
            self.start_window();
        }
        self.crashes.set(self.crashes.get() + 1);
        self.passed();
        // Calls that were under way when it was suspended change nothing.
        if self.open_until.get().is_none()
            && self.crashes.get() >= Self::CRASHES
            && self.crashes.get() > self.calls.get() / 2
        {
            let pause = (self.pause.get() * 2).clamp(Self::SHORTEST, Self::LONGEST);
            self.pause.set(pause);
            self.open_until.set(Some(now + pause));
            let (plugin, seconds) = (&*plugin.context.name, pause.as_secs());
            tracing::error!(plugin, seconds, "plugin crashes too often: suspended on this worker");
        }
    }

    fn start_window(&self) {
        self.window.set(Some(Instant::now()));
        self.calls.set(0);
        self.crashes.set(0);
    }
}
