//! What is counted together: the key in the store.
//!
//! The store is common to all uses of the plugin. So a key has the kind of what
//! it counts, the route unless routes share, and whose requests they are:
//! `kind, length of the route, route, id`. No client can write another's.

use std::net::IpAddr;

use weir_sdk::{Problem, Request, field};

use crate::config::By;

pub struct Key {
    by: By,
    shared: bool,
}

impl Key {
    pub fn new(by: By, shared: bool) -> Result<Self, Problem> {
        if let By::Header(name) = &by {
            field::check_name(name).map_err(|error| Problem::refused(&["by", "header"], error))?;
        }
        Ok(Self { by, shared })
    }

    /// The key that this request counts under.
    pub fn of(&self, request: &Request) -> Vec<u8> {
        let route = if self.shared { String::new() } else { request.route() };
        let start = |kind: u8| {
            let mut key = Vec::with_capacity(96);
            key.push(kind);
            key.extend_from_slice(&(route.len() as u32).to_le_bytes());
            key.extend_from_slice(route.as_bytes());
            key
        };
        match &self.by {
            By::Address => {}
            By::Route => return start(b'r'),
            By::Consumer => {
                if let Some(name) = request.consumer() {
                    let mut key = start(b'c');
                    key.extend_from_slice(name.as_bytes());
                    return key;
                }
            }
            By::Header(name) => {
                if let Some(value) = request.header(name) {
                    let mut key = start(b'h');
                    key.extend_from_slice(name.as_bytes());
                    key.push(b':');
                    key.extend_from_slice(&value);
                    return key;
                }
            }
        }
        let mut key = start(b'a');
        match request.client_address() {
            IpAddr::V4(address) => key.extend_from_slice(&address.octets()),
            // A client has a /64 at least, and could take a new address for each
            // request (RFC 6177).
            IpAddr::V6(address) => key.extend_from_slice(&address.octets()[..8]),
        }
        key
    }
}
