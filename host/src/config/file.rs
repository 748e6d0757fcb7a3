//! The file's sections, each read by a module of its own.
//!
//! What concerns one value or one section is checked here as it is read; what
//! only shows when sections are put beside each other is left to `check`.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::SocketAddr,
    path::Path,
    time::Duration,
};

use super::{
    Consumer, Listener, Module, Route, Upstream,
    document::{Scalar, Value},
    error::{Fault, Problems},
    value::{self, Fields, address, name, quoted, units},
};

mod chain;
mod consumer;
mod listener;
mod module;
mod route;
mod upstream;

const KEYS: [&str; 9] =
    ["workers", "listen", "admin", "access_log", "drain_timeout", "modules", "consumers", "upstreams", "routes"];

const DRAIN: Duration = Duration::from_secs(30);

/// The file's values in Rust's terms; holds placeholders for what was wrong.
pub(super) struct File {
    pub workers: Option<usize>,
    pub listeners: Vec<Listener>,
    pub admin: Option<SocketAddr>,
    pub access_log: bool,
    pub drain: Duration,
    pub modules: Vec<Module>,
    pub consumers: Vec<Consumer>,
    pub upstreams: Vec<Upstream>,
    pub routes: Vec<Route>,
}

/// Reads all sections. Paths in the file lead on from `folder`.
pub(super) fn read(root: Value<'_>, folder: &Path, problems: &mut Problems) -> Option<File> {
    let fields = Fields::read(root, &KEYS, problems)?;
    let listen = fields.require("listen", problems);
    let modules = fields.or("modules", Vec::new(), problems, |value, problems| module::read(value, folder, problems));
    let mut upstreams = fields.or("upstreams", upstream::Table::default(), problems, upstream::Table::read);
    let plugins = chain::Plugins::new(&modules);
    let routes = fields
        .or("routes", Vec::new(), problems, |value, problems| route::read(value, &mut upstreams, &plugins, problems));
    Some(File {
        workers: fields
            .get("workers")
            .and_then(|value| value::number(value, 1..=512, problems))
            .map(|workers| workers as usize),
        listeners: listen.and_then(|value| listener::read(value, problems)).unwrap_or_default(),
        admin: fields.get("admin").and_then(|value| admin(value, problems)),
        access_log: fields.or("access_log", true, problems, access_log),
        drain: fields
            .or("drain_timeout", DRAIN, problems, |value, problems| value::measured(value, problems, units::duration)),
        consumers: fields.or("consumers", Vec::new(), problems, consumer::read),
        routes,
        modules,
        upstreams: upstreams.into_list(),
    })
}

fn admin(value: Value<'_>, problems: &mut Problems) -> Option<SocketAddr> {
    let fields = Fields::read(value, &["address"], problems)?;
    value::parsed(fields.require("address", problems)?, problems, address::socket)
}

/// `on` and `off` are text to YAML 1.2.
fn access_log(value: Value<'_>, problems: &mut Problems) -> Option<bool> {
    match value.scalar() {
        Some(Scalar::Bool(boolean)) => Some(boolean),
        _ => value::choice(value, &[("on", true), ("off", false)], problems),
    }
}

/// Remembers what may be given only once.
#[derive(Default)]
struct Once<'d> {
    seen: HashMap<&'d str, Value<'d>>,
}

impl<'d> Once<'d> {
    /// Reports `value` with `problem` if `text` was here before.
    fn check(&mut self, text: &'d str, value: Value<'d>, problem: impl FnOnce() -> String, problems: &mut Problems) {
        match self.seen.entry(text) {
            Entry::Vacant(vacant) => drop(vacant.insert(value)),
            Entry::Occupied(first) => {
                let first = problems.place(first.get().position());
                problems.add(value, Fault::new(problem()).hint(format!("first at {first}")));
            }
        }
    }

    /// A name of a `what`, which no other may have.
    fn name(&mut self, value: Value<'d>, what: &str, problems: &mut Problems) -> Option<&'d str> {
        let name = value::parsed(value, problems, name::free)?;
        self.check(name, value, || format!("another {what} is called {}", quoted(name)), problems);
        Some(name)
    }
}
