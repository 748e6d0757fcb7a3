//! Path patterns.
//!
//! A route is matched on the request's normalised path, so a pattern in any
//! other form would never match and is refused, with the form that would.

use super::quoted;
use crate::config::{PathPattern, Segment, error::Fault};

/// `/users/{id}`: each parameter is a whole segment.
pub(in crate::config) fn template(text: &str) -> Result<PathPattern, Fault> {
    let path = normal(text)?;
    let mut names = Vec::new();
    let mut segments = Vec::new();
    for segment in path.split('/').skip(1) {
        let Some(name) = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
            if segment.contains(['{', '}']) {
                return Err(Fault::new(format!("a parameter is a whole segment, {} is not", quoted(segment)))
                    .hint("like /users/{id}"));
            }
            segments.push(Segment::Literal(segment.to_owned()));
            continue;
        };
        let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !first || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(Fault::new(format!("{} is no name of a parameter", quoted(name)))
                .hint("letters, digits and _, no digit first"));
        }
        names.push(name);
        segments.push(Segment::Parameter(name.to_owned()));
    }
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Fault::new(format!("the parameter {} stands here twice", quoted(pair[0])))),
        None => Ok(PathPattern::Template(segments)),
    }
}

/// `/users` for itself and all below; without the `/` at the end, so that `/`
/// is empty.
pub(in crate::config) fn prefix(text: &str) -> Result<String, Fault> {
    let path = normal(text)?;
    match path.contains(['{', '}']) {
        true => Err(Fault::new("a prefix has no parameters").hint("use path")),
        false => Ok(path.strip_suffix('/').unwrap_or(path).to_owned()),
    }
}

/// `text` if it is a path in normal form.
fn normal(text: &str) -> Result<&str, Fault> {
    if !text.starts_with('/') {
        return Err(Fault::new(format!("{} does not start with /", quoted(text))));
    }
    if text.contains(['?', '#']) {
        return Err(Fault::new(format!("{} is more than a path", quoted(text))).hint("match.query is for the query"));
    }
    if text.bytes().any(|b| b.is_ascii_control() || b == b'\\') {
        return Err(Fault::new(format!("{} has a control character or a backslash", quoted(text)))
            .hint("such a request is refused"));
    }
    let Some(escaped) = normalise_escapes(text) else {
        return Err(Fault::new(format!("{} has a % without two hexadecimal digits", quoted(text))));
    };
    if escaped.contains("%00") {
        return Err(Fault::new(format!("{} has a NUL", quoted(text))).hint("such a request is refused"));
    }
    let normal = resolve_segments(&escaped);
    match normal == text {
        true => Ok(text),
        false => Err(Fault::new(format!("{} is never matched: the normal form is different", quoted(text)))
            .hint(format!("write {}", quoted(&normal)))),
    }
}

/// Decodes escapes of unreserved octets, writes others with upper-case digits,
/// and escapes what can't stand in a request target (RFC 3986 6.2.2). `None` if
/// an escape is broken.
fn normalise_escapes(text: &str) -> Option<String> {
    let mut normal = String::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        let octet = match (byte, after) {
            (b'%', [high, low, after @ ..]) => {
                rest = after;
                let digit = |digit: u8| char::from(digit).to_digit(16);
                (digit(*high)? << 4 | digit(*low)?) as u8
            }
            (b'%', _) => return None,
            (b'!'..=b'~', _) => {
                normal.push(char::from(*byte));
                continue;
            }
            _ => *byte,
        };
        match octet.is_ascii_alphanumeric() || b"-._~".contains(&octet) {
            true => normal.push(char::from(octet)),
            false => normal.push_str(&format!("%{octet:02X}")),
        }
    }
    Some(normal)
}

/// Takes out empty and dot segments (RFC 3986 5.2.4).
fn resolve_segments(path: &str) -> String {
    let mut kept = Vec::new();
    let mut is_folder = false;
    for segment in path.split('/').skip(1) {
        is_folder = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    let mut normal = String::with_capacity(path.len());
    for segment in &kept {
        normal.push('/');
        normal.push_str(segment);
    }
    if is_folder || kept.is_empty() {
        normal.push('/');
    }
    normal
}
