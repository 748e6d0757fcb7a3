//! Write plugins for the Weir gateway in Rust.
//!
//! A plugin is a type that holds one configuration, checked and made ready:
//! [`Plugin::new`] builds it from what `weir.yaml` says, the hooks work with
//! it. [`export!`] makes the crate a component; name, version and summary are
//! the package's.
//!
//! ```
//! use weir_sdk::prelude::*;
//!
//! /// What `weir.yaml` may say.
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct Config {
//!     /// The field that must be there.
//!     header: String,
//! }
//!
//! struct Require {
//!     header: String,
//! }
//!
//! impl Plugin for Require {
//!     type Config = Config;
//!
//!     fn new(config: Config) -> Result<Self, Vec<Problem>> {
//!         field::check_name(&config.header).map_err(|error| Problem::refused(&["header"], error))?;
//!         Ok(Self { header: config.header })
//!     }
//!
//!     fn phases(&self) -> Phases {
//!         Phases::REQUEST
//!     }
//!
//!     fn on_request(&self, request: &mut Request) -> Outcome {
//!         match request.header(&self.header) {
//!             Some(_) => Ok(Action::Continue),
//!             None => request.respond(400, &[], "a field is missing\n"),
//!         }
//!     }
//! }
//!
//! weir_sdk::export!(Require);
//! # fn main() {}
//! ```
//!
//! Build it with `cargo build --release --target wasm32-wasip2`: the `.wasm`
//! file is the component. On other targets the same code runs against the fake
//! gateway in [`testing`], so that `cargo test` needs nothing else.
//!
//! # What acts on what
//!
//! An instance works on one request at a time. [`store`] and [`identity`] act on
//! that request, as [`Request`] and [`Response`] do: outside a hook ([`Plugin::new`],
//! [`Plugin::phases`]) they trap. [`log`], [`clock`] and [`random`] work
//! everywhere; [`PreparedEdits`] and [`store::Limiter`] are made outside hooks.
//!
//! One instance serves many requests, and requests go to any of many instances:
//! what has to last goes into [`store`], what the response hook is to know into
//! [`Request::set_attribute`].
#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

#[doc(hidden)]
pub mod allocator;
#[doc(hidden)]
pub mod bindings;
pub mod clock;
pub mod edits;
#[doc(hidden)]
pub mod export;
pub mod field;
mod finish;
mod header_edits;
pub mod identity;
mod interval;
pub mod log;
pub mod path;
mod plugin;
pub mod query;
pub mod random;
mod request;
mod response;
pub mod store;
#[cfg(not(target_family = "wasm"))]
pub mod testing;

/// What the hooks call: the gateway, or natively the fake one.
#[cfg(target_family = "wasm")]
use bindings::weir::plugin as host;
#[cfg(not(target_family = "wasm"))]
use testing::host;

pub use edits::{EditTemplate, PreparedEdits, ValueTemplate, Values};
pub use field::{Edit, EditError, Field, Lines, Value};
pub use finish::{Ending, Finish};
pub use header_edits::{HeaderEdits, OneOrMore};
pub use interval::Interval;
pub use plugin::{Action, Buffering, Failure, Outcome, Phase, Phases, Plugin, Prepared, Problem};
pub use random::RandomState;
pub use request::Request;
pub use response::{Maker, Response};
pub use {schemars, serde};

/// What nearly every plugin uses.
pub mod prelude {
    pub use schemars::JsonSchema;
    pub use serde::Deserialize;

    pub use crate::{
        Action, Edit, EditError, EditTemplate, Failure, Field, Finish, HeaderEdits, Interval, OneOrMore, Outcome,
        Phase, Phases, Plugin, PreparedEdits, Problem, Request, Response, Value, ValueTemplate, Values, clock, field,
        identity, log, path, query, random, store,
    };
}
