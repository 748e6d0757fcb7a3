//! Shared state behind the WIT interface `store`: limits, counters and values,
//! common to all workers, kept over reloads, lost at the end.
//!
//! A plugin has a [`Space`] of its own, split into shards by the hash of the
//! key. A shard's lock is held for some dozens of nanoseconds and never while
//! another one is, so no worker waits for long and nothing can lock up. All that
//! has to be decided in one step belongs to one key and lies in one shard.
//!
//! Nothing here reads a clock: every call is told the time.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use foldhash::quality::RandomState;
use sha2::{Digest, Sha256};

mod counters;
mod limits;
mod table;
mod values;

#[cfg(test)]
mod tests;

use counters::{Counts, Taking};
pub use limits::MAX_WINDOW;
use table::{Freed, Table};
use values::Value;
pub use values::{MAX_TTL, MAX_VALUE};

/// Limits in one call of [`Space::take`].
pub const MAX_LIMITS: usize = 8;

/// Bytes of a key; a longer one is replaced by its SHA-256.
const MAX_KEY: usize = 256;

/// A power of two.
const SHARDS: usize = 128;

/// Slots that a call without room looks at for something expired, before it is
/// refused. It goes on where the one before has stopped.
const SEARCH: usize = 1024;

/// Slots among which one value is given up: the least recently used of a few,
/// rather than of all, spares a list that every `get` would have to mend.
const SAMPLE: usize = 32;

/// Values that one call may push out; enough for the longest in place of short
/// ones.
const MAX_EVICTED: usize = 1024;

/// How a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// `quota` in each window; windows start at multiples of `window` since the
    /// epoch.
    FixedWindow,
    /// `quota` in any window of that length, estimated from the fixed window and
    /// the share of the one before that it still covers.
    SlidingWindow,
    /// A bucket of `burst` tokens, refilled steadily by `quota` per `window`.
    TokenBucket,
}

/// One limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub algorithm: Algorithm,
    /// Units per window; more than 0.
    pub quota: u64,
    /// In milliseconds; more than 0, at most [`MAX_WINDOW`].
    pub window: u64,
    /// Size of the bucket; 0 means `quota`. The window algorithms ignore it.
    pub burst: u64,
}

/// What [`Space::take`] has found, about the tightest limit: the one that
/// refuses for longest or, if all allow, the one with the smallest share left.
/// Durations are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    /// Its place in the list.
    pub tightest: u32,
    /// Units left there now.
    pub remaining: u64,
    /// Until nothing of it is used any more, or its fixed window ends; 0 if
    /// nothing is used.
    pub reset: u64,
    /// Until this cost is allowed, if nothing else is taken meanwhile; 0 if it
    /// was.
    pub retry_after: u64,
}

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreError {
    /// The value is longer than [`MAX_VALUE`].
    TooLong,
    /// The quota is used up, and nothing was found that could be let go.
    Full,
    /// What no state could make right: no limit or more than [`MAX_LIMITS`], one
    /// without quota or window, a cost that a limit can never allow at once, an
    /// increment of what is no counter or beyond what one can hold.
    Invalid,
}

/// What one plugin may keep, counters and values together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    pub entries: usize,
    /// Keys, values and what it takes to keep them.
    pub bytes: usize,
}

impl Default for Quota {
    fn default() -> Self {
        Self { entries: 1_000_000, bytes: 128 << 20 }
    }
}

/// The key spaces of all plugins.
#[derive(Debug)]
pub struct State {
    quota: Quota,
    spaces: Mutex<HashMap<Box<str>, Arc<Space>>>,
}

impl State {
    /// `quota` is for each plugin.
    pub fn new(quota: Quota) -> Self {
        Self { quota, spaces: Mutex::default() }
    }

    /// The key space of a plugin. It stays until the gateway ends, also while no
    /// configuration names the plugin.
    pub fn space(&self, plugin: &str) -> Arc<Space> {
        let mut spaces = lock(&self.spaces);
        if let Some(space) = spaces.get(plugin) {
            return space.clone();
        }
        let space = Arc::new(Space::new(self.quota));
        spaces.insert(plugin.into(), space.clone());
        space
    }

    /// Lets go of what has expired in one shard of every space. Calls that add
    /// something do it in passing; this one, called some ten times a second from
    /// anywhere, gives the memory back when none come any more.
    pub fn sweep(&self, now_ms: u64) {
        let spaces: Vec<_> = lock(&self.spaces).values().cloned().collect();
        for space in spaces {
            space.sweep(now_ms);
        }
    }
}

/// What one plugin keeps. Times are in milliseconds since the epoch.
#[derive(Debug)]
pub struct Space {
    shards: Box<[Shard]>,
    hasher: RandomState,
    usage: Usage,
    /// The shard that is searched next for something to let go.
    next: AtomicUsize,
}

/// Alone on its cache line, so that the locks don't slow each other down.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    counters: Table<Counts>,
    values: Table<Value>,
}

impl Space {
    fn new(quota: Quota) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            hasher: RandomState::default(),
            usage: Usage { quota, entries: AtomicUsize::new(0), bytes: AtomicUsize::new(0) },
            next: AtomicUsize::new(0),
        }
    }

    /// Takes `cost` units under all limits or none, in one step; a cost of 0
    /// takes nothing and tells how things stand.
    ///
    /// State belongs to key, algorithm and window. Limits of one call that agree
    /// in both share it, and a bucket is then refilled at the rate of the first.
    pub fn take(&self, now_ms: u64, key: &[u8], cost: u64, limits: &[Limit]) -> Result<Decision, StoreError> {
        if key.len() > MAX_KEY {
            return self.take(now_ms, &digest(key), cost, limits);
        }
        let hash = self.hash(key);
        let taking = Taking { hash, key, now: now_ms, cost, limits };
        taking.check()?;
        // A statement of its own: a `match` on it would hold the lock to its end.
        let outcome = taking.run(&mut self.tables(hash).counters, &self.usage);
        match outcome {
            Err(StoreError::Full) => self.take_after_making_room(taking),
            outcome => outcome,
        }
    }

    #[cold]
    fn take_after_making_room(&self, taking: Taking) -> Result<Decision, StoreError> {
        if !self.make_room(taking.now, taking.hash, taking.charge()) {
            return Err(StoreError::Full);
        }
        taking.run(&mut self.tables(taking.hash).counters, &self.usage)
    }

    /// Entries and bytes in use.
    pub fn usage(&self) -> (usize, usize) {
        (self.usage.entries.load(Ordering::Relaxed), self.usage.bytes.load(Ordering::Relaxed))
    }

    fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    /// The tables that have the keys of a hash.
    fn tables(&self, hash: u64) -> MutexGuard<'_, Tables> {
        lock(&self.shards[shard_of(hash)].0)
    }

    fn sweep(&self, now: u64) {
        let shard = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let tables = &mut *lock(&self.shards[shard].0);
        self.usage.release(tables.counters.sweep(now, usize::MAX) + tables.values.sweep(now, usize::MAX));
    }

    /// Makes room for one entry of so many bytes: lets go of what has expired,
    /// then gives up values used least. `false` if not enough was found. No lock
    /// may be held.
    #[cold]
    fn make_room(&self, now: u64, hash: u64, bytes: usize) -> bool {
        self.search(now);
        for _ in 0..MAX_EVICTED {
            if self.usage.has_room(bytes) || !self.evict(hash) {
                break;
            }
        }
        self.usage.has_room(bytes)
    }

    /// Looks for something expired, from one shard to the next.
    fn search(&self, now: u64) {
        let mut budget = SEARCH;
        for _ in 0..SHARDS {
            let shard = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let tables = &mut *lock(&self.shards[shard].0);
            let counters = budget.min(SEARCH / 4).min(tables.counters.slots());
            let values = (budget - counters).min(SEARCH / 4).min(tables.values.slots());
            self.usage.release(tables.counters.sweep(now, counters) + tables.values.sweep(now, values));
            budget -= counters + values;
            if budget == 0 {
                return;
            }
        }
    }

    /// Gives up the value used least among some. Taken from the shard that is to
    /// grow, and from others only where that one holds few, so that all shards
    /// keep their size.
    fn evict(&self, hash: u64) -> bool {
        let (mut seen, mut least) = (0, None);
        for shard in (0..SHARDS).map(|step| (shard_of(hash) + step) % SHARDS) {
            let sample = lock(&self.shards[shard].0).values.sample(SAMPLE, Value::last_used);
            seen += sample.seen;
            least = sample.least.map(|(age, hash)| (age, hash, shard)).into_iter().chain(least).min();
            if seen >= SAMPLE / 4 {
                break;
            }
        }
        let Some((age, hash, shard)) = least else { return false };
        let evicted = lock(&self.shards[shard].0).values.remove(hash, |entry| entry.value.last_used() == Some(age));
        self.usage.release(evicted);
        // If it is gone or in use again, others can still be given up.
        true
    }
}

/// Refuses limits that could never allow anything.
pub fn check_limits(limits: &[Limit]) -> Result<(), StoreError> {
    counters::check_limits(limits, 0)
}

/// The upper half of a hash chooses the shard, the lower one the slot.
fn shard_of(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}

/// Nothing panics under these locks. If something did after all, going on would
/// still serve more requests than refusing them all.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What stands for a key that is too long.
fn digest(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// What is in use of a quota.
#[derive(Debug)]
struct Usage {
    quota: Quota,
    entries: AtomicUsize,
    bytes: AtomicUsize,
}

impl Usage {
    /// Books entries and bytes, both or none; `false` if there is no room.
    fn charge(&self, entries: usize, bytes: usize) -> bool {
        if !add_within(&self.entries, entries, self.quota.entries) {
            return false;
        }
        let fits = add_within(&self.bytes, bytes, self.quota.bytes);
        if !fits {
            self.entries.fetch_sub(entries, Ordering::Relaxed);
        }
        fits
    }

    fn release(&self, freed: impl Into<Freed>) {
        let freed = freed.into();
        if freed.bytes > 0 {
            self.entries.fetch_sub(freed.entries, Ordering::Relaxed);
            self.bytes.fetch_sub(freed.bytes, Ordering::Relaxed);
        }
    }

    /// Whether an entry of so many bytes could be added just now.
    fn has_room(&self, bytes: usize) -> bool {
        let (entries, used) = (self.entries.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        entries < self.quota.entries && used.saturating_add(bytes) <= self.quota.bytes
    }
}

fn add_within(counter: &AtomicUsize, more: usize, most: usize) -> bool {
    let sum = |now: usize| now.checked_add(more).filter(|sum| *sum <= most);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok()
}
