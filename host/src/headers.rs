//! Header fields that are a proxy's business: those of one connection, of
//! framing, and of forwarding.
//!
//! A request's fields are looked over once, with [`Seen::scan`]; what is done
//! afterwards costs something only where there is something to do. The order
//! matters: fields of the client's connection go first, so that Connection can't
//! name a field that the gateway or a plugin sets later.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue, Version, header};

use crate::error::ErrorKind;

mod authority;
mod forwarded;
mod trailers;

pub use authority::{authority, host_of, is_authority};
pub use forwarded::{Forwarded, add_forwarded, forward, forwarded_lines};
pub use trailers::{announce, take_announced, withdraw};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// What one look over a head has found.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    connection: bool,
    keep_alive: bool,
    proxy_connection: bool,
    te: bool,
    trailer: bool,
    upgrade: bool,
    expect: bool,
    /// A name with an underscore.
    underscore: bool,
    /// Forwarded or X-Forwarded-*.
    forwarded: bool,
    /// Lines of Host.
    pub hosts: usize,
    /// Lines of Transfer-Encoding.
    pub transfer_encodings: usize,
    /// Lines of Content-Length.
    pub content_lengths: usize,
}

impl Seen {
    /// Looks at each name once.
    pub fn scan(headers: &HeaderMap) -> Self {
        let mut seen = Self::default();
        // Hardly any head has two lines of one field, and counting them takes a
        // lookup.
        let repeats = headers.len() > headers.keys_len();
        let lines = |name| if repeats { headers.get_all(name).iter().count() } else { 1 };
        for name in headers.keys() {
            let text = name.as_str();
            seen.underscore |= has_underscore(text.as_bytes());
            seen.forwarded |= text.starts_with("x-forwarded-");
            seen.note(text, || lines(name));
        }
        seen
    }

    /// Notes a name of the connection's or of framing, with the lines that it
    /// has.
    #[inline]
    pub fn note(&mut self, name: &str, lines: impl FnOnce() -> usize) {
        // By length, which tells most names apart from all of these.
        match name.len() {
            2 => self.te |= name == "te",
            4 if name == "host" => self.hosts += lines(),
            6 => self.expect |= name == "expect",
            7 => {
                self.upgrade |= name == "upgrade";
                self.trailer |= name == "trailer";
            }
            9 => self.forwarded |= name == "forwarded",
            10 => {
                self.connection |= name == "connection";
                self.keep_alive |= name == "keep-alive";
            }
            14 if name == "content-length" => self.content_lengths += lines(),
            16 => self.proxy_connection |= name == "proxy-connection",
            17 if name == "transfer-encoding" => self.transfer_encodings += lines(),
            _ => {}
        }
    }

    /// Whether there is a Connection field.
    pub fn connection(&self) -> bool {
        self.connection
    }

    /// Whether there is a Trailer field.
    pub fn trailer(&self) -> bool {
        self.trailer
    }

    /// Whether a proxy in front has said anything, or somebody in its name.
    pub fn forwarded(&self) -> bool {
        self.forwarded
    }
}

/// Eight bytes at a time, the last eight perhaps for the second time: names are
/// too short for a search to pay.
fn has_underscore(name: &[u8]) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let is_in = |word: &[u8; 8]| {
        // Makes underscores zero, which borrow from the bit above them.
        let word = u64::from_ne_bytes(*word) ^ (ONES * u64::from(b'_'));
        word.wrapping_sub(ONES) & !word & (ONES << 7) != 0
    };
    match name.last_chunk() {
        Some(last) => is_in(last) || name.as_chunks().0.iter().any(is_in),
        None => name.contains(&b'_'),
    }
}

/// Checks what frames a request (RFC 9112 section 6): one Transfer-Encoding
/// that is `chunked` alone, and not in HTTP/1.0; or one Content-Length. Several
/// equal ones are left to [`strip_request`]. One beside Transfer-Encoding hyper
/// takes off, and closes the connection behind the response (section 6.3); should
/// it ever leave it, that is refused.
pub fn check_framing(headers: &HeaderMap, seen: &Seen, version: Version) -> Result<(), ErrorKind> {
    if seen.transfer_encodings > 0 {
        if version < Version::HTTP_11 {
            return Err(ErrorKind::BadRequest("Transfer-Encoding in HTTP/1.0"));
        }
        if seen.content_lengths > 0 {
            return Err(ErrorKind::BadRequest("Content-Length beside Transfer-Encoding"));
        }
        if !is_chunked(headers) {
            return Err(ErrorKind::BadRequest("a Transfer-Encoding other than chunked"));
        }
    }
    if seen.content_lengths > 1 {
        let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
        let first = lengths.next();
        if lengths.any(|other| Some(other) != first) {
            return Err(ErrorKind::BadRequest("Content-Lengths that differ"));
        }
    }
    Ok(())
}

/// Whether Transfer-Encoding is one line that says `chunked` and nothing else.
fn is_chunked(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(header::TRANSFER_ENCODING).iter();
    let first = lines.next().is_some_and(|line| line.as_bytes().eq_ignore_ascii_case(b"chunked"));
    first && lines.next().is_none()
}

/// Takes the fields of the client's connection off a request (RFC 9110 section
/// 7.6.1), before anybody sets a field that they could name, and Expect, which
/// is answered here. Tells whether the client takes trailers.
///
/// `proxy-authorization` stays: this is no forward proxy, so whoever asks for it
/// is behind.
pub fn strip_request(headers: &mut HeaderMap, seen: &Seen) -> bool {
    let trailers = seen.te && takes_trailers(headers);
    if seen.expect {
        headers.remove(header::EXPECT);
    }
    strip(headers, seen);
    trailers
}

/// Takes the fields of the upstream's connection off a response, whose framing
/// has been checked and whose fields have been noted. Trailer stays, as far as
/// those fields may come: by it hyper knows which to send on.
pub fn strip_response(headers: &mut HeaderMap, seen: &Seen) {
    if seen.trailer {
        let names = take_announced(headers);
        announce(headers, &names);
    }
    strip(headers, seen);
}

fn takes_trailers(headers: &HeaderMap) -> bool {
    headers.get_all(header::TE).iter().flat_map(elements).any(|coding| {
        let coding = coding.split(|byte| *byte == b';').next().unwrap_or_default();
        coding.trim_ascii().eq_ignore_ascii_case(b"trailers")
    })
}

fn strip(headers: &mut HeaderMap, seen: &Seen) {
    if seen.connection {
        strip_nominated(headers);
        headers.remove(header::CONNECTION);
    }
    if seen.keep_alive {
        headers.remove(KEEP_ALIVE);
    }
    if seen.proxy_connection {
        headers.remove(PROXY_CONNECTION);
    }
    if seen.te {
        headers.remove(header::TE);
    }
    if seen.upgrade {
        headers.remove(header::UPGRADE);
    }
    if seen.transfer_encodings > 0 {
        headers.remove(header::TRANSFER_ENCODING);
    }
    if seen.content_lengths > 1
        && let Some(length) = headers.remove(header::CONTENT_LENGTH)
    {
        headers.insert(header::CONTENT_LENGTH, length);
    }
}

/// Takes away what Connection names.
fn strip_nominated(headers: &mut HeaderMap) {
    for name in nominated(headers) {
        headers.remove(name);
    }
}

/// What Connection names.
fn nominated(headers: &HeaderMap) -> Vec<HeaderName> {
    // Names no field, or one that goes anyway: as a rule there is nothing else.
    let is_usual = |option: &[u8]| {
        [&b"keep-alive"[..], b"close", b"te", b"upgrade"].iter().any(|usual| option.eq_ignore_ascii_case(usual))
    };
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter(|line| !is_usual(line.as_bytes()))
        .flat_map(elements)
        .filter(|option| !is_usual(option))
        .filter_map(|option| HeaderName::from_bytes(option).ok())
        .filter(|name| !is_end_to_end(name))
        .collect()
}

/// Fields that no connection option may take away (RFC 9110 section 7.6.1 at its
/// end): what frames or describes the content, whom it is for, and what a proxy
/// in front says of the client, who could otherwise pass for that proxy.
fn is_end_to_end(name: &HeaderName) -> bool {
    use header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, FORWARDED, HOST};
    [HOST, CONTENT_LENGTH, CONTENT_TYPE, CONTENT_ENCODING, CACHE_CONTROL, FORWARDED].contains(name)
        || name.as_str().starts_with("x-forwarded-")
}

/// The elements of a list in a field's value (RFC 9110 section 5.6.1).
fn elements(value: &HeaderValue) -> impl DoubleEndedIterator<Item = &[u8]> {
    value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Takes fields away whose name an upstream could take for another one.
pub fn drop_underscores(headers: &mut HeaderMap, seen: &Seen) {
    if seen.underscore {
        remove_where(headers, |name| name.contains('_'));
    }
}

fn remove_where(headers: &mut HeaderMap, is_wanted: impl Fn(&str) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| is_wanted(name.as_str())).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// What stands between the lines of a field that is read as one (RFC 9110
/// section 5.2); between a cookie's it is `; ` (RFC 9113 section 8.2.3).
fn separator(name: &HeaderName) -> &'static [u8] {
    if *name == header::COOKIE { b"; " } else { b", " }
}

/// The value of a field as one. Where it has one line, nothing is copied.
pub fn joined<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, [u8]>> {
    let mut lines = headers.get_all(name).iter();
    let mut value = Cow::Borrowed(lines.next()?.as_bytes());
    for line in lines {
        let value = value.to_mut();
        value.extend_from_slice(separator(name));
        value.extend_from_slice(line.as_bytes());
    }
    Some(value)
}

/// Whether a field is there and its value as one is this. Allocates nothing.
pub fn is_joined(headers: &HeaderMap, name: &HeaderName, value: &[u8]) -> bool {
    let mut lines = headers.get_all(name).iter();
    let Some(first) = lines.next() else { return false };
    let rest = lines.try_fold(value.strip_prefix(first.as_bytes()), |rest, line| {
        let rest = rest?.strip_prefix(separator(name))?;
        Some(rest.strip_prefix(line.as_bytes()))
    });
    rest.flatten().is_some_and(<[u8]>::is_empty)
}

#[cfg(test)]
mod tests;
