//! What is counted together: the key in the store.
//!
//! The store is common to all uses of the plugin. So a key has the route, unless
//! routes share, and whose requests it counts; the gateway puts both in.

use weir_sdk::{
    Problem, field,
    store::{KeyPart, Limit, Limiter},
};

use crate::config::By;

/// Counts what is to be counted together under these limits.
pub fn limiter(by: &By, shared: bool, limits: &[Limit]) -> Result<Limiter, Problem> {
    if let By::Header(name) = by {
        field::check_name(name).map_err(|error| Problem::refused(&["by", "header"], error))?;
    }
    // Keys of routes that share and of those that don't must differ, whatever
    // parts they have besides.
    let route = if shared { KeyPart::Fixed(b"shared") } else { KeyPart::Route };
    let address = [route.clone(), KeyPart::ClientNetwork];
    // Without what it is to be counted by, a request counts by its address.
    let made = match by {
        By::Address => Limiter::new(&[&address], limits),
        By::Route => Limiter::new(&[&[route]], limits),
        By::Consumer => Limiter::new(&[&[route, KeyPart::Consumer], &address], limits),
        By::Header(name) => Limiter::new(&[&[route, KeyPart::Header(name)], &address], limits),
    };
    made.map_err(|error| Problem::at(&[], format!("the gateway refuses these limits: {}", error.message())))
}
