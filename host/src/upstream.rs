//! The upstream side: which target a request goes to, over which connection,
//! and what becomes of it there.
//!
//! Connections, turns and everything else that a request touches belong to one
//! worker; only the counts of requests in flight are shared, and they are
//! atomics. What outlives a configuration hangs on the targets: [`Pools`] finds
//! a worker's target again by host and port for as long as any configuration
//! names it, so a swap opens no connection.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::{Rc, Weak},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use bytes::Bytes;
use http::{Method, Response};
use http_body::Body;

use crate::{
    config::{self, RouteTimeouts, UpstreamKind},
    error::{ErrorKind, GatewayError},
    timer::Timer,
};

mod balance;
mod body;
mod connect;
mod echo;
mod exchange;
pub mod http1;
mod pool;
mod target;

pub use body::ResponseBody;
pub use http1::{Host, OutgoingHead};

use balance::{Balancer, InFlight};
use body::Rest;
use exchange::Failure;
use http1::{Connection, Head, Incoming, Outgoing};
use target::{Lease, Target};

type Address = (Arc<str>, u16);

/// The counts of requests in flight that the workers share, by target.
#[derive(Default)]
pub struct Targets {
    known: Mutex<HashMap<Address, std::sync::Weak<InFlight>>>,
}

impl Targets {
    /// Locks: for building a configuration, not for a request.
    fn in_flight(&self, address: &Address) -> Arc<InFlight> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = known.get(address).and_then(std::sync::Weak::upgrade) {
            return count;
        }
        known.retain(|_, count| count.strong_count() > 0);
        let count = Arc::new(InFlight::default());
        known.insert(address.clone(), Arc::downgrade(&count));
        count
    }
}

/// A worker's upstreams and targets with their connections. It holds nothing
/// that no configuration uses: a target's connections close with the last
/// upstream that names it.
pub struct Pools {
    timer: Rc<Timer>,
    upstreams: RefCell<HashMap<Arc<str>, Weak<Upstream>>>,
    targets: RefCell<HashMap<Address, Weak<Target>>>,
}

impl Pools {
    pub fn new(timer: Rc<Timer>) -> Self {
        Self { timer, upstreams: RefCell::default(), targets: RefCell::default() }
    }

    /// The upstream that a configuration describes. It is the one that serves
    /// already, if that has the same name and content: so this must be called
    /// while the old configuration is still alive.
    pub fn upstream(&self, config: &config::Upstream, shared: &Targets) -> Rc<Upstream> {
        let mut upstreams = self.upstreams.borrow_mut();
        if let Some(known) = upstreams.get(&config.name).and_then(Weak::upgrade)
            && known.config == *config
        {
            return known;
        }
        let way = match &config.kind {
            UpstreamKind::Echo => Way::Echo,
            UpstreamKind::Targets { balance, targets } => {
                let weights = targets.iter().map(|target| target.weight);
                let targets: Vec<_> = targets.iter().map(|target| self.target(target, shared)).collect();
                let counts = targets.iter().map(|target| target.in_flight.clone());
                Way::Targets(Balancer::new(*balance, weights.zip(counts)), targets)
            }
        };
        let upstream =
            Rc::new(Upstream { config: config.clone(), timer: self.timer.clone(), way, opened: Cell::new(0) });
        upstreams.insert(config.name.clone(), Rc::downgrade(&upstream));
        upstream
    }

    fn target(&self, config: &config::Target, shared: &Targets) -> Rc<Target> {
        let address = (config.host.clone(), config.port);
        let mut targets = self.targets.borrow_mut();
        if let Some(known) = targets.get(&address).and_then(Weak::upgrade) {
            return known;
        }
        let target = Rc::new(Target::new(config, shared.in_flight(&address)));
        targets.insert(address, Rc::downgrade(&target));
        target
    }

    /// Closes connections that have been idle for too long. To be called every
    /// few seconds.
    pub fn sweep(&self) {
        self.upstreams.borrow_mut().retain(|_, upstream| upstream.strong_count() > 0);
        let now = Instant::now();
        self.targets.borrow_mut().retain(|_, target| {
            let target = target.upgrade();
            if let Some(target) = &target {
                target.pool.sweep(now);
            }
            target.is_some()
        });
    }
}

/// A named group of targets, as one worker uses it.
pub struct Upstream {
    config: config::Upstream,
    timer: Rc<Timer>,
    way: Way,
    /// Connections opened that nobody has counted yet.
    opened: Cell<u32>,
}

enum Way {
    Echo,
    Targets(Balancer, Vec<Rc<Target>>),
}

impl Upstream {
    /// Connections opened since the last call, for the metrics.
    pub fn take_opened(&self) -> u32 {
        self.opened.take()
    }

    /// Sends a request and waits for the response's head, which is without the
    /// fields of the target's connection.
    ///
    /// The body is not touched before a connection stands, so a target
    /// that can't be reached costs nothing but time: the next one gets the whole
    /// request. A request that may have been seen is never sent twice, except
    /// one without body whose method is idempotent, once, when it went over a
    /// connection that had been idle and may have been closed meanwhile.
    ///
    /// Errors: `Connect` or `ConnectTimeout` if no target can be reached,
    /// `ResponseTimeout` and `BadResponse` for what the target does wrong, and
    /// the body's own error if that is what fails. Dropping the future closes
    /// the connection.
    pub async fn send<B>(
        &self,
        head: OutgoingHead<'_>,
        body: B,
        timeouts: &RouteTimeouts,
    ) -> Result<Response<ResponseBody>, GatewayError>
    where
        B: Body<Data = Bytes, Error = GatewayError> + Unpin + 'static,
    {
        let (balancer, targets) = match &self.way {
            // Boxed, as it would make the future of every other request larger.
            Way::Echo => return Box::pin(echo::answer(head, body, &self.config.name)).await,
            Way::Targets(balancer, targets) => (balancer, targets),
        };
        let outgoing = Outgoing::new(&head, body);
        let mut sending =
            Sending { outgoing, head, timeouts, timer: &self.timer, opened: &self.opened, repeated: false };
        let mut unreachable = Vec::new();
        let mut last = GatewayError::new(ErrorKind::Connect);
        while let Some(place) = balancer.choose(&unreachable) {
            let Some(target) = targets.get(place) else { break };
            match sending.to(target).await {
                Ok(answer) => return Ok(sending.response(answer)),
                Err(Miss::Unreachable(error)) => {
                    unreachable.push(place);
                    last = error;
                }
                Err(Miss::Failed(error)) => return Err(error),
            }
        }
        Err(last)
    }
}

/// A request on its way to one target after another.
struct Sending<'a, B> {
    outgoing: Outgoing<B>,
    head: OutgoingHead<'a>,
    timeouts: &'a RouteTimeouts,
    timer: &'a Rc<Timer>,
    opened: &'a Cell<u32>,
    repeated: bool,
}

/// Why a target has not answered.
enum Miss {
    /// It has not seen the request, so another may have it.
    Unreachable(GatewayError),
    Failed(GatewayError),
}

/// What a target has said so far, and over which connection.
struct Answer {
    head: Head,
    connection: Box<Connection>,
    lease: Lease,
    /// Whether the request is through.
    is_sent: bool,
}

impl<B> Sending<'_, B>
where
    B: Body<Data = Bytes, Error = GatewayError> + Unpin + 'static,
{
    async fn to(&mut self, target: &Rc<Target>) -> Result<Answer, Miss> {
        let lease = Lease::new(target);
        if !self.repeated
            && let Some(mut connection) = target.pool.checkout()
        {
            match self.over(&mut connection, target).await {
                Ok((head, is_sent)) => return Ok(Answer { head, connection, lease, is_sent }),
                Err(Failure::Broken(_)) if self.may_repeat() => self.repeated = true,
                Err(Failure::Broken(error) | Failure::Final(error)) => return Err(Miss::Failed(error)),
            }
        }
        // Boxed, as it is rare and would make the future of every request larger.
        let connect = Box::pin(connect::connect(target, self.timeouts.connect, self.timer));
        let mut connection = connect.await.map_err(Miss::Unreachable)?;
        self.opened.set(self.opened.get() + 1);
        match self.over(&mut connection, target).await {
            Ok((head, is_sent)) => Ok(Answer { head, connection, lease, is_sent }),
            Err(Failure::Final(error) | Failure::Broken(error)) => Err(Miss::Failed(error)),
        }
    }

    async fn over(&mut self, connection: &mut Connection, target: &Target) -> Result<(Head, bool), Failure> {
        self.outgoing.start(&self.head, &target.host_field, connection);
        let outcome =
            exchange::run(connection, &mut self.outgoing, self.head.method, self.timeouts.response, self.timer).await;
        outcome.map_err(|failure| failure.at(&target.authority))
    }

    /// Whether the request may go over another connection, as this one broke:
    /// nothing of it was sent, or it may be seen twice (RFC 9110 section 9.2.2).
    fn may_repeat(&self) -> bool {
        const IDEMPOTENT: [Method; 5] = [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE];
        !self.outgoing.is_touched() || (self.outgoing.is_bodiless() && IDEMPOTENT.contains(self.head.method))
    }

    /// Ties the connection to the response's body.
    fn response(self, answer: Answer) -> Response<ResponseBody> {
        let Answer { head, connection, lease, is_sent } = answer;
        // Boxed by nature: a task of its own, and rare.
        let rest = (!is_sent).then(|| Rest::send(self.outgoing, connection.io().clone()));
        let incoming = Incoming::new(connection, head.framing);
        let mut response = Response::new(ResponseBody::new(incoming, lease, head.persistent, rest));
        *response.status_mut() = head.status;
        *response.headers_mut() = head.headers;
        response
    }
}

#[cfg(test)]
mod tests;
