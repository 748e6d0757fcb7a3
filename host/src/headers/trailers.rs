//! Fields behind a body, which Trailer announces (RFC 9110 section 6.5).

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::{KEEP_ALIVE, PROXY_CONNECTION, elements, nominated};

/// Fields that a request may announce: nobody takes more of them.
const MOST: usize = 100;

/// Takes Trailer off a message whose Connection field is still there, and tells
/// which of the fields that it announces may come behind the body (RFC 9110 section
/// 6.5.1). Others would be a way around whoever has looked at the head.
pub fn take_announced(headers: &mut HeaderMap) -> Vec<HeaderName> {
    // Connection speaks of trailers too (section 7.6.1).
    let nominated = nominated(headers);
    let names = headers.get_all(header::TRAILER).iter().flat_map(elements);
    let names = names
        .filter_map(|name| HeaderName::from_bytes(name).ok())
        .filter(|name| may_follow(name) && !nominated.contains(name))
        .take(MOST)
        .collect();
    headers.remove(header::TRAILER);
    if nominated.contains(&header::TRAILER) { Vec::new() } else { names }
}

/// Announces these fields.
pub fn announce(headers: &mut HeaderMap, names: &[HeaderName]) {
    let names: Vec<&str> = names.iter().map(HeaderName::as_str).collect();
    if let Ok(value) = HeaderValue::from_str(&names.join(", "))
        && !names.is_empty()
    {
        headers.insert(header::TRAILER, value);
    }
}

/// Has a response no longer announce a field.
pub fn withdraw(headers: &mut HeaderMap, name: &HeaderName) {
    let is_it = |element: &[u8]| element.eq_ignore_ascii_case(name.as_str().as_bytes());
    if !headers.get_all(header::TRAILER).iter().flat_map(elements).any(is_it) {
        return;
    }
    let others: Vec<&[u8]> =
        headers.get_all(header::TRAILER).iter().flat_map(elements).filter(|element| !is_it(element)).collect();
    match HeaderValue::from_bytes(&others.join(&b", "[..])) {
        Ok(value) if !others.is_empty() => drop(headers.insert(header::TRAILER, value)),
        _ => drop(headers.remove(header::TRAILER)),
    }
}

/// Not what frames a message, routes it, says who asks, or how to take it.
fn may_follow(name: &HeaderName) -> bool {
    use header::*;
    const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
    const REFUSED: [HeaderName; 29] = [
        AUTHORIZATION,
        CACHE_CONTROL,
        CONNECTION,
        CONTENT_ENCODING,
        CONTENT_LENGTH,
        CONTENT_RANGE,
        CONTENT_TYPE,
        COOKIE,
        EXPECT,
        FORWARDED,
        HOST,
        HTTP2_SETTINGS,
        IF_MATCH,
        IF_MODIFIED_SINCE,
        IF_NONE_MATCH,
        IF_RANGE,
        IF_UNMODIFIED_SINCE,
        KEEP_ALIVE,
        MAX_FORWARDS,
        PRAGMA,
        PROXY_AUTHORIZATION,
        PROXY_CONNECTION,
        RANGE,
        SET_COOKIE,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
        VIA,
    ];
    !REFUSED.contains(name) && !name.as_str().starts_with("x-forwarded-")
}
