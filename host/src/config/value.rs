//! Readers: a value of the document to a checked Rust value.
//!
//! A reader that finds something wrong reports it and gives `None`; whoever
//! called it goes on with a default, so that all problems are told at once. The
//! `parse` functions in the modules below work on bare text.

use std::ops::RangeInclusive;

use super::{
    document::{Scalar, Value},
    error::{Fault, Problems},
};

pub(super) mod address;
pub(super) mod host;
pub(super) mod http;
pub(super) mod name;
pub(super) mod path;
pub(super) mod plugin;
pub(super) mod units;

/// Most characters of a text that an error repeats.
const MAX_QUOTED: usize = 80;

/// Most names that a wrong one is compared with.
const MAX_COMPARED: usize = 1_000;

/// `text` in quotes, with escapes, cut off where it gets long.
pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", &text[..end]),
    }
}

/// Names in quotes, with commas.
pub(super) fn listed(names: &[&str]) -> String {
    names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
}

/// `did you mean "…"?` with the name that is nearest to `wrong`, if one is near.
pub(super) fn nearest<'n>(wrong: &str, names: impl IntoIterator<Item = &'n str>) -> Option<String> {
    // A third of the characters wrong, or two swapped ones in a short name.
    let most = wrong.len().div_ceil(3).clamp(1, 4);
    names
        .into_iter()
        .take(MAX_COMPARED)
        .filter(|name| name.len().abs_diff(wrong.len()) <= most)
        .map(|name| (strsim::osa_distance(wrong, name), name))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| format!("did you mean {}?", quoted(name)))
}

/// A map with a fixed set of keys.
#[derive(Clone, Copy)]
pub(super) struct Fields<'d> {
    map: Value<'d>,
    known: &'static [&'static str],
}

impl<'d> Fields<'d> {
    /// Reports anything that is no map, and every key that is not in `known`.
    pub fn read(map: Value<'d>, known: &'static [&'static str], problems: &mut Problems) -> Option<Self> {
        for child in entries(map, problems)? {
            if !known.contains(&child.key()) {
                problems.add_to_key(child, unknown_key(child.key(), known));
            }
        }
        Some(Self { map, known })
    }

    pub fn get(&self, key: &'static str) -> Option<Value<'d>> {
        debug_assert!(self.known.contains(&key), "{key} would be reported as unknown");
        self.map.get(key)
    }

    /// As `get`, but reports an absent key.
    pub fn require(&self, key: &'static str, problems: &mut Problems) -> Option<Value<'d>> {
        let value = self.get(key);
        if value.is_none() {
            problems.add(self.map, Fault::new(format!("{} is missing", quoted(key))));
        }
        value
    }

    /// What `reader` makes of the value under `key`; `default` if there is none
    /// or it is wrong.
    pub fn or<T>(
        &self,
        key: &'static str,
        default: T,
        problems: &mut Problems,
        reader: impl FnOnce(Value<'d>, &mut Problems) -> Option<T>,
    ) -> T {
        self.get(key).and_then(|value| reader(value, problems)).unwrap_or(default)
    }
}

/// What is said of a key that is not in `known`.
pub(super) fn unknown_key(key: &str, known: &[&str]) -> Fault {
    let hint = nearest(key, known.iter().copied()).unwrap_or_else(|| format!("known here: {}", known.join(", ")));
    Fault::new(format!("unknown key {}", quoted(key))).hint(hint)
}

fn expected(what: &str, value: Value<'_>) -> Fault {
    Fault::new(format!("expected {what}, found {}", value.kind()))
}

/// The values of a map whose keys are names.
pub(super) fn entries<'d>(
    value: Value<'d>,
    problems: &mut Problems,
) -> Option<impl Iterator<Item = Value<'d>> + use<'d>> {
    if !value.is_map() {
        problems.add(value, expected("a map", value));
    }
    value.is_map().then(|| value.children())
}

/// The values of a list.
pub(super) fn items<'d>(
    value: Value<'d>,
    problems: &mut Problems,
) -> Option<impl Iterator<Item = Value<'d>> + use<'d>> {
    if !value.is_list() {
        problems.add(value, expected("a list", value));
    }
    value.is_list().then(|| value.children())
}

/// The values of a list that may not be empty; `hint` says what to do instead.
pub(super) fn some_items<'d>(
    value: Value<'d>,
    hint: &str,
    problems: &mut Problems,
) -> Option<impl Iterator<Item = Value<'d>> + use<'d>> {
    let items = items(value, problems)?;
    if value.children().next().is_none() {
        problems.add(value, Fault::new("the list is empty").hint(hint));
    }
    Some(items)
}

/// Text, which in YAML not every scalar without quotes is.
pub(super) fn text<'d>(value: Value<'d>, problems: &mut Problems) -> Option<&'d str> {
    let fault = match value.scalar() {
        Some(Scalar::Text(text)) => return Some(text),
        Some(Scalar::Bool(_) | Scalar::Number(_)) => expected("text", value).hint("put it in quotes"),
        Some(Scalar::Null) | None => expected("text", value),
    };
    problems.add(value, fault);
    None
}

/// Text that `parse` takes.
pub(super) fn parsed<'d, T>(
    value: Value<'d>,
    problems: &mut Problems,
    parse: impl FnOnce(&'d str) -> Result<T, Fault>,
) -> Option<T> {
    let parsed = parse(text(value, problems)?);
    parsed.map_err(|fault| problems.add(value, fault)).ok()
}

/// As [`parsed`], for what may look like a number: `512`, `1s`.
pub(super) fn measured<T>(
    value: Value<'_>,
    problems: &mut Problems,
    parse: impl FnOnce(&str) -> Result<T, Fault>,
) -> Option<T> {
    let parsed = match (value.scalar(), value.written()) {
        (Some(Scalar::Text(_) | Scalar::Number(_)), Some(written)) => parse(written),
        _ => Err(expected("a number with its unit", value)),
    };
    parsed.map_err(|fault| problems.add(value, fault)).ok()
}

/// A whole number within `range`.
pub(super) fn number(value: Value<'_>, range: RangeInclusive<u64>, problems: &mut Problems) -> Option<u64> {
    let fault = match value.scalar() {
        Some(Scalar::Number(number)) => match number.as_u64() {
            Some(number) if range.contains(&number) => return Some(number),
            _ => Fault::new(format!("expected a whole number from {} to {}", range.start(), range.end())),
        },
        _ => expected("a number", value),
    };
    problems.add(value, fault);
    None
}

/// `true` or `false`.
pub(super) fn boolean(value: Value<'_>, problems: &mut Problems) -> Option<bool> {
    match value.scalar() {
        Some(Scalar::Bool(boolean)) => Some(boolean),
        _ => {
            problems.add(value, expected("true or false", value));
            None
        }
    }
}

/// One of a few words.
pub(super) fn choice<T: Copy>(value: Value<'_>, words: &[(&str, T)], problems: &mut Problems) -> Option<T> {
    let all: Vec<_> = words.iter().map(|(word, _)| *word).collect();
    let fault = match value.scalar() {
        Some(Scalar::Text(found)) => match words.iter().find(|(word, _)| *word == found) {
            Some((_, chosen)) => return Some(*chosen),
            None => Fault {
                problem: format!("expected {}, found {}", all.join(" or "), quoted(found)),
                hint: nearest(found, all),
            },
        },
        _ => expected(&all.join(" or "), value),
    };
    problems.add(value, fault);
    None
}

#[cfg(test)]
mod tests;
