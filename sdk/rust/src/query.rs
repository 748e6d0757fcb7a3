//! Parameters of a query, byte for byte.
//!
//! A query is a list of pieces between `&`. What is not asked for stays as it
//! was written: order, duplicates, `flag` next to `flag=`, `%20` next to `+`.
//! Names are compared as the upstream will read them: percent-decoded, with `+`
//! as a space.

use std::borrow::Cow;

/// The decoded values of a parameter, in order; `flag` alone has the empty one.
pub fn values<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    query.split('&').map(split).filter(move |(key, _)| decode(key) == name.as_bytes()).map(|(_, value)| decode(value))
}

/// The query without a parameter.
pub fn without(query: &str, name: &str) -> String {
    let kept: Vec<&str> = query.split('&').filter(|piece| !is_named(piece, name)).collect();
    kept.join("&")
}

/// The query with a parameter set once: in place of the first one there, or at
/// the end. Name and value are given decoded.
pub fn with(query: &str, name: &str, value: &str) -> String {
    let mut piece = String::new();
    encode(&mut piece, name);
    piece.push('=');
    encode(&mut piece, value);

    let mut piece = Some(piece);
    let mut pieces: Vec<Cow<'_, str>> = Vec::new();
    for old in query.split('&').filter(|_| !query.is_empty()) {
        if !is_named(old, name) {
            pieces.push(old.into());
        } else if let Some(new) = piece.take() {
            pieces.push(new.into());
        }
    }
    pieces.extend(piece.map(Cow::from));
    pieces.join("&")
}

fn is_named(piece: &str, name: &str) -> bool {
    // Nothing between two `&` is no parameter.
    !piece.is_empty() && decode(split(piece).0) == name.as_bytes()
}

fn split(piece: &str) -> (&str, &str) {
    piece.split_once('=').unwrap_or((piece, ""))
}

/// `application/x-www-form-urlencoded`; a `%` that starts no escape stands for
/// itself.
fn decode(text: &str) -> Cow<'_, [u8]> {
    if !text.contains(['%', '+']) {
        return text.as_bytes().into();
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'+' => decoded.push(b' '),
            b'%' => match after {
                [high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                    decoded.push(hex(*high) << 4 | hex(*low));
                    rest = after;
                }
                _ => decoded.push(b'%'),
            },
            byte => decoded.push(byte),
        }
    }
    decoded.into()
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        digit => (digit | 0x20) - b'a' + 10,
    }
}

/// Everything but unreserved characters (RFC 3986 section 2.3) as escapes.
fn encode(to: &mut String, text: &str) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            to.push(char::from(byte));
        } else {
            to.push('%');
            to.push(char::from(DIGITS[usize::from(byte >> 4)]));
            to.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(query: &str, name: &str) -> Vec<String> {
        values(query, name).map(|value| String::from_utf8_lossy(&value).into_owned()).collect()
    }

    #[test]
    fn values_are_decoded() {
        assert_eq!(all("a=1&k=x%2By+z&k", "k"), ["x+y z", ""]);
        assert_eq!(all("%6B=1&K=2", "k"), ["1"]);
        assert_eq!(all("k=100%&k=%zz", "k"), ["100%", "%zz"]);
        assert!(all("", "k").is_empty());
    }

    #[test]
    fn taking_away_leaves_the_rest_as_it_was() {
        assert_eq!(without("a=%20&k=1&b=+&flag&flag=&a=2", "k"), "a=%20&b=+&flag&flag=&a=2");
        assert_eq!(without("%6b=1&x", "k"), "x");
        assert_eq!(without("k=1&k=2", "k"), "");
        assert_eq!(without("a&&b&", "k"), "a&&b&");
        assert_eq!(without("kk=1", "k"), "kk=1");
    }

    #[test]
    fn setting_keeps_the_place() {
        assert_eq!(with("a=1&k=old&b=%20&k=older", "k", "ü &"), "a=1&k=%C3%BC%20%26&b=%20");
        assert_eq!(with("flag&flag=", "k", "v"), "flag&flag=&k=v");
        assert_eq!(with("", "k", ""), "k=");
    }
}
