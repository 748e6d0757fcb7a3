#![allow(clippy::unwrap_used)]

use std::{
    future::{pending, poll_fn, ready},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Wake,
};

use super::*;

/// Runs on a worker-like runtime.
fn on_worker(test: impl AsyncFnOnce(Rc<Timer>)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async { test(Timer::start()).await });
}

fn registered(timer: &Timer) -> usize {
    timer.entries.borrow().len()
}

#[test]
fn a_future_that_is_ready_is_not_registered() {
    on_worker(async |timer| {
        let inside = timer.timeout(Duration::ZERO, poll_fn(|_| Poll::Ready(registered(&timer)))).await;
        assert_eq!(inside, Ok(0));
        assert_eq!(timer.next_scan.get(), None);
    });
}

#[test]
fn never_early_and_gone_afterwards() {
    on_worker(async |timer| {
        let start = Instant::now();
        let limit = Duration::from_millis(30);
        assert_eq!(timer.timeout(limit, pending::<()>()).await, Err(Elapsed));
        assert!(start.elapsed() >= limit);
        assert_eq!(registered(&timer), 0);
    });
}

#[test]
fn a_shorter_deadline_overtakes_a_longer_one() {
    on_worker(async |timer| {
        let long = timer.deadline();
        long.set(timer.now() + Duration::from_secs(3600));
        assert_eq!(timer.timeout(Duration::from_millis(5), pending::<()>()).await, Err(Elapsed));
        assert!(!long.is_expired());
        let next = timer.next_scan.get().unwrap();
        assert!(next > timer.now() + Duration::from_secs(3000), "nothing to do until the long one is due");
    });
}

#[test]
fn a_deadline_moves_both_ways() {
    on_worker(async |timer| {
        let deadline = timer.deadline();
        deadline.set(timer.now() + Duration::from_millis(1));
        deadline.set(timer.now() + Duration::from_secs(3600));
        assert_eq!(
            timer.timeout(Duration::from_millis(15), poll_fn(|cx| deadline.poll_expired(cx))).await,
            Err(Elapsed)
        );

        deadline.set(timer.now());
        poll_fn(|cx| deadline.poll_expired(cx)).await;
        assert!(deadline.is_expired());

        deadline.clear();
        assert!(!deadline.is_expired());
        assert_eq!(
            timer.timeout(Duration::from_millis(5), poll_fn(|cx| deadline.poll_expired(cx))).await,
            Err(Elapsed)
        );
    });
}

/// What polls before arming must be woken as well.
#[test]
fn armed_after_the_poll() {
    on_worker(async |timer| {
        let deadline = Rc::new(timer.deadline());
        let waiting = tokio::task::spawn_local({
            let deadline = deadline.clone();
            async move { poll_fn(|cx| deadline.poll_expired(cx)).await }
        });
        tokio::task::yield_now().await;
        deadline.set(timer.now());
        waiting.await.unwrap();
    });
}

#[test]
fn an_inner_result_wins_over_an_expiry() {
    on_worker(async |timer| {
        let mut polls = 0;
        let late = poll_fn(|_| {
            polls += 1;
            if polls == 1 { Poll::Pending } else { Poll::Ready("late") }
        });
        assert_eq!(timer.timeout(Duration::ZERO, late).await, Ok("late"));
        assert_eq!(timer.timeout(Duration::ZERO, ready(1)).await, Ok(1));
    });
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_known_waker_is_not_cloned_again() {
    on_worker(async |timer| {
        let deadline = timer.deadline();
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        assert!(deadline.poll_expired(&mut cx).is_pending());
        let held = Arc::strong_count(&count);
        assert!(deadline.poll_expired(&mut cx).is_pending());
        assert_eq!(Arc::strong_count(&count), held);
        drop(deadline);
        assert_eq!(Arc::strong_count(&count), held - 1);
    });
}
