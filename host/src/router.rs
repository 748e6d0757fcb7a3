//! Which route a request is for.
//!
//! Precedence, whatever the order in the file: an exact host before the longest
//! wildcard before none; an exact path before a template with more literal
//! segments before the longest prefix; then a named method before any, more
//! header conditions before fewer, more query conditions before fewer. The next
//! best is tried when a route's other conditions do not hold, so a less specific
//! host serves what a more specific one has no route for.
//!
//! Hosts, exact paths and prefixes are found by hashing, so ten thousand routes
//! cost hardly more than one.

use std::{cmp::Reverse, collections::HashMap};

use http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;

use crate::{
    config::{HostPattern, Match, PathPattern, Route, Segment},
    exchange::joined,
};

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// All routes of one configuration.
#[derive(Default)]
pub struct Router {
    hosts: Map<String, Paths>,
    /// By what follows `*.`.
    wildcards: Map<String, Paths>,
    any_host: Paths,
}

/// The routes of one host pattern.
#[derive(Default)]
struct Paths {
    exact: Map<String, Vec<Candidate>>,
    /// By number of segments, those with more literals first.
    templates: Map<usize, Vec<(Vec<Segment>, Vec<Candidate>)>>,
    prefixes: Map<String, Vec<Candidate>>,
    /// The longest prefix, in bytes.
    longest: usize,
}

/// A route among those with the same host and path, best first.
struct Candidate {
    route: usize,
    conditions: Option<Box<Conditions>>,
}

struct Conditions {
    methods: Vec<Method>,
    headers: Vec<(http::HeaderName, String)>,
    query: Vec<(String, String)>,
}

/// What a request is matched by.
pub struct Asked<'a> {
    /// Lower case, without port.
    pub host: &'a str,
    /// In normal form.
    pub path: &'a str,
    pub method: &'a Method,
    pub headers: &'a HeaderMap,
    pub query: Option<&'a str>,
}

impl Router {
    pub fn new(routes: &[Route]) -> Self {
        let mut router = Self::default();
        for (route, Route { matches, .. }) in routes.iter().enumerate() {
            if matches.hosts.is_empty() {
                router.any_host.add(route, matches);
            }
            for host in &matches.hosts {
                let paths = match host {
                    HostPattern::Exact(name) => router.hosts.entry(name.clone()).or_default(),
                    HostPattern::Wildcard(domain) => router.wildcards.entry(domain.clone()).or_default(),
                };
                paths.add(route, matches);
            }
        }
        router.hosts.values_mut().for_each(Paths::sort);
        router.wildcards.values_mut().for_each(Paths::sort);
        router.any_host.sort();
        router
    }

    /// Place of the best route for a request.
    pub fn find(&self, asked: &Asked<'_>) -> Option<usize> {
        if !self.hosts.is_empty()
            && let Some(route) = self.hosts.get(asked.host).and_then(|paths| paths.find(asked))
        {
            return Some(route);
        }
        if !self.wildcards.is_empty() {
            let mut rest = asked.host;
            // Longest first: the labels go away from the left.
            while let Some((_, domain)) = rest.split_once('.') {
                if let Some(route) = self.wildcards.get(domain).and_then(|paths| paths.find(asked)) {
                    return Some(route);
                }
                rest = domain;
            }
        }
        self.any_host.find(asked)
    }
}

impl Paths {
    fn add(&mut self, route: usize, matches: &Match) {
        let conditions = (!matches.methods.is_empty() || !matches.headers.is_empty() || !matches.query.is_empty())
            .then(|| {
                Box::new(Conditions {
                    methods: matches.methods.clone(),
                    headers: matches.headers.clone(),
                    query: matches.query.clone(),
                })
            });
        let candidate = Candidate { route, conditions };
        match &matches.path {
            PathPattern::Prefix(prefix) => {
                self.longest = self.longest.max(prefix.len());
                self.prefixes.entry(prefix.clone()).or_default().push(candidate);
            }
            PathPattern::Template(segments) => match literal_path(segments) {
                Some(path) => self.exact.entry(path).or_default().push(candidate),
                None => {
                    let shapes = self.templates.entry(segments.len()).or_default();
                    match shapes.iter_mut().find(|(shape, _)| same_shape(shape, segments)) {
                        Some((_, candidates)) => candidates.push(candidate),
                        None => shapes.push((segments.clone(), vec![candidate])),
                    }
                }
            },
        }
    }

    fn sort(&mut self) {
        let by_precedence = |candidates: &mut Vec<Candidate>| candidates.sort_by_key(Candidate::rank);
        self.exact.values_mut().for_each(by_precedence);
        self.prefixes.values_mut().for_each(by_precedence);
        for shapes in self.templates.values_mut() {
            // Among as many literals, those further to the front count more.
            shapes.sort_by_key(|(shape, _)| {
                let literal: Vec<bool> = shape.iter().map(|segment| matches!(segment, Segment::Parameter(_))).collect();
                (literal.iter().filter(|parameter| **parameter).count(), literal)
            });
            shapes.iter_mut().for_each(|(_, candidates)| by_precedence(candidates));
        }
    }

    fn find(&self, asked: &Asked<'_>) -> Option<usize> {
        if !self.exact.is_empty()
            && let Some(route) = first(self.exact.get(asked.path), asked)
        {
            return Some(route);
        }
        if !self.templates.is_empty()
            && let Some(route) = self.find_template(asked)
        {
            return Some(route);
        }
        self.find_prefix(asked)
    }

    fn find_template(&self, asked: &Asked<'_>) -> Option<usize> {
        let segments = asked.path.split('/').skip(1);
        let shapes = self.templates.get(&segments.clone().count())?;
        shapes
            .iter()
            .filter(|(shape, _)| shape.iter().zip(segments.clone()).all(|(segment, part)| segment.matches(part)))
            .find_map(|(_, candidates)| first(Some(candidates), asked))
    }

    /// Tries the path cut at each slash, longest first.
    fn find_prefix(&self, asked: &Asked<'_>) -> Option<usize> {
        if self.prefixes.is_empty() {
            return None;
        }
        let path = asked.path;
        if path.len() <= self.longest
            && let Some(route) = first(self.prefixes.get(path), asked)
        {
            return Some(route);
        }
        let bytes = path.as_bytes();
        let mut end = (self.longest + 1).min(path.len());
        while let Some(slash) = bytes[..end].iter().rposition(|byte| *byte == b'/') {
            if let Some(route) = first(self.prefixes.get(&path[..slash]), asked) {
                return Some(route);
            }
            end = slash;
        }
        None
    }
}

impl Candidate {
    /// Less is better.
    fn rank(&self) -> Reverse<(bool, usize, usize)> {
        Reverse(self.conditions.as_ref().map_or((false, 0, 0), |conditions| {
            (!conditions.methods.is_empty(), conditions.headers.len(), conditions.query.len())
        }))
    }

    fn holds(&self, asked: &Asked<'_>) -> bool {
        self.conditions.as_ref().is_none_or(|conditions| conditions.hold(asked))
    }
}

impl Conditions {
    fn hold(&self, asked: &Asked<'_>) -> bool {
        (self.methods.is_empty() || self.methods.contains(asked.method))
            && self.headers.iter().all(|(name, value)| {
                joined(asked.headers, name).is_some_and(|joined| joined.as_slice() == value.as_bytes())
            })
            && self.query.iter().all(|(name, value)| has_parameter(asked.query, name, value))
    }
}

impl Segment {
    fn matches(&self, part: &str) -> bool {
        match self {
            Segment::Literal(literal) => literal == part,
            Segment::Parameter(_) => !part.is_empty(),
        }
    }
}

fn first(candidates: Option<&Vec<Candidate>>, asked: &Asked<'_>) -> Option<usize> {
    candidates?.iter().find(|candidate| candidate.holds(asked)).map(|candidate| candidate.route)
}

/// The path of a template without parameters.
fn literal_path(segments: &[Segment]) -> Option<String> {
    let mut path = String::new();
    for segment in segments {
        let Segment::Literal(literal) = segment else { return None };
        path.push('/');
        path.push_str(literal);
    }
    Some(path)
}

/// Whether two templates match the same paths.
fn same_shape(one: &[Segment], other: &[Segment]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|pair| match pair {
            (Segment::Literal(one), Segment::Literal(other)) => one == other,
            (Segment::Parameter(_), Segment::Parameter(_)) => true,
            _ => false,
        })
}

/// Whether any parameter of that name has that value, both decoded.
fn has_parameter(query: Option<&str>, name: &str, value: &str) -> bool {
    query.unwrap_or_default().split('&').any(|pair| {
        let (key, given) = pair.split_once('=').unwrap_or((pair, ""));
        is_decoded(key, name) && is_decoded(given, value)
    })
}

/// Compares byte by byte, without allocating.
fn is_decoded(encoded: &str, plain: &str) -> bool {
    percent_decode_str(encoded).eq(plain.bytes())
}
