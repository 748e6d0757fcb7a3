//! Places that calls take up and give back: so many, and whoever came first.
//!
//! All on one thread. Taking a free place is a subtraction; a queue there is
//! only while none is free, and then each place that comes back goes to the
//! first in it.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    task::{Context, Poll, Waker},
};

/// A bounded number of places.
pub struct Places {
    /// More than 0 only while nobody waits.
    free: Cell<u32>,
    /// Who waits, by ticket. Whose ticket is gone has been given a place.
    waiting: RefCell<BTreeMap<u64, Waker>>,
    next_ticket: Cell<u64>,
}

impl Places {
    pub fn new(places: u32) -> Self {
        Self { free: Cell::new(places), waiting: RefCell::default(), next_ticket: Cell::new(0) }
    }

    /// A place, if one is free.
    #[inline]
    pub fn try_take(&self) -> Option<Place<'_>> {
        let left = self.free.get().checked_sub(1)?;
        self.free.set(left);
        Some(Place(self))
    }

    /// Waits for a place, behind all who wait already.
    pub fn wait(&self) -> Wait<'_> {
        Wait { places: self, ticket: None }
    }

    fn give_back(&self) {
        let first = self.waiting.borrow_mut().pop_first();
        match first {
            // The place goes on without ever being free: nobody can overtake.
            Some((_, waker)) => waker.wake(),
            None => self.free.set(self.free.get() + 1),
        }
    }
}

/// A place taken, given back when it is dropped.
pub struct Place<'a>(&'a Places);

impl Drop for Place<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// Waits for a place. One that was given to a waiter that is dropped goes on to
/// the next.
pub struct Wait<'a> {
    places: &'a Places,
    /// From the first poll to the place.
    ticket: Option<u64>,
}

impl<'a> Future for Wait<'a> {
    type Output = Place<'a>;

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Place<'a>> {
        let places = self.places;
        let Some(ticket) = self.ticket else {
            if let Some(place) = places.try_take() {
                return Poll::Ready(place);
            }
            let ticket = places.next_ticket.get();
            places.next_ticket.set(ticket + 1);
            places.waiting.borrow_mut().insert(ticket, cx.waker().clone());
            self.ticket = Some(ticket);
            return Poll::Pending;
        };
        let replaced = match places.waiting.borrow_mut().get_mut(&ticket) {
            Some(waker) if waker.will_wake(cx.waker()) => None,
            Some(waker) => Some(std::mem::replace(waker, cx.waker().clone())),
            None => {
                self.ticket = None;
                return Poll::Ready(Place(places));
            }
        };
        // Only now, when nothing is borrowed: dropping a waker may drop a task.
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let waited = self.places.waiting.borrow_mut().remove(&ticket);
        if waited.is_none() {
            self.places.give_back();
        }
    }
}

#[cfg(test)]
mod tests;
