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
    // Without what it is to be counted by, a request counts by its address; but not
    // on the account of those that are to be counted by that.
    let made = match by {
        By::Address => Limiter::new(&[&[route, KeyPart::ClientNetwork]], limits),
        By::Route => Limiter::new(&[&[route]], limits),
        By::Consumer => {
            let fallback = [route.clone(), KeyPart::Fixed(b"consumer"), KeyPart::ClientNetwork];
            Limiter::new(&[&[route, KeyPart::Consumer], &fallback], limits)
        }
        By::Header(name) => {
            let lower = name.to_ascii_lowercase();
            let (kind, which) = (KeyPart::Fixed(b"header"), KeyPart::Fixed(lower.as_bytes()));
            let fallback = [route.clone(), kind, which, KeyPart::ClientNetwork];
            Limiter::new(&[&[route, KeyPart::Header(name)], &fallback], limits)
        }
    };
    made.map_err(|error| Problem::at(&[], format!("the gateway refuses these limits: {}", error.message())))
}
