//! The upstream side against servers that write what they are told, byte for
//! byte.

#![allow(clippy::unwrap_used, clippy::panic)]

mod failover;
mod lifetime;
mod requests;
mod responses;
mod reuse;
mod support;
