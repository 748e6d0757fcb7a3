//! A hash table that lets go of what has expired a few slots at a time.
//!
//! The standard map can't be walked piece by piece, and one pass over a million
//! entries under a lock is a pause that every worker feels. This one probes
//! linearly and closes the gap on removal, so any slot can be looked at and
//! emptied at any time.

use std::ops::Add;

/// Slots of the smallest table that is not empty.
const LEAST: usize = 8;

/// What an entry's slot takes, with its share of those that are kept free.
pub(super) const SLOT: usize = 2 * size_of::<Slot<()>>();

#[derive(Debug)]
pub(super) struct Table<T> {
    /// None, or a power of two, at most three quarters of them in use.
    slots: Vec<Slot<T>>,
    len: usize,
    /// Where the sweep goes on.
    cursor: usize,
}

#[derive(Debug)]
struct Slot<T> {
    hash: u64,
    /// Here and not in the entry, so that a sweep runs along one piece of memory.
    expires: u64,
    entry: Option<Box<Entry<T>>>,
}

#[derive(Debug)]
pub(super) struct Entry<T> {
    pub key: Box<[u8]>,
    /// Bytes counted against the quota.
    pub charge: usize,
    pub value: T,
}

/// An entry in its slot.
pub(super) struct Found<'a, T> {
    /// The first millisecond in which the entry is of no use any more.
    pub expires: &'a mut u64,
    pub entry: &'a mut Entry<T>,
}

/// Some entries of a table.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub seen: usize,
    /// The least age among them, and the hash of the key that has it.
    pub least: Option<(u64, u64)>,
}

/// What was let go.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Freed {
    pub entries: usize,
    pub bytes: usize,
}

impl<T> From<&Entry<T>> for Freed {
    fn from(entry: &Entry<T>) -> Self {
        Self { entries: 1, bytes: entry.charge }
    }
}

impl<T> From<Option<Box<Entry<T>>>> for Freed {
    fn from(entry: Option<Box<Entry<T>>>) -> Self {
        entry.map_or_else(Self::default, |entry| Self::from(&*entry))
    }
}

impl Add for Freed {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { entries: self.entries + other.entries, bytes: self.bytes + other.bytes }
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), len: 0, cursor: 0 }
    }
}

impl<T> Table<T> {
    pub fn get_mut(&mut self, hash: u64, key: &[u8]) -> Option<Found<'_, T>> {
        let place = self.find(hash, |entry| *entry.key == *key)?;
        let Slot { expires, entry, .. } = &mut self.slots[place];
        Some(Found { expires, entry: entry.as_deref_mut()? })
    }

    /// Adds an entry under a key that has none.
    pub fn insert(&mut self, hash: u64, expires: u64, entry: Entry<T>) -> Found<'_, T> {
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.resize((self.slots.len() * 2).max(LEAST));
        }
        self.len += 1;
        let place = self.vacancy(hash);
        let slot = &mut self.slots[place];
        (slot.hash, slot.expires) = (hash, expires);
        Found { expires: &mut slot.expires, entry: slot.entry.insert(Box::new(entry)) }
    }

    /// Takes out the entry of that hash for which it holds.
    pub fn remove(&mut self, hash: u64, holds: impl Fn(&Entry<T>) -> bool) -> Option<Box<Entry<T>>> {
        let place = self.find(hash, holds)?;
        let entry = self.remove_at(place);
        self.shrink();
        entry
    }

    /// Looks at that many slots, going on where it stopped last time, and lets
    /// go of what has expired there. One round at most.
    pub fn sweep(&mut self, now: u64, slots: usize) -> Freed {
        let (mut freed, mut unseen) = (Freed::default(), self.slots.len());
        for _ in 0..slots {
            if unseen == 0 {
                break;
            }
            let place = self.cursor & self.mask();
            if self.slots[place].expires <= now && self.slots[place].entry.is_some() {
                // Another entry may move up into this slot: it is next.
                freed = freed + self.remove_at(place).into();
            } else {
                self.cursor = place + 1;
                unseen -= 1;
            }
        }
        if freed.entries > 0 {
            self.shrink();
        }
        freed
    }

    /// The entries among that many slots for which there is an age.
    pub fn sample(&mut self, slots: usize, age: impl Fn(&T) -> Option<u64>) -> Sample {
        let mut sample = Sample::default();
        for _ in 0..slots.min(self.slots.len()) {
            let place = self.cursor & self.mask();
            self.cursor = place + 1;
            let slot = &self.slots[place];
            if let Some(age) = slot.entry.as_ref().and_then(|entry| age(&entry.value)) {
                sample.seen += 1;
                if sample.least.is_none_or(|(least, _)| age < least) {
                    sample.least = Some((age, slot.hash));
                }
            }
        }
        sample
    }

    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    fn mask(&self) -> usize {
        self.slots.len().wrapping_sub(1)
    }

    fn find(&self, hash: u64, holds: impl Fn(&Entry<T>) -> bool) -> Option<usize> {
        let mask = self.mask();
        let mut place = hash as usize & mask;
        // Ends, because a slot is always free; an empty table has no first one.
        loop {
            let slot = self.slots.get(place)?;
            let entry = slot.entry.as_ref()?;
            if slot.hash == hash && holds(entry) {
                return Some(place);
            }
            place = (place + 1) & mask;
        }
    }

    /// The free slot for a hash.
    fn vacancy(&self, hash: u64) -> usize {
        let mut place = hash as usize & self.mask();
        while self.slots[place].entry.is_some() {
            place = (place + 1) & self.mask();
        }
        place
    }

    /// Empties a slot and moves up the entries behind it that its being taken
    /// had pushed away from their places.
    fn remove_at(&mut self, place: usize) -> Option<Box<Entry<T>>> {
        let mask = self.mask();
        let entry = self.slots[place].entry.take()?;
        self.len -= 1;
        let (mut hole, mut next) = (place, place);
        loop {
            next = (next + 1) & mask;
            let slot = &self.slots[next];
            if slot.entry.is_none() {
                return Some(entry);
            }
            let from_home = next.wrapping_sub(slot.hash as usize) & mask;
            let from_hole = next.wrapping_sub(hole) & mask;
            if from_home >= from_hole {
                self.slots.swap(hole, next);
                hole = next;
            }
        }
    }

    fn shrink(&mut self) {
        if self.len == 0 {
            *self = Self::default();
        } else if self.len * 8 < self.slots.len() && self.slots.len() > LEAST {
            self.resize(self.slots.len() / 2);
        }
    }

    fn resize(&mut self, slots: usize) {
        let mut old = Vec::with_capacity(slots);
        old.resize_with(slots, || Slot { hash: 0, expires: 0, entry: None });
        std::mem::swap(&mut old, &mut self.slots);
        for slot in old {
            if slot.entry.is_some() {
                let place = self.vacancy(slot.hash);
                self.slots[place] = slot;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::state::tests::Random;

    impl<T> Table<T> {
        /// What all entries together have been charged.
        pub fn total(&self) -> Freed {
            let entries = self.slots.iter().filter_map(|slot| slot.entry.as_deref());
            entries.map(Freed::from).fold(Freed::default(), Add::add)
        }
    }

    fn entry(key: &[u8], value: u64) -> Entry<u64> {
        Entry { key: key.into(), charge: key.len(), value }
    }

    /// Few distinct hashes, so that probes run into each other.
    #[test]
    fn it_holds_what_a_map_holds() {
        let (mut table, mut model, mut random) = (Table::default(), BTreeMap::new(), Random::new(1));
        for _ in 0..20_000 {
            let key = random.below(300).to_be_bytes();
            let hash = u64::from(key[7] % 40);
            match random.below(5) {
                0..2 => {
                    let expires = random.below(1000);
                    match table.get_mut(hash, &key) {
                        Some(found) => (*found.expires, found.entry.value) = (expires, expires),
                        None => drop(table.insert(hash, expires, entry(&key, expires))),
                    }
                    model.insert(key, expires);
                }
                2 => {
                    let removed = table.remove(hash, |entry| *entry.key == key).map(|entry| entry.value);
                    assert_eq!(removed, model.remove(&key));
                }
                3 => assert_eq!(table.get_mut(hash, &key).map(|found| *found.expires), model.get(&key).copied()),
                _ => {
                    let now = random.below(100);
                    let freed = table.sweep(now, usize::MAX).entries;
                    let before = model.len();
                    model.retain(|_, expires| *expires > now);
                    assert_eq!(freed, before - model.len());
                }
            }
            assert_eq!(table.len, model.len());
        }
    }

    #[test]
    fn it_gives_back_its_slots() {
        let mut table = Table::default();
        for key in 0..1000_u64 {
            table.insert(key.wrapping_mul(0x9E37_79B9_7F4A_7C15), key, entry(&key.to_be_bytes(), key));
        }
        assert_eq!(table.slots(), 2048);
        while table.sweep(900, 64).entries > 0 || table.len > 99 {}
        assert!(table.slots() <= 1024, "{}", table.slots());
        while table.len > 0 {
            table.sweep(1000, 64);
        }
        assert_eq!(table.slots(), 0);
    }

    #[test]
    fn a_sample_names_the_oldest_it_sees() {
        let mut table = Table::default();
        for key in 0..6_u64 {
            table.insert(key, 0, entry(&key.to_be_bytes(), 10 + (key + 3) % 6));
        }
        let sample = table.sample(64, |age| (*age != 10).then_some(*age));
        assert_eq!((sample.seen, sample.least), (5, Some((11, 4))));
        assert_eq!(table.sample(64, |_| None).least, None);
    }
}
