use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use super::*;

const ALGORITHMS: [Algorithm; 3] = [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::TokenBucket];

fn limit(algorithm: Algorithm, quota: u64, window: u64) -> Limit {
    Limit { algorithm, quota, window, burst: 0 }
}

fn take(space: &Space, now: u64, cost: u64, limits: &[Limit]) -> Decision {
    space.take(now, b"key", cost, limits).unwrap()
}

/// All that was ever taken, looked at anew for each question.
#[derive(Default)]
struct Model {
    taken: Vec<(u64, u64)>,
}

impl Model {
    /// What a limit has left, times its window.
    fn room(&self, limit: &Limit, now: u64) -> i128 {
        let window = i128::from(limit.window);
        let in_window = |index: i128| -> i128 {
            let taken = self.taken.iter().filter(|(at, _)| i128::from(at / limit.window) == index);
            taken.map(|(_, cost)| i128::from(*cost)).sum()
        };
        let index = i128::from(now / limit.window);
        let quota = i128::from(limit.quota);
        match limit.algorithm {
            Algorithm::FixedWindow => (quota - in_window(index)) * window,
            Algorithm::SlidingWindow => {
                let left = window - i128::from(now % limit.window);
                (quota - in_window(index)) * window - in_window(index - 1) * left
            }
            // The theoretical arrival time, as GCRA has it, in shares of 1 ms.
            Algorithm::TokenBucket => {
                let mut arrival = 0;
                for (at, cost) in &self.taken {
                    arrival = arrival.max(i128::from(*at) * quota) + i128::from(*cost) * window;
                }
                i128::from(limit.capacity()) * window - (arrival - i128::from(now) * quota).max(0)
            }
        }
    }

    fn allows(&self, limit: &Limit, now: u64, cost: u64) -> bool {
        self.room(limit, now) >= i128::from(cost) * i128::from(limit.window)
    }

    fn remaining(&self, limit: &Limit, now: u64) -> u64 {
        u64::try_from(self.room(limit, now) / i128::from(limit.window)).unwrap_or(0)
    }
}

fn random_limit(random: &mut Random) -> Limit {
    let algorithm = ALGORITHMS[random.below(3) as usize];
    let burst = if random.below(2) == 0 { 0 } else { random.magnitude(60) };
    Limit { algorithm, quota: random.magnitude(50), window: random.magnitude(5000), burst }
}

/// One limit after random histories: allowed and remaining as the model says,
/// and retry-after and reset to the millisecond.
#[test]
fn each_algorithm_agrees_with_its_model() {
    let mut random = Random::new(42);
    for _ in 0..1500 {
        let (space, mut model, limit) = (space(), Model::default(), random_limit(&mut random));
        let mut now = random.magnitude(2_000_000_000_000);
        for _ in 0..40 {
            now += random.below(limit.window / 2 + 2);
            let cost = random.magnitude(60).min(limit.capacity());
            let cost = random.below(cost + 1);
            let decision = take(&space, now, cost, &[limit]);
            let expected = model.allows(&limit, now, cost);
            assert_eq!(decision.allowed, expected || cost == 0, "{limit:?} {cost}");
            if decision.allowed && cost > 0 {
                model.taken.push((now, cost));
            }
            assert_eq!(decision.remaining, model.remaining(&limit, now), "{limit:?}");
            assert_eq!(decision.tightest, 0);
            check_reset(&model, &limit, now, decision);
            check_retry(&model, &limit, now, cost, decision);
        }
    }
}

/// What is used is whole again at `reset`, and not before.
fn check_reset(model: &Model, limit: &Limit, now: u64, decision: Decision) {
    let used_at = |now| model.room(limit, now) < i128::from(limit.capacity()) * i128::from(limit.window);
    assert_eq!(decision.reset > 0, used_at(now), "{limit:?}");
    if decision.reset > 0 {
        assert!(!used_at(now + decision.reset), "{limit:?} {decision:?}");
        assert!(used_at(now + decision.reset - 1), "{limit:?} {decision:?}");
    }
}

/// The cost is allowed after `retry_after`, and not before.
fn check_retry(model: &Model, limit: &Limit, now: u64, cost: u64, decision: Decision) {
    assert_eq!(decision.retry_after == 0, decision.allowed);
    if !decision.allowed {
        assert!(model.allows(limit, now + decision.retry_after, cost), "{limit:?} {decision:?}");
        assert!(!model.allows(limit, now + decision.retry_after - 1, cost), "{limit:?} {decision:?}");
    }
}

/// Whoever waits as told is let in, and who comes a millisecond early is not.
#[test]
fn retry_after_is_true_under_several_limits() {
    let (mut random, mut refused) = (Random::new(3), 0);
    for _ in 0..1500 {
        let space = space();
        let mut limits = vec![random_limit(&mut random), random_limit(&mut random), random_limit(&mut random)];
        limits.dedup_by(|one, other| one.shares_cell(other));
        let most = limits.iter().map(Limit::capacity).min().unwrap();
        let mut now = random.magnitude(2_000_000_000_000);
        for _ in 0..40 {
            now += random.below(300);
            let cost = 1 + random.below(most);
            let decision = take(&space, now, cost, &limits);
            if decision.allowed {
                continue;
            }
            refused += 1;
            let early = take(&space, now + decision.retry_after - 1, cost, &limits);
            assert!(!early.allowed && early.retry_after == 1, "{limits:?} {decision:?} {early:?}");
            now += decision.retry_after;
            assert!(take(&space, now, cost, &limits).allowed, "{limits:?} {decision:?}");
        }
    }
    assert!(refused > 1000);
}

/// All or none, and the tightest of several.
#[test]
fn several_limits_agree_with_their_models() {
    let mut random = Random::new(5);
    for _ in 0..800 {
        let (space, mut model) = (space(), Model::default());
        let limits: Vec<Limit> = (0..1 + random.below(8)).map(|_| random_limit(&mut random)).collect();
        if (1..limits.len()).any(|place| limits[..place].iter().any(|other| other.shares_cell(&limits[place]))) {
            continue;
        }
        let most = limits.iter().map(Limit::capacity).min().unwrap();
        let mut now = random.magnitude(2_000_000_000_000);
        for _ in 0..30 {
            now += random.below(400);
            let cost = random.below(most) + 1;
            let refusing = limits.iter().filter(|limit| !model.allows(limit, now, cost)).count();
            let decision = take(&space, now, cost, &limits);
            assert_eq!(decision.allowed, refusing == 0);
            if decision.allowed {
                model.taken.push((now, cost));
            }
            let tightest = &limits[decision.tightest as usize];
            assert_eq!(decision.remaining, model.remaining(tightest, now));
            for limit in &limits {
                if decision.allowed {
                    let share = |limit: &Limit| model.remaining(limit, now) * 1_000_000 / limit.capacity();
                    assert!(share(tightest) <= share(limit));
                } else {
                    assert!(model.allows(limit, now + decision.retry_after, cost));
                }
            }
        }
    }
}

#[test]
fn two_a_minute_let_two_through() {
    for algorithm in ALGORITHMS {
        let (space, limits, start) = (space(), [limit(algorithm, 2, 60_000)], 60_000 * 29_000_000);
        let decisions: Vec<_> = (0..4).map(|second| take(&space, start + second * 1000, 1, &limits)).collect();
        assert_eq!(decisions.iter().map(|decision| decision.allowed).collect::<Vec<_>>(), [true, true, false, false]);
        assert_eq!(decisions.iter().map(|decision| decision.remaining).collect::<Vec<_>>(), [1, 0, 0, 0]);
        assert!(decisions[2].reset > decisions[3].reset && decisions[3].reset > 0);
        assert!(decisions[2].retry_after > decisions[3].retry_after && decisions[3].retry_after > 0);
    }
}

#[test]
fn a_cost_of_nothing_takes_and_keeps_nothing() {
    for algorithm in ALGORITHMS {
        let (space, limits) = (space(), [limit(algorithm, 3, 1000)]);
        let untouched = Decision { allowed: true, tightest: 0, remaining: 3, reset: 0, retry_after: 0 };
        assert_eq!(take(&space, 5000, 0, &limits), untouched);
        assert_eq!(space.usage(), (0, 0));
        assert_eq!(take(&space, 5000, 2, &limits).remaining, 1);
        assert_eq!(take(&space, 5000, 0, &limits).remaining, 1);
    }
}

#[test]
fn a_changed_quota_goes_on_from_there() {
    for algorithm in ALGORITHMS {
        let space = space();
        assert_eq!(take(&space, 5000, 8, &[limit(algorithm, 10, 1000)]).remaining, 2);
        assert_eq!(take(&space, 5000, 1, &[limit(algorithm, 100, 1000)]).remaining, 91);
        let lower = take(&space, 5000, 1, &[limit(algorithm, 5, 1000)]);
        assert!(!lower.allowed && lower.remaining == 0 && lower.reset > 0 && lower.retry_after > 0);
        assert!(take(&space, 5000 + lower.retry_after, 1, &[limit(algorithm, 5, 1000)]).allowed);
        // Another window is another count.
        assert_eq!(take(&space, 5000, 1, &[limit(algorithm, 10, 2000)]).remaining, 9);
    }
}

#[test]
fn limits_that_share_a_count_take_it_once() {
    for algorithm in ALGORITHMS {
        let (space, limits) = (space(), [limit(algorithm, 10, 1000), limit(algorithm, 6, 1000)]);
        let first = take(&space, 5000, 2, &limits);
        assert_eq!((first.tightest, first.remaining), (1, 4));
        let second = take(&space, 5000, 2, &limits);
        assert_eq!((second.tightest, second.remaining), (1, 2));
        assert_eq!(take(&space, 5000, 0, &limits[..1]).remaining, 6);
    }
}

#[test]
fn what_can_never_be_allowed_is_invalid() {
    let space = space();
    let good = limit(Algorithm::FixedWindow, 10, 1000);
    let bucket = Limit { algorithm: Algorithm::TokenBucket, burst: 3, ..good };
    for (cost, limits) in [
        (1, vec![]),
        (1, vec![good; 9]),
        (1, vec![Limit { quota: 0, ..good }]),
        (1, vec![good, Limit { window: 0, ..good }]),
        (1, vec![Limit { window: MAX_WINDOW + 1, ..good }]),
        (11, vec![good]),
        (4, vec![good, bucket]),
    ] {
        assert_eq!(space.take(0, b"key", cost, &limits), Err(StoreError::Invalid), "{cost} {limits:?}");
    }
    assert!(space.take(0, b"key", 10, &[good]).is_ok_and(|decision| decision.allowed));
    let large = Limit { burst: 1000, ..bucket };
    assert!(space.take(0, b"key", 1000, &[large]).is_ok_and(|decision| decision.allowed));
}

#[test]
fn the_largest_numbers_are_counted_right() {
    for algorithm in ALGORITHMS {
        let (space, limits) = (space(), [limit(algorithm, u64::MAX, MAX_WINDOW)]);
        let start = MAX_WINDOW * 100;
        assert_eq!(take(&space, start, u64::MAX - 1, &limits).remaining, 1);
        let refused = take(&space, start, 2, &limits);
        assert!(!refused.allowed && refused.remaining == 1);
        assert!(take(&space, start + refused.retry_after, 2, &limits).allowed, "{algorithm:?} {refused:?}");
        assert!(take(&space, u64::MAX, 1, &limits).allowed);
        let slow = Limit { algorithm, quota: 1, window: MAX_WINDOW, burst: u64::MAX };
        assert!(space.take(start, b"slow", 1, &[slow]).unwrap().allowed);
    }
}

/// Workers read the clock one after the other: one that is a little behind at
/// a border must not bring the window before back.
#[test]
fn a_worker_that_is_behind_changes_nothing() {
    for algorithm in ALGORITHMS {
        let (space, limits) = (space(), [limit(algorithm, 4, 1000)]);
        assert!(take(&space, 10_000, 4, &limits).allowed);
        assert!(!take(&space, 9_990, 1, &limits).allowed);
        assert!(!take(&space, 10_000, 1, &limits).allowed);
    }
}

#[test]
fn a_clock_put_back_neither_frees_nor_locks() {
    for algorithm in ALGORITHMS {
        let (space, limits) = (space(), [limit(algorithm, 4, 1000)]);
        assert!(take(&space, 100_000_000, 4, &limits).allowed);
        let refused = take(&space, 50_000_000, 1, &limits);
        assert!(!refused.allowed && refused.retry_after <= 2000, "{refused:?}");
        assert!(take(&space, 50_000_000 + refused.retry_after, 1, &limits).allowed);
    }
}

/// The promise that the rate limit rests on.
#[test]
fn threads_get_exactly_the_quota() {
    for algorithm in ALGORITHMS {
        let (space, allowed) = (space(), AtomicU64::new(0));
        let limits = [limit(algorithm, 3000, 60_000), limit(algorithm, 100_000, 3_600_000)];
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1250 {
                        let decision = take(&space, 1_700_000_000_000, 1, &limits);
                        allowed.fetch_add(decision.allowed.into(), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(allowed.into_inner(), 3000);
    }
}

#[test]
fn counting_entries_are_kept_until_they_expire() {
    let space = Space::new(Quota { entries: 100, bytes: 1 << 20 });
    let limits = [limit(Algorithm::FixedWindow, 1, 1000)];
    for key in 0..100_u8 {
        assert!(space.take(5000, &[key], 1, &limits).is_ok());
    }
    assert_eq!(space.take(5000, b"new", 1, &limits), Err(StoreError::Full));
    for key in 0..100_u8 {
        assert!(!space.take(5999, &[key], 1, &limits).unwrap().allowed);
    }
    for key in 0..100_u8 {
        assert!(space.take(6000, &[key, key], 1, &limits).unwrap().allowed);
    }
    assert!(space.usage().0 <= 100);
}

/// A plugin that varies the window fills its own entry, not the table.
#[test]
fn windows_of_a_key_are_bounded() {
    let space = space();
    let taken =
        (1..=200).take_while(|n| space.take(0, b"key", 1, &[limit(Algorithm::FixedWindow, 1, n * 1000)]).is_ok());
    assert_eq!(taken.count(), 64);
    // Those that have expired make room.
    assert!(space.take(64_000, b"key", 1, &[limit(Algorithm::FixedWindow, 1, 100_000)]).is_ok());
    space.sweep_all(u64::MAX);
    assert_eq!(space.usage(), (0, 0));
}
