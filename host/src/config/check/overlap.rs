//! Routes that match the same requests.
//!
//! The order of routes means nothing, so of two that match the same requests
//! neither could be preferred. Only equal conditions are told: which of two
//! different ones goes first is the router's precedence.

use std::collections::{HashMap, hash_map::Entry};

use http::{HeaderName, Method};

use crate::config::{
    HostPattern, Match, PathPattern, Route, Segment,
    document::{Document, Value},
    error::{Fault, Problems},
};

/// The conditions of a match that have to be equal as a whole. Hosts and methods
/// are lists of which one in common is enough.
#[derive(PartialEq, Eq, Hash)]
struct Shape<'r> {
    path: PathShape<'r>,
    headers: &'r [(HeaderName, String)],
    query: &'r [(String, String)],
}

#[derive(PartialEq, Eq, Hash)]
enum PathShape<'r> {
    /// What a parameter is called makes no difference.
    Template(Vec<Option<&'r str>>),
    Prefix(&'r str),
}

impl<'r> Shape<'r> {
    fn of(matches: &'r Match) -> Self {
        let path = match &matches.path {
            PathPattern::Prefix(prefix) => PathShape::Prefix(prefix),
            PathPattern::Template(segments) => {
                let literal = |segment: &'r Segment| match segment {
                    Segment::Literal(text) => Some(text.as_str()),
                    Segment::Parameter(_) => None,
                };
                PathShape::Template(segments.iter().map(literal).collect())
            }
        };
        Self { path, headers: &matches.headers, query: &matches.query }
    }
}

/// Reports each route that has an equal match with one before it, once for each
/// host in common.
pub(super) fn check(routes: &[Route], document: &Document<'_>, problems: &mut Problems) {
    let mut shapes = HashMap::new();
    let mut taken = HashMap::<_, &Route>::new();
    for route in routes {
        let next = shapes.len();
        let shape = *shapes.entry(Shape::of(&route.matches)).or_insert(next);
        for host in all_or_any(&route.matches.hosts) {
            let mut other = None;
            for method in all_or_any::<Method>(&route.matches.methods) {
                match taken.entry((shape, host, method)) {
                    Entry::Vacant(vacant) => drop(vacant.insert(route)),
                    Entry::Occupied(first) => other = other.or(Some(*first.get())),
                }
            }
            if let Some(other) = other {
                report(route, other, host, document, problems);
            }
        }
    }
}

/// Each element, or `None` alone for an empty list, which stands for any.
fn all_or_any<T>(list: &[T]) -> impl Iterator<Item = Option<&T>> {
    list.iter().map(Some).chain(list.is_empty().then_some(None))
}

fn report(route: &Route, other: &Route, host: Option<&HostPattern>, document: &Document<'_>, problems: &mut Problems) {
    let host = match host {
        None => String::new(),
        Some(HostPattern::Exact(host)) => format!(" for the host {host:?}"),
        Some(HostPattern::Wildcard(suffix)) => format!(" for the host \"*.{suffix}\""),
    };
    let other = document.value(other.origin);
    let first = problems.place(place(other).position());
    let fault = Fault::new(format!("matches the same requests as {}{host}", other.path()));
    problems.add(place(document.value(route.origin)), fault.hint(format!("first at {first}")));
}

/// What decides on a route's requests.
fn place(route: Value<'_>) -> Value<'_> {
    route.get("match").unwrap_or(route)
}
