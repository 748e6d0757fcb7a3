//! Changes header fields, query and path of requests on their way upstream.
//!
//! What is not named stays as the client wrote it, byte for byte.
#![cfg_attr(test, allow(clippy::unwrap_used))]

use std::collections::BTreeMap;

use weir_sdk::prelude::*;

mod path;

use path::PathEdit;

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// Header fields to rename, remove, set and append, in this order.
    headers: HeaderEdits,
    /// Query parameters to remove and set, in this order.
    query: QueryEdits,
    /// A change of the path.
    path: path::Config,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct QueryEdits {
    /// Names of parameters that are taken away.
    remove: Vec<String>,
    /// Values of parameters, by name, not encoded: each is there once then, where
    /// the first was, or at the end.
    set: BTreeMap<String, String>,
}

struct RequestTransform {
    headers: HeaderEdits,
    /// The same, where they are the same for every request.
    prepared: Option<PreparedEdits>,
    query: QueryEdits,
    path: Option<PathEdit>,
}

impl Plugin for RequestTransform {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Vec<Problem>> {
        let mut problems = config.headers.check(&["headers"]);
        problems.extend(config.query.check());
        let path = PathEdit::new(config.path).unwrap_or_else(|found| {
            problems.extend(found);
            None
        });
        if !problems.is_empty() {
            return Err(problems);
        }
        let prepared = config.headers.prepare().map_err(|error| Problem::refused(&["headers"], error))?;
        Ok(Self { headers: config.headers, prepared, query: config.query, path })
    }

    fn phases(&self) -> Phases {
        let is_idle = !self.headers.need_message() && self.query.is_empty() && self.path.is_none();
        let phases = if is_idle { Phases::NONE } else { Phases::REQUEST };
        match &self.prepared {
            Some(edits) => phases.with_request_edits(edits),
            None => phases,
        }
    }

    fn on_request(&self, request: &mut Request) -> Outcome {
        if self.headers.need_message() {
            self.headers.edit_request(request)?;
        }
        if !self.query.is_empty() {
            let old = request.query();
            let new = self.query.edit(old.as_deref());
            if new != old {
                request.set_query(new.as_deref())?;
            }
        }
        if let Some(path) = &self.path
            && let Some(new) = path.edit(&request.raw_path())
        {
            request.set_path(&new)?;
        }
        Ok(Action::Continue)
    }
}

impl QueryEdits {
    fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (i, _) in self.remove.iter().enumerate().filter(|(_, name)| name.is_empty()) {
            problems.push(Problem::at(&["query", "remove", &i.to_string()], "must not be empty: name a parameter"));
        }
        if self.set.contains_key("") {
            problems.push(Problem::at(&["query", "set", ""], "must not be empty: name a parameter"));
        }
        problems
    }

    fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty()
    }

    /// The query after the edits; `None` if nothing is left that was there.
    fn edit(&self, query: Option<&str>) -> Option<String> {
        let mut edited = query.map(str::to_owned);
        for name in &self.remove {
            if let Some(query) = &mut edited {
                let rest = query::without(query, name);
                // A `?` with nothing behind it stays only if it was so sent.
                edited = if rest.is_empty() && !query.is_empty() { None } else { Some(rest) };
            }
        }
        for (name, value) in &self.set {
            edited = Some(query::with(edited.as_deref().unwrap_or_default(), name, value));
        }
        edited
    }
}

weir_sdk::export!(RequestTransform);

#[cfg(test)]
mod tests;
