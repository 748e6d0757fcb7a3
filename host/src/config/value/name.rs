//! Names, and other short texts.

use super::quoted;
use crate::config::error::Fault;

/// Longest name, in characters.
const MAX: usize = 128;
/// Longest name that stands as a key, in characters.
const MAX_KEY: usize = 64;

/// What else stands beside a plugin's name in a chain, now or by the design.
const RESERVED: [&str; 4] = ["chain", "isolation", "limits", "plugins"];

/// A route's, a consumer's or a group's: any text that fits into a log line and
/// a header field.
pub(in crate::config) fn free(text: &str) -> Result<&str, Fault> {
    if text.trim() != text || text.is_empty() {
        return Err(Fault::new(format!("{} is no name", quoted(text))).hint("not empty, without white space around it"));
    }
    if text.chars().count() > MAX {
        return Err(Fault::new(format!("the name is longer than {MAX} characters")));
    }
    match text.chars().any(char::is_control) {
        true => Err(Fault::new(format!("the name {} has a control character", quoted(text)))),
        false => Ok(text),
    }
}

/// A module's.
pub(in crate::config) fn module(text: &str) -> Result<&str, Fault> {
    let first = text.starts_with(|c: char| c.is_ascii_lowercase());
    let rest = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if !first || !rest || text.len() > MAX_KEY {
        return Err(Fault::new(format!("{} is no module name", quoted(text)))
            .hint(format!("a-z, 0-9 and -, a letter first, at most {MAX_KEY} characters")));
    }
    match RESERVED.contains(&text) {
        true => Err(Fault::new(format!("a module can't be called {}", quoted(text)))
            .hint("the word has a meaning of its own in a chain")),
        false => Ok(text),
    }
}

/// An upstream's: nothing that could be taken for a URL.
pub(in crate::config) fn upstream(text: &str) -> Result<&str, Fault> {
    let known = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    match known && !text.is_empty() && text.len() <= MAX_KEY {
        true => Ok(text),
        false => Err(Fault::new(format!("{} is no upstream name", quoted(text)))
            .hint(format!("letters, digits, -, _ and ., at most {MAX_KEY} characters"))),
    }
}

/// An environment variable's.
pub(in crate::config) fn environment(text: &str) -> Result<String, Fault> {
    match text.is_empty() || text.contains(['=', '\0']) {
        true => Err(Fault::new(format!("{} is no name of an environment variable", quoted(text)))),
        false => Ok(text.to_owned()),
    }
}

/// A SHA-256 in hex.
pub(in crate::config) fn sha256(text: &str) -> Result<[u8; 32], Fault> {
    let mut digest = [0; 32];
    let pairs = text.as_bytes().chunks_exact(2);
    let whole = text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    for (byte, pair) in digest.iter_mut().zip(pairs) {
        *byte = pair.iter().fold(0, |byte, digit| byte << 4 | (*digit as char).to_digit(16).unwrap_or(0) as u8);
    }
    match whole {
        true => Ok(digest),
        false => Err(Fault::new("expected a SHA-256: 64 hexadecimal digits")),
    }
}
