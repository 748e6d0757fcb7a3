//! Weir: a programmable HTTP gateway.
//!
//! The request's way: `server` accepts, `gateway::handle` tells the life of a
//! request: `intake` checks it, `router` finds its route, `chain` runs the
//! route's plugins (`plugin`, `state`, `identity`), `upstream` asks a target,
//! and the response goes back the same way through `chain` and `body`. Any
//! failure leaves by `error_response`; `access_log` and `metrics` see all.
//!
//! The config's way: `config` turns text into a checked value, `gateway::build`
//! makes that something that can serve, `reload` swaps it in.

pub mod access_log;
pub mod admin;
pub mod body;
pub mod builtins;
pub mod chain;
pub mod cli;
pub mod clock;
pub mod config;
pub mod error;
pub mod error_response;
pub mod exchange;
pub mod flow;
pub mod gateway;
pub mod headers;
pub mod identity;
pub mod intake;
pub mod io;
pub mod logging;
pub mod metrics;
pub mod path;
pub mod plugin;
pub mod process;
pub mod reload;
pub mod router;
pub mod server;
pub mod state;
pub mod timer;
pub mod upstream;
pub mod worker;
