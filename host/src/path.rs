//! The path policy: one reading of a path for the router, the plugins and the
//! upstream.
//!
//! Unreserved octets are decoded, `.` and `..` resolved in every spelling and
//! doubled slashes merged (RFC 3986 section 6.2.2) for whoever decides. Upstream
//! goes what the client wrote, with the dot segments resolved and nothing else
//! changed. What could be read in two ways (NUL, a backslash, a broken escape,
//! what is no ASCII) is refused.

use std::borrow::Cow;

use crate::error::ErrorKind;

/// The two forms of a path.
#[derive(Debug, PartialEq, Eq)]
pub struct Paths<'a> {
    /// What is decided by.
    pub normal: Cow<'a, str>,
    /// What is sent.
    pub upstream: Cow<'a, str>,
}

/// Reads an absolute path, without query.
pub fn normalise(raw: &str) -> Result<Paths<'_>, ErrorKind> {
    if !raw.starts_with('/') {
        return Err(ErrorKind::BadRequest("the path does not start with a slash"));
    }
    if is_plain(raw.as_bytes()) {
        return Ok(Paths { normal: Cow::Borrowed(raw), upstream: Cow::Borrowed(raw) });
    }
    check(raw.as_bytes())?;
    Ok(resolve(raw))
}

/// Bytes that are looked at together.
const RUN: usize = 16;

/// Whether an absolute path is as it is in both forms, which nearly all are. In
/// whole runs, as that takes a tenth of the instructions of a loop over bytes.
fn is_plain(path: &[u8]) -> bool {
    let mut rest = path;
    while let Some(run) = rest.first_chunk() {
        if !is_plain_run(run) {
            return false;
        }
        // The last byte once more, as the one before the next run.
        rest = &rest[RUN..];
    }
    let mut run = [b'a'; RUN + 1];
    run[..rest.len()].copy_from_slice(rest);
    is_plain_run(&run)
}

/// Looks at each byte but the first, which it takes as the one before.
fn is_plain_run(run: &[u8; RUN + 1]) -> bool {
    let mut odd = false;
    for place in 0..RUN {
        let (before, byte) = (run[place], run[place + 1]);
        // No `||`: branches would keep the compiler from using vectors.
        odd |= !byte.is_ascii_graphic() | (byte == b'%') | (byte == b'\\');
        odd |= (before == b'/') & ((byte == b'/') | (byte == b'.'));
    }
    !odd
}

/// Refuses what could be read in two ways.
fn check(path: &[u8]) -> Result<(), ErrorKind> {
    for (place, &byte) in path.iter().enumerate() {
        match byte {
            b'%' => match path.get(place + 1..place + 3).and_then(decode) {
                None => return Err(ErrorKind::BadRequest("a broken escape in the path")),
                Some(0) => return Err(ErrorKind::BadRequest("NUL in the path")),
                Some(_) => {}
            },
            b'\\' => return Err(ErrorKind::BadRequest("a backslash in the path")),
            0x21..=0x7e => {}
            _ => return Err(ErrorKind::BadRequest("the path is not visible ASCII")),
        }
    }
    Ok(())
}

/// The octet of two hexadecimal digits.
fn decode(digits: &[u8]) -> Option<u8> {
    let value = |digit: u8| (digit as char).to_digit(16);
    let [high, low] = digits else { return None };
    Some((value(*high)? * 16 + value(*low)?) as u8)
}

fn is_unreserved(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'.' | b'_' | b'~')
}

/// One segment with its unreserved octets decoded and other escapes in upper
/// case.
fn normal_segment(raw: &str) -> Cow<'_, str> {
    if !raw.contains('%') {
        return Cow::Borrowed(raw);
    }
    let mut normal = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((before, after)) = rest.split_once('%') {
        normal.push_str(before);
        let (digits, left) = after.split_at(after.len().min(2));
        match decode(digits.as_bytes()) {
            Some(octet) if is_unreserved(octet) => normal.push(octet as char),
            _ => {
                normal.push('%');
                normal.push_str(&digits.to_ascii_uppercase());
            }
        }
        rest = left;
    }
    normal.push_str(rest);
    Cow::Owned(normal)
}

/// Both forms, segment by segment. An empty segment counts for `..` upstream
/// as it does in the normal form: not at all, so that both end at one place.
fn resolve(raw: &str) -> Paths<'static> {
    let mut sent: Vec<&str> = Vec::new();
    let mut names: Vec<Cow<'_, str>> = Vec::new();
    let segments: Vec<&str> = raw.split('/').skip(1).collect();
    let last = segments.len().saturating_sub(1);
    for (place, segment) in segments.into_iter().enumerate() {
        let normal = normal_segment(segment);
        match &*normal {
            ".." => {
                // With the empty segments behind the one that goes.
                while sent.pop().is_some_and(str::is_empty) {}
                names.pop();
                if place == last {
                    sent.push("");
                }
            }
            "." => {
                if place == last {
                    sent.push("");
                }
            }
            "" => sent.push(segment),
            _ => {
                sent.push(segment);
                names.push(normal);
            }
        }
    }
    let slash = sent.last().is_none_or(|segment| segment.is_empty());
    let mut normal = String::with_capacity(raw.len());
    for name in &names {
        normal.push('/');
        normal.push_str(name);
    }
    if slash {
        normal.push('/');
    }
    let mut upstream = String::with_capacity(raw.len());
    for segment in &sent {
        upstream.push('/');
        upstream.push_str(segment);
    }
    if upstream.is_empty() {
        upstream.push('/');
    }
    Paths { normal: Cow::Owned(normal), upstream: Cow::Owned(upstream) }
}

/// Takes whole leading segments off a path that goes upstream: as many as the
/// prefix has, which the caller knows to match in normal form. What stays
/// begins with one slash exactly, so that nobody reads an authority in it.
pub fn strip_prefix<'a>(upstream: &'a str, prefix: &str) -> Cow<'a, str> {
    let mut left = prefix.split('/').filter(|segment| !segment.is_empty()).count();
    let mut rest = upstream;
    while left > 0 {
        let trimmed = rest.trim_start_matches('/');
        let end = trimmed.find('/').unwrap_or(trimmed.len());
        rest = &trimmed[end..];
        left -= 1;
    }
    let slashes = rest.len() - rest.trim_start_matches('/').len();
    match slashes {
        0 => Cow::Owned(format!("/{rest}")),
        1 => Cow::Borrowed(rest),
        _ => Cow::Borrowed(&rest[slashes - 1..]),
    }
}

#[cfg(test)]
mod tests;
