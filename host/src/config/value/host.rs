//! Hosts: as a route names them, and in a URL.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::quoted;
use crate::config::{HostPattern, error::Fault};

/// Longest name in DNS (RFC 1035 2.3.4), and longest part between two dots.
const MAX: usize = 253;
const MAX_LABEL: usize = 63;

/// `api.example.com`, `*.example.com`, `127.0.0.1` or `[::1]`, in lower case.
pub(in crate::config) fn pattern(text: &str) -> Result<HostPattern, Fault> {
    if text == "*" {
        return Err(Fault::new("\"*\" is no host").hint("leave hosts out to match every host"));
    }
    match text.strip_prefix("*.") {
        Some(suffix) => match name(suffix) {
            Ok(suffix) if suffix.parse::<Ipv4Addr>().is_err() => Ok(HostPattern::Wildcard(suffix)),
            _ => Err(no_host(text)),
        },
        None => host(text).map(HostPattern::Exact),
    }
}

/// A name or an address, an IPv6 one in brackets, in the form that compares.
pub(in crate::config) fn host(text: &str) -> Result<String, Fault> {
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return match inner.parse::<Ipv6Addr>() {
            Ok(address) => Ok(format!("[{address}]")),
            Err(_) => Err(no_host(text).hint("expected an IPv6 address in the brackets")),
        };
    }
    name(text)
}

fn name(text: &str) -> Result<String, Fault> {
    if !text.is_ascii() {
        return Err(no_host(text).hint("write it as it is sent, in ASCII: xn--…"));
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Err(no_host(text).hint(format!("write [{text}]")));
    }
    if let Some((host, port)) = text.rsplit_once(':')
        && port.bytes().all(|b| b.is_ascii_digit())
    {
        return Err(no_host(text).hint(format!("without port: {}", quoted(host))));
    }
    if let Some(host) = text.strip_suffix('.') {
        return Err(no_host(text).hint(format!("without the last dot: {}", quoted(host))));
    }
    let label = |label: &str| {
        let known = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        !label.is_empty() && label.len() <= MAX_LABEL && label.bytes().all(known)
    };
    match text.len() <= MAX && text.split('.').all(label) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(no_host(text).hint("like api.example.com or *.example.com")),
    }
}

fn no_host(text: &str) -> Fault {
    Fault::new(format!("{} is no host", quoted(text)))
}
