//! Header fields: what they are made of, and edits of them.

use std::{fmt, ops::Deref, str};

pub use crate::bindings::weir::plugin::types::{EditError, Field, FieldEdit as Edit};

/// Fields that are the gateway's own: framing and connection.
const FORBIDDEN: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether a plugin may edit fields of that name: a token (RFC 9110 section
/// 5.6.2) that is not about framing or the connection. For [`crate::Plugin::new`],
/// so that a wrong name is found when the configuration is loaded.
pub fn check_name(name: &str) -> Result<(), EditError> {
    if !is_token(name) {
        Err(EditError::InvalidName)
    } else if FORBIDDEN.iter().any(|forbidden| name.eq_ignore_ascii_case(forbidden)) {
        Err(EditError::Forbidden)
    } else {
        Ok(())
    }
}

/// Whether these bytes can be a field's value: no control character but tab
/// (RFC 9110 section 5.5).
pub fn check_value(value: &[u8]) -> Result<(), EditError> {
    let fits = value.iter().all(|byte| *byte == b'\t' || !byte.is_ascii_control());
    if fits { Ok(()) } else { Err(EditError::InvalidValue) }
}

/// Whether the text is a token (RFC 9110 section 5.6.2).
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

impl<'a> Field<'a> {
    /// A field line.
    pub fn new<V: AsRef<[u8]> + ?Sized>(name: &'a str, value: &'a V) -> Self {
        Self { name, value: value.as_ref() }
    }
}

impl<'a> Edit<'a> {
    /// Puts this one line in place of all lines of that name.
    pub fn set<V: AsRef<[u8]> + ?Sized>(name: &'a str, value: &'a V) -> Self {
        Self::Set(Field::new(name, value))
    }

    /// Adds a line behind those that are there.
    pub fn append<V: AsRef<[u8]> + ?Sized>(name: &'a str, value: &'a V) -> Self {
        Self::Append(Field::new(name, value))
    }

    /// Takes away all lines of that name. None there is no error.
    pub fn remove(name: &'a str) -> Self {
        Self::Remove(name)
    }
}

/// The bytes of a field or an attribute, which need not be text.
#[derive(Clone, PartialEq, Eq)]
pub struct Value(pub(crate) Vec<u8>);

impl Value {
    /// As text, if it is UTF-8.
    pub fn text(&self) -> Option<&str> {
        str::from_utf8(&self.0).ok()
    }

    /// The bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// Field lines as they are in a message.
///
/// ```no_run
/// # fn hook(response: &weir_sdk::Response) {
/// for (name, value) in response.header_lines(&["set-cookie"]).iter() {
///     weir_sdk::debug!("{name}: {}", value.escape_ascii());
/// }
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Lines(pub(crate) Vec<u8>);

impl Lines {
    /// Name and value of each line, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let mut rest: &[u8] = &self.0;
        std::iter::from_fn(move || {
            let line_end = find(rest, b"\r\n")?;
            let line = &rest[..line_end];
            rest = &rest[line_end + 2..];
            // The name ends before the first `: `; a pseudo-header's name has a
            // colon in front, but no space behind that.
            let name_end = find(line, b": ")?;
            Some((str::from_utf8(&line[..name_end]).ok()?, &line[name_end + 2..]))
        })
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

fn find(text: &[u8], pair: &[u8; 2]) -> Option<usize> {
    text.windows(2).position(|window| window == pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_checked() {
        assert_eq!(check_name("x-a"), Ok(()));
        assert_eq!(check_name(""), Err(EditError::InvalidName));
        assert_eq!(check_name("x a"), Err(EditError::InvalidName));
        assert_eq!(check_name(":path"), Err(EditError::InvalidName));
        assert_eq!(check_name("Content-Length"), Err(EditError::Forbidden));
        assert_eq!(check_value(b"a\tb \xff"), Ok(()));
        for byte in [b'\r', b'\n', 0, 0x7f, 0x1b] {
            assert_eq!(check_value(&[b'a', byte]), Err(EditError::InvalidValue));
        }
    }

    #[test]
    fn lines_are_taken_apart() {
        let lines = Lines(b":path: /a: b\r\nset-cookie: a=1\r\nset-cookie: \r\nx: \xff: y\r\n".to_vec());
        let all: Vec<_> = lines.iter().collect();
        assert_eq!(all, [(":path", &b"/a: b"[..]), ("set-cookie", b"a=1"), ("set-cookie", b""), ("x", b"\xff: y"),]);
        assert_eq!(Lines(Vec::new()).iter().count(), 0);
    }
}
