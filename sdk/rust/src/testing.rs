//! A fake gateway for native unit tests.
//!
//! It keeps the contract of `wit/` where a plugin can see it: edits are checked
//! and refused as the gateway does, a hook that fails leaves the exchange as it
//! was, planned response edits apply when the response passes.
//!
//! ```
//! use weir_sdk::{prelude::*, testing::{Answer, Exchange, Gateway}};
//! # #[derive(Deserialize, JsonSchema)]
//! # struct Stamp { value: String }
//! # impl Plugin for Stamp {
//! #     type Config = Self;
//! #     fn new(config: Self) -> Result<Self, Vec<Problem>> { Ok(config) }
//! #     fn phases(&self) -> Phases { Phases::RESPONSE }
//! #     fn on_response(&self, _: &Request, response: &mut Response) -> Outcome {
//! #         response.edit(&[Edit::set("x-stamp", &self.value)])?;
//! #         Ok(Action::Continue)
//! #     }
//! # }
//! let gateway = Gateway::new();
//! let stamp = gateway.configure::<Stamp>(r#"{ "value": "hello" }"#).unwrap();
//! let mut exchange = Exchange::get("/users?page=2");
//! exchange.response = Some(Answer::new(200));
//! stamp.on_response(&mut exchange);
//! assert_eq!(exchange.response.unwrap().header("x-stamp"), Some("hello"));
//! ```

// A misuse of the fake is a mistake in a test, and a panic is how a test says so.
#![allow(clippy::panic)]

use std::{cell::RefCell, collections::BTreeMap, net::IpAddr, rc::Rc, time::Duration};

use crate::{
    Action, Ending, Failure, Finish, Maker, Outcome, Phase, Phases, Plugin, Problem, Request, Response, export,
    log::Level, store::StoreError,
};

mod head;
pub(crate) mod host;
mod prepared;
mod store;

/// What outlasts one exchange: clock, store, consumers, log.
#[derive(Debug, Clone)]
pub struct Gateway(Rc<RefCell<State>>);

#[derive(Debug)]
struct State {
    /// Milliseconds since the epoch.
    now: u64,
    store: store::Store,
    store_error: Option<StoreError>,
    consumers: Vec<Consumer>,
    log: Vec<(Level, String)>,
    threshold: Option<Level>,
    prepared: prepared::Prepared,
}

#[derive(Debug)]
struct Consumer {
    name: String,
    groups: Vec<String>,
    keys: Vec<String>,
}

impl Default for Gateway {
    fn default() -> Self {
        Self::new()
    }
}

impl Gateway {
    /// One whose clock stands still at 2026-01-01T00:00:00Z, with an empty
    /// store, no consumers, and all levels logged.
    pub fn new() -> Self {
        Self(Rc::new(RefCell::new(State {
            now: 1_767_225_600_000,
            store: store::Store::default(),
            store_error: None,
            consumers: Vec::new(),
            log: Vec::new(),
            threshold: Some(Level::Trace),
            prepared: prepared::Prepared::default(),
        })))
    }

    /// Adds a consumer.
    pub fn add_consumer(&self, name: &str, groups: &[&str], keys: &[&str]) {
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        self.0.borrow_mut().consumers.push(Consumer { name: name.to_owned(), groups: own(groups), keys: own(keys) });
    }

    /// Lets time pass.
    pub fn advance(&self, time: Duration) {
        self.0.borrow_mut().now += u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    }

    /// Makes every call of the store fail, or work again.
    pub fn fail_store(&self, error: Option<StoreError>) {
        self.0.borrow_mut().store_error = error;
    }

    /// Sets the least level that is logged; `None`: nothing is.
    pub fn log_from(&self, threshold: Option<Level>) {
        self.0.borrow_mut().threshold = threshold;
    }

    /// Takes what has been logged so far.
    pub fn take_log(&self) -> Vec<(Level, String)> {
        std::mem::take(&mut self.0.borrow_mut().log)
    }

    /// Makes a use of the plugin from a configuration in JSON. The schema is not
    /// checked, only what the plugin itself checks.
    pub fn configure<P: Plugin>(&self, config: &str) -> Result<Use<P>, Vec<Problem>> {
        let (plugin, _) = host::run(self, None, || export::parse::<P>(config));
        let plugin = plugin?;
        let phases = plugin.phases();
        Ok(Use { gateway: self.clone(), plugin, phases })
    }
}

/// A plugin with a configuration: its place in a chain.
#[derive(Debug)]
pub struct Use<P> {
    gateway: Gateway,
    plugin: P,
    phases: Phases,
}

impl<P: Plugin> Use<P> {
    /// The plugin itself.
    pub fn plugin(&self) -> &P {
        &self.plugin
    }

    /// Has the request pass the plugin. If the plugin answers, the answer is in
    /// [`Exchange::response`], planned edits applied.
    pub fn on_request(&self, exchange: &mut Exchange) -> Outcome {
        exchange.hook = Hook::Request;
        let always = || self.phases.request_edits.map_or(Ok(()), |id| host::edits::edit_request(id, b""));
        let outcome = self.call(exchange, || {
            let action = match self.phases.request {
                Phase::Off => Action::Continue,
                _ => self.plugin.on_request(&mut Request::in_hand())?,
            };
            if action == Action::Continue {
                always()?;
            }
            Ok(action)
        });
        if matches!(outcome, Ok(Action::Respond(_))) {
            exchange.answer();
            self.edit_response(exchange)?;
        }
        outcome
    }

    /// What is planned for a response that passes, or is always done to it.
    fn edit_response(&self, exchange: &mut Exchange) -> Result<(), Failure> {
        exchange.hook = Hook::Response;
        let always = || self.phases.response_edits.map_or(Ok(()), |id| host::edits::edit_response(id, b""));
        self.call(exchange, || {
            always()?;
            Ok(Action::Continue)
        })?;
        exchange.apply_planned();
        Ok(())
    }

    /// Has the response pass the plugin: what its request hook has planned is
    /// applied, then the response hook is called, if the plugin has one.
    pub fn on_response(&self, exchange: &mut Exchange) -> Outcome {
        self.edit_response(exchange)?;
        if matches!(self.phases.response, Phase::Off) {
            return Ok(Action::Continue);
        }
        let outcome = self.call(exchange, || self.plugin.on_response(&Request::in_hand(), &mut Response::in_hand()));
        if matches!(outcome, Ok(Action::Respond(_))) {
            exchange.answer();
        }
        outcome
    }

    /// Ends the exchange.
    pub fn on_finish(&self, exchange: &mut Exchange) {
        exchange.hook = Hook::Finish;
        if self.phases.finish {
            let hook = || self.plugin.on_finish(&Request::in_hand(), &Response::in_hand(), &Finish::in_hand());
            let ((), after) = host::run(&self.gateway, Some(exchange.clone()), hook);
            *exchange = after.unwrap_or_else(|| exchange.clone());
        }
    }

    /// A hook that fails leaves the exchange as it was.
    fn call(&self, exchange: &mut Exchange, hook: impl FnOnce() -> Outcome) -> Outcome {
        let (outcome, after) = host::run(&self.gateway, Some(exchange.clone()), hook);
        if let (Ok(_), Some(after)) = (&outcome, after) {
            *exchange = after;
        }
        if let Err(failure) = &outcome {
            self.gateway.0.borrow_mut().log.push((Level::Error, failure.to_string()));
        }
        outcome
    }
}

/// A request and what becomes of it. The fields are both what the plugin
/// meets and what it leaves.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// `GET` and the like.
    pub method: String,
    /// `http` or `https`.
    pub scheme: String,
    /// Host and port.
    pub authority: String,
    /// The path as it goes upstream.
    pub raw_path: String,
    /// The query without `?`.
    pub query: Option<String>,
    /// Names (lower case) and values, in order.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Who asks.
    pub client_address: IpAddr,
    /// The name of the route.
    pub route: String,
    /// Who has been recognised.
    pub consumer: Option<String>,
    /// What plugins have noted down.
    pub attributes: BTreeMap<String, Vec<u8>>,
    /// The response: set by the test before [`Use::on_response`], or the
    /// plugin's own answer after [`Use::on_request`].
    pub response: Option<Answer>,
    /// Who made the response.
    pub made_by: Maker,
    /// How all has ended.
    pub ending: Ending,
    /// Bytes of the response's body that have gone to the client.
    pub sent: u64,
    /// The whole time.
    pub duration: Duration,
    /// The upstream's part of it.
    pub upstream_duration: Duration,
    planned: Vec<head::OwnedEdit>,
    prepared: Option<Answer>,
    hook: Hook,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hook {
    Request,
    Response,
    Finish,
}

impl Exchange {
    /// A GET for this target (`/path?query`) on the route `test`, from
    /// 192.0.2.1.
    pub fn get(target: &str) -> Self {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        Self {
            method: "GET".to_owned(),
            scheme: "http".to_owned(),
            authority: "gateway.test".to_owned(),
            raw_path: path.to_owned(),
            query: query.map(str::to_owned),
            headers: Vec::new(),
            client_address: IpAddr::from([192, 0, 2, 1]),
            route: "test".to_owned(),
            consumer: None,
            attributes: BTreeMap::new(),
            response: None,
            made_by: Maker::Upstream,
            ending: Ending::Complete,
            sent: 0,
            duration: Duration::ZERO,
            upstream_duration: Duration::ZERO,
            planned: Vec::new(),
            prepared: None,
            hook: Hook::Request,
        }
    }

    /// Adds a field line to the request.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_ascii_lowercase(), value.as_ref().to_vec()));
        self
    }

    /// The request's value of a field, joined, if it is text.
    pub fn header(&self, name: &str) -> Option<String> {
        String::from_utf8(head::join(&self.headers, name)?).ok()
    }

    /// Path and query as they go upstream.
    pub fn target(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.raw_path),
            None => self.raw_path.clone(),
        }
    }

    fn answer(&mut self) {
        self.response = self.prepared.take();
        self.made_by = Maker::Plugin;
    }

    fn apply_planned(&mut self) {
        let planned = std::mem::take(&mut self.planned);
        let Some(response) = &mut self.response else {
            panic!("set exchange.response first");
        };
        head::apply(&mut response.headers, planned);
    }
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Names (lower case) and values, in order.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// One without fields and body.
    pub fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new() }
    }

    /// Adds a field line.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_ascii_lowercase(), value.as_ref().to_vec()));
        self
    }

    /// The value of a field that is there once, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.headers.iter().filter(|(line, _)| line == name);
        let (_, value) = lines.next()?;
        if lines.next().is_some() {
            panic!("{name} is there more than once: look at `headers`");
        }
        std::str::from_utf8(value).ok()
    }
}

#[cfg(test)]
mod tests;
