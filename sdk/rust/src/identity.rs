//! Consumers and their credentials, as `weir.yaml` lists them.
//!
//! They are looked up in the gateway: the plugin holds none of them. What is
//! recognised is noted down for the request, where [`crate::Request::consumer`],
//! the access log and the metrics see it.

use crate::host::identity as host;

/// The name of the consumer with this key, who becomes the request's. `None`:
/// nobody has it, and the request's consumer stays as it was. Time does not
/// depend on how much of a key is right.
pub fn authenticate_key(key: &[u8]) -> Option<String> {
    host::authenticate_key(key)
}

/// Makes the consumer of that name the request's. `false`: there is none.
pub fn set_consumer(name: &str) -> bool {
    host::set_consumer(name)
}

/// The groups of the request's consumer; none without one.
pub fn groups() -> Vec<String> {
    host::groups()
}
