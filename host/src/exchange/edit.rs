//! Edits of an exchange: checked first, then done, each with its way back.

use std::cell::RefCell;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, uri::PathAndQuery};

use super::{Answer, Exchange, Lines, Stage, Undo};
use crate::{headers, path};

/// Most attributes of one request.
const ATTRIBUTES: usize = 64;
/// Longest name of an attribute, in bytes.
const ATTRIBUTE_NAME: usize = 256;
/// Longest value of an attribute, in bytes.
const ATTRIBUTE_VALUE: usize = 8 << 10;
/// All attributes of one request together, in bytes.
const ATTRIBUTES_TOTAL: usize = 64 << 10;
/// Edits of one request that are planned or can still be undone.
const MOST_EDITS: usize = 1024;
/// Names kept on each worker.
const KNOWN_NAMES: usize = 128;

/// Why an edit was refused; the WIT's `edit-error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditError {
    InvalidName,
    InvalidValue,
    Forbidden,
    TooMany,
    TooLong,
    Closed,
}

/// A checked change to header fields.
#[derive(Debug, Clone)]
pub enum Edit {
    Set(HeaderName, HeaderValue),
    Append(HeaderName, HeaderValue),
    Remove(HeaderName),
}

impl Edit {
    pub fn set(name: &str, value: &[u8]) -> Result<Self, EditError> {
        Ok(Edit::Set(checked_name(name)?, checked_value(value)?))
    }

    pub fn append(name: &str, value: &[u8]) -> Result<Self, EditError> {
        Ok(Edit::Append(checked_name(name)?, checked_value(value)?))
    }

    pub fn remove(name: &str) -> Result<Self, EditError> {
        Ok(Edit::Remove(checked_name(name)?))
    }

    pub(super) fn name(&self) -> &HeaderName {
        match self {
            Edit::Set(name, _) | Edit::Append(name, _) | Edit::Remove(name) => name,
        }
    }

    /// Bytes that it may add to a head.
    fn weight(&self) -> usize {
        match self {
            Edit::Set(name, value) | Edit::Append(name, value) => name.as_str().len() + value.len(),
            Edit::Remove(_) => 0,
        }
    }

    /// Whether there is one line more when it is done.
    fn adds_line(&self, headers: &HeaderMap) -> bool {
        match self {
            Edit::Append(..) => true,
            Edit::Set(name, _) => !headers.contains_key(name),
            Edit::Remove(_) => false,
        }
    }

    pub fn apply(self, headers: &mut HeaderMap) {
        match self {
            Edit::Set(name, value) => drop(headers.insert(name, value)),
            Edit::Append(name, value) => drop(headers.append(name, value)),
            Edit::Remove(name) => drop(headers.remove(name)),
        }
    }

    /// Does the same and gives the lines that the name had before.
    fn exchange(self, headers: &mut HeaderMap) -> Lines {
        // Where no field has two lines, what the map gives back is all there
        // was, and a second lookup is spared.
        let repeats = headers.len() > headers.keys_len();
        match self {
            Edit::Set(name, value) if !repeats => headers.insert(name, value).into(),
            Edit::Remove(name) if !repeats => headers.remove(name).into(),
            edit => {
                let lines = Lines::of(headers, edit.name());
                edit.apply(headers);
                lines
            }
        }
    }
}

/// The fields that frame a message or belong to one connection, which are the
/// gateway's alone.
fn is_framing(name: &HeaderName) -> bool {
    use header::*;
    const KEEP_ALIVE: &str = "keep-alive";
    const PROXY_CONNECTION: &str = "proxy-connection";
    *name == CONTENT_LENGTH
        || *name == CONNECTION
        || *name == HOST
        || *name == TRANSFER_ENCODING
        || *name == TE
        || *name == TRAILER
        || *name == UPGRADE
        || *name == EXPECT
        || name.as_str() == KEEP_ALIVE
        || name.as_str() == PROXY_CONNECTION
}

struct Known {
    name: HeaderName,
    is_framing: bool,
}

thread_local! {
    /// Names that plugins have used on this worker. A plugin uses few, and
    /// comparing costs a fraction of checking, lowering and hashing.
    static NAMES: RefCell<Vec<(Box<str>, Known)>> = const { RefCell::new(Vec::new()) };
}

/// Turns a name that a plugin may read into one that the header map knows.
pub fn known_name(name: &str) -> Option<HeaderName> {
    known(name, |known| known.name.clone())
}

fn known<T>(name: &str, take: impl FnOnce(&Known) -> T) -> Option<T> {
    NAMES.with_borrow_mut(|names| {
        if let Some((_, known)) = names.iter().find(|(text, _)| **text == *name) {
            return Some(take(known));
        }
        let parsed = HeaderName::from_bytes(name.as_bytes()).ok()?;
        let known = Known { is_framing: is_framing(&parsed), name: parsed };
        let taken = take(&known);
        if names.len() < KNOWN_NAMES {
            names.push((name.into(), known));
        }
        Some(taken)
    })
}

/// Turns a name that a plugin may edit into one that the header map knows.
pub fn checked_name(name: &str) -> Result<HeaderName, EditError> {
    let checked = known(name, |known| (!known.is_framing).then(|| known.name.clone()));
    checked.ok_or(EditError::InvalidName)?.ok_or(EditError::Forbidden)
}

/// A value without the white space around it.
pub fn checked_value(value: &[u8]) -> Result<HeaderValue, EditError> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().position(|byte| !is_blank(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
    HeaderValue::from_bytes(&value[start..end]).map_err(|_| EditError::InvalidValue)
}

impl Exchange {
    /// Edits the request's header fields, all or none.
    pub fn edit_request(&mut self, edits: impl Iterator<Item = Result<Edit, EditError>>) -> Result<(), EditError> {
        self.request_only()?;
        self.all_or_none(edits, |exchange, edit| {
            let headers = &exchange.request.headers;
            let is_full = headers.len() >= exchange.caps.fields && edit.adds_line(headers);
            exchange.weigh(&edit, is_full)?;
            let name = edit.name().clone();
            exchange.request.look_at(&name);
            let lines = edit.exchange(&mut exchange.request.headers);
            exchange.undo.push(Undo::Request(name, lines));
            Ok(())
        })
    }

    /// Edits the response's header fields, all or none.
    pub fn edit_response(&mut self, edits: impl Iterator<Item = Result<Edit, EditError>>) -> Result<(), EditError> {
        if self.stage != Stage::Response {
            return Err(EditError::Closed);
        }
        self.all_or_none(edits, |exchange, edit| {
            let Some(response) = &exchange.response else { return Err(EditError::Closed) };
            let headers = &response.headers;
            let is_full = headers.len() >= exchange.caps.fields && edit.adds_line(headers);
            exchange.weigh(&edit, is_full)?;
            let Some(response) = &mut exchange.response else { return Err(EditError::Closed) };
            let name = edit.name().clone();
            let lines = response.edit(edit, Edit::exchange);
            exchange.undo.push(Undo::Response(name, lines));
            Ok(())
        })
    }

    /// Notes edits down for the response to come, all or none.
    pub fn plan(&mut self, edits: impl Iterator<Item = Result<Edit, EditError>>) -> Result<(), EditError> {
        self.request_only()?;
        let before = self.planned.len();
        let outcome = self.all_or_none(edits, |exchange, edit| {
            exchange.weigh(&edit, false)?;
            exchange.planned.push((exchange.place, edit));
            Ok(())
        });
        if outcome.is_err() {
            self.planned.truncate(before);
        }
        outcome
    }

    fn all_or_none(
        &mut self,
        edits: impl Iterator<Item = Result<Edit, EditError>>,
        mut each: impl FnMut(&mut Self, Edit) -> Result<(), EditError>,
    ) -> Result<(), EditError> {
        let (undo, added) = (self.undo.len(), self.added);
        for edit in edits {
            if let Err(error) = edit.and_then(|edit| each(self, edit)) {
                self.undo_to(undo);
                self.added = added;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Refuses an edit that would make a head too large. What only takes away is
    /// not weighed, but counted: each edit is kept until it is done, or can no more
    /// be undone.
    fn weigh(&mut self, edit: &Edit, is_full: bool) -> Result<(), EditError> {
        let weight = edit.weight();
        let is_too_large = is_full || (weight > 0 && self.added + weight > self.caps.bytes);
        if is_too_large || self.planned.len() + self.undo.len() >= MOST_EDITS {
            return Err(EditError::TooMany);
        }
        self.added += weight;
        Ok(())
    }

    pub fn set_method(&mut self, method: &str) -> Result<(), EditError> {
        self.request_only()?;
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| EditError::InvalidName)?;
        if method == Method::CONNECT || method == Method::TRACE {
            return Err(EditError::InvalidValue);
        }
        self.undo.push(Undo::Method(std::mem::replace(&mut self.request.method, method)));
        Ok(())
    }

    /// Sets what is sent as Host.
    pub fn set_authority(&mut self, authority: &str) -> Result<(), EditError> {
        self.request_only()?;
        let value = HeaderValue::from_str(authority).map_err(|_| EditError::InvalidValue)?;
        if !headers::is_authority(&value) {
            return Err(EditError::InvalidValue);
        }
        self.undo.push(Undo::Host(self.request.host.replace(value)));
        Ok(())
    }

    pub fn set_path(&mut self, path: &str) -> Result<(), EditError> {
        self.request_only()?;
        if !path.starts_with('/') || path.contains(['?', '#']) {
            return Err(EditError::InvalidValue);
        }
        let query = self.request.target.query().map(str::to_owned);
        self.set_target(path, query.as_deref())
    }

    pub fn set_query(&mut self, query: Option<&str>) -> Result<(), EditError> {
        self.request_only()?;
        if query.is_some_and(|query| query.contains('#')) {
            return Err(EditError::InvalidValue);
        }
        let path = self.request.target.path().to_owned();
        self.set_target(&path, query)
    }

    /// Both parts are checked again as a whole: what no client may send, no
    /// plugin may send upstream either.
    fn set_target(&mut self, raw_path: &str, query: Option<&str>) -> Result<(), EditError> {
        let length = raw_path.len() + query.map_or(0, |query| query.len() + 1);
        if length > self.caps.bytes {
            return Err(EditError::TooLong);
        }
        let paths = path::normalise(raw_path).map_err(|_| EditError::InvalidValue)?;
        let mut text = String::with_capacity(length);
        text.push_str(&paths.upstream);
        if let Some(query) = query {
            if query.bytes().any(|byte| !byte.is_ascii_graphic()) {
                return Err(EditError::InvalidValue);
            }
            text.push('?');
            text.push_str(query);
        }
        let normal = (*paths.normal != *paths.upstream).then(|| Box::from(&*paths.normal));
        let target = PathAndQuery::from_maybe_shared(Bytes::from(text)).map_err(|_| EditError::InvalidValue)?;
        let target = std::mem::replace(&mut self.request.target, target);
        let path = std::mem::replace(&mut self.request.path, normal);
        self.undo.push(Undo::Target(target, path));
        Ok(())
    }

    pub fn set_status(&mut self, status: u16) -> Result<(), EditError> {
        let (Stage::Response, Some(response)) = (self.stage, &mut self.response) else { return Err(EditError::Closed) };
        let status = checked_status(status)?;
        self.undo.push(Undo::Status(std::mem::replace(&mut response.status, status)));
        Ok(())
    }

    /// Prepares an early answer in place of the one before.
    pub fn prepare(
        &mut self,
        status: u16,
        fields: impl ExactSizeIterator<Item = Result<Edit, EditError>>,
        body: Bytes,
    ) -> Result<(), EditError> {
        if self.stage == Stage::Finish {
            return Err(EditError::Closed);
        }
        let status = checked_status(status)?;
        if fields.len() > self.caps.fields {
            return Err(EditError::TooMany);
        }
        let mut headers = HeaderMap::with_capacity(fields.len());
        let mut bytes = 0;
        for field in fields {
            let field = field?;
            bytes += field.weight();
            if bytes > self.caps.bytes {
                return Err(EditError::TooMany);
            }
            field.apply(&mut headers);
        }
        self.answer = Some(Answer { status, headers, body });
        Ok(())
    }

    pub fn attribute(&self, name: &str) -> Option<&[u8]> {
        self.attributes.iter().find(|(other, _)| **other == *name).map(|(_, value)| value.as_slice())
    }

    pub fn set_attribute(&mut self, name: &str, value: Option<&[u8]>) -> Result<(), EditError> {
        if self.stage == Stage::Finish {
            return Err(EditError::Closed);
        }
        if name.is_empty() {
            return Err(EditError::InvalidName);
        }
        let before = self.attribute(name).map(<[u8]>::to_vec);
        if let Some(value) = value {
            let total: usize = self.attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
            let replaced = before.as_ref().map_or(0, |value| name.len() + value.len());
            if name.len() > ATTRIBUTE_NAME || value.len() > ATTRIBUTE_VALUE {
                return Err(EditError::TooLong);
            }
            if total - replaced + name.len() + value.len() > ATTRIBUTES_TOTAL
                || (before.is_none() && self.attributes.len() >= ATTRIBUTES)
            {
                return Err(EditError::TooMany);
            }
        }
        self.undo.push(Undo::Attribute(name.into(), before));
        self.put_attribute(name.into(), value.map(<[u8]>::to_vec));
        Ok(())
    }

    fn request_only(&self) -> Result<(), EditError> {
        if self.stage == Stage::Request { Ok(()) } else { Err(EditError::Closed) }
    }
}

fn checked_status(status: u16) -> Result<StatusCode, EditError> {
    if !(200..=599).contains(&status) {
        return Err(EditError::InvalidValue);
    }
    StatusCode::from_u16(status).map_err(|_| EditError::InvalidValue)
}
