//! Who is known: consumers by key and by name.

use std::{collections::HashMap, hash::BuildHasher, sync::Arc};

use foldhash::quality::RandomState;
use subtle::ConstantTimeEq;

use crate::config::Consumer;

/// The consumers of one configuration, by credential.
pub struct Identity {
    consumers: Vec<Consumer>,
    by_name: HashMap<Arc<str>, u32>,
    /// Keyed hash of each key → the consumer that has it, and which of its keys
    /// it is. The hash is seeded at random, so nobody can aim at a place; the
    /// key itself is compared in constant time.
    by_key: HashMap<u64, Vec<(u32, u32)>, Identical>,
    seed: RandomState,
}

/// Takes the keyed hash as it is.
type Identical = std::hash::BuildHasherDefault<Unhashed>;

#[derive(Default)]
struct Unhashed(u64);

impl std::hash::Hasher for Unhashed {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Identity {
    pub fn new(consumers: &[Consumer]) -> Self {
        let seed = RandomState::default();
        let mut by_key: HashMap<u64, Vec<(u32, u32)>, Identical> = HashMap::default();
        let mut by_name = HashMap::with_capacity(consumers.len());
        for (place, consumer) in consumers.iter().enumerate() {
            by_name.insert(consumer.name.clone(), place as u32);
            for (number, key) in consumer.keys.iter().enumerate() {
                let hash = seed.hash_one(key.expose().as_bytes());
                by_key.entry(hash).or_default().push((place as u32, number as u32));
            }
        }
        Self { consumers: consumers.to_vec(), by_name, by_key, seed }
    }

    /// The consumer with this key. The time depends on the key's length alone,
    /// not on how much of it is right.
    pub fn by_key(&self, key: &[u8]) -> Option<&Consumer> {
        let candidates = self.by_key.get(&self.seed.hash_one(key))?;
        candidates.iter().find_map(|(place, number)| {
            let consumer = self.consumers.get(*place as usize)?;
            let known = consumer.keys.get(*number as usize)?.expose().as_bytes();
            is_same(known, key).then_some(consumer)
        })
    }

    pub fn by_name(&self, name: &str) -> Option<&Consumer> {
        self.consumers.get(*self.by_name.get(name)? as usize)
    }
}

/// Compares in a time that depends on the lengths alone; in words, because byte by
/// byte takes eight times as long.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let ((words, rest), (other_words, other_rest)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    if one.len() != other.len() {
        return false;
    }
    let pairs = words.iter().zip(other_words);
    let same = pairs.map(|(one, other)| u64::from_ne_bytes(*one).ct_eq(&u64::from_ne_bytes(*other)));
    bool::from(same.fold(rest.ct_eq(other_rest), |all, same| all & same))
}

#[cfg(test)]
mod tests;
