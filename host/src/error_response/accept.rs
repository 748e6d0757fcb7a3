//! Whether a client would rather have JSON or plain text (RFC 9110 section
//! 12.5.1).

/// How well a type does in an Accept field.
#[derive(Debug, Default, Clone, Copy)]
struct Rating {
    /// How closely the range that decides names the type: 0 for none, 1 for
    /// `*/*`, 2 for `application/*`, 3 for the type itself.
    closeness: u8,
    /// In thousandths.
    quality: u16,
    /// Place of that range in the field.
    place: usize,
}

impl Rating {
    fn consider(&mut self, closeness: u8, quality: u16, place: usize) {
        if closeness > self.closeness || (closeness == self.closeness && quality > self.quality) {
            *self = Self { closeness, quality, place };
        }
    }
}

/// `true` if JSON has the higher quality or, at equal quality, is named more
/// closely or earlier. `application/json` and `application/…+json` name it. So
/// `*/*` gets text, `application/json, text/plain, */*` gets JSON, and a browser
/// that only lists other types gets text. What is malformed is passed over.
pub fn prefers_json(accept: &[u8]) -> bool {
    let (mut json, mut text) = (Rating::default(), Rating::default());
    for (place, range) in split(accept, b',').enumerate() {
        let mut parts = split(range, b';');
        let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
        let Some(quality) = quality(parts) else { continue };
        match media_type.as_slice() {
            b"*/*" => {
                json.consider(1, quality, place);
                text.consider(1, quality, place);
            }
            b"application/*" => json.consider(2, quality, place),
            b"text/*" => text.consider(2, quality, place),
            b"text/plain" => text.consider(3, quality, place),
            b"application/json" => json.consider(3, quality, place),
            other if other.starts_with(b"application/") && other.ends_with(b"+json") => {
                json.consider(3, quality, place);
            }
            _ => {}
        }
    }
    if json.quality == text.quality && json.closeness == text.closeness {
        return json.quality > 0 && json.place < text.place;
    }
    json.quality > 0 && (json.quality, json.closeness) > (text.quality, text.closeness)
}

/// The quality among a range's parameters, 1 without; `None` if it is none.
fn quality<'a>(mut parameters: impl Iterator<Item = &'a [u8]>) -> Option<u16> {
    let value = parameters.find_map(|parameter| match parameter {
        [b'q' | b'Q', b'=', value @ ..] => Some(value),
        _ => None,
    });
    let Some(value) = value else { return Some(1000) };
    let (whole, decimals) = match value {
        [whole] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let mut thousandths = match whole {
        b'0' => 0,
        b'1' => 1000,
        _ => return None,
    };
    for (digit, weight) in decimals.iter().zip([100, 10, 1]) {
        thousandths += u16::from(digit.checked_sub(b'0').filter(|digit| *digit <= 9)?) * weight;
    }
    (thousandths <= 1000).then_some(thousandths)
}

/// The parts between separators outside quoted strings, without white space
/// around them.
fn split(mut rest: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut is_over = false;
    std::iter::from_fn(move || {
        if is_over {
            return None;
        }
        let (mut is_quoted, mut is_escaped) = (false, false);
        let end = rest.iter().position(|&byte| {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if is_quoted => is_escaped = true,
                b'"' => is_quoted = !is_quoted,
                _ => return byte == separator && !is_quoted,
            }
            false
        });
        let part;
        match end {
            Some(end) => (part, rest) = (&rest[..end], &rest[end + 1..]),
            None => (part, is_over) = (rest, true),
        }
        Some(part.trim_ascii())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_where_it_is_preferred() {
        for accept in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/problem+json",
            "application/*",
            "application/json, text/plain, */*",
            "text/html, application/json;q=0.9, */*;q=0.8",
            "text/plain;q=0.5, application/vnd.api+json;q=0.501",
            "*/*, application/json",
            "application/json;profile=\"a,b;q=0\", text/plain;q=0.9",
            "text/plain;q=0, */*;q=0.1",
            ", ,application/json",
        ] {
            assert!(prefers_json(accept.as_bytes()), "{accept}");
        }
    }

    #[test]
    fn text_otherwise() {
        for accept in [
            "",
            "*/*",
            "text/plain",
            "text/plain, application/json",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "text/*, application/json;q=0.9",
            "application/json;q=0",
            "application/json;q=2",
            "application/json;q=0.1234",
            "application/json;q=",
            "application/json;q=1.001",
            "application/jsonp",
            "text/plain+json",
            "\"application/json",
            "application/json;q=0, */*",
        ] {
            assert!(!prefers_json(accept.as_bytes()), "{accept}");
        }
        assert!(!prefers_json(b"\xff\x00\\\",;=q"));
    }
}
