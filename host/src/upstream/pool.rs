//! Idle connections to one target.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use super::http1::Connection;

/// Idle connections kept for each target; more are closed.
const IDLE: usize = 128;
/// How long a connection may stay idle.
const LIFETIME: Duration = Duration::from_secs(60);

/// The last one used is the first to be used again, so that those that are not
/// needed grow old and go.
#[derive(Default)]
pub struct Pool {
    idle: RefCell<Vec<Idle>>,
}

struct Idle {
    connection: Box<Connection>,
    /// When a sweep first saw it idle. No clock is read for a request.
    since: Option<Instant>,
}

impl Pool {
    /// A connection that may be used: open, and with nothing to be read that no
    /// request has asked for. Any other is closed.
    pub fn checkout(&self) -> Option<Box<Connection>> {
        loop {
            let connection = self.idle.borrow_mut().pop()?.connection;
            if connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// Takes a connection back that has done its work. One that has more to say
    /// is closed.
    pub fn put(&self, mut connection: Box<Connection>) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < IDLE && connection.rest() {
            idle.push(Idle { connection, since: None });
        }
    }

    pub fn sweep(&self, now: Instant) {
        self.idle.borrow_mut().retain_mut(|idle| {
            let since = *idle.since.get_or_insert(now);
            now.saturating_duration_since(since) < LIFETIME && idle.connection.is_usable()
        });
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.idle.borrow().len()
    }
}
