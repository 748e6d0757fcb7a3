//! The configuration: text becomes a checked [`Config`], and nothing runs.
//!
//! `file` holds what the YAML says, `check` turns it into the types below and
//! collects every problem, `spans` knows where each value stands. Nothing here
//! opens a socket, compiles a component or depends on hyper or wasmtime: what
//! only the build step can find out (a component that does not fit, a plugin
//! that refuses its configuration) is reported with [`Config::error_at`], so
//! that it carries a position too.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use http::{HeaderName, Method};
use ipnet::IpNet;
use serde::Deserialize;

mod check;
mod document;
mod error;
mod file;
mod spans;
mod value;

pub use check::{load, load_text};
pub use error::{ConfigError, ConfigErrors};
pub use spans::{Origin, Spans};

/// The plugins that are always there.
pub const BUILTINS: [&str; 5] = ["key-auth", "rate-limit", "request-transform", "response-transform", "respond"];

/// Everything that one configuration says, checked.
#[derive(Debug)]
pub struct Config {
    /// Worker threads; `None` is one for each core. The one key that a reload
    /// can't change.
    pub workers: Option<usize>,
    /// Where requests come in; at least one.
    pub listeners: Vec<Listener>,
    /// Where health, readiness and metrics are served.
    pub admin: Option<SocketAddr>,
    /// Whether each request is logged on stdout.
    pub access_log: bool,
    /// How long requests in flight may go on when the gateway is to end, or
    /// when their listener goes away.
    pub drain: Duration,
    /// Component files, by name. One with a built-in's name replaces it.
    pub modules: Vec<Module>,
    /// Who may be recognised by a credential.
    pub consumers: Vec<Consumer>,
    /// Named groups of targets, and those that routes name by URL alone.
    pub upstreams: Vec<Upstream>,
    /// In file order, which means nothing: `router` has the precedence.
    pub routes: Vec<Route>,
    /// SHA-256 of the text.
    pub digest: [u8; 32],
    /// Where every value stands.
    pub spans: Arc<Spans>,
}

/// An address that takes requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Listener {
    /// Port 0 takes a free one.
    pub address: SocketAddr,
    /// Who is believed when it says whom it forwards for.
    pub trusted_proxies: Vec<IpNet>,
    /// What becomes of field names with an underscore, which many an upstream
    /// can't tell from `-`.
    pub underscore_headers: UnderscoreHeaders,
    pub limits: ListenerLimits,
    pub timeouts: ListenerTimeouts,
    pub origin: Origin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnderscoreHeaders {
    #[default]
    Drop,
    Allow,
}

/// What one connection or message may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Bytes of a request's head; beyond it 431.
    pub head: usize,
    /// Fields of a request's head; beyond it 431.
    pub fields: usize,
    /// Bytes of the request target; beyond it 414.
    pub target: usize,
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self { head: 32 << 10, fields: 100, target: 8 << 10 }
    }
}

/// How long a client may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerTimeouts {
    /// From the connection's start, or a request's first byte, to its whole
    /// head.
    pub head: Duration,
    /// Between two pieces of a body, in either direction.
    pub body_idle: Duration,
    /// Between an answer's end and the next request's first byte.
    pub keep_alive: Duration,
}

impl Default for ListenerTimeouts {
    fn default() -> Self {
        Self { head: Duration::from_secs(10), body_idle: Duration::from_secs(30), keep_alive: Duration::from_secs(60) }
    }
}

/// A component file.
#[derive(Debug, Clone)]
pub struct Module {
    pub name: Arc<str>,
    /// Absolute, or relative to the working directory; the file's own folder
    /// has been put in front.
    pub path: PathBuf,
    /// What the file's SHA-256 has to be.
    pub sha256: Option<[u8; 32]>,
    /// Environment variables that it may read (`allow: { env: [...] }`).
    pub env: Vec<String>,
    /// What the module's entry sets; a use may set its own on top.
    pub limits: PluginLimits,
    pub origin: Origin,
}

/// What a plugin may use up. All of it is a key in YAML.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PluginLimits {
    /// Bytes of linear memory of an instance.
    pub memory: u64,
    /// CPU time of one call, counted from the first tick that it outlasts.
    pub cpu: Duration,
    /// CPU time of all calls for one request.
    pub request_cpu: Duration,
    /// Time from the start of one call to its end.
    pub wall: Duration,
    /// Bytes of a body that the plugin makes.
    pub body: u64,
    /// Instances for each worker; further calls wait.
    pub instances: u32,
    /// How long a call may wait for an instance; beyond it 503.
    pub wait: Duration,
    /// Calls after which an instance is replaced.
    pub recycle_after: u64,
}

impl Default for PluginLimits {
    fn default() -> Self {
        Self {
            memory: 16 << 20,
            cpu: Duration::from_millis(5),
            request_cpu: Duration::from_millis(20),
            wall: Duration::from_secs(1),
            body: 8 << 20,
            instances: 64,
            wait: Duration::from_secs(1),
            recycle_after: 10_000,
        }
    }
}

/// Somebody who is recognised by a credential.
#[derive(Debug, Clone)]
pub struct Consumer {
    pub name: Arc<str>,
    pub groups: Vec<Arc<str>>,
    /// API keys; no two consumers share one.
    pub keys: Vec<Secret>,
}

/// Text that is never printed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(Box<str>);

impl Secret {
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text itself, for comparing.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// A group of targets.
#[derive(Debug, Clone, PartialEq)]
pub struct Upstream {
    /// Its key under `upstreams`, or the URL where a route gives one.
    pub name: Arc<str>,
    pub kind: UpstreamKind,
}

#[derive(Debug, Clone, PartialEq)]
pub enum UpstreamKind {
    /// The embedded demo upstream (`internal:echo`).
    Echo,
    /// At least one target.
    Targets { balance: Balance, targets: Vec<Target> },
}

/// How a target is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// By smooth weighted turns.
    #[default]
    RoundRobin,
    /// The fewest requests in flight for its weight, over all workers.
    LeastRequests,
}

/// One address of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// A name or an address, an IPv6 one without brackets.
    pub host: Arc<str>,
    pub port: u16,
    /// `host` or `host:port`, as it goes into a Host field (RFC 9110 7.2).
    pub authority: Arc<str>,
    /// 1 to 1 000 000.
    pub weight: u32,
}

/// What is done with requests that match.
#[derive(Debug)]
pub struct Route {
    pub name: Arc<str>,
    pub matches: Match,
    /// Place in [`Config::upstreams`].
    pub upstream: usize,
    /// Whole leading segments that are taken off the path sent upstream, with a
    /// leading `/` and none at the end.
    pub strip_prefix: Option<String>,
    /// Whether the client's authority goes upstream, or the target's own.
    pub preserve_host: bool,
    pub timeouts: RouteTimeouts,
    /// Bytes of a request's body; beyond it 413. `None` is without limit.
    pub max_body: Option<u64>,
    /// The chain, in request order.
    pub plugins: Vec<PluginUse>,
    pub origin: Origin,
}

/// Which requests a route is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// Empty: every host.
    pub hosts: Vec<HostPattern>,
    pub path: PathPattern,
    /// Empty: every method.
    pub methods: Vec<Method>,
    /// All of them must hold; sorted by name. The joined value is compared.
    pub headers: Vec<(HeaderName, String)>,
    /// All of them must hold; sorted. Name and value are compared percent-decoded.
    pub query: Vec<(String, String)>,
}

/// A host, lower case and without port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// `api.example.com`
    Exact(String),
    /// `*.example.com`, held as `example.com`: any number of labels in front,
    /// at least one.
    Wildcard(String),
}

/// A path, matched on the normalised one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PathPattern {
    /// `path: /users/{id}`: each part is a whole segment. No parameter in it
    /// makes it exact.
    Template(Vec<Segment>),
    /// `path_prefix: /users`: matches `/users` and `/users/…`; without a `/` at
    /// the end, `/` itself being empty here.
    Prefix(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Segment {
    Literal(String),
    /// Any one segment that is not empty.
    Parameter(String),
}

/// How long the upstream may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteTimeouts {
    /// To a connection, for each target tried.
    pub connect: Duration,
    /// From the request's last byte to the response's head.
    pub response: Duration,
    /// From the request's head to the answer's last byte; `None` is without
    /// limit.
    pub total: Option<Duration>,
}

impl Default for RouteTimeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), response: Duration::from_secs(60), total: None }
    }
}

/// A plugin's place in a chain.
#[derive(Debug, Clone)]
pub struct PluginUse {
    /// A built-in, or a key under `modules`.
    pub module: Arc<str>,
    /// Its configuration as JSON text.
    pub config: Arc<str>,
    pub on_error: OnError,
    pub limits: PluginLimits,
    pub origin: Origin,
}

/// What becomes of a request whose plugin fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// It is answered with an error.
    #[default]
    Deny,
    /// It goes on as if the plugin were not there.
    Skip,
}
