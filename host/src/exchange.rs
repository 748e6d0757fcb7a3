//! One request and its response, as plugins see and change them.
//!
//! An [`Exchange`] is moved into an instance for the length of a hook and taken
//! back afterwards, so a plugin needs no handle and the host no lock. Edits are
//! noted in an undo list until the hook has returned: one that traps leaves the
//! exchange as it was.

use std::{net::IpAddr, sync::Arc, time::Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version, header, uri::PathAndQuery};

use crate::{error::ErrorKind, gateway::Snapshot, headers, upstream::http1};

mod edit;

pub use crate::headers::joined;
pub use edit::{Edit, EditError, checked_name, checked_value, known_name};

/// Edits that a list has room for while nothing is in it.
const KEPT_EDITS: usize = 64;
/// Fields that plugins may add to a head which is as large as a head may be when it
/// comes: no client can make their edits fail by sending many.
const ADDED_FIELDS: usize = 64;

/// Everything about one request that outlives its parts.
pub struct Exchange {
    pub snapshot: Snapshot,
    /// Place of the route that has matched; set before any plugin runs.
    pub route: usize,
    pub request: RequestHead,
    pub response: Option<ResponseHead>,
    /// Early answer prepared by the hook that runs.
    pub answer: Option<Answer>,
    /// The consumer that a plugin has recognised, by place in the identity.
    pub consumer: Option<Arc<str>>,
    pub attributes: Vec<(Box<str>, Vec<u8>)>,
    /// Edits of the response to come, each with the place of its plugin.
    pub planned: Vec<(u8, Edit)>,
    /// Which hook runs, and whose.
    pub stage: Stage,
    pub place: u8,
    /// Bytes that plugins have added to heads so far.
    pub added: usize,
    /// CPU time that plugins have used, as far as it was measured.
    pub plugin_cpu: std::time::Duration,
    pub caps: HeadCaps,
    pub timing: Timing,
    pub ending: Ending,
    /// Bytes of the response's body handed to the connection.
    pub sent: u64,
    /// Made when something has to be found again in the log.
    pub id: Option<Box<str>>,
    pub log: LogFields,
    undo: Vec<Undo>,
    planned_before: usize,
    added_before: usize,
}

/// The request's head.
pub struct RequestHead {
    pub method: Method,
    pub version: Version,
    pub scheme: &'static str,
    /// Lower case, without the default port; empty if the client named none
    /// (HTTP/1.0).
    pub authority: HeaderValue,
    pub client: IpAddr,
    pub headers: HeaderMap,
    /// Fields that may come behind the body: announced by the client, and such as
    /// nobody has looked at or edited.
    pub trailers: Vec<HeaderName>,
    /// What goes upstream.
    pub target: PathAndQuery,
    /// The normalised path, where it differs from the target's.
    pub path: Option<Box<str>>,
    /// What a plugin wants sent as Host instead of the route's choice.
    pub host: Option<HeaderValue>,
    /// Whether the X-Forwarded fields have yet to be set, as they are not before
    /// anybody may look: most requests are spared the making.
    pub forwarded_pending: bool,
}

impl RequestHead {
    /// The value of a field, for a plugin.
    pub fn field(&mut self, name: &HeaderName) -> Option<Vec<u8>> {
        self.look_at(name);
        Some(joined(&self.headers, name)?.into_owned())
    }

    /// Notes that a plugin decides by a field, which then comes with the head or
    /// not at all.
    #[inline]
    pub fn look_at(&mut self, name: &HeaderName) {
        if !self.trailers.is_empty() {
            self.trailers.retain(|trailer| trailer != name);
        }
    }
}

/// The response's head.
pub struct ResponseHead {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub made_by: MadeBy,
    /// Whether fields may come behind the body, which Trailer announces.
    pub announces: bool,
}

impl ResponseHead {
    pub fn new(status: StatusCode, headers: HeaderMap, made_by: MadeBy) -> Self {
        Self { status, headers, made_by, announces: false }
    }

    /// Does an edit. What a plugin has a say in comes from nowhere else.
    fn edit<T>(&mut self, edit: Edit, how: impl FnOnce(Edit, &mut HeaderMap) -> T) -> T {
        if self.announces {
            headers::withdraw(&mut self.headers, edit.name());
        }
        how(edit, &mut self.headers)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeBy {
    Upstream,
    /// By the plugin at this place.
    Plugin(u8),
    Gateway,
}

/// A whole response that a plugin gives.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Request,
    Response,
    Finish,
}

/// How large plugins may make a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeadCaps {
    pub bytes: usize,
    pub fields: usize,
}

impl HeadCaps {
    /// For what a request's head may be when it comes.
    pub fn new(bytes: usize, fields: usize) -> Self {
        Self { bytes, fields: fields.max(http1::FIELDS) + ADDED_FIELDS }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Timing {
    pub started: Instant,
    /// From sending to the response's head, in nanoseconds; 0 without one.
    pub upstream: u64,
}

/// What the log and an error's answer want to know of a request.
#[derive(Default)]
pub struct LogFields {
    /// The request target as it came.
    pub uri: Uri,
    /// What the client said of itself, from before the first plugin on.
    pub client: Option<ClientFields>,
    /// The target that has answered.
    pub target: Option<Arc<str>>,
    /// The plugin whose failure the response tells of.
    pub failed_plugin: Option<Arc<str>>,
    /// What the response tells of.
    pub error: Option<ErrorKind>,
}

/// Fields that plugins may have changed when they are needed.
pub struct ClientFields {
    pub accept: Option<HeaderValue>,
    pub user_agent: Option<HeaderValue>,
}

/// How a request has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Complete,
    ClientGone,
    UpstreamCut,
    Stopped(ErrorKind),
}

enum Undo {
    Request(HeaderName, Lines),
    Response(HeaderName, Lines),
    Method(Method),
    Target(PathAndQuery, Option<Box<str>>),
    Host(Option<HeaderValue>),
    Status(StatusCode),
    Attribute(Box<str>, Option<Vec<u8>>),
    Consumer(Option<Arc<str>>),
}

/// The lines that a name had.
enum Lines {
    None,
    One(HeaderValue),
    Many(Vec<HeaderValue>),
}

impl From<Option<HeaderValue>> for Lines {
    fn from(line: Option<HeaderValue>) -> Self {
        line.map_or(Lines::None, Lines::One)
    }
}

impl Lines {
    fn of(headers: &HeaderMap, name: &HeaderName) -> Self {
        let mut lines = headers.get_all(name).iter();
        match (lines.next(), lines.next()) {
            (None, _) => Lines::None,
            (Some(one), None) => Lines::One(one.clone()),
            (Some(first), Some(second)) => Lines::Many([first, second].into_iter().chain(lines).cloned().collect()),
        }
    }

    fn put_back(self, headers: &mut HeaderMap, name: HeaderName) {
        match self {
            Lines::None => drop(headers.remove(name)),
            Lines::One(value) => drop(headers.insert(name, value)),
            Lines::Many(values) => {
                headers.remove(&name);
                for value in values {
                    headers.append(&name, value);
                }
            }
        }
    }
}

impl Exchange {
    pub fn new(snapshot: Snapshot, request: RequestHead, caps: HeadCaps, started: Instant) -> Self {
        Self {
            snapshot,
            route: usize::MAX,
            request,
            response: None,
            answer: None,
            consumer: None,
            attributes: Vec::new(),
            planned: Vec::new(),
            stage: Stage::Request,
            place: 0,
            added: 0,
            plugin_cpu: std::time::Duration::ZERO,
            caps,
            timing: Timing { started, upstream: 0 },
            ending: Ending::ClientGone,
            sent: 0,
            id: None,
            log: LogFields::default(),
            undo: Vec::new(),
            planned_before: 0,
            added_before: 0,
        }
    }

    /// The same as `new` in place: field by field, so that nothing large is
    /// copied, and the buffers of an exchange that is over serve the next one.
    pub fn reset(&mut self, snapshot: &Snapshot, request: RequestHead, caps: HeadCaps, started: Instant) {
        if !Arc::ptr_eq(&self.snapshot, snapshot) {
            self.snapshot = snapshot.clone();
        }
        self.route = usize::MAX;
        self.request = request;
        self.response = None;
        self.answer = None;
        self.consumer = None;
        self.attributes.clear();
        self.planned.clear();
        self.stage = Stage::Request;
        self.place = 0;
        self.added = 0;
        self.plugin_cpu = std::time::Duration::ZERO;
        self.caps = caps;
        self.timing = Timing { started, upstream: 0 };
        self.ending = Ending::ClientGone;
        self.sent = 0;
        self.id = None;
        self.log = LogFields::default();
        self.undo.clear();
        self.planned_before = 0;
        self.added_before = 0;
    }

    /// What stays of an exchange that is over: its buffers. Whatever is a part of
    /// the head as it was read goes, so that its memory serves the next one.
    pub fn retire(&mut self) {
        self.request.headers = HeaderMap::new();
        self.request.trailers = Vec::new();
        self.request.authority = HeaderValue::from_static("");
        self.request.target = PathAndQuery::from_static("/");
        self.request.host = None;
        self.log = LogFields::default();
        self.response = None;
        self.answer = None;
        self.consumer = None;
        self.id = None;
        // What one request has blown up is not kept for the next.
        self.planned.shrink_to(KEPT_EDITS);
        self.undo.shrink_to(KEPT_EDITS);
    }

    /// Starts a hook: edits from here on can be rolled back.
    pub fn begin(&mut self, stage: Stage, place: u8) {
        self.stage = stage;
        self.place = place;
        self.planned_before = self.planned.len();
        self.added_before = self.added;
        self.answer = None;
    }

    /// Makes the edits of the hook that has returned final.
    pub fn commit(&mut self) {
        self.undo.clear();
    }

    /// Takes back whatever the hook has done.
    pub fn roll_back(&mut self) {
        self.planned.truncate(self.planned_before);
        self.added = self.added_before;
        self.answer = None;
        self.undo_to(0);
    }

    /// Takes back the newest edits until that many are left.
    fn undo_to(&mut self, left: usize) {
        while self.undo.len() > left {
            let Some(undo) = self.undo.pop() else { return };
            match undo {
                Undo::Request(name, lines) => lines.put_back(&mut self.request.headers, name),
                Undo::Response(name, lines) => {
                    if let Some(response) = &mut self.response {
                        lines.put_back(&mut response.headers, name);
                    }
                }
                Undo::Method(method) => self.request.method = method,
                Undo::Target(target, path) => (self.request.target, self.request.path) = (target, path),
                Undo::Host(host) => self.request.host = host,
                Undo::Status(status) => {
                    if let Some(response) = &mut self.response {
                        response.status = status;
                    }
                }
                Undo::Attribute(name, value) => self.put_attribute(name, value),
                Undo::Consumer(consumer) => self.consumer = consumer,
            }
        }
    }

    /// Applies what the plugin at a place has planned for the response. Places
    /// come last first, so what is theirs is at the end; behind it can be only what
    /// is left of a plugin that has failed, which nobody wants any more.
    pub fn apply_planned(&mut self, place: u8) {
        let Some(response) = &mut self.response else { return };
        let others = self.planned.iter().rposition(|(whose, _)| *whose < place).map_or(0, |last| last + 1);
        for (whose, edit) in self.planned.drain(others..) {
            if whose == place {
                response.edit(edit, Edit::apply);
            }
        }
    }

    /// Keeps what the client said of itself before plugins change it.
    pub fn keep_client_fields(&mut self) {
        let field = |name| self.request.headers.get(name).cloned();
        let (accept, user_agent) = (field(header::ACCEPT), field(header::USER_AGENT));
        self.log.client = Some(ClientFields { accept, user_agent });
    }

    /// What media types the client accepts.
    pub fn accept(&self) -> Option<&HeaderValue> {
        match &self.log.client {
            Some(kept) => kept.accept.as_ref(),
            None => self.request.headers.get(header::ACCEPT),
        }
    }

    /// What the client is.
    pub fn user_agent(&self) -> Option<&HeaderValue> {
        match &self.log.client {
            Some(kept) => kept.user_agent.as_ref(),
            None => self.request.headers.get(header::USER_AGENT),
        }
    }

    pub fn set_consumer(&mut self, name: Arc<str>) {
        let before = self.consumer.replace(name);
        self.undo.push(Undo::Consumer(before));
    }

    fn put_attribute(&mut self, name: Box<str>, value: Option<Vec<u8>>) {
        self.attributes.retain(|(other, _)| *other != name);
        if let Some(value) = value {
            self.attributes.push((name, value));
        }
    }
}

impl RequestHead {
    /// Sets the X-Forwarded fields, now that somebody may look at them.
    pub fn set_forwarded(&mut self, client: &HeaderValue) {
        if std::mem::take(&mut self.forwarded_pending) {
            headers::add_forwarded(&mut self.headers, client, &self.authority);
        }
    }

    /// The path that the route was matched on.
    pub fn path(&self) -> &str {
        self.path.as_deref().unwrap_or_else(|| self.target.path())
    }

    /// The authority as text; it was checked when the request came in.
    pub fn authority(&self) -> &str {
        self.authority.to_str().unwrap_or_default()
    }
}
