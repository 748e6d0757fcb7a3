//! Routes that share host and path: what else they ask for.

use std::cmp::Ordering;

use http::{HeaderName, Method};
use percent_encoding::percent_decode_str;

use super::Asked;
use crate::{config::Match, headers};

/// The routes with the same host and path, best first once they are sorted.
#[derive(Default)]
pub struct Candidates(Vec<Candidate>);

struct Candidate {
    route: usize,
    /// `None` holds always.
    conditions: Option<Box<Conditions>>,
}

/// All of it must hold.
struct Conditions {
    /// Empty: every method.
    methods: Vec<Method>,
    headers: Vec<(HeaderName, String)>,
    query: Vec<(String, String)>,
}

impl Candidates {
    pub fn add(&mut self, route: usize, matches: &Match) {
        let Match { methods, headers, query, .. } = matches;
        let any = methods.is_empty() && headers.is_empty() && query.is_empty();
        let conditions = (!any)
            .then(|| Box::new(Conditions { methods: methods.clone(), headers: headers.clone(), query: query.clone() }));
        self.0.push(Candidate { route, conditions });
    }

    pub fn sort(&mut self) {
        self.0.sort_by(|one, other| match (&one.conditions, &other.conditions) {
            (Some(one), Some(other)) => one.precedence(other),
            (one, other) => other.is_some().cmp(&one.is_some()),
        });
    }

    /// The best route whose conditions hold.
    pub fn first(&self, asked: &Asked<'_>) -> Option<usize> {
        let holds = |candidate: &&Candidate| candidate.conditions.as_ref().is_none_or(|it| it.hold(asked));
        self.0.iter().find(holds).map(|candidate| candidate.route)
    }
}

impl Conditions {
    /// The better one first. Where the counts are equal the text decides, so
    /// that the order in the file never does.
    fn precedence(&self, other: &Self) -> Ordering {
        let counts = |it: &Self| (!it.methods.is_empty(), it.headers.len(), it.query.len());
        let headers = |it: &Self, other: &Self| {
            let text = |(name, value): &(HeaderName, String)| (name.as_str().to_owned(), value.clone());
            it.headers.iter().map(text).cmp(other.headers.iter().map(text))
        };
        let methods = |it: &Self, other: &Self| {
            it.methods.iter().map(Method::as_str).cmp(other.methods.iter().map(Method::as_str))
        };
        counts(other)
            .cmp(&counts(self))
            .then_with(|| headers(self, other))
            .then_with(|| self.query.cmp(&other.query))
            .then_with(|| methods(self, other))
    }

    fn hold(&self, asked: &Asked<'_>) -> bool {
        (self.methods.is_empty() || self.methods.contains(asked.method))
            && self.headers.iter().all(|(name, value)| headers::is_joined(asked.headers, name, value.as_bytes()))
            && self.query.iter().all(|(name, value)| has_parameter(asked.query, name, value))
    }
}

/// Whether any parameter of that name has that value, both decoded.
fn has_parameter(query: Option<&str>, name: &str, value: &str) -> bool {
    query.is_some_and(|query| {
        query.split('&').any(|pair| {
            let (key, given) = pair.split_once('=').unwrap_or((pair, ""));
            is_decoded(key, name) && is_decoded(given, value)
        })
    })
}

/// Compares byte by byte, without allocating.
fn is_decoded(encoded: &str, plain: &str) -> bool {
    percent_decode_str(encoded).eq(plain.bytes())
}
