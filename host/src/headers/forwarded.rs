//! What proxies say of the client: X-Forwarded-For, -Proto and -Host.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

use super::{Seen, authority::is_authority, elements, joined, remove_where};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Whom a request is from, and how it was sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Forwarded {
    pub client: IpAddr,
    /// `http` or `https`.
    pub scheme: &'static str,
}

/// Reads what a proxy in front says, if it is trusted, and writes what the
/// upstream is to believe: the way that a trusted proxy tells with its own
/// address behind, else the client's address alone. `client` is the
/// connection's address in canonical form, `client_text` the same as text.
pub fn forward(
    headers: &mut HeaderMap,
    seen: &Seen,
    client: IpAddr,
    client_text: &HeaderValue,
    authority: &HeaderValue,
    trusted: &[IpNet],
) -> Forwarded {
    let mut forwarded = Forwarded { client, scheme: "http" };
    let mut way = client_text.clone();
    let mut host = authority.clone();
    if seen.forwarded {
        let is_trusted = |address: IpAddr| trusted.iter().any(|net| net.contains(&address));
        if is_trusted(client) {
            forwarded.client = walk(headers, client, is_trusted);
            way = extended(headers, client_text);
            if single(headers, &X_FORWARDED_PROTO).is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(b"https")) {
                forwarded.scheme = "https";
            }
            if let Some(told) = single(headers, &X_FORWARDED_HOST).filter(|told| is_authority(told)) {
                host = told.clone();
            }
        } else {
            remove_where(headers, |name| name == "forwarded" || name.starts_with("x-forwarded-"));
        }
    }
    headers.insert(X_FORWARDED_FOR, way);
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(forwarded.scheme));
    if host.is_empty() {
        // There may be one that says nothing of use.
        headers.remove(X_FORWARDED_HOST);
    } else {
        headers.insert(X_FORWARDED_HOST, host);
    }
    forwarded
}

/// The address that the last trusted proxy has seen: from the right, the first
/// that is not trusted. What is no address ends the walk.
fn walk(headers: &HeaderMap, client: IpAddr, is_trusted: impl Fn(IpAddr) -> bool) -> IpAddr {
    let mut known = client;
    for hop in headers.get_all(X_FORWARDED_FOR).iter().rev().flat_map(|line| elements(line).rev()) {
        let Some(address) = address(hop) else { break };
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
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let in_brackets = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<IpAddr>().ok();
    bare.or_else(with_port).or_else(in_brackets).map(|address| address.to_canonical())
}

/// The way so far, in one line, with one more address.
fn extended(headers: &HeaderMap, address: &HeaderValue) -> HeaderValue {
    let Some(mut way) = joined(headers, &X_FORWARDED_FOR).filter(|way| !way.trim_ascii().is_empty()) else {
        return address.clone();
    };
    way.extend_from_slice(b", ");
    way.extend_from_slice(address.as_bytes());
    HeaderValue::from_maybe_shared(bytes::Bytes::from(way)).unwrap_or_else(|_| address.clone())
}

/// The only line of a field; several are nobody's word.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut lines = headers.get_all(name).iter();
    lines.next().filter(|_| lines.next().is_none())
}

#[cfg(test)]
mod tests;
