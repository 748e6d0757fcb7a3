//! Values and counters that expire.

use std::sync::Arc;

use super::{
    MAX_KEY, Space, StoreError, Tables, digest, limits,
    table::{Entry, Found, Freed, SLOT, Table},
};

/// Bytes of a value.
pub const MAX_VALUE: usize = 64 << 10;

/// The longest that anything is kept, in milliseconds.
pub const MAX_TTL: u64 = limits::MAX_WINDOW;

/// Slots looked at for something expired whenever a key is added.
const SWEEP: usize = 4;

/// Reference counts in front of shared bytes.
const SHARED: usize = 2 * size_of::<usize>();

#[derive(Debug)]
pub(super) struct Value {
    data: Data,
    last_used: u64,
}

#[derive(Debug)]
enum Data {
    /// Shared, so that it is copied after the lock has been given back.
    Bytes(Arc<[u8]>),
    Counter(i64),
}

impl Value {
    /// When it was last read or written; `None` if it must not be given up.
    pub fn last_used(&self) -> Option<u64> {
        match self.data {
            Data::Bytes(_) => Some(self.last_used),
            Data::Counter(_) => None,
        }
    }
}

impl Table<Value> {
    /// The value of a key that has not expired.
    fn live(&mut self, hash: u64, key: &[u8], now: u64) -> Option<&mut Value> {
        let found = self.get_mut(hash, key)?;
        (*found.expires > now).then_some(&mut found.entry.value)
    }
}

/// A key with its hash.
type Key<'a> = (u64, &'a [u8]);

impl Space {
    /// The value of a key, a counter's in decimal digits.
    pub fn get(&self, now_ms: u64, key: &[u8]) -> Option<Arc<[u8]>> {
        if key.len() > MAX_KEY {
            return self.get(now_ms, &digest(key));
        }
        let hash = self.hash(key);
        let mut tables = self.tables(hash);
        let value = tables.values.live(hash, key, now_ms)?;
        value.last_used = now_ms;
        match &value.data {
            Data::Bytes(bytes) => Some(bytes.clone()),
            Data::Counter(count) => Some(itoa::Buffer::new().format(*count).as_bytes().into()),
        }
    }

    /// Sets a value that expires after `ttl`; 0, and what is longer, mean
    /// [`MAX_TTL`]. Where the quota is used up, values used least give way.
    pub fn set(&self, now_ms: u64, key: &[u8], value: &[u8], ttl: u64) -> Result<(), StoreError> {
        self.write(now_ms, key, value, ttl, true).map(drop)
    }

    /// The same only if the key has no value: `true` if it was set. One of
    /// several callers at once wins.
    pub fn set_new(&self, now_ms: u64, key: &[u8], value: &[u8], ttl: u64) -> Result<bool, StoreError> {
        self.write(now_ms, key, value, ttl, false)
    }

    /// Adds to a counter and returns the sum. A new one starts at 0 and expires
    /// `ttl` after its making.
    pub fn increment(&self, now_ms: u64, key: &[u8], by: i64, ttl: u64) -> Result<i64, StoreError> {
        if key.len() > MAX_KEY {
            return self.increment(now_ms, &digest(key), by, ttl);
        }
        let hash = self.hash(key);
        self.with_room(now_ms, hash, charge(key, 0), || {
            let tables = &mut *self.tables(hash);
            if let Some(value) = tables.values.live(hash, key, now_ms) {
                let Data::Counter(count) = &mut value.data else { return Err(StoreError::Invalid) };
                *count = count.checked_add(by).ok_or(StoreError::Invalid)?;
                return Ok(*count);
            }
            self.put(tables, (hash, key), now_ms, ttl, Data::Counter(by))?;
            Ok(by)
        })
    }

    /// Takes a key away: its value and all that its limits have counted.
    pub fn delete(&self, key: &[u8]) {
        if key.len() > MAX_KEY {
            return self.delete(&digest(key));
        }
        let hash = self.hash(key);
        let tables = &mut *self.tables(hash);
        let (value, counts) = (
            tables.values.remove(hash, |entry| *entry.key == *key),
            tables.counters.remove(hash, |entry| *entry.key == *key),
        );
        self.usage.release(Freed::from(value) + counts.into());
    }

    fn write(&self, now: u64, key: &[u8], value: &[u8], ttl: u64, replace: bool) -> Result<bool, StoreError> {
        if value.len() > MAX_VALUE {
            return Err(StoreError::TooLong);
        }
        if key.len() > MAX_KEY {
            return self.write(now, &digest(key), value, ttl, replace);
        }
        let hash = self.hash(key);
        let value: Arc<[u8]> = value.into();
        self.with_room(now, hash, charge(key, value.len()), || {
            let tables = &mut *self.tables(hash);
            if !replace && tables.values.live(hash, key, now).is_some() {
                return Ok(false);
            }
            self.put(tables, (hash, key), now, ttl, Data::Bytes(value.clone()))?;
            Ok(true)
        })
    }

    /// Does something that may fail for want of room; if so, makes room and does
    /// it once more.
    fn with_room<T>(
        &self,
        now: u64,
        hash: u64,
        bytes: usize,
        attempt: impl Fn() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match attempt() {
            Err(StoreError::Full) if self.make_room(now, hash, bytes) => attempt(),
            outcome => outcome,
        }
    }

    /// Puts a value in place of what the key had, if there is room.
    fn put(&self, tables: &mut Tables, (hash, key): Key, now: u64, ttl: u64, data: Data) -> Result<(), StoreError> {
        self.usage.release(tables.values.sweep(now, SWEEP));
        let expires = now.saturating_add(if ttl == 0 { MAX_TTL } else { ttl.min(MAX_TTL) });
        let charge = charge(key, if let Data::Bytes(bytes) = &data { bytes.len() } else { 0 });
        let value = Value { data, last_used: now };
        match tables.values.get_mut(hash, key) {
            Some(Found { expires: until, entry }) => {
                if !self.usage.charge(0, charge.saturating_sub(entry.charge)) {
                    return Err(StoreError::Full);
                }
                self.usage.release(Freed { entries: 0, bytes: entry.charge.saturating_sub(charge) });
                (*until, entry.charge, entry.value) = (expires, charge, value);
            }
            None => {
                if !self.usage.charge(1, charge) {
                    return Err(StoreError::Full);
                }
                tables.values.insert(hash, expires, Entry { key: key.into(), charge, value });
            }
        }
        Ok(())
    }
}

/// What an entry is charged.
fn charge(key: &[u8], value: usize) -> usize {
    SLOT + size_of::<Entry<Value>>() + SHARED + key.len() + value
}
