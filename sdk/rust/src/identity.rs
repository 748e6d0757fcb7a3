//! Consumers and their credentials, as `weir.yaml` lists them.
//!
//! They are looked up in the gateway: the plugin holds none of them. What is
//! recognised is noted down for the request, where [`crate::Request::consumer`],
//! the access log and the metrics see it.

pub use crate::bindings::weir::plugin::identity::KeyOutcome;
use crate::host::identity as host;

/// Makes the consumer with this key the request's. `false`: nobody has it, and
/// the request's consumer stays as it was. Time does not depend on how much of a
/// key is right.
pub fn authenticate_key(key: &[u8]) -> bool {
    host::authenticate_key(key)
}

/// The same with the value of a field of the request for the key, as
/// [`crate::Request::header`] gives it: one sent twice is nobody's.
pub fn authenticate_key_header(name: &str) -> KeyOutcome {
    host::authenticate_key_header(name)
}

/// Makes the consumer of that name the request's. `false`: there is none.
pub fn set_consumer(name: &str) -> bool {
    host::set_consumer(name)
}

/// The groups of the request's consumer; none without one.
pub fn groups() -> Vec<String> {
    host::groups()
}
