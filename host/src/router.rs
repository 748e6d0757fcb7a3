//! Which route a request is for.
//!
//! Precedence, whatever the order in the file: an exact host before the longest
//! wildcard before none; an exact path before a template with more literal
//! segments before the longest prefix; then a named method before any, more
//! header conditions before fewer, more query conditions before fewer. The next
//! best is tried when a route's other conditions do not hold, so a less specific
//! host serves what a more specific one has no route for.
//!
//! Hosts, exact paths, templates and prefixes are found by hashing, so ten
//! thousand routes cost hardly more than one; and no more is hashed than the
//! longest pattern could need, however long a host or path a client sends.

use std::collections::{HashMap, HashSet};

use http::{HeaderMap, HeaderName, Method};

use crate::config::{HostPattern, Match, PathPattern, Route, Segment};

mod candidate;
mod template;

use candidate::Candidates;
use template::Templates;

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// All routes of one configuration.
#[derive(Default)]
pub struct Router {
    hosts: Map<String, Paths>,
    /// By what follows `*.`.
    wildcards: Map<String, Paths>,
    /// The longest of these, in bytes.
    longest_wildcard: usize,
    any_host: Paths,
    /// Fields that routes have conditions on.
    looks_at: HashSet<HeaderName, foldhash::fast::RandomState>,
}

/// The routes of one host pattern.
#[derive(Default)]
struct Paths {
    exact: Map<String, Candidates>,
    templates: Templates,
    prefixes: Map<String, Candidates>,
    /// The longest prefix, in bytes.
    longest_prefix: usize,
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
        let looks_at = routes.iter().flat_map(|route| &route.matches.headers).map(|(name, _)| name.clone()).collect();
        let mut router = Self { looks_at, ..Self::default() };
        for (route, Route { matches, .. }) in routes.iter().enumerate() {
            if matches.hosts.is_empty() {
                router.any_host.add(route, matches);
            }
            for host in &matches.hosts {
                let paths = match host {
                    HostPattern::Exact(name) => router.hosts.entry(name.clone()).or_default(),
                    HostPattern::Wildcard(domain) => {
                        router.longest_wildcard = router.longest_wildcard.max(domain.len());
                        router.wildcards.entry(domain.clone()).or_default()
                    }
                };
                paths.add(route, matches);
            }
        }
        router.hosts.values_mut().for_each(Paths::sort);
        router.wildcards.values_mut().for_each(Paths::sort);
        router.any_host.sort();
        router
    }

    /// Whether any route has a condition on header fields.
    pub fn looks_at_headers(&self) -> bool {
        !self.looks_at.is_empty()
    }

    /// Whether any route has a condition on that field.
    pub fn looks_at(&self, name: &HeaderName) -> bool {
        self.looks_at.contains(name)
    }

    /// Place of the best route for a request. Allocates nothing.
    pub fn find(&self, asked: &Asked<'_>) -> Option<usize> {
        if !self.hosts.is_empty()
            && let Some(route) = self.hosts.get(asked.host).and_then(|paths| paths.find(asked))
        {
            return Some(route);
        }
        self.find_wildcard(asked).or_else(|| self.any_host.find(asked))
    }

    /// Tries what follows each dot, longest first.
    fn find_wildcard(&self, asked: &Asked<'_>) -> Option<usize> {
        if self.wildcards.is_empty() {
            return None;
        }
        // From the last dot on that leaves no more than the longest of them.
        let skipped = asked.host.len().saturating_sub(self.longest_wildcard + 1);
        let mut rest = asked.host.get(skipped..)?;
        while let Some((_, domain)) = rest.split_once('.') {
            if let Some(route) = self.wildcards.get(domain).and_then(|paths| paths.find(asked)) {
                return Some(route);
            }
            rest = domain;
        }
        None
    }
}

impl Paths {
    fn add(&mut self, route: usize, matches: &Match) {
        let candidates = match &matches.path {
            PathPattern::Prefix(prefix) => {
                self.longest_prefix = self.longest_prefix.max(prefix.len());
                self.prefixes.entry(prefix.clone()).or_default()
            }
            PathPattern::Template(segments) => match literal_path(segments) {
                Some(path) => self.exact.entry(path).or_default(),
                None => self.templates.entry(segments),
            },
        };
        candidates.add(route, matches);
    }

    fn sort(&mut self) {
        self.exact.values_mut().for_each(Candidates::sort);
        self.templates.sort();
        self.prefixes.values_mut().for_each(Candidates::sort);
    }

    fn find(&self, asked: &Asked<'_>) -> Option<usize> {
        if !self.exact.is_empty()
            && let Some(route) = self.exact.get(asked.path).and_then(|candidates| candidates.first(asked))
        {
            return Some(route);
        }
        self.templates.find(asked).or_else(|| self.find_prefix(asked))
    }

    /// Tries the path cut at each slash, longest first.
    fn find_prefix(&self, asked: &Asked<'_>) -> Option<usize> {
        if self.prefixes.is_empty() {
            return None;
        }
        let path = asked.path;
        let at = |end: usize| self.prefixes.get(path.get(..end)?)?.first(asked);
        if path.len() <= self.longest_prefix
            && let Some(route) = at(path.len())
        {
            return Some(route);
        }
        let mut end = path.len().min(self.longest_prefix + 1);
        while let Some(slash) = path.as_bytes()[..end].iter().rposition(|byte| *byte == b'/') {
            if let Some(route) = at(slash) {
                return Some(route);
            }
            end = slash;
        }
        None
    }
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

#[cfg(test)]
mod tests;
