//! State that lasts: limits, counters and values with an expiry, common to all
//! instances of the plugin on all workers.
//!
//! Each plugin, by its name in `weir.yaml`, has a key space of its own, common
//! to all its uses: put the route into the key where uses are not to share.
//! Contents survive a reload.

use std::time::Duration;

pub use crate::bindings::weir::plugin::store::{Algorithm, Decision, KeyPart, Limit, StoreError};
use crate::host::store as host;

impl Limit {
    /// A limit of `quota` units per `window`, with a bucket as large as that.
    pub const fn new(algorithm: Algorithm, quota: u64, window: Duration) -> Self {
        Self { algorithm, quota, window: millis(window), burst: 0 }
    }
}

/// Limits, and how the keys are made that they count under: prepared once, in
/// [`crate::Plugin::new`], and used by hooks.
#[derive(Debug)]
pub struct Limiter(u32);

impl Limiter {
    /// Has the gateway check and keep them. `keys` are several ways to make a key:
    /// the first of which the request has all parts counts. Traps in hooks.
    pub fn new(keys: &[&[KeyPart<'_>]], limits: &[Limit]) -> Result<Self, StoreError> {
        host::prepare_limiter(keys, limits).map(Self)
    }

    /// As [`take`]. What the key is made of need not pass through the plugin.
    pub fn take(&self, cost: u64) -> Result<Decision, StoreError> {
        host::take_prepared(self.0, cost)
    }
}

/// Takes `cost` units under all of these limits or none, in one atomic step. A
/// cost of 0 takes nothing and tells how things stand.
pub fn take(key: &[u8], cost: u64, limits: &[Limit]) -> Result<Decision, StoreError> {
    host::take(key, cost, limits)
}

/// The value of a key, if there is one and it has not expired.
pub fn get(key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    host::get(key)
}

/// Sets a value that expires after `ttl`; 0 means the longest that the gateway
/// allows.
pub fn set(key: &[u8], value: &[u8], ttl: Duration) -> Result<(), StoreError> {
    host::set(key, value, millis(ttl))
}

/// The same only if the key has no value: `true` if it was set. One of several
/// callers at once wins.
pub fn set_new(key: &[u8], value: &[u8], ttl: Duration) -> Result<bool, StoreError> {
    host::set_new(key, value, millis(ttl))
}

/// Adds to a counter and gives the sum. A new one starts at 0 and expires `ttl`
/// after its making.
pub fn increment(key: &[u8], by: i64, ttl: Duration) -> Result<i64, StoreError> {
    host::increment(key, by, millis(ttl))
}

/// Takes a key away. None there is no error.
pub fn delete(key: &[u8]) -> Result<(), StoreError> {
    host::delete(key)
}

/// Whole milliseconds; a part of one counts as one, so that a short time does
/// not become 0, which means something else.
const fn millis(time: Duration) -> u64 {
    let nanos = time.as_nanos();
    let millis = nanos.div_ceil(1_000_000);
    if millis > u64::MAX as u128 { u64::MAX } else { millis as u64 }
}
