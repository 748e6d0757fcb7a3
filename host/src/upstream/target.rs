//! One address of an upstream, and a request's stay there.

use std::{rc::Rc, sync::Arc};

use http::HeaderValue;

use super::{balance::InFlight, http1::Connection, pool::Pool};
use crate::config;

/// A target as one worker uses it; all its upstreams there share it.
pub struct Target {
    pub host: Arc<str>,
    pub port: u16,
    pub authority: Arc<str>,
    pub host_field: HeaderValue,
    pub in_flight: Arc<InFlight>,
    pub pool: Pool,
}

impl Target {
    pub fn new(config: &config::Target, in_flight: Arc<InFlight>) -> Self {
        // A checked authority fits. One that did not would be sent as RFC 9112
        // 3.2 has it for a target without: an empty field.
        let host_field = HeaderValue::from_str(&config.authority).unwrap_or(HeaderValue::from_static(""));
        Self {
            host: config.host.clone(),
            port: config.port,
            authority: config.authority.clone(),
            host_field,
            in_flight,
            pool: Pool::default(),
        }
    }
}

/// A request's place in a target's count. It is given back when this goes,
/// whatever happens.
pub struct Lease {
    pub target: Rc<Target>,
}

impl Lease {
    pub fn new(target: &Rc<Target>) -> Self {
        target.in_flight.begin();
        Self { target: target.clone() }
    }

    /// Request and response have come to their end: another may use the
    /// connection, unless more has come than was asked for.
    pub fn finish(self, connection: Box<Connection>, reusable: bool) {
        if reusable {
            self.target.pool.put(connection);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.target.in_flight.end();
    }
}
