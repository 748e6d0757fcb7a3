//! Header fields that are a proxy's business: those of one connection, of
//! framing, and of forwarding.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Version, header, uri::Authority};
use ipnet::IpNet;

use crate::error::ErrorKind;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What one look over a head has found.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    connection: bool,
    /// Keep-Alive, Proxy-Connection, TE, Upgrade, Transfer-Encoding or others
    /// that are named in Connection by nature.
    hop_by_hop: bool,
    underscore: bool,
    forwarded: bool,
    expect: bool,
    pub hosts: usize,
    pub transfer_encodings: usize,
    pub content_lengths: usize,
}

impl Seen {
    /// Looks at each name once.
    pub fn scan(headers: &HeaderMap) -> Self {
        let mut seen = Self::default();
        for name in headers.keys() {
            let text = name.as_str();
            // The first letter tells most names apart from all of interest.
            match text.as_bytes().first() {
                Some(b'c') if *name == header::CONNECTION => seen.connection = true,
                Some(b'c') if *name == header::CONTENT_LENGTH => {
                    seen.content_lengths = headers.get_all(name).iter().count();
                }
                Some(b't') if *name == header::TRANSFER_ENCODING => {
                    seen.transfer_encodings = headers.get_all(name).iter().count();
                    seen.hop_by_hop = true;
                }
                Some(b't') if *name == header::TE || *name == header::TRAILER => seen.hop_by_hop = true,
                Some(b'k') if *name == KEEP_ALIVE => seen.hop_by_hop = true,
                Some(b'p') if *name == PROXY_CONNECTION => seen.hop_by_hop = true,
                Some(b'u') if *name == header::UPGRADE => seen.hop_by_hop = true,
                Some(b'e') if *name == header::EXPECT => seen.expect = true,
                Some(b'h') if *name == header::HOST => seen.hosts = headers.get_all(name).iter().count(),
                Some(b'f') if *name == header::FORWARDED => seen.forwarded = true,
                Some(b'x') if text.starts_with("x-forwarded-") => seen.forwarded = true,
                _ => {}
            }
            seen.underscore |= text.as_bytes().contains(&b'_');
        }
        seen
    }
}

/// Checks what frames a request (RFC 9112 section 6): one Transfer-Encoding
/// that is `chunked` alone, and not in HTTP/1.0; or one Content-Length.
pub fn check_framing(headers: &HeaderMap, seen: &Seen, version: Version) -> Result<(), ErrorKind> {
    match seen.transfer_encodings {
        0 => {}
        1 if version == Version::HTTP_10 => return Err(ErrorKind::BadRequest("Transfer-Encoding in HTTP/1.0")),
        1 => {
            let value = headers.get(header::TRANSFER_ENCODING).map_or(&b""[..], HeaderValue::as_bytes);
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(ErrorKind::BadRequest("a Transfer-Encoding other than chunked"));
            }
            if seen.content_lengths > 0 {
                return Err(ErrorKind::BadRequest("Content-Length beside Transfer-Encoding"));
            }
        }
        _ => return Err(ErrorKind::BadRequest("more than one Transfer-Encoding")),
    }
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    if seen.content_lengths > 1 {
        let first = lengths.next();
        if lengths.any(|other| Some(other) != first) {
            return Err(ErrorKind::BadRequest("Content-Lengths that differ"));
        }
    }
    Ok(())
}

/// Takes the fields of the client's connection off a request (RFC 9110 section
/// 7.6.1), before anybody sets a field that they could name. Tells whether the
/// client takes trailers.
pub fn strip_request(headers: &mut HeaderMap, seen: &Seen) -> bool {
    if seen.expect {
        headers.remove(header::EXPECT);
    }
    if seen.content_lengths > 1
        && let Some(length) = headers.remove(header::CONTENT_LENGTH)
    {
        headers.insert(header::CONTENT_LENGTH, length);
    }
    let trailers = seen.hop_by_hop && takes_trailers(headers);
    strip(headers, seen.connection, seen.hop_by_hop);
    trailers
}

/// Takes the fields of the upstream's connection off a response. `trailer`
/// stays: by it hyper knows which trailers to send on.
pub fn strip_response(headers: &mut HeaderMap) {
    let seen = Seen::scan(headers);
    strip(headers, seen.connection, seen.hop_by_hop);
}

fn takes_trailers(headers: &HeaderMap) -> bool {
    headers.get_all(header::TE).iter().any(|value| {
        value.as_bytes().split(|byte| *byte == b',').any(|coding| {
            let coding = coding.split(|byte| *byte == b';').next().unwrap_or_default();
            coding.trim_ascii().eq_ignore_ascii_case(b"trailers")
        })
    })
}

fn strip(headers: &mut HeaderMap, connection: bool, hop_by_hop: bool) {
    if connection {
        let nominated: Vec<HeaderName> = headers
            .get_all(header::CONNECTION)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
            .filter(|name| !is_end_to_end(name))
            .collect();
        for name in nominated {
            headers.remove(name);
        }
        headers.remove(header::CONNECTION);
    }
    if hop_by_hop {
        for name in [KEEP_ALIVE, PROXY_CONNECTION, header::TE, header::UPGRADE, header::TRANSFER_ENCODING] {
            headers.remove(name);
        }
    }
}

/// Fields that no connection option may take away: what frames a message or
/// says whom it is for is the gateway's to decide.
fn is_end_to_end(name: &HeaderName) -> bool {
    *name == header::HOST || *name == header::CONTENT_LENGTH || *name == header::CONTENT_TYPE
}

/// Takes fields away whose name an upstream could take for another one.
pub fn drop_underscores(headers: &mut HeaderMap, seen: &Seen) {
    if seen.underscore {
        let names: Vec<HeaderName> = headers.keys().filter(|name| name.as_str().contains('_')).cloned().collect();
        for name in names {
            headers.remove(name);
        }
    }
}

/// Whom a request is for and from.
#[derive(Debug, PartialEq, Eq)]
pub struct Forwarded {
    pub client: IpAddr,
    pub scheme: &'static str,
}

/// Reads what a proxy in front says, if it is trusted, and writes what the
/// upstream is to believe: the whole way in X-Forwarded-For if all of it is
/// trusted, else the client's own address alone.
pub fn forward(
    headers: &mut HeaderMap,
    seen: &Seen,
    client: IpAddr,
    client_text: &HeaderValue,
    authority: &HeaderValue,
    trusted: &[IpNet],
) -> Forwarded {
    let mut forwarded = Forwarded { client, scheme: "http" };
    let mut host = None;
    let is_trusted = |address: IpAddr| trusted.iter().any(|net| net.contains(&address));
    let mut way = None;
    if seen.forwarded {
        if is_trusted(client) {
            way = way_of(headers);
            forwarded.client = walk(way.as_deref(), client, is_trusted);
            if single(headers, &X_FORWARDED_PROTO).is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https"))
            {
                forwarded.scheme = "https";
            }
            host = single(headers, &X_FORWARDED_HOST).filter(|host| is_authority(host)).cloned();
        } else {
            headers.remove(header::FORWARDED);
            let theirs: Vec<HeaderName> =
                headers.keys().filter(|name| name.as_str().starts_with("x-forwarded-")).cloned().collect();
            for name in theirs {
                headers.remove(name);
            }
        }
    }
    let way = match way {
        Some(mut way) => {
            way.extend_from_slice(b", ");
            way.extend_from_slice(client_text.as_bytes());
            HeaderValue::from_maybe_shared(bytes::Bytes::from(way)).unwrap_or_else(|_| client_text.clone())
        }
        None => client_text.clone(),
    };
    headers.insert(X_FORWARDED_FOR, way);
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(forwarded.scheme));
    let host = host.unwrap_or_else(|| authority.clone());
    if !host.is_empty() {
        headers.insert(X_FORWARDED_HOST, host);
    }
    forwarded
}

/// All lines of X-Forwarded-For as one.
fn way_of(headers: &HeaderMap) -> Option<Vec<u8>> {
    crate::exchange::joined(headers, &X_FORWARDED_FOR).filter(|way| !way.trim_ascii().is_empty())
}

/// The address that the last trusted proxy has seen: from the right, the first
/// that is not trusted. What is no address ends the walk.
fn walk(way: Option<&[u8]>, client: IpAddr, is_trusted: impl Fn(IpAddr) -> bool) -> IpAddr {
    let mut known = client;
    for hop in way.unwrap_or_default().rsplit(|byte| *byte == b',') {
        let Some(address) = address(hop.trim_ascii()) else { break };
        known = address;
        if !is_trusted(address) {
            break;
        }
    }
    known
}

/// An address as proxies write it: bare, or with a port.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bare = text.parse::<IpAddr>().ok();
    let with_port = || text.parse::<std::net::SocketAddr>().ok().map(|address| address.ip());
    let in_brackets = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<IpAddr>().ok();
    bare.or_else(with_port).or_else(in_brackets).map(|address| address.to_canonical())
}

/// The only line of a field; several are nobody's word.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut lines = headers.get_all(name).iter();
    lines.next().filter(|_| lines.next().is_none())
}

fn is_authority(value: &HeaderValue) -> bool {
    check_authority(value.as_bytes()).is_ok()
}

/// The authority that a request is for: the target's if it has one (RFC 9112
/// section 3.2.2), else Host. Lower case; empty where HTTP/1.0 names none.
pub fn authority(
    target: Option<&Authority>,
    headers: &HeaderMap,
    seen: &Seen,
    version: Version,
) -> Result<HeaderValue, ErrorKind> {
    let value = match (seen.hosts, headers.get(header::HOST)) {
        (0, _) if version == Version::HTTP_10 || target.is_some() => HeaderValue::from_static(""),
        (0, _) | (_, None) => return Err(ErrorKind::BadRequest("no Host")),
        (1, Some(host)) => host.clone(),
        _ => return Err(ErrorKind::BadRequest("more than one Host")),
    };
    if seen.hosts == 1 {
        check_authority(value.as_bytes())?;
    }
    let value = match target {
        Some(authority) => {
            check_authority(authority.as_str().as_bytes())?;
            HeaderValue::from_str(authority.as_str()).map_err(|_| ErrorKind::BadRequest("an invalid authority"))?
        }
        None => value,
    };
    if !value.as_bytes().iter().any(u8::is_ascii_uppercase) {
        return Ok(value);
    }
    HeaderValue::from_bytes(&value.as_bytes().to_ascii_lowercase())
        .map_err(|_| ErrorKind::BadRequest("an invalid authority"))
}

/// `host` or `host:port` (RFC 3986 section 3.2 without userinfo).
fn check_authority(authority: &[u8]) -> Result<(), ErrorKind> {
    const WRONG: ErrorKind = ErrorKind::BadRequest("an invalid Host");
    let (host, port) = split_port(authority);
    if let Some(port) = port
        && (port.len() > 5 || !port.iter().all(u8::is_ascii_digit) || port_number(port) > 65535)
    {
        return Err(WRONG);
    }
    if let Some(address) = host.strip_prefix(b"[") {
        let address = address.strip_suffix(b"]").and_then(|address| std::str::from_utf8(address).ok()).ok_or(WRONG)?;
        return address.parse::<std::net::Ipv6Addr>().map(drop).map_err(|_| WRONG);
    }
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    if host.is_empty() || !host.iter().all(is_name) { Err(WRONG) } else { Ok(()) }
}

fn port_number(digits: &[u8]) -> u32 {
    digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0'))
}

/// Host and port of an authority; an IPv6 address keeps its brackets.
fn split_port(authority: &[u8]) -> (&[u8], Option<&[u8]>) {
    let from = authority.iter().rposition(|byte| *byte == b']').map_or(0, |end| end + 1);
    match authority[from..].iter().position(|byte| *byte == b':') {
        Some(colon) => (&authority[..from + colon], Some(&authority[from + colon + 1..])),
        None => (authority, None),
    }
}

/// The host of a checked authority, for the router.
pub fn host_of(authority: &HeaderValue) -> &str {
    std::str::from_utf8(split_port(authority.as_bytes()).0).unwrap_or_default()
}
