//! How the request in hand has ended.

use std::time::Duration;

pub use crate::bindings::weir::plugin::finish::Ending;
use crate::host::finish as host;

/// How the request in hand has ended.
#[derive(Debug)]
pub struct Finish(());

impl Finish {
    pub(crate) fn in_hand() -> Self {
        Self(())
    }

    /// How it has ended.
    pub fn ending(&self) -> Ending {
        host::outcome()
    }

    /// Bytes of the response's body that have gone to the client.
    pub fn sent(&self) -> u64 {
        host::sent()
    }

    /// From the request's first byte to now.
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(host::duration())
    }

    /// What the upstream took to its response's head; nothing without one.
    pub fn upstream_duration(&self) -> Duration {
        Duration::from_nanos(host::upstream_duration())
    }
}
