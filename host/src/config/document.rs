//! The file as a tree of values, each with its place.
//!
//! The tree is made from a parser's events and not by serde, which stops at the
//! first problem and forgets where it was. Aliases are expanded, within the
//! budgets, so every value has one path. What a plain scalar means is
//! serde_yaml's rule (the YAML 1.2 core schema), here and in plugins'
//! configurations alike.

use std::borrow::Cow;

use serde_yaml::Number;

use super::{
    error::Position,
    spans::{self, Origin, Place, Step},
};

mod parse;

pub(super) use parse::parse;

/// A whole document; the root is the first value.
pub(super) struct Document<'t> {
    places: Vec<Place<'t>>,
    /// One for each place.
    contents: Vec<Content<'t>>,
}

#[derive(Debug, Clone)]
enum Content<'t> {
    /// `plain` is one without quotes, which may mean more than text.
    Scalar {
        text: Cow<'t, str>,
        plain: bool,
    },
    List,
    Map,
}

/// What a scalar means.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scalar<'d> {
    Null,
    Bool(bool),
    Number(Number),
    Text(&'d str),
}

impl<'d> Scalar<'d> {
    fn resolve(text: &'d str, plain: bool) -> Self {
        if !plain {
            return Scalar::Text(text);
        }
        match text {
            "" | "~" | "null" | "Null" | "NULL" => Scalar::Null,
            "true" | "True" | "TRUE" => Scalar::Bool(true),
            "false" | "False" | "FALSE" => Scalar::Bool(false),
            // A look at the first byte saves most texts an attempt.
            _ if !text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) => Scalar::Text(text),
            _ => text.parse().map_or(Scalar::Text(text), Scalar::Number),
        }
    }
}

/// A value of a document.
#[derive(Clone, Copy)]
pub(super) struct Value<'d> {
    document: &'d Document<'d>,
    index: u32,
}

impl<'d> Document<'d> {
    pub fn root(&'d self) -> Value<'d> {
        Value { document: self, index: 0 }
    }

    /// The value that [`Value::origin`] was asked of.
    pub fn value(&'d self, origin: Origin) -> Value<'d> {
        Value { document: self, index: origin.0 }
    }

    /// Keeps the places and forgets the values.
    pub fn into_places(self) -> Vec<Place<'d>> {
        self.places
    }
}

impl<'d> Value<'d> {
    fn place(self) -> &'d Place<'d> {
        &self.document.places[self.index as usize]
    }

    fn content(self) -> &'d Content<'d> {
        &self.document.contents[self.index as usize]
    }

    pub fn position(self) -> Position {
        self.place().position
    }

    pub fn key_position(self) -> Position {
        self.place().key_position
    }

    pub fn origin(self) -> Origin {
        Origin(self.index)
    }

    pub fn path(self) -> String {
        spans::path(&self.document.places, self.index)
    }

    pub fn parent_path(self) -> String {
        spans::path(&self.document.places, self.place().parent)
    }

    /// The key that it stands under; empty in a list.
    pub fn key(self) -> &'d str {
        match &self.place().step {
            Step::Key(key) => key,
            Step::Root | Step::Index(_) => "",
        }
    }

    pub fn is_list(self) -> bool {
        matches!(self.content(), Content::List)
    }

    pub fn is_map(self) -> bool {
        matches!(self.content(), Content::Map)
    }

    /// What it means, if it is a scalar.
    pub fn scalar(self) -> Option<Scalar<'d>> {
        match self.content() {
            Content::Scalar { text, plain } => Some(Scalar::resolve(text, *plain)),
            Content::List | Content::Map => None,
        }
    }

    /// Its characters, if it is a scalar, whatever they mean.
    pub fn written(self) -> Option<&'d str> {
        match self.content() {
            Content::Scalar { text, .. } => Some(text),
            Content::List | Content::Map => None,
        }
    }

    /// What it is, for a text.
    pub fn kind(self) -> &'static str {
        match (self.content(), self.scalar()) {
            (Content::List, _) => "a list",
            (Content::Map, _) => "a map",
            (_, Some(Scalar::Bool(true))) => "true",
            (_, Some(Scalar::Bool(false))) => "false",
            (_, Some(Scalar::Number(_))) => "a number",
            (_, Some(Scalar::Text(_))) => "text",
            (_, Some(Scalar::Null) | None) => "nothing",
        }
    }

    /// What stands in it, in the file's order; nothing in a scalar.
    pub fn children(self) -> impl Iterator<Item = Value<'d>> {
        let end = self.place().end;
        let mut next = self.index + 1;
        std::iter::from_fn(move || {
            let child = (next < end).then_some(Value { index: next, ..self })?;
            next = child.place().end;
            Some(child)
        })
    }

    /// The value under `key`.
    pub fn get(self, key: &str) -> Option<Value<'d>> {
        self.children().find(|child| child.key() == key)
    }
}

#[cfg(test)]
mod tests;
