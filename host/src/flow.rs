//! A request on its way: the exchange, and what belongs to its worker.
//!
//! A [`Flow`] is owned by the request's future, and by the response's body once
//! there is one. However it goes away, the request is ended exactly once:
//! logged, counted, and told to the plugins that it has reached.

use std::{borrow::Cow, rc::Rc, time::Instant};

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, Version, header, uri::PathAndQuery};
use hyper::{body::Incoming, ext::ReasonPhrase};

use crate::{
    access_log::Line,
    body::{Content, RequestBody, ResponseBody},
    chain,
    config::Route,
    error::{ErrorKind, ErrorSource, GatewayError},
    error_response,
    exchange::{Ending, Exchange, HeadCaps, MadeBy, RequestHead, ResponseHead},
    gateway::{Active, Link, Settings},
    server::Connection,
    upstream::{Host, OutgoingHead},
    worker::Worker,
};

pub struct Flow {
    pub active: Rc<Active>,
    pub connection: Rc<Connection>,
    pub settings: Rc<Settings>,
    /// Here but while a plugin has it in hand.
    pub exchange: Option<Box<Exchange>>,
    /// How many places of the chain the request has reached.
    pub reached: usize,
    /// Place of the plugin whose answer, or failure, has ended the way down.
    pub answering: Option<usize>,
    /// Whether the client takes trailers.
    pub takes_trailers: bool,
    /// Whether the connection must end with this response.
    pub close: bool,
}

impl Flow {
    /// Takes a request's head into an exchange of the configuration that serves
    /// now. Whatever is wrong with it is found later, with the exchange there
    /// to log it.
    pub fn begin(connection: Rc<Connection>, request: Request<Incoming>) -> (Self, Incoming) {
        connection.begin();
        let worker = &connection.worker;
        worker.series.in_flight.add(1);
        let active = worker.active();
        let settings = active.listener(connection.listener.address).unwrap_or_else(|| connection.settings.clone());
        let (head, incoming) = request.into_parts();
        let request = RequestHead {
            method: head.method,
            version: head.version,
            scheme: "http",
            authority: HeaderValue::from_static(""),
            client: connection.client_address,
            headers: head.headers,
            trailers: Vec::new(),
            target: PathAndQuery::from_static("/"),
            path: None,
            host: None,
            forwarded_pending: false,
        };
        let caps = HeadCaps::new(settings.limits.head, settings.limits.fields);
        let started = Instant::now();
        let mut exchange = match worker.spare_exchange() {
            Some(mut spare) => {
                spare.reset(active.snapshot(), request, caps, started);
                spare
            }
            None => Box::new(Exchange::new(active.snapshot().clone(), request, caps, started)),
        };
        exchange.log.uri = head.uri;
        let flow = Self {
            active,
            connection,
            settings,
            exchange: Some(exchange),
            reached: 0,
            answering: None,
            takes_trailers: false,
            close: false,
        };
        (flow, incoming)
    }

    /// The worker that all of it happens on.
    pub fn worker(&self) -> &Rc<Worker> {
        &self.connection.worker
    }

    /// Place of the route that has matched.
    pub fn route(&self) -> usize {
        self.exchange.as_ref().map_or(usize::MAX, |exchange| exchange.route)
    }

    /// Asks the route's upstream.
    pub async fn send_upstream(&mut self, body: RequestBody) -> Result<Content, GatewayError> {
        let active = self.active.clone();
        let Some(exchange) = &mut self.exchange else { return Err(ErrorKind::Internal.into()) };
        let snapshot = exchange.snapshot.clone();
        let (Some(route), Some(config)) = (active.route(exchange.route), snapshot.config.routes.get(exchange.route))
        else {
            return Err(ErrorKind::Internal.into());
        };
        let host = host(exchange, config);
        let head = &exchange.request;
        let request = OutgoingHead {
            method: &head.method,
            target: &head.target,
            headers: &head.headers,
            forwarded_for: head.forwarded_pending.then_some((&self.connection.client_text, &head.authority)),
            host,
            trailers: &head.trailers,
            takes_trailers: self.takes_trailers,
        };
        // Without plugins hardly any time has gone by.
        let sent = if self.reached == 0 { exchange.timing.started } else { Instant::now() };
        let total = config.timeouts.total.map(|total| exchange.timing.started + total);
        let answer = route.upstream.send(request, body, &config.timeouts);
        let answer = match total {
            None => answer.await,
            Some(total) => {
                match self.connection.worker.timer.timeout(total.saturating_duration_since(sent), answer).await {
                    Ok(answer) => answer,
                    Err(_) => Err(ErrorKind::TotalTimeout.into()),
                }
            }
        };
        let took = sent.elapsed().as_nanos() as u64;
        for _ in 0..route.upstream.take_opened() {
            route.upstream_series.opened();
        }
        let response = answer.inspect_err(|error| route.upstream_series.failed(error.kind))?;
        route.upstream_series.finish(took);
        let (head, body) = response.into_parts();
        exchange.timing.upstream = took;
        exchange.log.target = Some(body.target().clone());
        exchange.response = Some(ResponseHead {
            announces: body.announces(),
            ..ResponseHead::new(head.status, head.headers, MadeBy::Upstream)
        });
        Ok(Content::upstream(body, self.settings.timeouts.body_idle, total, &self.worker().timer))
    }

    /// Makes the response to a failure: the one exit for all of them.
    pub fn fail(&mut self, error: GatewayError) -> Content {
        self.close |= error_response::must_close(error.kind);
        let worker = self.connection.worker.clone();
        let Some(exchange) = &mut self.exchange else { return Content::Empty };
        exchange.log.error = Some(error.kind);
        report(&worker, exchange, "request failed", &error);
        let id = exchange.id.as_deref().unwrap_or_default();
        let accept = exchange.accept().map(HeaderValue::as_bytes);
        let (head, body) = error_response::respond(&error, accept, id).into_parts();
        exchange.response = Some(ResponseHead::new(head.status, head.headers, MadeBy::Gateway));
        Content::Whole(body)
    }

    /// Hands the response over to the connection.
    pub fn send(mut self, content: Content) -> Response<ResponseBody> {
        let keep = self.looks_back();
        let Some(response) = self.exchange.as_mut().and_then(|exchange| exchange.response.as_mut()) else {
            let mut empty = Response::new(ResponseBody::new(Content::Empty, self));
            *empty.status_mut() = error_response::status(ErrorKind::Internal);
            return empty;
        };
        let status = response.status;
        let mut fields = if keep { response.headers.clone() } else { std::mem::take(&mut response.headers) };
        let content = frame(status, &mut fields, content);
        if self.close {
            fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let mut sent = Response::new(ResponseBody::new(content, self));
        *sent.status_mut() = status;
        *sent.headers_mut() = fields;
        if status.canonical_reason().is_none() {
            // It may be empty (RFC 9112 section 4); hyper would make one up.
            sent.extensions_mut().insert(ReasonPhrase::from_static(b""));
        }
        sent
    }

    /// Whether a plugin still reads the heads once they have been sent.
    fn looks_back(&self) -> bool {
        self.active.chain(self.route()).iter().take(self.reached).any(|link| link.finish)
    }

    /// Bytes of the response's body that go to the connection.
    pub fn count_sent(&mut self, bytes: u64) {
        if let Some(exchange) = &mut self.exchange {
            exchange.sent += bytes;
        }
    }

    /// The response can't be completed: the client must see that it is cut, and
    /// the log says why.
    pub fn cut(&mut self, error: &GatewayError) {
        self.connection.cut();
        let worker = self.connection.worker.clone();
        if let Some(exchange) = &mut self.exchange {
            report(&worker, exchange, "response cut", error);
        }
    }

    /// Ends the request.
    pub fn end(mut self, ending: Ending) {
        self.finish(ending);
    }

    fn log(&self, exchange: &Exchange, status: StatusCode, took: u64) {
        let head = &exchange.request;
        let answered_by = match exchange.response.as_ref().map(|response| response.made_by) {
            Some(MadeBy::Plugin(place)) => self.active.chain(exchange.route).get(usize::from(place)).map(Link::name),
            _ => None,
        };
        let error = match exchange.ending {
            Ending::Complete => exchange.log.error,
            Ending::ClientGone => exchange.log.error.or(Some(ErrorKind::ClientGone)),
            Ending::UpstreamCut => Some(ErrorKind::BadResponse),
            Ending::Stopped(kind) => Some(kind),
        };
        self.worker().access_log.write(&Line {
            time_ms: self.worker().shared.clock.now_ms(),
            id: exchange.id.as_deref(),
            client: head.client,
            method: head.method.as_str(),
            host: head.authority.as_bytes(),
            path: origin_form(&exchange.log.uri).as_bytes(),
            version: head.version,
            status: status.as_u16(),
            bytes_sent: exchange.sent,
            duration_ns: took,
            upstream: exchange.log.target.as_deref(),
            upstream_ns: (exchange.timing.upstream > 0).then_some(exchange.timing.upstream),
            route: Some(exchange.snapshot.route_name(exchange.route)).filter(|name| !name.is_empty()),
            consumer: exchange.consumer.as_deref(),
            answered_by: answered_by.or(exchange.log.failed_plugin.as_ref()).map(|name| &**name),
            error,
            user_agent: exchange.user_agent().map(HeaderValue::as_bytes),
        });
    }

    fn finish(&mut self, ending: Ending) {
        let Some(mut exchange) = self.exchange.take() else { return };
        // Who cuts the own request short hardly reads the answer to that.
        let is_gone = exchange.log.error == Some(ErrorKind::ClientGone);
        exchange.ending = if is_gone { Ending::ClientGone } else { ending };
        let now = Instant::now();
        self.connection.end(now);
        let took = now.saturating_duration_since(exchange.timing.started).as_nanos() as u64;
        let status = match &exchange.response {
            Some(response) => response.status,
            None => error_response::status(ErrorKind::ClientGone),
        };
        self.active.count(exchange.route, status, took);
        self.worker().series.in_flight.subtract(1);
        if exchange.snapshot.config.access_log {
            self.log(&exchange, status, took);
        }
        if self.reached > 0 && self.active.chain(exchange.route).iter().take(self.reached).any(|link| link.finish) {
            let (worker, active, reached) = (self.worker().clone(), self.active.clone(), self.reached);
            // A client that has gone before there was a response: to the plugins it
            // reads as it was logged.
            let nothing = || ResponseHead::new(status, HeaderMap::new(), MadeBy::Gateway);
            exchange.response.get_or_insert_with(nothing);
            tokio::task::spawn_local(chain::finish(worker, active, Some(exchange), reached));
        } else {
            self.worker().keep_exchange(exchange);
        }
    }
}

impl Drop for Flow {
    /// The client has gone before there was a response.
    fn drop(&mut self) {
        self.finish(Ending::ClientGone);
    }
}

/// The target as it came, without scheme and authority.
fn origin_form(uri: &Uri) -> Cow<'_, str> {
    match uri.path_and_query().map_or("", PathAndQuery::as_str) {
        // In absolute form it may lack the path.
        query if query.starts_with('?') => Cow::Owned(format!("/{query}")),
        target => Cow::Borrowed(target),
    }
}

/// Counts and logs a request whose head could not be read: there is no exchange.
pub fn log_unreadable(connection: &Connection, kind: ErrorKind) {
    let worker = &connection.worker;
    let (active, status) = (worker.active(), error_response::status(kind));
    active.count(usize::MAX, status, 0);
    if active.snapshot().config.access_log {
        worker.access_log.write(&Line {
            time_ms: worker.shared.clock.now_ms(),
            id: None,
            client: connection.client_address,
            method: "",
            host: b"",
            path: b"",
            version: Version::HTTP_11,
            status: status.as_u16(),
            bytes_sent: 0,
            duration_ns: 0,
            upstream: None,
            upstream_ns: None,
            route: None,
            consumer: None,
            answered_by: None,
            error: Some(kind),
            user_agent: None,
        });
    }
}

/// Logs a failure. What a plugin does wrong its pool has logged already, and what
/// a client does wrong is in the access log.
fn report(worker: &Worker, exchange: &mut Exchange, what: &str, error: &GatewayError) {
    exchange.id();
    let id = exchange.id.as_deref().unwrap_or_default();
    let route = exchange.snapshot.route_name(exchange.route);
    if !matches!(error.kind.source(), ErrorSource::Upstream | ErrorSource::Internal) {
        tracing::debug!(id, route, "{what}: {error}");
        return;
    }
    let (may, dropped) = worker.shared.failure_log.take();
    if may {
        tracing::warn!(id, route, dropped, "{what}: {error}");
    }
}

/// What goes into the Host field: what is there, unless somebody chose another.
fn host(exchange: &mut Exchange, route: &Route) -> Host {
    let head = &mut exchange.request;
    match head.host.take() {
        Some(host) => {
            head.headers.insert(header::HOST, host);
            Host::Keep
        }
        None if route.preserve_host && !head.authority.is_empty() => Host::Keep,
        None => Host::Target,
    }
}

/// Makes head and body agree where RFC 9110 has no body (sections 15.3.5, 15.3.6
/// and 15.4.5): an edited status may not fit what came, and a target may send what
/// no client would take for a body.
fn frame(status: StatusCode, fields: &mut HeaderMap, content: Content) -> Content {
    match status {
        StatusCode::NO_CONTENT => {
            fields.remove(header::CONTENT_LENGTH);
            Content::Empty
        }
        StatusCode::RESET_CONTENT => {
            fields.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
            fields.remove(header::TRAILER);
            Content::Empty
        }
        StatusCode::NOT_MODIFIED => Content::Empty,
        _ => content,
    }
}
