//! What a change of configuration keeps, and what goes.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use super::{
    reuse::target,
    support::{self, *},
};
use crate::{
    config::Balance,
    timer::Timer,
    upstream::{Host, Pools, Targets},
};

#[test]
fn an_equal_upstream_is_the_same_one() {
    on_worker(async |worker| {
        let fake = Fake::answering(OK);
        let shared = Targets::default();
        let config = support::upstream("users", Balance::RoundRobin, &[fake.address]);
        let before = worker.pools.upstream(&config, &shared);
        assert!(Rc::ptr_eq(&before, &worker.pools.upstream(&config.clone(), &shared)));
        let other = support::upstream("users", Balance::LeastRequests, &[fake.address]);
        assert!(!Rc::ptr_eq(&before, &worker.pools.upstream(&other, &shared)));
    });
}

#[test]
fn connections_outlive_a_change() {
    on_worker(async |worker| {
        let (fake, new) = (Fake::answering(OK), Fake::answering(OK));
        let shared = Targets::default();
        let config = support::upstream("users", Balance::RoundRobin, &[fake.address]);
        let before = worker.pools.upstream(&config, &shared);
        assert_eq!(text(worker.fetch(&before, get()).await), "ok");
        let config = support::upstream("people", Balance::RoundRobin, &[fake.address, new.address]);
        let after = worker.pools.upstream(&config, &shared);
        drop(before);
        worker.pools.sweep();
        for _ in 0..4 {
            assert_eq!(text(worker.fetch(&after, get()).await), "ok");
        }
        assert_eq!((fake.accepted(), new.accepted()), (1, 1));
    });
}

#[test]
fn a_target_that_nobody_names_closes_its_connections() {
    on_worker(async |worker| {
        let fake = Fake::answering(OK);
        let shared = Targets::default();
        let config = support::upstream("users", Balance::RoundRobin, &[fake.address]);
        let upstream = worker.pools.upstream(&config, &shared);
        assert_eq!(text(worker.fetch(&upstream, get()).await), "ok");
        drop(upstream);
        tokio::task::yield_now().await;
        fake.wait_for(|seen| *seen == Seen::Closed);
        worker.pools.sweep();
        assert_eq!(worker.pools.targets.borrow().len() + worker.pools.upstreams.borrow().len(), 0);

        let another = Fake::answering(OK);
        let config = support::upstream("users", Balance::RoundRobin, &[another.address]);
        let _upstream = worker.pools.upstream(&config, &shared);
        assert_eq!(shared.known.lock().unwrap().len(), 1);
    });
}

/// A response that is still under way keeps its connection, not the target.
#[test]
fn a_response_outlives_its_upstream() {
    on_worker(async |worker| {
        let fake = Fake::answering(OK);
        let upstream = worker.upstream(&[fake.address]);
        let response = worker.send(&upstream, get(), Host::Target).await.unwrap();
        drop(upstream);
        assert_eq!(text(read(response).await), "ok");
        tokio::task::yield_now().await;
        fake.wait_for(|seen| *seen == Seen::Closed);
    });
}

#[test]
fn idle_for_too_long() {
    on_worker(async |worker| {
        let fake = Fake::answering(OK);
        let upstream = worker.upstream(&[fake.address]);
        assert_eq!(text(worker.fetch(&upstream, get()).await), "ok");
        let (pool, now) = (&target(&upstream).pool, Instant::now());
        pool.sweep(now);
        pool.sweep(now + Duration::from_secs(59));
        assert_eq!(pool.len(), 1);
        pool.sweep(now + Duration::from_secs(60));
        assert_eq!(pool.len(), 0);
        tokio::task::yield_now().await;
        fake.wait_for(|seen| *seen == Seen::Closed);
    });
}

#[test]
fn a_use_makes_it_young_again() {
    on_worker(async |worker| {
        let fake = Fake::answering(OK);
        let upstream = worker.upstream(&[fake.address]);
        let (pool, now) = (&target(&upstream).pool, Instant::now());
        for minutes in 0..3 {
            assert_eq!(text(worker.fetch(&upstream, get()).await), "ok");
            pool.sweep(now + Duration::from_secs(60 * minutes));
            assert_eq!(pool.len(), 1);
        }
        assert_eq!(fake.accepted(), 1);
    });
}

#[test]
fn workers_count_requests_together() {
    on_worker(async |worker| {
        let fakes = [Fake::answering(OK), Fake::answering(OK)];
        let shared = Targets::default();
        let config = support::upstream("users", Balance::LeastRequests, &[fakes[0].address, fakes[1].address]);
        let others: Pools = Pools::new(Timer::start());
        let (mine, theirs) = (worker.pools.upstream(&config, &shared), others.upstream(&config, &shared));
        for _ in 0..3 {
            let held = worker.send(&mine, get(), Host::Target).await.unwrap();
            let other = worker.send(&theirs, get(), Host::Target).await.unwrap();
            assert_ne!(held.body().target(), other.body().target());
        }
    });
}
