//! The Cookie field (RFC 6265 section 4.2): pairs between `;`.

/// The values of a cookie, in order.
pub fn values<'a>(cookies: &'a [u8], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    cookies.split(|byte| *byte == b';').filter_map(pair).filter(move |(key, _)| *key == name.as_bytes()).map(|(_, v)| v)
}

/// The field without a cookie, the others byte for byte as they were.
pub fn without(cookies: &[u8], name: &str) -> Vec<u8> {
    let is_other = |piece: &&[u8]| pair(piece).is_none_or(|(key, _)| key != name.as_bytes());
    let kept: Vec<&[u8]> = cookies.split(|byte| *byte == b';').filter(is_other).collect();
    kept.join(&b';').trim_ascii_start().to_vec()
}

fn pair(piece: &[u8]) -> Option<(&[u8], &[u8])> {
    let piece = piece.trim_ascii();
    let at = piece.iter().position(|byte| *byte == b'=')?;
    Some((piece[..at].trim_ascii_end(), piece[at + 1..].trim_ascii_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let found: Vec<&[u8]> = values(b"a=1; key=x=y; xkey=2;key=\xff; key", "key").collect();
        assert_eq!(found, [&b"x=y"[..], b"\xff"]);
    }

    #[test]
    fn the_others_stay() {
        assert_eq!(without(b"a=1; key=s; b=\"2\"", "key"), b"a=1; b=\"2\"");
        assert_eq!(without(b"key=s; b=2;c", "key"), b"b=2;c");
        assert_eq!(without(b"key=s", "key"), b"");
    }
}
