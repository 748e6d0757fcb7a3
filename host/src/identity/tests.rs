use super::*;
use crate::config::Secret;

fn consumer(name: &str, groups: &[&str], keys: &[&str]) -> Consumer {
    Consumer {
        name: name.into(),
        groups: groups.iter().map(|group| Arc::from(*group)).collect(),
        keys: keys.iter().map(|key| Secret::new(key)).collect(),
    }
}

fn name_of<'a>(identity: &'a Identity, key: &[u8]) -> Option<&'a str> {
    identity.by_key(key).map(|consumer| &*consumer.name)
}

#[test]
fn each_key_finds_its_consumer() {
    let identity = Identity::new(&[
        consumer("alice", &["gold", "beta"], &["alice-1", "alice-2"]),
        consumer("bob", &[], &["bob-1"]),
        consumer("carol", &[], &[]),
    ]);
    assert_eq!(name_of(&identity, b"alice-1"), Some("alice"));
    assert_eq!(name_of(&identity, b"alice-2"), Some("alice"));
    assert_eq!(name_of(&identity, b"bob-1"), Some("bob"));
    for wrong in [&b""[..], b"alice", b"alice-", b"alice-3", b"alice-11", b"ALICE-1", b"alice-1\0", b"bob", b"\xff"] {
        assert_eq!(name_of(&identity, wrong), None);
    }
    assert_eq!(identity.by_name("carol").map(|carol| carol.groups.len()), Some(0));
    assert_eq!(identity.by_name("alice").map(|alice| alice.groups.len()), Some(2));
    assert!(identity.by_name("Alice").is_none() && identity.by_name("").is_none());
}

#[test]
fn without_consumers_nobody_is_known() {
    let identity = Identity::new(&[]);
    assert!(identity.by_key(b"").is_none() && identity.by_name("").is_none());
}

/// Nothing but the key itself lets in, also where hashes are equal.
#[test]
fn an_equal_hash_is_no_equal_key() {
    let mut identity = Identity::new(&[consumer("alice", &[], &["alice-1"]), consumer("bob", &[], &["bob-1"])]);
    let all: Vec<_> = identity.by_key.values().flatten().copied().collect();
    let hashes: Vec<_> = [&b"alice-1"[..], b"bob-1", b"other"].map(|key| identity.seed.hash_one(key)).to_vec();
    for hash in hashes {
        identity.by_key.insert(hash, all.clone());
    }
    assert_eq!(name_of(&identity, b"alice-1"), Some("alice"));
    assert_eq!(name_of(&identity, b"bob-1"), Some("bob"));
    assert_eq!(name_of(&identity, b"other"), None);
}

#[test]
fn among_many_each_is_found() {
    let key = |number: usize| format!("key-{number:028}");
    let consumers: Vec<_> = (0..20_000).map(|n| consumer(&format!("c{n}"), &[], &[&key(n)])).collect();
    let identity = Identity::new(&consumers);
    for number in 0..20_000 {
        assert_eq!(name_of(&identity, key(number).as_bytes()), Some(&*format!("c{number}")));
    }
    assert_eq!(name_of(&identity, key(20_000).as_bytes()), None);
}

/// Every length up to some words, and a difference at every place.
#[test]
fn keys_are_the_same_only_if_every_byte_is() {
    let key: Vec<u8> = (1..=35).collect();
    for len in 0..=key.len() {
        let key = &key[..len];
        assert!(is_same(key, key));
        for place in 0..len {
            let mut other = key.to_vec();
            other[place] ^= 1;
            assert!(!is_same(key, &other) && !is_same(&other, key), "{len} {place}");
            assert!(!is_same(key, &key[..place]) && !is_same(&key[..place], key), "{len} {place}");
        }
    }
}
