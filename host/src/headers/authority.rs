//! Whom a request is for: Host, and the authority of a request target.

use std::net::Ipv6Addr;

use http::{HeaderMap, HeaderValue, Version, header, uri::Authority};

use super::Seen;
use crate::error::ErrorKind;

const WRONG: ErrorKind = ErrorKind::BadRequest("an invalid Host");

/// A colon and five digits.
const LONGEST_PORT: usize = 6;
/// The default port of `http`.
const DEFAULT_PORT: u16 = 80;

/// The authority that a request is for: the target's if it has one (RFC 9112
/// section 3.2.2), else Host. Lower case, without the default port; empty where
/// HTTP/1.0 names none.
///
/// `BadRequest` if HTTP/1.1 has no Host, if there are several, or if what there
/// is is no `host` or `host:port` (RFC 3986 section 3.2 without userinfo), in a
/// Host that does not count as well.
pub fn authority(
    target: Option<&Authority>,
    headers: &HeaderMap,
    seen: &Seen,
    version: Version,
) -> Result<HeaderValue, ErrorKind> {
    let host = match (seen.hosts, headers.get(header::HOST)) {
        (1, Some(host)) => canonical(host)?,
        // Only from HTTP/2 on is a target enough.
        (0, _) if version == Version::HTTP_11 || (version > Version::HTTP_11 && target.is_none()) => {
            return Err(ErrorKind::BadRequest("no Host"));
        }
        (0, _) => HeaderValue::from_static(""),
        _ => return Err(ErrorKind::BadRequest("more than one Host")),
    };
    match target {
        Some(authority) => rewritten(authority.as_str().as_bytes()),
        None => Ok(host),
    }
}

/// Whether a value is `host` or `host:port`.
pub fn is_authority(value: &HeaderValue) -> bool {
    canonical(value).is_ok()
}

/// The host of what [`authority`] has returned, for the router: without the port
/// and without the dot that may end a name.
pub fn host_of(authority: &HeaderValue) -> &str {
    let text = authority.to_str().unwrap_or_default();
    let host = match text.len().saturating_sub(LONGEST_PORT) {
        _ if text.ends_with(']') => text,
        from => match text.as_bytes()[from..].iter().rposition(|byte| *byte == b':') {
            Some(colon) => &text[..from + colon],
            None => text,
        },
    };
    host.strip_suffix('.').unwrap_or(host)
}

/// The one form of an authority, which nearly all are sent in.
fn canonical(value: &HeaderValue) -> Result<HeaderValue, ErrorKind> {
    if is_canonical(value.as_bytes()) { Ok(value.clone()) } else { rewritten(value.as_bytes()) }
}

/// What a byte is in an authority that needs no rewriting. One lookup for each
/// takes a third of the instructions of comparing.
static KINDS: [u8; 256] = {
    let mut kinds = [OTHER; 256];
    let mut byte = 0;
    while byte < kinds.len() {
        kinds[byte] = match byte as u8 {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => NAME,
            b'.' => DOT,
            _ => OTHER,
        };
        byte += 1;
    }
    kinds
};
const NAME: u8 = 0;
const DOT: u8 = 1;
const OTHER: u8 = 2;

/// Whether [`rewritten`] would change nothing, for names and IPv4 addresses.
fn is_canonical(authority: &[u8]) -> bool {
    // A label may not be empty, the first as little as one between two dots.
    let mut wrong = DOT | OTHER;
    for (place, &byte) in authority.iter().enumerate() {
        let kind = KINDS[usize::from(byte)];
        if kind & wrong != 0 {
            return byte == b':' && place > 0 && is_canonical_port(&authority[place + 1..]);
        }
        wrong = kind | OTHER;
    }
    !authority.is_empty()
}

fn is_canonical_port(digits: &[u8]) -> bool {
    digits.first().is_some_and(|first| *first != b'0') && !matches!(port(digits), Err(_) | Ok(Some(DEFAULT_PORT)))
}

fn rewritten(authority: &[u8]) -> Result<HeaderValue, ErrorKind> {
    let (host, digits) = split_port(authority);
    let mut text = host_text(host)?;
    if let Some(port) = port(digits)?.filter(|port| *port != DEFAULT_PORT) {
        text.push_str(&format!(":{port}"));
    }
    HeaderValue::try_from(text).map_err(|_| WRONG)
}

/// A name in lower case, or an address.
fn host_text(host: &[u8]) -> Result<String, ErrorKind> {
    let host = std::str::from_utf8(host).map_err(|_| WRONG)?;
    if let Some(address) = host.strip_prefix('[') {
        let address = address.strip_suffix(']').and_then(|address| address.parse::<Ipv6Addr>().ok());
        return address.map(|address| format!("[{address}]")).ok_or(WRONG);
    }
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~');
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_known);
    match host.strip_suffix('.').unwrap_or(host).split('.').all(is_label) {
        true => Ok(host.to_ascii_lowercase()),
        false => Err(WRONG),
    }
}

/// The number of a port; `None` for none, which may have its colon all the same
/// (RFC 3986 section 3.2.3).
fn port(digits: &[u8]) -> Result<Option<u16>, ErrorKind> {
    if digits.is_empty() {
        return Ok(None);
    }
    if digits.len() >= LONGEST_PORT || !digits.iter().all(u8::is_ascii_digit) {
        return Err(WRONG);
    }
    let number = digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
    match u16::try_from(number) {
        Ok(number) if number > 0 => Ok(Some(number)),
        _ => Err(WRONG),
    }
}

/// Host and port of an authority, this without its colon; an IPv6 address keeps
/// its brackets.
fn split_port(authority: &[u8]) -> (&[u8], &[u8]) {
    let from = match authority.first() {
        Some(b'[') => authority.iter().position(|byte| *byte == b']').unwrap_or_default(),
        _ => 0,
    };
    match authority[from..].iter().position(|byte| *byte == b':') {
        Some(colon) => (&authority[..from + colon], &authority[from + colon + 1..]),
        None => (authority, &[]),
    }
}

#[cfg(test)]
mod tests;
