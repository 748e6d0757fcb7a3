//! Tests of the real binary, over real sockets.
//!
//! `support` starts gateways, upstreams and clients; `guests` builds the plugins
//! that tests bring along. Each module says what belongs into it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod config;
mod guests;
mod proxying;
mod reload;
mod soak;
mod streaming;
mod support;
mod swap;
