//! `random`: randomness fit for keys, from the operating system.

use rustix::rand::{GetRandomFlags, getrandom};
use wasmtime::{Result, ensure};

use crate::plugin::{bindings::imports::random::Host, store::InstanceState};

/// Most bytes of one call.
const LONGEST: u32 = 4096;

impl Host for InstanceState {
    fn bytes(&mut self, len: u32) -> Result<Vec<u8>> {
        ensure!(len <= LONGEST, "random.bytes gives {LONGEST} bytes at most, not {len}");
        let mut bytes = vec![0; len as usize];
        fill(&mut bytes)?;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<u64> {
        let mut bytes = [0; 8];
        fill(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

fn fill(bytes: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        done += getrandom(&mut bytes[done..], GetRandomFlags::empty())?;
    }
    Ok(())
}
