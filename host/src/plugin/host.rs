//! What the gateway offers to plugins: one file for each WIT interface.

use wasmtime::{Engine, Result, bail, component::Linker};

use super::{bindings, store::InstanceState};
use crate::exchange::Exchange;

mod clock;
mod edits;
mod finish;
mod hot;
mod identity;
mod log;
mod random;
mod request;
mod response;
mod store;
mod types;

/// Interfaces of `weir:plugin` that a component may import.
pub const INTERFACES: [&str; 10] =
    ["types", "request", "response", "edits", "log", "clock", "random", "store", "identity", "finish"];

/// Links our interfaces, and WASI's where the module was built for it.
pub fn linker(engine: &Engine, wasi: bool) -> Result<Linker<InstanceState>> {
    let mut linker = Linker::new(engine);
    bindings::Plugin::add_to_linker::<_, wasmtime::component::HasSelf<_>>(&mut linker, |state| state)?;
    hot::shadow(&mut linker)?;
    if wasi {
        wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    }
    Ok(linker)
}

impl InstanceState {
    /// The request in hand. Outside hooks there is none, and asking for it is a
    /// breach of the contract: a trap.
    fn exchange(&mut self) -> Result<&mut Exchange> {
        match self.exchange.as_deref_mut() {
            Some(exchange) => Ok(exchange),
            None => bail!("no request in hand: this function works in hooks only"),
        }
    }
}
