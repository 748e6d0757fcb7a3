//! Entries that count for `take`: all limits of a key in one place, so that
//! they are decided in one step.

use super::{
    Decision, Limit, MAX_LIMITS, StoreError, Usage,
    limits::{Cell, MAX_WINDOW, is_tighter},
    table::{Entry, Found, SLOT, Table},
};

/// By how much one worker's reading of the clock may be behind another's. A time
/// that is further back than this means that the clock has been put back.
const SKEW: u64 = 1000;

/// Windows that one key can be counted in; a plugin whose windows vary without
/// end would make every look-up longer.
const MAX_CELLS: usize = 64;

/// Slots looked at for something expired whenever a key or a cell is added.
const SWEEP: usize = 4;

#[derive(Debug)]
pub(super) struct Counts {
    /// The latest time that was asked about.
    latest: u64,
    /// No two for the same algorithm and window.
    cells: Vec<Cell>,
}

/// Refuses limits that no state could make allow this cost.
#[inline]
pub(super) fn check_limits(limits: &[Limit], cost: u64) -> Result<(), StoreError> {
    let is_valid =
        |limit: &Limit| limit.quota > 0 && (1..=MAX_WINDOW).contains(&limit.window) && cost <= limit.capacity();
    let is_valid = (1..=MAX_LIMITS).contains(&limits.len()) && limits.iter().all(is_valid);
    if is_valid { Ok(()) } else { Err(StoreError::Invalid) }
}

/// One call of `take`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taking<'a> {
    pub hash: u64,
    pub key: &'a [u8],
    pub now: u64,
    pub cost: u64,
    pub limits: &'a [Limit],
}

impl Taking<'_> {
    /// Refuses what no state could make allowed.
    pub fn check(&self) -> Result<(), StoreError> {
        check_limits(self.limits, self.cost)
    }

    /// What a new entry is charged.
    pub fn charge(&self) -> usize {
        SLOT + size_of::<Entry<Counts>>() + self.key.len() + self.limits.len() * size_of::<Cell>()
    }

    /// Decides, and books if all limits allow it. The call has been checked.
    /// `Full` leaves all as it was.
    // A call and its spills are a sixth of the whole; the other caller is cold.
    #[inline(always)]
    pub fn run(mut self, table: &mut Table<Counts>, usage: &Usage) -> Result<Decision, StoreError> {
        if let Some(Found { expires, entry }) = table.get_mut(self.hash, self.key) {
            let counts = &mut entry.value;
            let behind = counts.latest.saturating_sub(self.now);
            if behind <= SKEW {
                self.now += behind;
            }
            counts.latest = self.now;
            // Nearly all calls: one limit.
            if let [limit] = self.limits {
                if let Some(cell) = counts.cells.iter_mut().find(|cell| cell.is_of(limit)) {
                    cell.advance(limit, self.now);
                    let decision = cell.ask(limit, self.now, self.cost);
                    if decision.allowed {
                        cell.take(self.cost);
                        *expires = cell.whole.max(*expires);
                    }
                    return Ok(decision);
                }
            } else if let (decision, true) = self.ask(&mut counts.cells) {
                if decision.allowed {
                    self.book(expires, &mut counts.cells);
                }
                return Ok(decision);
            }
        }
        self.run_incomplete(table, usage)
    }

    /// The same where the entry or a cell is missing.
    #[cold]
    fn run_incomplete(&self, table: &mut Table<Counts>, usage: &Usage) -> Result<Decision, StoreError> {
        let found = table.get_mut(self.hash, self.key);
        let cells = found.map_or(&mut [][..], |found| &mut found.entry.value.cells);
        let (decision, _) = self.ask(cells);
        if decision.allowed && self.cost > 0 {
            self.add(table, usage)?;
        }
        Ok(decision)
    }

    /// Brings the cells up to now and asks each limit. Also whether each has a
    /// cell.
    fn ask(&self, cells: &mut [Cell]) -> (Decision, bool) {
        let mut tightest = Decision { allowed: true, tightest: 0, remaining: 0, reset: 0, retry_after: 0 };
        let mut is_complete = true;
        for (place, limit) in self.limits.iter().enumerate() {
            let mut decision = match cells.iter_mut().find(|cell| cell.is_of(limit)) {
                Some(cell) => {
                    cell.advance(limit, self.now);
                    cell.ask(limit, self.now, self.cost)
                }
                None => {
                    is_complete = false;
                    Cell::new(limit, self.now).ask(limit, self.now, self.cost)
                }
            };
            decision.tightest = place as u32;
            let other = &self.limits[tightest.tightest as usize];
            if place == 0 || is_tighter((limit, &decision), (other, &tightest)) {
                tightest = decision;
            }
        }
        (tightest, is_complete)
    }

    /// Books the cost once on each cell; none is missing.
    fn book(&self, expires: &mut u64, cells: &mut [Cell]) {
        for (place, limit) in self.limits.iter().enumerate() {
            if self.shares_cell_before(place) {
                continue;
            }
            if let Some(cell) = cells.iter_mut().find(|cell| cell.is_of(limit)) {
                cell.take(self.cost);
                *expires = cell.whole.max(*expires);
            }
        }
    }

    /// Whether the limit at a place counts in the cell of one that stands before
    /// it.
    fn shares_cell_before(&self, place: usize) -> bool {
        self.limits[..place].iter().any(|earlier| earlier.shares_cell(&self.limits[place]))
    }

    /// Books the cost after making what is missing; what has expired nearby is
    /// let go.
    fn add(&self, table: &mut Table<Counts>, usage: &Usage) -> Result<(), StoreError> {
        // May take this very entry if all of it has expired, which is then as
        // good as one that never was.
        usage.release(table.sweep(self.now, SWEEP));
        let Found { expires, entry } = match table.get_mut(self.hash, self.key) {
            Some(found) => found,
            None => {
                let charge = self.charge();
                if !usage.charge(1, charge) {
                    return Err(StoreError::Full);
                }
                let value = Counts { latest: self.now, cells: Vec::with_capacity(self.limits.len()) };
                table.insert(self.hash, self.now, Entry { key: self.key.into(), charge, value })
            }
        };
        self.complete(entry, usage)?;
        self.ask(&mut entry.value.cells);
        self.book(expires, &mut entry.value.cells);
        Ok(())
    }

    /// Makes the cells that are missing from an entry.
    fn complete(&self, entry: &mut Entry<Counts>, usage: &Usage) -> Result<(), StoreError> {
        let cells = &mut entry.value.cells;
        if cells.capacity() < cells.len() + self.limits.len() {
            // An entry of this call's making has the room. On an older one the
            // windows have changed: what is whole again is of no more use.
            cells.retain(|cell| cell.whole > self.now);
            let room = (cells.len() + self.limits.len()).max(cells.capacity());
            let more = (room - cells.capacity()) * size_of::<Cell>();
            if room > MAX_CELLS || !usage.charge(0, more) {
                return Err(StoreError::Full);
            }
            entry.charge += more;
            cells.reserve_exact(room - cells.len());
        }
        for limit in self.limits {
            if !cells.iter().any(|cell| cell.is_of(limit)) {
                cells.push(Cell::new(limit, self.now));
            }
        }
        Ok(())
    }
}
