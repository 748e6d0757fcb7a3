//! The worker's timer: coarse, and cheap to use for every request.
//!
//! A tokio timer costs about 1 400 instructions to arm and drop, and nearly all
//! deadlines of a gateway are dropped unfired. Here a deadline is a place in a
//! slab: arming it is a store, and one task scans the slab whenever the
//! earliest of them may have passed. A deadline never fires early, and late by
//! some 10 ms.

use std::{
    cell::{Cell, RefCell},
    fmt,
    pin::pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use slab::Slab;
use tokio::sync::Notify;

/// The least time between two scans.
const TICK: Duration = Duration::from_millis(10);

/// All deadlines of one worker.
pub struct Timer {
    entries: RefCell<Slab<Entry>>,
    /// When the next scan is due; `None` while nothing is armed.
    next_scan: Cell<Option<Instant>>,
    /// Tells the scanning task that `next_scan` has come nearer.
    sooner: Notify,
}

#[derive(Default)]
struct Entry {
    state: State,
    waker: Option<Waker>,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum State {
    #[default]
    Clear,
    Armed(Instant),
    Expired,
}

impl Timer {
    /// Starts the scanning task, which lives as long as the current `LocalSet`.
    pub fn start() -> Rc<Self> {
        let timer = Rc::new(Self { entries: RefCell::default(), next_scan: Cell::new(None), sooner: Notify::new() });
        tokio::task::spawn_local(timer.clone().run());
        timer
    }

    pub fn now(&self) -> Instant {
        Instant::now()
    }

    /// Waits for the future, but not much longer than `limit` from its first
    /// poll on. A future that is ready at once costs nothing.
    pub async fn timeout<F: Future>(self: &Rc<Self>, limit: Duration, future: F) -> Result<F::Output, Elapsed> {
        let mut future = pin!(future);
        let mut deadline = None;
        std::future::poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            let deadline = deadline.get_or_insert_with(|| {
                let deadline = self.deadline();
                deadline.set(self.now() + limit);
                deadline
            });
            deadline.poll_expired(cx).map(|()| Err(Elapsed))
        })
        .await
    }

    /// A deadline that is not armed yet.
    pub fn deadline(self: &Rc<Self>) -> Deadline {
        let key = self.entries.borrow_mut().insert(Entry::default());
        Deadline { timer: self.clone(), key }
    }

    async fn run(self: Rc<Self>) {
        loop {
            let Some(at) = self.next_scan.get() else {
                self.sooner.notified().await;
                continue;
            };
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(at.into()) => self.scan(),
                () = self.sooner.notified() => {}
            }
        }
    }

    /// Expires what is due and finds out when to look again.
    fn scan(&self) {
        let now = Instant::now();
        let mut earliest: Option<Instant> = None;
        let mut due = Vec::new();
        for (_, entry) in self.entries.borrow_mut().iter_mut() {
            let State::Armed(at) = entry.state else { continue };
            if at <= now {
                entry.state = State::Expired;
                due.extend(entry.waker.take());
            } else {
                earliest = Some(earliest.map_or(at, |earliest| earliest.min(at)));
            }
        }
        self.next_scan.set(earliest.map(|at| at.max(now + TICK)));
        // Only now, when nothing is borrowed: a waker may run code.
        due.into_iter().for_each(Waker::wake);
    }
}

/// A point in time that can be moved for as long as it is kept.
pub struct Deadline {
    timer: Rc<Timer>,
    key: usize,
}

impl Deadline {
    /// Arms the deadline, whatever its state was.
    pub fn set(&self, at: Instant) {
        if let Some(entry) = self.timer.entries.borrow_mut().get_mut(self.key) {
            entry.state = State::Armed(at);
        }
        if self.timer.next_scan.get().is_none_or(|next| at < next) {
            self.timer.next_scan.set(Some(at));
            self.timer.sooner.notify_one();
        }
    }

    /// Disarms the deadline.
    pub fn clear(&self) {
        if let Some(entry) = self.timer.entries.borrow_mut().get_mut(self.key) {
            entry.state = State::Clear;
        }
    }

    pub fn is_expired(&self) -> bool {
        self.timer.entries.borrow().get(self.key).is_some_and(|entry| entry.state == State::Expired)
    }

    /// Ready from the deadline's expiry until it is set or cleared. The task is
    /// woken at an expiry also if the deadline is armed only after the poll.
    pub fn poll_expired(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut entries = self.timer.entries.borrow_mut();
        let Some(entry) = entries.get_mut(self.key) else { return Poll::Pending };
        if entry.state == State::Expired {
            return Poll::Ready(());
        }
        if entry.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        let replaced = entry.waker.replace(cx.waker().clone());
        // Dropping a waker may drop a task, and with it other deadlines.
        drop(entries);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        let removed = self.timer.entries.borrow_mut().try_remove(self.key);
        drop(removed);
    }
}

/// The time was up first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("timed out")
    }
}

impl std::error::Error for Elapsed {}

#[cfg(test)]
mod tests;
