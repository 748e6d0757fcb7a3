//! Header edits as a part of a configuration.

use std::{collections::BTreeMap, slice};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Edit, EditError, EditTemplate, Lines, PreparedEdits, Problem, Request, Response, ValueTemplate, field};

/// Header edits as `weir.yaml` has them: `{ rename, remove, set, append }`, done
/// in this order.
///
/// Use it as a field of [`crate::Plugin::Config`], [`HeaderEdits::check`] it in
/// [`crate::Plugin::new`], and do the edits in a hook.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HeaderEdits {
    /// New names of fields, by the old ones. Lines that had the new name are
    /// replaced; without a line of the old name nothing is done.
    pub rename: BTreeMap<String, String>,
    /// Names of fields that are taken away.
    pub remove: Vec<String>,
    /// Values of fields, by name, in place of what is there.
    pub set: BTreeMap<String, String>,
    /// Values of fields, by name, behind what is there.
    pub append: BTreeMap<String, OneOrMore>,
}

/// One text or a list of them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMore {
    /// One alone.
    One(String),
    /// A list.
    More(Vec<String>),
}

impl OneOrMore {
    /// All of them, in order.
    pub fn iter(&self) -> slice::Iter<'_, String> {
        match self {
            Self::One(text) => slice::from_ref(text).iter(),
            Self::More(list) => list.iter(),
        }
    }
}

impl HeaderEdits {
    /// What the gateway would refuse, found at load. The path leads to this value
    /// in the configuration.
    pub fn check(&self, path: &[&str]) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut name = |name: &str, at: &[&str]| {
            if let Err(error) = field::check_name(name) {
                problems.push(Problem::refused(&[path, at].concat(), error));
            }
        };
        for (old, new) in &self.rename {
            name(old, &["rename", old]);
            name(new, &["rename", old]);
        }
        for (i, removed) in self.remove.iter().enumerate() {
            name(removed, &["remove", &i.to_string()]);
        }
        self.set.keys().for_each(|set| name(set, &["set", set]));
        self.append.keys().for_each(|appended| name(appended, &["append", appended]));

        let mut value = |value: &str, at: &[&str]| {
            if let Err(error) = field::check_value(value.as_bytes()) {
                problems.push(Problem::refused(&[path, at].concat(), error));
            }
        };
        for (name, set) in &self.set {
            value(set, &["set", name]);
        }
        for (name, appended) in &self.append {
            appended.iter().for_each(|appended| value(appended, &["append", name]));
        }
        problems
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.rename.is_empty() && self.remove.is_empty() && self.set.is_empty() && self.append.is_empty()
    }

    /// Whether the edits depend on what is there: if not, those of a response can
    /// be planned when the request comes by.
    pub fn need_message(&self) -> bool {
        !self.rename.is_empty()
    }

    /// Prepares the edits, where they don't depend on what is there: not if
    /// [`HeaderEdits::need_message`]. The gateway checks them in any case.
    pub fn prepare(&self) -> Result<Option<PreparedEdits>, EditError> {
        if self.is_empty() {
            return Ok(None);
        }
        let mut edits: Vec<_> = self.remove.iter().map(|name| EditTemplate::remove(name)).collect();
        edits.extend(self.set.iter().map(|(name, value)| EditTemplate::set(name, ValueTemplate::fixed(value))));
        for (name, values) in &self.append {
            edits.extend(values.iter().map(|value| EditTemplate::append(name, ValueTemplate::fixed(value))));
        }
        let prepared = PreparedEdits::new(&edits)?;
        Ok(Some(prepared).filter(|_| !self.need_message()))
    }

    /// Edits the request.
    pub fn edit_request(&self, request: &mut Request) -> Result<(), EditError> {
        let renamed = self.renamed(|name| request.header_lines(&[name]));
        self.with_edits(&renamed, |edits| request.edit(edits))
    }

    /// Edits the response.
    pub fn edit_response(&self, response: &mut Response) -> Result<(), EditError> {
        let renamed = self.renamed(|name| response.header_lines(&[name]));
        self.with_edits(&renamed, |edits| response.edit(edits))
    }

    /// Plans the edits for the response to come. Renaming is not among them:
    /// see [`HeaderEdits::need_message`].
    pub fn plan_response(&self, request: &mut Request) -> Result<(), EditError> {
        self.with_edits(&[], |edits| request.edit_response(edits))
    }

    /// Old name, new name and lines of the fields that get another name.
    fn renamed(&self, lines: impl Fn(&str) -> Lines) -> Vec<(&str, &str, Lines)> {
        self.rename.iter().map(|(old, new)| (old.as_str(), new.as_str(), lines(old))).collect()
    }

    fn with_edits(
        &self,
        renamed: &[(&str, &str, Lines)],
        edit: impl FnOnce(&[Edit<'_>]) -> Result<(), EditError>,
    ) -> Result<(), EditError> {
        let mut edits = Vec::with_capacity(self.remove.len() + self.set.len() + self.append.len());
        // Old names first, so that two fields may change places.
        edits.extend(renamed.iter().map(|(old, _, _)| Edit::remove(old)));
        for (_, new, lines) in renamed {
            for (i, (_, value)) in lines.iter().enumerate() {
                edits.push(if i == 0 { Edit::set(new, value) } else { Edit::append(new, value) });
            }
        }
        edits.extend(self.remove.iter().map(|name| Edit::remove(name)));
        edits.extend(self.set.iter().map(|(name, value)| Edit::set(name, value)));
        for (name, values) in &self.append {
            edits.extend(values.iter().map(|value| Edit::append(name, value)));
        }
        if edits.is_empty() { Ok(()) } else { edit(&edits) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Action, Outcome, Phases, Plugin,
        testing::{Exchange, Gateway},
    };

    impl Plugin for HeaderEdits {
        type Config = Self;

        fn new(config: Self) -> Result<Self, Vec<Problem>> {
            match config.check(&["headers"]) {
                problems if problems.is_empty() => Ok(config),
                problems => Err(problems),
            }
        }

        fn phases(&self) -> Phases {
            Phases::REQUEST
        }

        fn on_request(&self, request: &mut Request) -> Outcome {
            self.edit_request(request)?;
            Ok(Action::Continue)
        }
    }

    fn edited(config: &str, headers: &[(&str, &str)]) -> Vec<(String, String)> {
        let plugin = Gateway::new().configure::<HeaderEdits>(config).unwrap();
        let mut exchange = headers.iter().fold(Exchange::get("/"), |e, (name, value)| e.with_header(name, value));
        plugin.on_request(&mut exchange).unwrap();
        exchange.headers.into_iter().map(|(name, value)| (name, String::from_utf8(value).unwrap())).collect()
    }

    fn lines(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn edits_are_done_in_order() {
        let config = r#"{"remove": ["A"], "set": {"b": "new"}, "append": {"a": "2", "c": ["3", "4"]}}"#;
        let found = edited(config, &[("a", "1"), ("b", "old"), ("b", "older")]);
        assert_eq!(found, lines(&[("b", "new"), ("a", "2"), ("c", "3"), ("c", "4")]));
    }

    #[test]
    fn renaming_keeps_lines_apart_and_replaces() {
        let config = r#"{"rename": {"old": "New", "none": "kept"}}"#;
        let found = edited(config, &[("old", "1"), ("new", "x"), ("old", "a: 2"), ("kept", "k")]);
        assert_eq!(found, lines(&[("new", "1"), ("kept", "k"), ("new", "a: 2")]));
    }

    #[test]
    fn fields_may_change_places() {
        let found = edited(r#"{"rename": {"a": "b", "b": "a"}}"#, &[("a", "1"), ("b", "2")]);
        assert_eq!(found, lines(&[("b", "1"), ("a", "2")]));
    }

    #[test]
    fn all_problems_are_found() {
        let config = r#"{"rename": {"a": "b c"}, "remove": ["x", "Host"], "set": {"x": "a\nb"},
            "append": {"": ["ok"], "y": ["ok", "\u0000"]}}"#;
        let problems = Gateway::new().configure::<HeaderEdits>(config).unwrap_err();
        let pointers: Vec<_> = problems.iter().map(|problem| problem.pointer.as_str()).collect();
        assert_eq!(
            pointers,
            ["/headers/rename/a", "/headers/remove/1", "/headers/append/", "/headers/set/x", "/headers/append/y"]
        );
    }
}
