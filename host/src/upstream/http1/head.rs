//! The lines of a head (RFC 9112 sections 4 and 5).
//!
//! Names and values are checked by the `http` crate when they are made; here
//! lines are found and taken apart. A line ends with CR LF and nothing else, so
//! nobody behind can see a field where we see a value.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header};

use super::{FIELDS, Malformed};
use crate::headers::Seen;

/// Fields that a map has room for besides: making it larger costs as much as
/// several fields.
const ADDED: usize = 6;

/// Lines whose ends are kept, and names of fields; and how long those are at the
/// most.
const KNOWN: usize = 16;
const LONGEST: usize = 64;

/// Looks for the empty line that ends a block of lines, each byte once.
#[derive(Debug, Default)]
pub struct Lines {
    /// Where the line begins whose end is looked for.
    start: usize,
    searched: usize,
    count: usize,
    /// Where the LF of the first ones is.
    feeds: [u32; KNOWN],
}

impl Lines {
    /// Where the block ends, behind its empty line, if that has come. `bytes` is
    /// what was given before and what has come since.
    pub fn find_end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        while let Some(offset) = memchr::memchr(b'\n', bytes.get(self.searched..).unwrap_or_default()) {
            let feed = self.searched + offset;
            match bytes.get(self.start..feed) {
                Some([b'\r']) => return Ok(Some(feed + 1)),
                Some([.., b'\r']) => {}
                _ => return Err(Malformed("a line that ends without CR")),
            }
            if let Some(slot) = self.feeds.get_mut(self.count) {
                *slot = feed as u32;
            }
            self.count += 1;
            self.start = feed + 1;
            self.searched = self.start;
        }
        self.searched = bytes.len();
        Ok(None)
    }

    /// The line at that place of a block that has been looked through, which begins
    /// at `at`, without its end.
    fn line<'a>(&self, block: &'a [u8], place: usize, at: usize) -> Option<&'a [u8]> {
        let feed = match self.feeds.get(place) {
            Some(feed) => *feed as usize,
            None => at + memchr::memchr(b'\n', block.get(at..)?)?,
        };
        block.get(at..feed.checked_sub(1)?)
    }
}

/// Names that fields of an earlier head had, by place, as they were spelled. A
/// target sends the same in the same order, and comparing costs a fraction of
/// checking a name and lowering it.
#[derive(Debug, Default)]
pub struct Names(Vec<(Box<[u8]>, HeaderName)>);

impl Names {
    /// The name at the start of a line at that place, and where it ends.
    fn read(&mut self, place: usize, line: &[u8]) -> Result<(HeaderName, usize), Malformed> {
        if let Some((text, name)) = self.0.get(place)
            && line.strip_prefix(&**text).is_some_and(|rest| rest.first() == Some(&b':'))
        {
            return Ok((name.clone(), text.len()));
        }
        let colon = line.iter().position(|byte| *byte == b':').ok_or(Malformed("a field without colon"))?;
        let text = line.get(..colon).unwrap_or_default();
        // A folded line has a blank at its start, and so no name.
        let name = HeaderName::from_bytes(text).map_err(|_| Malformed("a field's name that is none"))?;
        if place == self.0.len() && place < KNOWN && text.len() <= LONGEST {
            self.0.push((text.into(), name.clone()));
        }
        Ok((name, colon))
    }
}

/// A head taken apart.
#[derive(Debug)]
pub struct Parsed {
    pub version: Version,
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// Which fields of connection and framing there are.
    pub seen: Seen,
    /// Whether Connection says that this one closes, in a line of its own, which
    /// as one that says `keep-alive` is left out.
    pub closes: bool,
}

/// Takes a response's head of these lines apart, its empty line included.
pub fn parse(head: Bytes, lines: &Lines, names: &mut Names) -> Result<Parsed, Malformed> {
    let first = lines.line(&head, 0, 0).filter(|_| lines.count > 0).unwrap_or_default();
    let (version, status) = status_line(first)?;
    let (mut seen, mut closes) = (Seen::default(), false);
    let headers = fields(&head, lines, 1, names, |name, value| {
        if *name == header::CONNECTION {
            let is_close = value.eq_ignore_ascii_case(b"close");
            closes |= is_close;
            if is_close || value.eq_ignore_ascii_case(b"keep-alive") {
                return false;
            }
        }
        seen.note(name.as_str(), || 1);
        true
    })?;
    Ok(Parsed { version, status, headers, seen, closes })
}

/// `HTTP/1.1 200 OK`. The reason may be missing, and the blank before it.
fn status_line(line: &[u8]) -> Result<(Version, StatusCode), Malformed> {
    const WRONG: Malformed = Malformed("no HTTP/1 status line");
    let (version, rest) = match line.split_at_checked(b"HTTP/1.1 ".len()) {
        Some((b"HTTP/1.1 ", rest)) => (Version::HTTP_11, rest),
        Some((b"HTTP/1.0 ", rest)) => (Version::HTTP_10, rest),
        _ => return Err(WRONG),
    };
    let (status, reason) = rest.split_at_checked(3).ok_or(WRONG)?;
    let is_text = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~' | 0x80..);
    match reason {
        [] => {}
        [b' ', text @ ..] if text.iter().all(is_text) => {}
        _ => return Err(WRONG),
    }
    Ok((version, StatusCode::from_bytes(status).map_err(|_| WRONG)?))
}

/// The fields of a block of these lines, which begin at the line `first`, without
/// those that `keep` is false of. Values are parts of the block.
pub fn fields(
    block: &Bytes,
    lines: &Lines,
    first: usize,
    names: &mut Names,
    mut keep: impl FnMut(&HeaderName, &[u8]) -> bool,
) -> Result<HeaderMap, Malformed> {
    if lines.count.saturating_sub(first) > FIELDS {
        return Err(Malformed("too many fields"));
    }
    let mut headers = HeaderMap::with_capacity(lines.count + ADDED);
    let mut at = 0;
    for place in 0..lines.count {
        let line = lines.line(block, place, at).ok_or(Malformed("a line without end"))?;
        at += line.len() + 2;
        if place < first {
            continue;
        }
        let (name, colon) = names.read(place - first, line)?;
        let text = trim_blanks(line.get(colon + 1..).unwrap_or_default());
        if keep(&name, text) {
            let value = HeaderValue::from_maybe_shared(block.slice_ref(text));
            let value = value.map_err(|_| Malformed("a field's value with control characters"))?;
            headers.try_append(name, value).map_err(|_| Malformed("too many fields"))?;
        }
    }
    Ok(headers)
}

/// Blanks around a value are no part of it (RFC 9112 section 5.1).
fn trim_blanks(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}
