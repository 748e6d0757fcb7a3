//! What heads are made of: edits of fields, and the rules for targets.

use crate::{
    Edit, EditError,
    field::{check_name, check_value},
    path::normalise_escapes,
};

/// Lines of a head, and bytes of them, that the gateway takes.
const MOST_FIELDS: usize = 100;
const MOST_FIELD_BYTES: usize = 32 << 10;

/// Names, in lower case, and values, in order.
type Fields = Vec<(String, Vec<u8>)>;

/// An edit that has been checked.
#[derive(Debug, Clone)]
pub(super) enum OwnedEdit {
    Set(String, Vec<u8>),
    Append(String, Vec<u8>),
    Remove(String),
}

impl OwnedEdit {
    pub(super) fn borrow(&self) -> Edit<'_> {
        match self {
            Self::Set(name, value) => Edit::set(name, value),
            Self::Append(name, value) => Edit::append(name, value),
            Self::Remove(name) => Edit::remove(name),
        }
    }
}

pub(super) fn check(edits: &[Edit<'_>]) -> Result<Vec<OwnedEdit>, EditError> {
    let checked = |name: &str, value: &[u8]| {
        check_name(name)?;
        check_value(value)?;
        Ok((name.to_ascii_lowercase(), value.to_vec()))
    };
    edits
        .iter()
        .map(|edit| match edit {
            Edit::Set(field) => checked(field.name, field.value).map(|(n, v)| OwnedEdit::Set(n, v)),
            Edit::Append(field) => checked(field.name, field.value).map(|(n, v)| OwnedEdit::Append(n, v)),
            Edit::Remove(name) => checked(name, b"").map(|(n, _)| OwnedEdit::Remove(n)),
        })
        .collect()
}

/// Applies edits; the first line of a name that is set keeps its place.
pub(super) fn apply(headers: &mut Fields, edits: Vec<OwnedEdit>) {
    for edit in edits {
        match edit {
            OwnedEdit::Set(name, value) => {
                let at = headers.iter().position(|(line, _)| *line == name).unwrap_or(headers.len());
                headers.retain(|(line, _)| *line != name);
                headers.insert(at, (name, value));
            }
            OwnedEdit::Append(name, value) => headers.push((name, value)),
            OwnedEdit::Remove(name) => headers.retain(|(line, _)| *line != name),
        }
    }
}

pub(super) fn edit(headers: &mut Fields, edits: &[Edit<'_>]) -> Result<(), EditError> {
    let mut edited = headers.clone();
    apply(&mut edited, check(edits)?);
    let bytes: usize = edited.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    if edited.len() > MOST_FIELDS || bytes > MOST_FIELD_BYTES {
        return Err(EditError::TooMany);
    }
    *headers = edited;
    Ok(())
}

/// The joined value (RFC 9110 section 5.2).
pub(super) fn join(headers: &[(String, Vec<u8>)], name: &str) -> Option<Vec<u8>> {
    let separator: &[u8] = if name.eq_ignore_ascii_case("cookie") { b"; " } else { b", " };
    let values: Vec<&[u8]> =
        headers.iter().filter(|(line, _)| line.eq_ignore_ascii_case(name)).map(|(_, value)| &value[..]).collect();
    if values.is_empty() { None } else { Some(values.join(separator)) }
}

pub(super) fn lines(pseudo: &[(&str, String)], headers: &[(String, Vec<u8>)], names: &[&str]) -> Vec<u8> {
    let mut block = Vec::new();
    let mut push = |name: &str, value: &[u8]| {
        block.extend_from_slice(name.as_bytes());
        block.extend_from_slice(b": ");
        block.extend_from_slice(value);
        block.extend_from_slice(b"\r\n");
    };
    for (name, value) in pseudo {
        if names.contains(name) {
            push(name, value.as_bytes());
        }
    }
    for (name, value) in headers {
        if names.is_empty() || names.iter().any(|wanted| wanted.eq_ignore_ascii_case(name)) {
            push(name, value);
        }
    }
    block
}

/// Visible ASCII without what ends this part of a target. Wider than RFC 3986,
/// as clients are.
pub(super) fn check_target(text: &str, ends: &[u8]) -> Result<(), EditError> {
    let fits = text.bytes().all(|byte| byte.is_ascii_graphic() && !ends.contains(&byte));
    if fits { Ok(()) } else { Err(EditError::InvalidValue) }
}

/// RFC 3986 section 6.2.2, slashes merged.
pub(super) fn normalise(path: &str) -> String {
    let decoded = normalise_escapes(path);
    let mut segments: Vec<&str> = Vec::new();
    let mut is_folder = false;
    for segment in decoded.split('/') {
        is_folder = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    let end = if is_folder && !segments.is_empty() { "/" } else { "" };
    format!("/{}{end}", segments.join("/"))
}
