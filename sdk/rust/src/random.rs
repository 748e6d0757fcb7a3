//! Randomness fit for keys and nonces.

use std::{
    cell::Cell,
    hash::{BuildHasher, DefaultHasher, Hasher},
};

use crate::host::random as host;

/// The most that the gateway gives in one call.
const MOST: usize = 4096;

/// Fills the buffer.
pub fn fill(buffer: &mut [u8]) {
    for part in buffer.chunks_mut(MOST) {
        // The host gives exactly what was asked for.
        let bytes = host::bytes(part.len() as u32);
        part.copy_from_slice(&bytes);
    }
}

/// 64 random bits.
pub fn number() -> u64 {
    host::number()
}

/// The seed of hash tables, drawn once per instance.
///
/// `std`'s own has the same seed everywhere on `wasm32-unknown-unknown`, so that
/// a client could choose keys that collide:
///
/// ```
/// use std::collections::HashMap;
/// let mut seen: HashMap<String, u32, weir_sdk::RandomState> = HashMap::default();
/// seen.insert("a".into(), 1);
/// ```
#[derive(Debug, Clone)]
pub struct RandomState(u64, u64);

impl Default for RandomState {
    fn default() -> Self {
        thread_local! {
            static SEED: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
        }
        let (a, b) = SEED.get().unwrap_or_else(|| {
            let seed = (number(), number());
            SEED.set(Some(seed));
            seed
        });
        Self(a, b)
    }
}

impl BuildHasher for RandomState {
    type Hasher = DefaultHasher;

    /// SipHash, its state made secret by hashing the seed first: `std` offers no
    /// keyed constructor that is not deprecated.
    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher.write_u64(self.1);
        hasher
    }
}
