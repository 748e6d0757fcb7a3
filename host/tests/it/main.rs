//! Tests of the real binary, over real sockets.
//!
//! `support` starts gateways, upstreams and clients; `guests` builds the plugins
//! that tests bring along; `prometheus` reads metrics. Each module says what belongs
//! into it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admin;
mod cli;
mod config;
mod examples;
mod guests;
mod prometheus;
mod proxying;
mod reload;
mod sandbox;
mod shipped_plugins;
mod soak;
mod streaming;
mod support;
mod swap;
mod trailers;
mod upstreams;
