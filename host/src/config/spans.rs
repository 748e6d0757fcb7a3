//! Where each value of the file stands, for problems that only show later.

use std::{borrow::Cow, fmt, sync::Arc};

use super::{
    Config,
    error::{ConfigError, Position},
};

/// A value of the configuration file, as [`Config::error_at`] takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin(pub(super) u32);

impl Origin {
    /// The whole file.
    pub const ROOT: Self = Self(0);
}

/// The places of all keys and values of a file; no values.
pub struct Spans {
    file: Arc<str>,
    places: Box<[Place<'static>]>,
}

/// Where a value stands, in the text and in the tree.
///
/// Places are listed as the values begin, so that a value is followed by all
/// that is in it.
#[derive(Debug, Clone)]
pub(super) struct Place<'t> {
    pub position: Position,
    /// Of the key before the value; in a list, of the value itself.
    pub key_position: Position,
    /// The map or list around it; the root is its own.
    pub parent: u32,
    /// One more than the last place inside; 0 while the value is read.
    pub end: u32,
    pub step: Step<'t>,
}

/// The way from a map or list to something in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step<'t> {
    Root,
    Key(Cow<'t, str>),
    Index(u32),
}

/// The way from the root to `index`, as `routes[1].plugins[0]`.
pub(super) fn path(places: &[Place<'_>], index: u32) -> String {
    let mut steps = Vec::new();
    let mut next = index;
    while let Some(Place { step, parent, .. }) = places.get(next as usize)
        && *step != Step::Root
    {
        steps.push(step);
        next = *parent;
    }
    let mut path = String::new();
    for step in steps.into_iter().rev() {
        match step {
            Step::Root => {}
            Step::Key(key) => push_key(&mut path, key),
            Step::Index(index) => path.push_str(&format!("[{index}]")),
        }
    }
    path
}

/// Adds `.key`, in quotes unless it reads well without.
fn push_key(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    if !key.is_empty() && key.len() <= 64 && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)) {
        path.push_str(key);
    } else {
        path.push_str(&super::value::quoted(key));
    }
}

impl Spans {
    pub(super) fn new(file: Arc<str>, places: Vec<Place<'_>>) -> Self {
        let places = places.into_iter().map(|place| Place {
            step: match place.step {
                Step::Root => Step::Root,
                Step::Key(key) => Step::Key(Cow::Owned(key.into_owned())),
                Step::Index(index) => Step::Index(index),
            },
            ..place
        });
        Self { file, places: places.collect() }
    }

    /// What `token` of a JSON pointer means in the value at `index`.
    fn child(&self, index: u32, token: &str) -> Option<u32> {
        let end = self.places.get(index as usize)?.end;
        let mut next = index + 1;
        while next < end {
            let place = self.places.get(next as usize)?;
            let found = match &place.step {
                Step::Root => false,
                Step::Key(key) => key == token,
                Step::Index(index) => token.parse() == Ok(*index),
            };
            if found {
                return Some(next);
            }
            next = place.end;
        }
        None
    }
}

impl fmt::Debug for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spans").field("file", &self.file).field("places", &self.places.len()).finish()
    }
}

impl Config {
    /// Makes an error of a problem found after loading.
    ///
    /// `pointer` (RFC 6901) leads on from `origin`, "" being `origin` itself.
    /// The error stands at the deepest value that exists on the way, its path is
    /// the whole way. `problem` and `hint` must hold no secret.
    pub fn error_at(&self, origin: &Origin, pointer: &str, problem: String, hint: Option<String>) -> ConfigError {
        let spans = &self.spans;
        let mut deepest = origin.0;
        let mut missing = Vec::new();
        for token in pointer.split('/').skip(1) {
            let token = token.replace("~1", "/").replace("~0", "~");
            match spans.child(deepest, &token) {
                Some(child) if missing.is_empty() => deepest = child,
                _ => missing.push(token),
            }
        }
        let mut path = path(&spans.places, deepest);
        missing.iter().for_each(|key| push_key(&mut path, key));
        ConfigError {
            file: spans.file.clone(),
            position: spans.places.get(deepest as usize).map(|place| place.position),
            path,
            problem,
            hint,
        }
    }
}

#[cfg(test)]
mod tests;
