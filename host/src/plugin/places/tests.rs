//! Who gets a place, and what becomes of one that nobody takes up.

use std::{
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::Wake,
};

use super::*;

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll<'a>(wait: Pin<&mut Wait<'a>>, woken: &Arc<Woken>) -> Option<Place<'a>> {
    match wait.poll(&mut Context::from_waker(&Waker::from(woken.clone()))) {
        Poll::Ready(place) => Some(place),
        Poll::Pending => None,
    }
}

fn count(woken: &Woken) -> u32 {
    woken.0.load(Ordering::Relaxed)
}

#[test]
fn there_are_so_many_and_no_more() {
    let places = Places::new(2);
    let first = places.try_take();
    let second = places.try_take();
    assert!(first.is_some() && second.is_some());
    assert!(places.try_take().is_none());
    drop(first);
    assert!(places.try_take().is_some());
}

#[test]
fn a_place_goes_to_who_waits_longest_and_nobody_overtakes() {
    let places = Places::new(1);
    let held = places.try_take();
    let (one, two) = (Arc::<Woken>::default(), Arc::<Woken>::default());
    let (mut first, mut second) = (pin!(places.wait()), pin!(places.wait()));
    assert!(poll(first.as_mut(), &one).is_none());
    assert!(poll(second.as_mut(), &two).is_none());

    drop(held);
    assert_eq!((count(&one), count(&two)), (1, 0));
    // It is given, though the first has not been polled yet.
    assert!(places.try_take().is_none());
    assert!(poll(second.as_mut(), &two).is_none());
    let held = poll(first.as_mut(), &one);
    assert!(held.is_some());

    drop(held);
    assert_eq!(count(&two), 1);
    assert!(poll(second.as_mut(), &two).is_some());
    assert!(places.try_take().is_some());
}

#[test]
fn who_leaves_the_queue_is_passed_over() {
    let places = Places::new(1);
    let held = places.try_take();
    let woken = Arc::<Woken>::default();
    let mut second = pin!(places.wait());
    {
        let mut first = pin!(places.wait());
        assert!(poll(first.as_mut(), &woken).is_none());
        assert!(poll(second.as_mut(), &woken).is_none());
    }
    drop(held);
    assert!(poll(second.as_mut(), &woken).is_some());
}

#[test]
fn a_place_given_to_who_leaves_goes_on() {
    let places = Places::new(1);
    let held = places.try_take();
    let (one, two) = (Arc::<Woken>::default(), Arc::<Woken>::default());
    let mut second = pin!(places.wait());
    {
        let mut first = pin!(places.wait());
        assert!(poll(first.as_mut(), &one).is_none());
        assert!(poll(second.as_mut(), &two).is_none());
        drop(held);
        assert_eq!((count(&one), count(&two)), (1, 0));
    }
    assert_eq!(count(&two), 1);
    assert!(poll(second.as_mut(), &two).is_some());
    // And with nobody behind, it is free again.
    let held = places.try_take();
    {
        let mut last = pin!(places.wait());
        assert!(poll(last.as_mut(), &one).is_none());
        drop(held);
    }
    assert!(places.try_take().is_some());
}

#[test]
fn the_last_waker_counts() {
    let places = Places::new(1);
    let held = places.try_take();
    let (old, new) = (Arc::<Woken>::default(), Arc::<Woken>::default());
    let mut wait = pin!(places.wait());
    assert!(poll(wait.as_mut(), &old).is_none());
    assert!(poll(wait.as_mut(), &new).is_none());
    drop(held);
    assert_eq!((count(&old), count(&new)), (0, 1));
}
