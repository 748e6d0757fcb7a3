//! What proxies say of the client: X-Forwarded-For, -Proto and -Host.

use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr},
};

use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

use super::{authority::is_authority, elements, joined, remove_where};

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

/// Reads what proxies in front say, if the last one is trusted, and writes what
/// the upstream is to believe: the way that a trusted proxy tells with its own
/// address behind, else the client's address alone. `client` is the
/// connection's address in canonical form, `client_text` the same as text.
pub fn forward(
    headers: &mut HeaderMap,
    client: IpAddr,
    client_text: &HeaderValue,
    authority: &HeaderValue,
    trusted: &[IpNet],
) -> Forwarded {
    let is_trusted = |address: IpAddr| trusted.iter().any(|net| net.contains(&address));
    if !is_trusted(client) {
        remove_where(headers, |name| name == "forwarded" || name.starts_with("x-forwarded-"));
        add_forwarded(headers, client_text, authority);
        return Forwarded { client, scheme: "http" };
    }
    let is_secure = single(headers, &X_FORWARDED_PROTO).is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(b"https"));
    let forwarded =
        Forwarded { client: walk(headers, client, is_trusted), scheme: if is_secure { "https" } else { "http" } };
    let told = single(headers, &X_FORWARDED_HOST).filter(|told| is_authority(told));
    let (way, host) = (extended(headers, client_text), told.unwrap_or(authority).clone());
    add_forwarded(headers, &way, &host);
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(forwarded.scheme));
    forwarded
}

/// Sets the fields for a client that nobody trusted stands before, which has
/// asked for `host` over plain HTTP.
pub fn add_forwarded(headers: &mut HeaderMap, client: &HeaderValue, host: &HeaderValue) {
    // There may be a host that says nothing of use.
    headers.remove(X_FORWARDED_HOST);
    for (name, value) in forwarded_lines(client, host) {
        headers.insert(name, value.clone());
    }
}

/// The same fields as they go upstream.
pub fn forwarded_lines<'a>(
    client: &'a HeaderValue,
    host: &'a HeaderValue,
) -> impl Iterator<Item = (HeaderName, &'a HeaderValue)> {
    static HTTP: HeaderValue = HeaderValue::from_static("http");
    let host = (!host.is_empty()).then_some((X_FORWARDED_HOST, host));
    [(X_FORWARDED_FOR, client), (X_FORWARDED_PROTO, &HTTP)].into_iter().chain(host)
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
    let Some(mut way) =
        joined(headers, &X_FORWARDED_FOR).map(Cow::into_owned).filter(|way| !way.trim_ascii().is_empty())
    else {
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
