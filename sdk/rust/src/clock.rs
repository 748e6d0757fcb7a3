//! Clocks. `std::time` has none in a plugin.

use std::time::Duration;

use crate::host::clock as host;

/// The time since 1970-01-01T00:00:00Z, in whole milliseconds. The same all
/// through a hook.
pub fn now() -> Duration {
    Duration::from_millis(host::now())
}

/// The time since some moment; never goes back. For measuring.
pub fn monotonic() -> Duration {
    Duration::from_nanos(host::monotonic())
}
