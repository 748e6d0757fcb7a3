//! Where a response's body ends (RFC 9112 section 6.3).

use http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};

use super::{Head, Malformed, chunked::Chunked, head::Parsed};
use crate::headers::{self, Seen};

/// What marks the end of a body.
#[derive(Debug)]
pub enum Framing {
    /// It has none.
    Empty,
    /// So many bytes are left.
    Length(u64),
    Chunked(Chunked),
    /// The end of the connection.
    Close,
}

/// Decides by method, status and fields. Where two of them are at odds the
/// response may be an attempt to smuggle another one, and is refused, also if it
/// has no body. The fields of the connection go.
pub fn decide(parsed: Parsed, method: &Method) -> Result<Head, Malformed> {
    let Parsed { version, status, mut headers, seen, closes } = parsed;
    let is_chunked = seen.transfer_encodings > 0;
    if is_chunked {
        check_coding(&headers, &seen, version)?;
    }
    let length = if seen.content_lengths > 0 { Some(length(&mut headers)?) } else { None };
    if is_chunked && length.is_some() {
        return Err(Malformed("both Transfer-Encoding and Content-Length"));
    }
    let is_bodiless = *method == Method::HEAD || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
    let framing = match length {
        _ if is_bodiless => Framing::Empty,
        _ if is_chunked => Framing::Chunked(Chunked::new(seen.trailer())),
        Some(0) => Framing::Empty,
        Some(length) => Framing::Length(length),
        None => Framing::Close,
    };
    let closes = closes
        || version < Version::HTTP_11
        || matches!(framing, Framing::Close)
        || seen.connection() && says_close(&headers);
    headers::strip_response(&mut headers, &seen);
    Ok(Head { status, headers, framing, persistent: !closes })
}

/// Any other coding would go on under a name that the next hop is not told.
fn check_coding(headers: &HeaderMap, seen: &Seen, version: Version) -> Result<(), Malformed> {
    if version < Version::HTTP_11 {
        return Err(Malformed("Transfer-Encoding in HTTP/1.0"));
    }
    let coding = headers.get(header::TRANSFER_ENCODING).map(HeaderValue::as_bytes).unwrap_or_default();
    if seen.transfer_encodings > 1 || !coding.eq_ignore_ascii_case(b"chunked") {
        return Err(Malformed("transfer coding other than chunked"));
    }
    Ok(())
}

/// Several lines that say the same are one. Zeros in front go: not everybody
/// takes what has some for decimal.
fn length(headers: &mut HeaderMap) -> Result<u64, Malformed> {
    let mut lines = headers.get_all(header::CONTENT_LENGTH).iter();
    let first = lines.next().map(HeaderValue::as_bytes).unwrap_or_default();
    if lines.any(|other| other.as_bytes() != first) {
        return Err(Malformed("Content-Lengths that differ"));
    }
    let number = first.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    });
    let number = number.filter(|_| !first.is_empty()).ok_or(Malformed("a Content-Length that is no number"))?;
    if first.len() > 1 && first.starts_with(b"0") {
        headers.insert(header::CONTENT_LENGTH, number.into());
    }
    Ok(number)
}

fn says_close(headers: &HeaderMap) -> bool {
    headers.get_all(header::CONNECTION).iter().any(|line| {
        let mut options = line.as_bytes().split(|byte| *byte == b',');
        options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
    })
}
