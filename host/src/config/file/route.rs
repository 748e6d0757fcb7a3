//! `routes`

use std::collections::HashSet;

use super::{
    Once,
    chain::{self, Plugins},
    upstream::Table,
};
use crate::config::{
    Match, PathPattern, Route, RouteTimeouts,
    document::Value,
    error::{Fault, Problems},
    value::{self, Fields, host, http, path, quoted, units},
};

const KEYS: [&str; 8] =
    ["name", "match", "upstream", "strip_prefix", "preserve_host", "timeouts", "max_body", "plugins"];

const MATCH: [&str; 6] = ["hosts", "path", "path_prefix", "methods", "headers", "query"];

/// Most methods of one route; there are not that many.
const MAX_METHODS: usize = 32;

pub(super) fn read(
    value: Value<'_>,
    upstreams: &mut Table,
    plugins: &Plugins<'_>,
    problems: &mut Problems,
) -> Option<Vec<Route>> {
    let items = value::items(value, problems)?;
    let mut names = Once::default();
    Some(items.filter_map(|item| route(item, &mut names, upstreams, plugins, problems)).collect())
}

fn route<'d>(
    value: Value<'d>,
    names: &mut Once<'d>,
    upstreams: &mut Table,
    plugins: &Plugins<'_>,
    problems: &mut Problems,
) -> Option<Route> {
    let fields = Fields::read(value, &KEYS, problems)?;
    let name = fields.require("name", problems).and_then(|value| names.name(value, "route", problems));
    let matches = fields.get("match").map_or(Some(everything()), |value| matches(value, problems));
    let upstream = fields.require("upstream", problems).and_then(|value| upstreams.find(value, problems));
    let strip_prefix = fields.get("strip_prefix").and_then(|value| value::parsed(value, problems, strip_prefix));
    let preserve_host = fields.or("preserve_host", true, problems, value::boolean);
    let timeouts = fields.or("timeouts", RouteTimeouts::default(), problems, timeouts);
    let max_body = fields
        .get("max_body")
        .and_then(|value| value::measured(value, problems, |text| units::size(text, 0..=1 << 50)));
    let plugins = fields.or("plugins", Vec::new(), problems, |value, problems| chain::read(value, plugins, problems));
    Some(Route {
        name: name.unwrap_or_default().into(),
        // Of a match that is wrong, nothing can be said beside another.
        matches: matches?,
        upstream: upstream.unwrap_or_default(),
        strip_prefix,
        preserve_host,
        timeouts,
        max_body,
        plugins,
        origin: value.origin(),
    })
}

fn strip_prefix(text: &str) -> Result<String, Fault> {
    match path::prefix(text)? {
        prefix if prefix.is_empty() => Err(Fault::new("nothing would be stripped").hint("leave strip_prefix out")),
        prefix => Ok(prefix),
    }
}

fn timeouts(value: Value<'_>, problems: &mut Problems) -> Option<RouteTimeouts> {
    let fields = Fields::read(value, &["connect", "response", "total"], problems)?;
    let default = RouteTimeouts::default();
    let mut duration = |key| fields.get(key).and_then(|value| value::measured(value, problems, units::some_duration));
    Some(RouteTimeouts {
        connect: duration("connect").unwrap_or(default.connect),
        response: duration("response").unwrap_or(default.response),
        total: duration("total").or(default.total),
    })
}

/// What a route without `match` is for.
fn everything() -> Match {
    Match {
        hosts: Vec::new(),
        path: PathPattern::Prefix(String::new()),
        methods: Vec::new(),
        headers: Vec::new(),
        query: Vec::new(),
    }
}

fn matches(value: Value<'_>, problems: &mut Problems) -> Option<Match> {
    let problems_before = problems.count();
    let fields = Fields::read(value, &MATCH, problems)?;
    let mut matches = everything();
    matches.hosts = fields.or("hosts", Vec::new(), problems, |value, problems| {
        let items = value::some_items(value, "leave it out to match every host", problems)?;
        let mut seen = HashSet::new();
        let hosts = items.filter_map(|item| value::parsed(item, problems, host::pattern));
        Some(hosts.filter(|host| seen.insert(host.clone())).collect())
    });
    if let Some(path) = path_pattern(fields, problems) {
        matches.path = path;
    }
    matches.methods = fields.or("methods", Vec::new(), problems, |value, problems| {
        let items = value::some_items(value, "leave it out to match every method", problems)?;
        let mut methods: Vec<_> = items.filter_map(|item| value::parsed(item, problems, http::method)).collect();
        methods.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        methods.dedup();
        if methods.len() > MAX_METHODS {
            problems.add(value, Fault::new(format!("a route has at most {MAX_METHODS} methods")));
        }
        Some(methods)
    });
    matches.headers = fields.or("headers", Vec::new(), problems, headers);
    matches.query = fields.or("query", Vec::new(), problems, query);
    (problems.count() == problems_before).then_some(matches)
}

fn path_pattern(fields: Fields<'_>, problems: &mut Problems) -> Option<PathPattern> {
    match (fields.get("path"), fields.get("path_prefix")) {
        (Some(exact), Some(prefix)) => {
            let later = if exact.key_position() > prefix.key_position() { exact } else { prefix };
            let fault = Fault::new("path and path_prefix exclude each other");
            problems.add_to_key(later, fault.hint("path is the whole path, path_prefix its start"));
            None
        }
        (Some(exact), None) => value::parsed(exact, problems, path::template),
        (None, Some(prefix)) => value::parsed(prefix, problems, path::prefix).map(PathPattern::Prefix),
        (None, None) => None,
    }
}

fn headers(value: Value<'_>, problems: &mut Problems) -> Option<Vec<(::http::HeaderName, String)>> {
    let mut headers = Vec::new();
    for entry in value::entries(value, problems)? {
        let expected = value::parsed(entry, problems, http::field_value);
        match http::field_name(entry.key()) {
            Ok(name) => headers.extend(expected.map(|expected| (name, expected, entry))),
            Err(fault) => problems.add_to_key(entry, fault),
        }
    }
    headers.sort_by(|(a, ..), (b, ..)| a.as_str().cmp(b.as_str()));
    for pair in headers.windows(2) {
        if let [(first, ..), (second, _, entry)] = pair
            && first == second
        {
            let fault = Fault::new(format!("the header field {} stands here twice", quoted(second.as_str())));
            problems.add_to_key(*entry, fault.hint("case makes no difference"));
        }
    }
    Some(headers.into_iter().map(|(name, expected, _)| (name, expected)).collect())
}

fn query(value: Value<'_>, problems: &mut Problems) -> Option<Vec<(String, String)>> {
    let entries = value::entries(value, problems)?;
    let pairs = entries.filter_map(|entry| Some((entry.key().to_owned(), value::text(entry, problems)?.to_owned())));
    let mut query: Vec<_> = pairs.collect();
    query.sort_unstable();
    Some(query)
}
