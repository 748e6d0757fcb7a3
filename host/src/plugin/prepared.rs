//! What an instance has prepared in `configure` for its hooks: edits of header
//! fields, and limits with their keys. Checked there, once; a hook names it by
//! its number.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use http::{HeaderName, HeaderValue};

use crate::{
    exchange::{Edit, EditError, Exchange, HeadCaps, checked_name, checked_value, known_name},
    headers,
    state::{self, StoreError},
};

/// Edits in one list.
const MOST_EDITS: usize = 256;
/// Keys of a limiter, and parts of a key.
const MOST_KEYS: usize = 8;
const MOST_PARTS: usize = 8;
/// Bytes of a fixed part of a key.
const LONGEST_PART: usize = 256;
/// Bytes of everything that one instance has prepared: an instance serves many
/// uses, each with its own.
const MOST_BYTES: usize = 4 << 20;
/// What an entry is charged beside its text.
const ENTRY: usize = 128;

/// Everything that one instance has prepared.
#[derive(Default)]
pub struct Prepared {
    edits: Vec<Arc<Edits>>,
    limiters: Vec<Limiter>,
    bytes: usize,
}

/// A list of edits.
pub struct Edits {
    templates: Box<[Template]>,
    /// Values that a hook hands over.
    given: usize,
}

pub enum Template {
    Set(HeaderName, Value),
    Append(HeaderName, Value),
    Remove(HeaderName),
}

pub enum Value {
    Fixed(HeaderValue),
    Given,
    Consumer,
}

/// Limits, and the ways to make their key.
pub struct Limiter {
    keys: Box<[Box<[Part]>]>,
    pub limits: Box<[state::Limit]>,
}

/// A part of a key.
pub enum Part {
    Fixed(Box<[u8]>),
    Route,
    Consumer,
    ClientNetwork,
    Header(HeaderName),
}

impl Prepared {
    /// Adds a list of edits, unless it has more to add than any head of these caps
    /// has room for.
    pub fn add_edits(
        &mut self,
        templates: impl ExactSizeIterator<Item = Result<Template, EditError>>,
        caps: HeadCaps,
    ) -> Result<u32, EditError> {
        if templates.len() > MOST_EDITS {
            return Err(EditError::TooMany);
        }
        let templates: Box<[Template]> = templates.collect::<Result<_, _>>()?;
        if templates.iter().map(Template::added).sum::<usize>() > caps.bytes || lines(&templates) > caps.fields {
            return Err(EditError::TooMany);
        }
        let bytes = templates.iter().map(Template::bytes).sum();
        let place = self.place(self.edits.len(), bytes).ok_or(EditError::TooMany)?;
        let given = templates.iter().filter(|template| matches!(template.value(), Some(Value::Given))).count();
        self.edits.push(Arc::new(Edits { templates, given }));
        Ok(place)
    }

    pub fn add_limiter(&mut self, keys: Box<[Box<[Part]>]>, limits: Box<[state::Limit]>) -> Result<u32, StoreError> {
        let is_fit = (1..=MOST_KEYS).contains(&keys.len())
            && keys.iter().all(|parts| parts.len() <= MOST_PARTS)
            && keys.iter().flatten().all(|part| part.text() <= LONGEST_PART);
        if !is_fit {
            return Err(StoreError::Invalid);
        }
        state::check_limits(&limits)?;
        let parts: usize = keys.iter().flatten().map(|part| ENTRY + part.text()).sum();
        let place = self.place(self.limiters.len(), parts + ENTRY * limits.len()).ok_or(StoreError::Full)?;
        self.limiters.push(Limiter { keys, limits });
        Ok(place)
    }

    pub fn edits(&self, id: u32) -> Option<&Arc<Edits>> {
        self.edits.get(id as usize)
    }

    pub fn limiter(&self, id: u32) -> Option<&Limiter> {
        self.limiters.get(id as usize)
    }

    /// The number of the next entry, whose bytes are booked.
    fn place(&mut self, next: usize, bytes: usize) -> Option<u32> {
        let bytes = self.bytes.checked_add(ENTRY + bytes).filter(|bytes| *bytes <= MOST_BYTES)?;
        self.bytes = bytes;
        u32::try_from(next).ok()
    }
}

/// The most lines that there are while these edits are done to an empty head.
fn lines(templates: &[Template]) -> usize {
    let (mut lines, mut most) = (HashMap::<&HeaderName, usize>::new(), 0);
    for template in templates {
        let count = lines.entry(template.name()).or_default();
        *count = match template {
            Template::Set(_, Value::Fixed(_) | Value::Given) => 1,
            Template::Append(_, Value::Fixed(_) | Value::Given) => *count + 1,
            // Without a consumer it adds none.
            Template::Append(_, Value::Consumer) => *count,
            Template::Set(_, Value::Consumer) | Template::Remove(_) => 0,
        };
        most = most.max(lines.values().sum());
    }
    most
}

impl Template {
    pub fn set(name: &str, value: Value) -> Result<Self, EditError> {
        Ok(Template::Set(checked_name(name)?, value))
    }

    pub fn append(name: &str, value: Value) -> Result<Self, EditError> {
        Ok(Template::Append(checked_name(name)?, value))
    }

    pub fn remove(name: &str) -> Result<Self, EditError> {
        Ok(Template::Remove(checked_name(name)?))
    }

    fn value(&self) -> Option<&Value> {
        match self {
            Template::Set(_, value) | Template::Append(_, value) => Some(value),
            Template::Remove(_) => None,
        }
    }

    /// Bytes that it adds to a head at the least.
    fn added(&self) -> usize {
        match self {
            Template::Set(name, Value::Fixed(value)) | Template::Append(name, Value::Fixed(value)) => {
                name.as_str().len() + value.len()
            }
            _ => 0,
        }
    }

    fn bytes(&self) -> usize {
        let value = match self.value() {
            Some(Value::Fixed(value)) => value.len(),
            _ => 0,
        };
        ENTRY + self.name().as_str().len() + value
    }

    fn name(&self) -> &HeaderName {
        let (Template::Set(name, _) | Template::Append(name, _) | Template::Remove(name)) = self;
        name
    }

    /// The edit with its value; none where there is nothing to add.
    #[inline(always)]
    fn fill(&self, given: &mut &[u8], consumer: Option<&str>) -> Option<Result<Edit, EditError>> {
        match self {
            Template::Set(name, value) => Some(match value.fill(given, consumer) {
                Some(value) => value.map(|value| Edit::Set(name.clone(), value)),
                None => Ok(Edit::Remove(name.clone())),
            }),
            Template::Append(name, value) => {
                Some(value.fill(given, consumer)?.map(|value| Edit::Append(name.clone(), value)))
            }
            Template::Remove(name) => Some(Ok(Edit::Remove(name.clone()))),
        }
    }
}

impl Value {
    pub fn fixed(value: &[u8]) -> Result<Self, EditError> {
        checked_value(value).map(Value::Fixed)
    }

    #[inline(always)]
    fn fill(&self, given: &mut &[u8], consumer: Option<&str>) -> Option<Result<HeaderValue, EditError>> {
        match self {
            Value::Fixed(value) => Some(Ok(value.clone())),
            Value::Given => next_value(given).map(checked_value),
            Value::Consumer => consumer.map(|name| checked_value(name.as_bytes())),
        }
    }
}

impl Edits {
    /// The edits with the values in this block, each of which LF ends. There must
    /// be as many as the edits take.
    pub fn fill<'a>(&'a self, values: &'a [u8], consumer: Option<&'a str>) -> Result<Filled<'a>, EditError> {
        let is_complete = values.last().is_none_or(|last| *last == b'\n');
        if !is_complete || values.iter().filter(|byte| **byte == b'\n').count() != self.given {
            return Err(EditError::InvalidValue);
        }
        Ok(Filled { templates: self.templates.iter(), values, consumer })
    }

    /// Whether they are always the same, but for the consumer.
    pub fn is_complete(&self) -> bool {
        self.given == 0
    }
}

/// Edits with their values. A type with a name, so that all of it becomes one loop
/// in whoever does them.
pub struct Filled<'a> {
    templates: std::slice::Iter<'a, Template>,
    values: &'a [u8],
    consumer: Option<&'a str>,
}

impl Iterator for Filled<'_> {
    type Item = Result<Edit, EditError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let template = self.templates.next()?;
            if let Some(edit) = template.fill(&mut self.values, self.consumer) {
                return Some(edit);
            }
        }
    }
}

/// Takes the next value off a block of which each ends with LF.
#[inline]
fn next_value<'a>(values: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = values.iter().position(|byte| *byte == b'\n')?;
    let (value, rest) = values.split_at(end);
    *values = rest.get(1..)?;
    Some(value)
}

impl Part {
    /// `None`: no token.
    pub fn header(name: &str) -> Option<Self> {
        known_name(name).map(Part::Header)
    }

    /// The field that it is.
    fn field(&self) -> Option<&HeaderName> {
        match self {
            Part::Header(name) => Some(name),
            _ => None,
        }
    }

    /// Bytes of text that it has itself.
    fn text(&self) -> usize {
        match self {
            Part::Fixed(bytes) => bytes.len(),
            Part::Header(name) => name.as_str().len(),
            Part::Route | Part::Consumer | Part::ClientNetwork => 0,
        }
    }

    /// Adds it to a key: kind, length, bytes. `None`: absent.
    fn push(&self, key: &mut Vec<u8>, exchange: &Exchange) -> Option<()> {
        match self {
            Part::Fixed(bytes) => push(key, b'b', bytes),
            Part::Route => push(key, b'r', exchange.snapshot.route_name(exchange.route).as_bytes()),
            Part::Consumer => push(key, b'c', exchange.consumer.as_deref()?.as_bytes()),
            Part::ClientNetwork => match exchange.request.client.to_canonical() {
                IpAddr::V4(address) => push(key, b'4', &address.octets()),
                IpAddr::V6(address) => push(key, b'6', &address.octets()[..8]),
            },
            Part::Header(name) => {
                push(key, b'n', name.as_str().as_bytes());
                push(key, b'v', &headers::joined(&exchange.request.headers, name)?);
            }
        }
        Some(())
    }
}

fn push(key: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    key.push(kind);
    key.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    key.extend_from_slice(bytes);
}

impl Limiter {
    /// Writes the key that the request counts under; `false` if it has none with
    /// all its parts.
    pub fn key(&self, exchange: &mut Exchange, key: &mut Vec<u8>) -> bool {
        if !exchange.request.trailers.is_empty() {
            self.keys.iter().flatten().filter_map(Part::field).for_each(|name| exchange.request.look_at(name));
        }
        self.keys.iter().any(|parts| {
            key.clear();
            key.push(0);
            parts.iter().try_for_each(|part| part.push(key, exchange)).is_some()
        })
    }
}
