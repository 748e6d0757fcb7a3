//! Idle connections to one target.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use super::connect::Link;

/// Idle connections kept for each target; more are closed.
const IDLE: usize = 128;
/// How long a connection may stay idle.
const LIFETIME: Duration = Duration::from_secs(60);

/// The last one used is the first to be used again, so that those that are not
/// needed grow old and go.
pub struct Pool<B> {
    idle: RefCell<Vec<Idle<B>>>,
}

struct Idle<B> {
    link: Link<B>,
    /// When a sweep first saw it idle. No clock is read for a request.
    since: Option<Instant>,
}

impl<B> Default for Pool<B> {
    fn default() -> Self {
        Self { idle: RefCell::default() }
    }
}

impl<B> Pool<B> {
    /// A connection that may be used: open, and with nothing to be read that no
    /// request has asked for. Any other is closed.
    pub fn checkout(&self) -> Option<Link<B>> {
        loop {
            let link = self.idle.borrow_mut().pop()?.link;
            if link.is_usable() {
                return Some(link);
            }
        }
    }

    /// Takes a connection back that has done its work.
    pub fn put(&self, link: Link<B>) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < IDLE {
            idle.push(Idle { link, since: None });
        }
    }

    pub fn sweep(&self, now: Instant) {
        self.idle.borrow_mut().retain_mut(|idle| {
            let since = *idle.since.get_or_insert(now);
            now.saturating_duration_since(since) < LIFETIME && idle.link.is_usable()
        });
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.idle.borrow().len()
    }
}
