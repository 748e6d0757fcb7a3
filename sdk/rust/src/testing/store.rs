//! The fake's store: one thread, nothing ever given up.

use std::collections::{BTreeMap, HashMap};

use crate::store::{Algorithm, Decision, Limit, StoreError};

const LONGEST_VALUE: usize = 64 << 10;
const LONGEST_WINDOW: u64 = 366 * 24 * 60 * 60 * 1000;
const MOST_LIMITS: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Store {
    values: BTreeMap<Vec<u8>, Entry>,
    counts: HashMap<(Vec<u8>, u8, u64), Count>,
}

#[derive(Debug)]
struct Entry {
    value: Content,
    /// Milliseconds since the epoch.
    expires: u64,
}

#[derive(Debug)]
enum Content {
    Bytes(Vec<u8>),
    Counter(i64),
}

/// What is known about one key, algorithm and window.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    /// Windows since the epoch; for the bucket, when it was last looked at.
    at: u64,
    /// Units taken in the window at `at`, and in the one before it. For the
    /// bucket `current` is what is missing from it, in units × window.
    current: u128,
    before: u128,
}

/// How one limit stands.
struct Standing {
    allowed: bool,
    after: Count,
    remaining: u64,
    reset: u64,
    retry_after: u64,
}

impl Store {
    pub(super) fn take(&mut self, now: u64, key: &[u8], cost: u64, limits: &[Limit]) -> Result<Decision, StoreError> {
        let fits = |limit: &Limit| {
            let most = if limit.burst > 0 { limit.burst } else { limit.quota };
            limit.quota > 0 && limit.window > 0 && limit.window <= LONGEST_WINDOW && cost <= most
        };
        if limits.is_empty() || limits.len() > MOST_LIMITS || !limits.iter().all(fits) {
            return Err(StoreError::Invalid);
        }

        let slot = |limit: &Limit| (key.to_vec(), limit.algorithm as u8, limit.window);
        let judge = |cost: u64| -> Vec<Standing> {
            let count = |limit| self.counts.get(&slot(limit)).copied().unwrap_or_default();
            limits.iter().map(|limit| stand(limit, count(limit), now, cost)).collect()
        };
        let mut standings = judge(cost);
        let allowed = standings.iter().all(|standing| standing.allowed);
        if !allowed {
            // Nothing is taken, so the others stand as before.
            let untouched = judge(0);
            for (standing, untouched) in standings.iter_mut().zip(untouched) {
                standing.remaining = untouched.remaining;
                standing.after = untouched.after;
                standing.reset = untouched.reset;
            }
        }
        for (limit, standing) in limits.iter().zip(&standings) {
            self.counts.insert(slot(limit), standing.after);
        }

        let share = |i: usize| standings[i].remaining as f64 / limits[i].quota as f64;
        let tightest = if allowed {
            (0..limits.len()).min_by(|a, b| share(*a).total_cmp(&share(*b)))
        } else {
            let wait = |i: &usize| if standings[*i].allowed { 0 } else { standings[*i].retry_after };
            (0..limits.len()).rev().max_by_key(wait)
        };
        let tightest = tightest.unwrap_or_default();
        Ok(Decision {
            allowed,
            tightest: tightest as u32,
            remaining: standings[tightest].remaining,
            reset: standings[tightest].reset,
            retry_after: if allowed { 0 } else { standings[tightest].retry_after },
        })
    }

    pub(super) fn get(&self, now: u64, key: &[u8]) -> Option<Vec<u8>> {
        self.live(now, key).map(|entry| match &entry.value {
            Content::Bytes(bytes) => bytes.clone(),
            Content::Counter(sum) => sum.to_string().into_bytes(),
        })
    }

    pub(super) fn set(&mut self, now: u64, key: &[u8], value: &[u8], ttl: u64) -> Result<(), StoreError> {
        if value.len() > LONGEST_VALUE {
            return Err(StoreError::TooLong);
        }
        let entry = Entry { value: Content::Bytes(value.to_vec()), expires: expiry(now, ttl) };
        self.values.insert(key.to_vec(), entry);
        Ok(())
    }

    pub(super) fn set_new(&mut self, now: u64, key: &[u8], value: &[u8], ttl: u64) -> Result<bool, StoreError> {
        if self.live(now, key).is_some() {
            return Ok(false);
        }
        self.set(now, key, value, ttl)?;
        Ok(true)
    }

    pub(super) fn increment(&mut self, now: u64, key: &[u8], by: i64, ttl: u64) -> Result<i64, StoreError> {
        if self.live(now, key).is_none() {
            let entry = Entry { value: Content::Counter(0), expires: expiry(now, ttl) };
            self.values.insert(key.to_vec(), entry);
        }
        match self.values.get_mut(key).map(|entry| &mut entry.value) {
            Some(Content::Counter(sum)) => {
                *sum = sum.saturating_add(by);
                Ok(*sum)
            }
            _ => Err(StoreError::Invalid),
        }
    }

    pub(super) fn delete(&mut self, key: &[u8]) {
        self.values.remove(key);
    }

    fn live(&self, now: u64, key: &[u8]) -> Option<&Entry> {
        self.values.get(key).filter(|entry| entry.expires > now)
    }
}

fn expiry(now: u64, ttl: u64) -> u64 {
    if ttl == 0 { u64::MAX } else { now.saturating_add(ttl) }
}

fn stand(limit: &Limit, count: Count, now: u64, cost: u64) -> Standing {
    match limit.algorithm {
        Algorithm::FixedWindow => fixed_window(limit, count, now, cost),
        Algorithm::SlidingWindow => sliding_window(limit, count, now, cost),
        Algorithm::TokenBucket => token_bucket(limit, count, now, cost),
    }
}

fn fixed_window(limit: &Limit, count: Count, now: u64, cost: u64) -> Standing {
    let mut count = turn(count, now / limit.window);
    let allowed = count.current + u128::from(cost) <= u128::from(limit.quota);
    if allowed {
        count.current += u128::from(cost);
    }
    let reset = limit.window - now % limit.window;
    Standing {
        allowed,
        after: count,
        remaining: u128::from(limit.quota).saturating_sub(count.current) as u64,
        reset,
        retry_after: reset,
    }
}

fn sliding_window(limit: &Limit, count: Count, now: u64, cost: u64) -> Standing {
    let (window, quota, cost) = (u128::from(limit.window), u128::from(limit.quota), u128::from(cost));
    let mut count = turn(count, now / limit.window);
    let elapsed = u128::from(now % limit.window);
    let carried = (count.before * (window - elapsed)).div_ceil(window);
    let allowed = carried + count.current + cost <= quota;
    if allowed {
        count.current += cost;
    }

    // When the share of the window before has shrunk far enough.
    let shrunk = |before: u128, free: u128| window - (free * window).checked_div(before).unwrap_or(window).min(window);
    let retry_after = if count.current + cost <= quota {
        shrunk(count.before, quota - count.current - cost).saturating_sub(elapsed)
    } else {
        window - elapsed + shrunk(count.current, quota.saturating_sub(cost))
    };
    Standing {
        allowed,
        after: count,
        remaining: quota.saturating_sub(carried + count.current) as u64,
        reset: (window - elapsed) as u64,
        retry_after: retry_after.max(1) as u64,
    }
}

/// Makes the count about that window.
fn turn(count: Count, window: u64) -> Count {
    match window - count.at.min(window) {
        0 => count,
        1 => Count { at: window, current: 0, before: count.current },
        _ => Count { at: window, current: 0, before: 0 },
    }
}

fn token_bucket(limit: &Limit, count: Count, now: u64, cost: u64) -> Standing {
    let (window, quota) = (u128::from(limit.window), u128::from(limit.quota));
    let size = u128::from(if limit.burst > 0 { limit.burst } else { limit.quota }) * window;
    let cost = u128::from(cost) * window;
    let missing = count.current.saturating_sub(u128::from(now.saturating_sub(count.at)) * quota);
    let allowed = missing + cost <= size;
    let after = if allowed { missing + cost } else { missing };
    Standing {
        allowed,
        after: Count { at: now, current: after, before: 0 },
        remaining: (size.saturating_sub(after) / window) as u64,
        reset: after.div_ceil(quota) as u64,
        retry_after: (missing + cost).saturating_sub(size).div_ceil(quota) as u64,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    /// The start of a minute.
    const START: u64 = 1_767_225_600_000;

    fn takes(algorithm: Algorithm, quota: u64, times: &[u64]) -> Vec<(bool, u64)> {
        let mut store = Store::default();
        let limit = Limit::new(algorithm, quota, MINUTE);
        let take = |at: &u64| {
            let decision = store.take(START + at, b"k", 1, &[limit]).unwrap();
            (decision.allowed, decision.remaining)
        };
        times.iter().map(take).collect()
    }

    #[test]
    fn a_fixed_window_starts_anew() {
        let found = takes(Algorithm::FixedWindow, 2, &[0, 1, 59_999, 60_000]);
        assert_eq!(found, [(true, 1), (true, 0), (false, 0), (true, 1)]);
    }

    #[test]
    fn a_sliding_window_carries_over() {
        let found = takes(Algorithm::SlidingWindow, 2, &[0, 1, 60_000, 90_000, 90_001]);
        assert_eq!(found, [(true, 1), (true, 0), (false, 0), (true, 0), (false, 0)]);
    }

    #[test]
    fn a_bucket_refills_steadily() {
        let found = takes(Algorithm::TokenBucket, 2, &[0, 0, 29_999, 30_000, 120_000]);
        assert_eq!(found, [(true, 1), (true, 0), (false, 0), (true, 0), (true, 1)]);
    }

    #[test]
    fn several_limits_are_taken_together_or_not_at_all() {
        let mut store = Store::default();
        let wide = Limit::new(Algorithm::FixedWindow, 10, MINUTE);
        let narrow = Limit::new(Algorithm::FixedWindow, 1, Duration::from_secs(1));
        assert!(store.take(START, b"k", 1, &[wide, narrow]).unwrap().allowed);
        let refused = store.take(START, b"k", 1, &[wide, narrow]).unwrap();
        assert_eq!((refused.allowed, refused.tightest, refused.retry_after), (false, 1, 1000));
        let wide_alone = store.take(START, b"k", 0, &[wide]).unwrap();
        assert_eq!(wide_alone.remaining, 9);
    }

    #[test]
    fn values_expire() {
        let mut store = Store::default();
        assert!(store.set_new(0, b"k", b"v", 10).unwrap());
        assert!(!store.set_new(9, b"k", b"w", 10).unwrap());
        assert_eq!(store.get(9, b"k").as_deref(), Some(&b"v"[..]));
        assert_eq!(store.get(10, b"k"), None);
        assert_eq!(store.increment(10, b"k", 5, 0), Ok(5));
        assert_eq!(store.get(11, b"k").as_deref(), Some(&b"5"[..]));
        store.set(11, b"k", b"v", 0).unwrap();
        assert_eq!(store.increment(12, b"k", 1, 0), Err(StoreError::Invalid));
    }
}
