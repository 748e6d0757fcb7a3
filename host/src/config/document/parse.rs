//! Text to [`Document`], within budgets.

use std::borrow::Cow;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag};

use super::{Content, Document};
use crate::config::{
    error::{ConfigErrors, Fault, Position, Problems},
    spans::{self, Place, Step},
    value::quoted,
};

/// Deepest nesting of maps and lists.
const MAX_DEPTH: usize = 64;
/// Most values, those behind aliases counted each time.
const MAX_VALUES: usize = 1_000_000;
/// Most bytes of keys and scalars, counted in the same way.
const MAX_BYTES: usize = 16 << 20;

/// Reads the one document in `text`.
///
/// Problems that leave a whole tree are collected in `problems`, which comes
/// back; any other is returned as an error, with those found so far.
pub(in crate::config) fn parse(text: &str, problems: Problems) -> Result<(Document<'_>, Problems), ConfigErrors> {
    let mut builder = Builder {
        document: Document { places: Vec::new(), contents: Vec::new() },
        open: Vec::new(),
        key: None,
        anchors: Vec::new(),
        bytes: 0,
        problems,
    };
    match builder.read(text) {
        Ok(()) => Ok((builder.document, builder.problems)),
        // Its place in the tree says little: it may be 64 steps deep.
        Err((position, fault)) => Err(builder.problems.fatal(Some(position), fault)),
    }
}

/// A problem beyond which the text can't be read.
type Fatal = (Position, Fault);

struct Builder<'t> {
    document: Document<'t>,
    /// The maps and lists around the next event.
    open: Vec<Open>,
    /// The key whose value is next.
    key: Option<(Cow<'t, str>, Position)>,
    /// Where each anchor's value is, by the parser's number for it.
    anchors: Vec<Option<u32>>,
    bytes: usize,
    problems: Problems,
}

/// A map or list whose end has not been seen.
struct Open {
    index: u32,
    is_map: bool,
    /// Values in it so far.
    len: u32,
}

impl<'t> Builder<'t> {
    fn read(&mut self, text: &'t str) -> Result<(), Fatal> {
        let mut parser = Parser::new_from_str(text);
        while let Some(event) = parser.next_event() {
            let (event, Span { start, .. }) = event.map_err(|error| {
                (position(*error.marker()), Fault::new(format!("the YAML can't be read: {}", error.info())))
            })?;
            let at = position(start);
            match event {
                Event::DocumentStart(_) if !self.document.places.is_empty() => {
                    return Err((
                        at,
                        Fault::new("a second document starts here").hint("a configuration is one document"),
                    ));
                }
                Event::Scalar(text, style, anchor, tag) => self.scalar(at, text, style, anchor, tag)?,
                Event::SequenceStart(anchor, tag) => self.open(at, Content::List, anchor, tag)?,
                Event::MappingStart(anchor, tag) => self.open(at, Content::Map, anchor, tag)?,
                Event::SequenceEnd => self.close(),
                Event::MappingEnd => {
                    self.find_duplicate_keys();
                    self.close();
                }
                Event::Alias(anchor) => self.alias(at, anchor)?,
                Event::Nothing
                | Event::StreamStart
                | Event::StreamEnd
                | Event::DocumentStart(_)
                | Event::DocumentEnd => {}
            }
        }
        match self.document.places.is_empty() {
            true => Err((Position::START, Fault::new("the file is empty"))),
            false => Ok(()),
        }
    }

    /// Whether the next event is a key.
    fn awaits_key(&self) -> bool {
        self.key.is_none() && self.open.last().is_some_and(|open| open.is_map)
    }

    fn scalar(
        &mut self,
        at: Position,
        text: Cow<'t, str>,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<Cow<'t, Tag>>,
    ) -> Result<(), Fatal> {
        self.spend_bytes(text.len(), at)?;
        let plain = style == ScalarStyle::Plain && tag.is_none();
        self.check_tag(at, tag, "str");
        if self.awaits_key() {
            return self.take_key(at, text, plain);
        }
        // An omitted value has no place of its own; the parser names that of
        // whatever comes next, maybe lines below.
        let at = match &self.key {
            Some((_, key_at)) if plain && text.is_empty() => *key_at,
            _ => at,
        };
        let index = self.push(at, Content::Scalar { text, plain }, anchor)?;
        self.document.places[index as usize].end = index + 1;
        Ok(())
    }

    fn take_key(&mut self, at: Position, key: Cow<'t, str>, plain: bool) -> Result<(), Fatal> {
        if plain && key.is_empty() {
            return Err((at, Fault::new("a key is missing before the colon")));
        }
        if plain && key == "<<" {
            return Err((at, Fault::new("merge keys are not part of YAML 1.2").hint("write the keys out")));
        }
        self.key = Some((key, at));
        Ok(())
    }

    fn open(
        &mut self,
        at: Position,
        content: Content<'t>,
        anchor: usize,
        tag: Option<Cow<'t, Tag>>,
    ) -> Result<(), Fatal> {
        if self.awaits_key() {
            return Err((at, Fault::new("a map or list can't be a key")));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err((at, too_deep()));
        }
        let is_map = matches!(content, Content::Map);
        self.check_tag(at, tag, if is_map { "map" } else { "seq" });
        let index = self.push(at, content, anchor)?;
        self.open.push(Open { index, is_map, len: 0 });
        Ok(())
    }

    fn close(&mut self) {
        let end = self.document.places.len() as u32;
        if let Some(open) = self.open.pop() {
            self.document.places[open.index as usize].end = end;
        }
    }

    /// Adds a value whose end is not known.
    fn push(&mut self, at: Position, content: Content<'t>, anchor: usize) -> Result<u32, Fatal> {
        self.spend_values(1, at)?;
        let index = self.document.places.len() as u32;
        let parent = self.open.last().map_or(0, |open| open.index);
        let (step, key_position) = self.step(at);
        self.document.places.push(Place { position: at, key_position, parent, end: 0, step });
        self.document.contents.push(content);
        // The parser's numbers start from 1 and 0 is no anchor.
        if anchor > 0 {
            self.anchors.resize(self.anchors.len().max(anchor + 1), None);
            self.anchors[anchor] = Some(index);
        }
        Ok(index)
    }

    /// The step to the value at hand, which stands at `at`.
    fn step(&mut self, at: Position) -> (Step<'t>, Position) {
        match (self.key.take(), self.open.last_mut()) {
            (Some((key, key_at)), _) => (Step::Key(key), key_at),
            (None, Some(open)) => {
                open.len += 1;
                (Step::Index(open.len - 1), at)
            }
            (None, None) => (Step::Root, at),
        }
    }

    /// Copies what the alias stands for. The copies keep their places in the
    /// text, which is where a problem has to be mended.
    fn alias(&mut self, at: Position, anchor: usize) -> Result<(), Fatal> {
        if self.awaits_key() {
            return Err((at, Fault::new("an alias can't be a key")));
        }
        let Some(from) = self.anchors.get(anchor).copied().flatten() else {
            return Err((at, Fault::new("an alias can't stand for a key")));
        };
        let end = self.document.places[from as usize].end;
        if end == 0 {
            return Err((at, Fault::new("an alias can't stand inside what it stands for")));
        }
        self.spend_values((end - from) as usize, at)?;
        let to = self.document.places.len() as u32;
        let (step, _) = self.step(at);
        for index in from..end {
            let Place { position, key_position, parent, end, step } = self.document.places[index as usize].clone();
            let content = self.document.contents[index as usize].clone();
            let key = if let Step::Key(key) = &step { key.len() } else { 0 };
            let text = if let Content::Scalar { text, .. } = &content { text.len() } else { 0 };
            self.spend_bytes(key + text, at)?;
            // A parent inside the copy moves with it.
            let parent = if parent < from { parent } else { parent - from + to };
            self.document.places.push(Place { position, key_position, parent, end: end - from + to, step });
            self.document.contents.push(content);
        }
        let root = &mut self.document.places[to as usize];
        root.step = step;
        root.key_position = at;
        root.parent = self.open.last().map_or(0, |open| open.index);
        self.check_depth(to, at)
    }

    /// Checks a copy that starts at `from` and ends the document so far.
    fn check_depth(&self, from: u32, at: Position) -> Result<(), Fatal> {
        let places = &self.document.places;
        let mut ends = Vec::new();
        for index in from..places.len() as u32 {
            while ends.last().is_some_and(|end| *end <= index) {
                ends.pop();
            }
            if !matches!(self.document.contents[index as usize], Content::Scalar { .. }) {
                ends.push(places[index as usize].end);
            }
            if self.open.len() + ends.len() > MAX_DEPTH {
                return Err((at, too_deep()));
            }
        }
        Ok(())
    }

    /// Reports keys of the innermost map that it has twice.
    fn find_duplicate_keys(&mut self) {
        let Some(open) = self.open.last() else { return };
        let places = &self.document.places;
        let mut keys = Vec::new();
        let mut next = open.index as usize + 1;
        while let Some(Place { step: Step::Key(key), key_position, end, .. }) = places.get(next) {
            keys.push((key.as_ref(), *key_position));
            next = *end as usize;
        }
        keys.sort_unstable();
        let mut first = None;
        for (key, at) in keys {
            match first {
                Some((first_key, first_at)) if first_key == key => {
                    let first = self.problems.place(first_at);
                    let fault = Fault::new(format!("the key {} stands here twice", quoted(key)));
                    let path = spans::path(places, open.index);
                    self.problems.push(Some(at), path, fault.hint(format!("first at {first}")));
                }
                _ => first = Some((key, at)),
            }
        }
    }

    /// Reports a tag that says anything else than what the value is anyway:
    /// `own` is the core schema's for it.
    fn check_tag(&mut self, at: Position, tag: Option<Cow<'t, Tag>>, own: &str) {
        let Some(tag) = tag else { return };
        let known = match tag.is_yaml_core_schema() {
            true => tag.suffix == own,
            false => tag.handle.is_empty() && tag.suffix == "!",
        };
        if !known {
            let name = if tag.is_yaml_core_schema() { format!("!!{}", tag.suffix) } else { tag.to_string() };
            let fault = Fault::new(format!("the tag {} is not known here", quoted(&name)));
            let path = self.open.last().map(|open| spans::path(&self.document.places, open.index));
            self.problems.push(Some(at), path.unwrap_or_default(), fault.hint("leave it out"));
        }
    }

    fn spend_values(&mut self, values: usize, at: Position) -> Result<(), Fatal> {
        match self.document.places.len() + values > MAX_VALUES {
            true => Err((at, Fault::new(format!("more than {MAX_VALUES} values, with those behind aliases")))),
            false => Ok(()),
        }
    }

    fn spend_bytes(&mut self, bytes: usize, at: Position) -> Result<(), Fatal> {
        self.bytes += bytes;
        match self.bytes > MAX_BYTES {
            true => {
                Err((at, Fault::new(format!("more than {} MiB of text, with that behind aliases", MAX_BYTES >> 20))))
            }
            false => Ok(()),
        }
    }
}

fn too_deep() -> Fault {
    Fault::new(format!("maps and lists are nested deeper than {MAX_DEPTH}"))
}

/// The parser counts columns from 0.
fn position(marker: Marker) -> Position {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Position { line: count(marker.line()), column: count(marker.col() + 1) }
}
