#![allow(clippy::unwrap_used)]

use super::*;

mod limits;
mod values;

/// The same numbers in every run (SplitMix64).
pub(super) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// Evenly from 0 to one less than the bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// From 1 to the bound, all magnitudes alike.
    pub fn magnitude(&mut self, bound: u64) -> u64 {
        let bits = self.below(u64::from(64 - bound.leading_zeros())) + 1;
        1 + (self.next() >> (64 - bits)) % bound
    }
}

fn space() -> Space {
    Space::new(Quota::default())
}

impl Space {
    /// Entries and bytes, counted anew.
    fn counted(&self) -> (usize, usize) {
        let mut sum = Freed::default();
        for shard in &self.shards {
            let tables = &mut *lock(&shard.0);
            sum = sum + tables.counters.total() + tables.values.total();
        }
        (sum.entries, sum.bytes)
    }

    fn sweep_all(&self, now: u64) {
        (0..SHARDS).for_each(|_| self.sweep(now));
    }
}

#[test]
fn a_space_belongs_to_a_name() {
    let state = State::new(Quota::default());
    state.space("a").set(0, b"key", b"value", 0).unwrap();
    assert_eq!(state.space("a").get(0, b"key").as_deref(), Some(&b"value"[..]));
    assert_eq!(state.space("b").get(0, b"key"), None);
}

#[test]
fn the_state_sweeps_all_spaces() {
    let state = State::new(Quota::default());
    for name in ["a", "b"] {
        state.space(name).increment(0, b"key", 1, 10).unwrap();
    }
    (0..SHARDS).for_each(|_| state.sweep(9));
    assert_eq!(state.space("b").usage().0, 1);
    (0..SHARDS).for_each(|_| state.sweep(10));
    assert_eq!((state.space("a").usage(), state.space("b").usage()), ((0, 0), (0, 0)));
}

#[test]
fn long_keys_are_told_apart() {
    let space = space();
    let (one, other) = ([1; 4000], [2; 4000]);
    space.set(0, &one, b"1", 0).unwrap();
    space.set(0, &other, b"2", 0).unwrap();
    assert_eq!(space.get(0, &one).as_deref(), Some(&b"1"[..]));
    assert_eq!(space.get(0, &other).as_deref(), Some(&b"2"[..]));
    assert_eq!(space.get(0, &one[..3999]), None);
}

/// Whatever is done, what is booked is what is there, within the quota; and all
/// of it comes back.
#[test]
fn usage_is_exact() {
    let quota = Quota { entries: 300, bytes: 60_000 };
    let (space, mut random) = (Space::new(quota), Random::new(7));
    let mut now = 1_000_000;
    for step in 0..30_000 {
        now += random.below(20);
        let key = random.below(500).to_string();
        let key = key.as_bytes();
        let ttl = random.magnitude(20_000);
        match random.below(8) {
            0 | 1 => {
                let value = vec![b'x'; random.below(300) as usize];
                space.set(now, key, &value, ttl).ok();
            }
            2 => drop(space.set_new(now, key, b"value", ttl)),
            3 => drop(space.increment(now, key, 1, ttl)),
            4 => space.delete(key),
            5 => drop(space.get(now, key)),
            _ => {
                let limit = |algorithm| Limit { algorithm, quota: 5, window: 1 + random.below(4) * 1000, burst: 0 };
                let limits: Vec<_> =
                    [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::TokenBucket].map(limit).into();
                space.take(now, key, 1, &limits[..1 + step % 3]).ok();
            }
        }
        let (entries, bytes) = space.usage();
        assert!(entries <= quota.entries && bytes <= quota.bytes, "{entries} {bytes}");
        if step % 100 == 0 {
            assert_eq!((entries, bytes), space.counted());
        }
    }
    assert!(space.usage().0 > 0);
    space.sweep_all(now + MAX_TTL);
    assert_eq!((space.usage(), space.counted()), ((0, 0), (0, 0)));
}
