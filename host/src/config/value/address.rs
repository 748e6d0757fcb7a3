//! Addresses and URLs of servers.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use super::{host, quoted};
use crate::config::{Target, error::Fault};

/// An IP address and a port.
pub(in crate::config) fn socket(text: &str) -> Result<SocketAddr, Fault> {
    text.parse().map_err(|_| {
        Fault::new(format!("{} is no address to listen on", quoted(text)))
            .hint("an IP address and a port: 127.0.0.1:8080 or [::]:8080")
    })
}

/// `10.0.0.0/8`, or one address.
pub(in crate::config) fn network(text: &str) -> Result<IpNet, Fault> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(IpNet::from(address));
    }
    match text.parse::<IpNet>() {
        Ok(network) if network == network.trunc() => Ok(network),
        Ok(network) => Err(Fault::new(format!("{} has bits set beyond its prefix", quoted(text)))
            .hint(format!("write {}", network.trunc()))),
        Err(_) => {
            Err(Fault::new(format!("{} is no network", quoted(text))).hint("like 10.0.0.0/8, fd00::/8 or 10.1.2.3"))
        }
    }
}

/// Whether `text` is meant as a URL, or could hold the password of one.
pub(in crate::config) fn is_url(text: &str) -> bool {
    text.contains("://") || text.contains('@')
}

/// The target that a URL names: `http://host` or `http://host:port`. Its weight
/// is 1.
pub(in crate::config) fn target(text: &str) -> Result<Target, Fault> {
    // Before anything is quoted: there may be a password in it.
    if text.contains('@') {
        return Err(Fault::new("the URL has a user name or password in it").hint("only http://host:port"));
    }
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    match scheme.to_ascii_lowercase().as_str() {
        "http" => {}
        "https" => {
            return Err(Fault::new("TLS to upstreams is not supported in this version").hint("only http://host:port"));
        }
        _ => return Err(no_url(text)),
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    if end < rest.len() {
        return Err(Fault::new(format!("{} has more than a host and a port", quoted(text)))
            .hint(format!("write {}", quoted(&format!("http://{}", &rest[..end])))));
    }
    let (name, port) = split_port(rest).ok_or_else(|| no_url(text))?;
    let name = host::host(name).map_err(|_| no_url(text))?;
    let authority = if port == 80 { name.clone() } else { format!("{name}:{port}") };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    Ok(Target { host: bare.into(), port, authority: authority.into(), weight: 1 })
}

/// The host and the port, 80 without one; `None` for a port that can't be.
fn split_port(authority: &str) -> Option<(&str, u16)> {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') && host.parse::<Ipv6Addr>().is_err() => {
            let digits = port.bytes().all(|b| b.is_ascii_digit());
            let port = port.parse().ok().filter(|port| digits && *port != 0)?;
            Some((host, port))
        }
        _ => Some((authority, 80)),
    }
}

fn no_url(text: &str) -> Fault {
    Fault::new(format!("{} is no URL of an upstream", quoted(text))).hint("http://host or http://host:port")
}
