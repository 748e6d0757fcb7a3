use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use super::*;

#[test]
fn values_expire() {
    let space = space();
    space.set(1000, b"key", b"value", 50).unwrap();
    assert_eq!(space.get(1049, b"key").as_deref(), Some(&b"value"[..]));
    assert_eq!(space.get(1050, b"key"), None);
    space.set(2000, b"key", b"", 0).unwrap();
    assert_eq!(space.get(2000 + MAX_TTL - 1, b"key").as_deref(), Some(&b""[..]));
    assert_eq!(space.get(2000 + MAX_TTL, b"key"), None);
    space.set(2000, b"key", b"x", u64::MAX).unwrap();
    assert_eq!(space.get(2000 + MAX_TTL, b"key"), None);
}

#[test]
fn set_new_is_won_once() {
    let (space, wins) = (space(), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for nonce in 0..500_u32 {
                    let won = space.set_new(10, &nonce.to_be_bytes(), b"", 100).unwrap();
                    wins.fetch_add(won.into(), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(wins.into_inner(), 500);
    assert_eq!(space.set_new(110, &0_u32.to_be_bytes(), b"", 100), Ok(true));
}

#[test]
fn counters_add_up_over_threads() {
    let space = space();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..1000).for_each(|_| assert!(space.increment(10, b"key", 3, 100).is_ok())));
        }
    });
    assert_eq!(space.get(10, b"key").as_deref(), Some(&b"24000"[..]));
    assert_eq!(space.increment(20, b"key", -24_001, 100), Ok(-1));
    // It expires by its making, not by its last use.
    assert_eq!(space.increment(110, b"key", 1, 100), Ok(1));
}

#[test]
fn only_counters_are_incremented() {
    let space = space();
    space.set(0, b"text", b"12", 0).unwrap();
    assert_eq!(space.increment(0, b"text", 1, 0), Err(StoreError::Invalid));
    assert_eq!(space.increment(0, b"count", i64::MAX, 0), Ok(i64::MAX));
    assert_eq!(space.increment(0, b"count", 1, 0), Err(StoreError::Invalid));
    assert_eq!(space.get(0, b"count").as_deref(), Some(&b"9223372036854775807"[..]));
    assert_eq!(space.set_new(0, b"count", b"", 0), Ok(false));
}

#[test]
fn values_have_a_longest() {
    let space = space();
    assert_eq!(space.set(0, b"key", &vec![0; MAX_VALUE], 0), Ok(()));
    assert_eq!(space.set(0, b"key", &vec![0; MAX_VALUE + 1], 0), Err(StoreError::TooLong));
    assert_eq!(space.get(0, b"key").map(|value| value.len()), Some(MAX_VALUE));
}

#[test]
fn delete_takes_value_and_counts_away() {
    let space = space();
    let limits = [Limit { algorithm: Algorithm::FixedWindow, quota: 1, window: 1000, burst: 0 }];
    space.set(0, b"key", b"value", 0).unwrap();
    assert!(space.take(0, b"key", 1, &limits).unwrap().allowed);
    assert!(!space.take(0, b"key", 1, &limits).unwrap().allowed);
    space.delete(b"key");
    space.delete(b"key");
    assert_eq!((space.get(0, b"key"), space.usage()), (None, (0, 0)));
    assert!(space.take(0, b"key", 1, &limits).unwrap().allowed);
}

/// Of few entries, spread over all shards, the one that is in nobody's use goes.
#[test]
fn values_in_use_stay_when_others_give_way() {
    let space = Space::new(Quota { entries: 2000, bytes: 1 << 30 });
    for key in 0..20_000_u32 {
        let now = u64::from(key);
        space.set(now, &key.to_be_bytes(), b"value", 0).unwrap();
        for favourite in 0..20_u32 {
            if key >= favourite {
                space.get(now, &favourite.to_be_bytes());
            }
        }
    }
    assert_eq!(space.usage().0, 2000);
    let kept = (0..20_u32).filter(|key| space.get(20_000, &key.to_be_bytes()).is_some()).count();
    assert!(kept >= 18, "{kept}");
}

#[test]
fn values_give_way_to_counts_but_not_the_reverse() {
    let space = Space::new(Quota { entries: 50, bytes: 1 << 20 });
    let limits = [Limit { algorithm: Algorithm::TokenBucket, quota: 1, window: 60_000, burst: 0 }];
    for key in 0..50_u8 {
        space.set(0, &[key], b"value", 0).unwrap();
    }
    for key in 0..25_u8 {
        assert!(space.take(0, &[key], 1, &limits).unwrap().allowed);
        assert_eq!(space.increment(0, &[key, key], 1, 60_000), Ok(1));
    }
    assert_eq!(space.set(0, b"value", b"", 0), Err(StoreError::Full));
    assert_eq!(space.increment(0, b"count", 1, 0), Err(StoreError::Full));
    assert_eq!(space.set(60_000, b"value", b"", 0), Ok(()));
}

#[test]
fn a_long_value_pushes_out_many_short_ones() {
    let space = Space::new(Quota { entries: 10_000, bytes: 200 << 10 });
    for key in 0..2000_u32 {
        space.set(0, &key.to_be_bytes(), b"short", 0).unwrap();
    }
    space.set(1, b"long", &vec![0; MAX_VALUE], 0).unwrap();
    assert_eq!(space.get(1, b"long").map(|value| value.len()), Some(MAX_VALUE));
    let small = Space::new(Quota { entries: 10, bytes: 1000 });
    assert_eq!(small.set(0, b"long", &[0; 1000], 0), Err(StoreError::Full));
}
