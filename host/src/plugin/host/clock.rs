//! `clock`: what time it is.

use wasmtime::Result;

use crate::plugin::{bindings::imports::clock::Host, store::InstanceState};

impl Host for InstanceState {
    fn now(&mut self) -> Result<u64> {
        Ok(self.module.clock.now_ms())
    }

    fn monotonic(&mut self) -> Result<u64> {
        Ok(self.module.started.elapsed().as_nanos() as u64)
    }
}
