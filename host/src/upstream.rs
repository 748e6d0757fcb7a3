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
use http::{HeaderValue, Method, Request, Response, Version, header};
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
mod pool;
mod target;
mod wire;

pub use body::ResponseBody;

use balance::{Balancer, InFlight};
use body::RequestContent;
use exchange::Failure;
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
pub struct Pools<B> {
    timer: Rc<Timer>,
    upstreams: RefCell<HashMap<Arc<str>, Weak<Upstream<B>>>>,
    targets: RefCell<HashMap<Address, Weak<Target<B>>>>,
}

impl<B> Pools<B> {
    pub fn new(timer: Rc<Timer>) -> Self {
        Self { timer, upstreams: RefCell::default(), targets: RefCell::default() }
    }

    /// The upstream that a configuration describes. It is the one that serves
    /// already, if that has the same name and content: so this must be called
    /// while the old configuration is still alive.
    pub fn upstream(&self, config: &config::Upstream, shared: &Targets) -> Rc<Upstream<B>> {
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

    fn target(&self, config: &config::Target, shared: &Targets) -> Rc<Target<B>> {
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
pub struct Upstream<B> {
    config: config::Upstream,
    timer: Rc<Timer>,
    way: Way<B>,
    /// Connections opened that nobody has counted yet.
    opened: Cell<u32>,
}

enum Way<B> {
    Echo,
    Targets(Balancer, Vec<Rc<Target<B>>>),
}

/// What goes into a request's Host field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// What is there.
    Keep,
    /// The authority of the target that is chosen.
    Target,
}

impl<B> Upstream<B>
where
    B: Body<Data = Bytes, Error = GatewayError> + Unpin + 'static,
{
    /// Connections opened since the last call, for the metrics.
    pub fn take_opened(&self) -> u32 {
        self.opened.take()
    }

    /// Sends a request and waits for the response's head.
    ///
    /// The request's URI is in origin-form, and its head holds no hop-by-hop
    /// field. The body is not touched before a connection stands, so a target
    /// that can't be reached costs nothing but time: the next one gets the whole
    /// request. A request that may have been seen is never sent twice, except
    /// one without body whose method is idempotent, once, when it went over a
    /// connection that had been idle and may have been closed meanwhile.
    ///
    /// Errors: `Connect` or `ConnectTimeout` if no target can be reached,
    /// `ResponseTimeout` and `BadResponse` for what the target does wrong, and
    /// the body's own error if that is what fails. Dropping the future closes
    /// the connection.
    pub async fn send(
        &self,
        request: Request<B>,
        host: Host,
        timeouts: &RouteTimeouts,
    ) -> Result<Response<ResponseBody<B>>, GatewayError> {
        let (balancer, targets) = match &self.way {
            // Boxed, as it would make the future of every other request larger.
            Way::Echo => return Box::pin(echo::answer(request, &self.config.name)).await,
            Way::Targets(balancer, targets) => (balancer, targets),
        };
        let request = Some(prepared(request));
        let mut sending =
            Sending { request, host, timeouts, timer: &self.timer, opened: &self.opened, repeated: false };
        let mut unreachable = Vec::new();
        let mut last = GatewayError::new(ErrorKind::Connect);
        while let Some(place) = balancer.choose(&unreachable) {
            let Some(target) = targets.get(place) else { break };
            match sending.to(target).await {
                Ok(response) => return Ok(response),
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

/// Gives the request the framing that its body needs.
fn prepared<B>(request: Request<B>) -> Request<RequestContent<B>>
where
    B: Body<Data = Bytes, Error = GatewayError> + Unpin,
{
    let mut request = request.map(RequestContent::new);
    *request.version_mut() = Version::HTTP_11;
    if !request.body().is_end_stream() && request.body().size_hint().exact().is_none() {
        // hyper would leave out a body of unknown length for GET and HEAD.
        request.headers_mut().remove(header::CONTENT_LENGTH);
        request.headers_mut().insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    request
}

/// A request on its way to one target after another.
struct Sending<'a, B> {
    /// Here until a connection has it.
    request: Option<Request<RequestContent<B>>>,
    host: Host,
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

impl<B> Sending<'_, B>
where
    B: Body<Data = Bytes, Error = GatewayError> + Unpin + 'static,
{
    async fn to(&mut self, target: &Rc<Target<B>>) -> Result<Response<ResponseBody<B>>, Miss> {
        let lease = Lease::new(target);
        if self.host == Host::Target
            && let Some(request) = &mut self.request
        {
            request.headers_mut().insert(header::HOST, target.host_field.clone());
        }
        if !self.repeated
            && let Some(mut link) = target.pool.checkout()
        {
            let repeatable = self.request.as_ref().is_some_and(is_repeatable);
            if repeatable {
                link.written.remember();
            }
            match exchange::run(&mut link, &mut self.request, self.timeouts.response, self.timer).await {
                Ok(response) => return lease.response(link, response).map_err(Miss::Failed),
                Err(Failure::Final(error)) => return Err(Miss::Failed(error)),
                Err(Failure::Broken(error)) => {
                    self.repeated = true;
                    if self.request.is_none() && repeatable {
                        self.request = link.written.request().map(|head| head.map(|()| RequestContent::empty()));
                    }
                    if self.request.is_none() {
                        return Err(Miss::Failed(error));
                    }
                }
            }
        }
        // Boxed, as it is rare and would make the future of every request larger.
        let connect = Box::pin(connect::connect(target, self.timeouts.connect, self.timer));
        let mut link = connect.await.map_err(Miss::Unreachable)?;
        self.opened.set(self.opened.get() + 1);
        match exchange::run(&mut link, &mut self.request, self.timeouts.response, self.timer).await {
            Ok(response) => lease.response(link, response).map_err(Miss::Failed),
            Err(Failure::Final(error) | Failure::Broken(error)) => Err(Miss::Failed(error)),
        }
    }
}

/// Whether a request may be sent again even if it has been seen (RFC 9110
/// 9.2.2).
fn is_repeatable<B>(request: &Request<RequestContent<B>>) -> bool
where
    B: Body<Data = Bytes, Error = GatewayError> + Unpin,
{
    matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE)
        && request.body().is_end_stream()
}

#[cfg(test)]
mod tests;
