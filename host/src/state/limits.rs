//! How limits count: exact integer arithmetic, without a clock of its own.
//!
//! A [`Cell`] is what is known about one key under one algorithm and window. It
//! does not depend on the quota, so a changed one goes on from there.

use super::{Algorithm, Decision, Limit};

/// The longest window.
pub const MAX_WINDOW: u64 = 366 * 24 * 60 * 60 * 1000;

#[derive(Debug, Clone)]
pub(super) struct Cell {
    window: u64,
    /// When nothing of it is used any more, at the latest.
    pub whole: u64,
    count: Count,
}

#[derive(Debug, Clone)]
enum Count {
    /// Units used in the window of that index since the epoch.
    Fixed { index: u64, used: u64 },
    /// The same, and in the window before it.
    Sliding { index: u64, used: u64, before: u64 },
    /// What is missing from a full bucket at a time.
    Bucket { at: u64, debt: Debt },
}

/// Tokens times milliseconds of the window: in each millisecond just `quota` of
/// it is paid back, so nothing is ever rounded. Below 2^99. In halves, because a
/// `u128` would be aligned to 16 bytes and make each cell a quarter larger.
#[derive(Debug, Clone, Copy)]
struct Debt([u64; 2]);

impl Debt {
    fn new(debt: u128) -> Self {
        Self([(debt >> 64) as u64, debt as u64])
    }

    fn get(self) -> u128 {
        u128::from(self.0[0]) << 64 | u128::from(self.0[1])
    }
}

impl Limit {
    /// The highest cost that it can ever allow at once.
    pub(super) fn capacity(&self) -> u64 {
        match self.algorithm {
            Algorithm::TokenBucket if self.burst > 0 => self.burst,
            _ => self.quota,
        }
    }

    /// Whether both count in the same cell.
    pub(super) fn shares_cell(&self, other: &Limit) -> bool {
        self.algorithm == other.algorithm && self.window == other.window
    }
}

/// Whether one limit's answer is tighter than another's: it refuses for longer
/// or, if both allow, has a smaller share left.
pub(super) fn is_tighter(one: (&Limit, &Decision), other: (&Limit, &Decision)) -> bool {
    match (one.1.allowed, other.1.allowed) {
        (true, true) => product(one.1.remaining, other.0.capacity()) < product(other.1.remaining, one.0.capacity()),
        (true, false) => false,
        (false, _) => one.1.retry_after > other.1.retry_after,
    }
}

impl Cell {
    /// Nothing used.
    pub fn new(limit: &Limit, now: u64) -> Self {
        let index = now / limit.window;
        let count = match limit.algorithm {
            Algorithm::FixedWindow => Count::Fixed { index, used: 0 },
            Algorithm::SlidingWindow => Count::Sliding { index, used: 0, before: 0 },
            Algorithm::TokenBucket => Count::Bucket { at: now, debt: Debt::new(0) },
        };
        Self { window: limit.window, whole: now, count }
    }

    #[inline]
    pub fn is_of(&self, limit: &Limit) -> bool {
        let algorithm = match self.count {
            Count::Fixed { .. } => Algorithm::FixedWindow,
            Count::Sliding { .. } => Algorithm::SlidingWindow,
            Count::Bucket { .. } => Algorithm::TokenBucket,
        };
        algorithm == limit.algorithm && self.window == limit.window
    }

    /// Brings it up to now. Where the clock has been put back, what was used
    /// stays used and counts from the new time on.
    #[inline]
    pub fn advance(&mut self, limit: &Limit, now: u64) {
        match &mut self.count {
            Count::Fixed { index, used } => {
                let current = now / self.window;
                if current > *index {
                    *used = 0;
                }
                *index = current;
            }
            Count::Sliding { index, used, before } => {
                let current = now / self.window;
                if current > *index {
                    *before = if current - *index == 1 { *used } else { 0 };
                    *used = 0;
                }
                *index = current;
            }
            Count::Bucket { at, debt } => {
                let paid = product(limit.quota, now.saturating_sub(*at));
                *debt = Debt::new(debt.get().saturating_sub(paid));
                *at = now;
            }
        }
    }

    /// What a limit says to a cost that it can allow: as things stand afterwards
    /// if it does, else as they are. The cell has been brought up to now.
    #[inline(always)]
    pub fn ask(&mut self, limit: &Limit, now: u64, cost: u64) -> Decision {
        let left = |index: u64| self.window - (now - index * self.window);
        let decision = match self.count {
            Count::Fixed { index, used } => ask_fixed(limit.quota, used, cost, left(index)),
            Count::Sliding { index, used, before } => ask_sliding(limit, used, before, cost, left(index)),
            Count::Bucket { debt, .. } => ask_bucket(limit, debt.get(), cost),
        };
        self.whole = now.saturating_add(decision.reset);
        decision
    }

    /// Books a cost that was allowed.
    #[inline]
    pub fn take(&mut self, cost: u64) {
        match &mut self.count {
            Count::Fixed { used, .. } | Count::Sliding { used, .. } => *used = used.saturating_add(cost),
            Count::Bucket { debt, .. } => *debt = Debt::new(debt.get() + product(cost, self.window)),
        }
    }
}

/// `left` is how long the window still lasts, here and below.
fn ask_fixed(quota: u64, used: u64, cost: u64, left: u64) -> Decision {
    let allowed = cost <= quota.saturating_sub(used);
    let used = if allowed { used + cost } else { used };
    Decision {
        allowed,
        tightest: 0,
        remaining: quota.saturating_sub(used),
        reset: if used > 0 { left } else { 0 },
        retry_after: if allowed { 0 } else { left },
    }
}

/// The window before counts with the share of it that the sliding window still
/// covers, rounded up: a cost is allowed just when the exact sum is within the
/// quota.
fn ask_sliding(limit: &Limit, used: u64, before: u64, cost: u64, left: u64) -> Decision {
    let (quota, window) = (limit.quota, limit.window);
    let share = divide_up(product(before, left), window);
    let room = quota.saturating_sub(used).saturating_sub(share);
    if cost <= room {
        let reset = match (used + cost, before) {
            (0, 0) => 0,
            (0, _) => left,
            _ => left + window,
        };
        return Decision { allowed: true, tightest: 0, remaining: room - cost, reset, retry_after: 0 };
    }
    // Enough for the cost is free once what counts with a falling share (the
    // window before or, from the next window on, this one) has fallen to what
    // the rest leaves of the quota: at `left * falling <= free * window`.
    let retry_after = match quota.checked_sub(used).and_then(|free| free.checked_sub(cost)) {
        Some(free) => left - divide(product(free, window), before.max(1)),
        None => left + window - divide(product(quota - cost, window), used),
    };
    Decision {
        allowed: false,
        tightest: 0,
        remaining: room,
        reset: if used > 0 { left + window } else { left },
        retry_after,
    }
}

fn ask_bucket(limit: &Limit, debt: u128, cost: u64) -> Decision {
    let full = product(limit.capacity(), limit.window);
    let after = debt + product(cost, limit.window);
    let allowed = after <= full || cost == 0;
    let debt = if allowed { after } else { debt };
    Decision {
        allowed,
        tightest: 0,
        remaining: divide(full.saturating_sub(debt), limit.window),
        reset: divide_up(debt, limit.quota),
        retry_after: if allowed { 0 } else { divide_up(after - full, limit.quota) },
    }
}

fn product(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}

/// Divides, with `u64::MAX` for what is more. Nearly all that comes fits into 64
/// bits, where dividing costs a tenth.
fn divide(number: u128, by: u64) -> u64 {
    match u64::try_from(number) {
        Ok(number) => number / by,
        Err(_) => u64::try_from(number / u128::from(by)).unwrap_or(u64::MAX),
    }
}

/// The same, rounded up; the number is well below `u128::MAX`.
fn divide_up(number: u128, by: u64) -> u64 {
    divide(number + u128::from(by - 1), by)
}
