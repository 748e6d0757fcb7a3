//! Paths and their escapes.

/// The text with its escapes made comparable (RFC 3986 section 6.2.2): those of
/// unreserved characters decoded, the digits of others in upper case. A `%` that
/// starts no escape stays.
pub fn normalise_escapes(text: &str) -> String {
    let mut normal = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        normal.push_str(&rest[..at]);
        rest = &rest[at..];
        let digits = rest.get(1..3).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
            normal.push('%');
            rest = &rest[1..];
            continue;
        };
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            normal.push(char::from(byte));
        } else {
            normal.push_str(&rest[..3].to_ascii_uppercase());
        }
        rest = &rest[3..];
    }
    normal.push_str(rest);
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_compare_as_they_mean() {
        assert_eq!(normalise_escapes("a%7e%2f%zz%4%+1"), "a~%2F%zz%4%+1");
        assert_eq!(normalise_escapes("%é%C3%a9"), "%é%C3%A9");
    }
}
