//! A listing shows every record once, wherever it lies, and none that is gone.

mod common;

use common::machine::{Machine, config, key, value};
use common::{Client, record};
use std::collections::{HashMap, HashSet};
use terrace_cache::{Body, Change, Dump};

/// Of a segment, a step shows so many at most: what is written of them is kept until the client takes it.
const SHOWN_MAX: usize = 512;

#[test]
fn a_step_shows_a_part_of_a_long_segment() {
    let mut machine = Machine::new(config());
    let client = &mut machine.client;
    const RECORDS: u64 = 20_000;
    (0..RECORDS).for_each(|n| assert!(client.set(&key(n), b"short")));
    client.settle();
    let now = client.now;
    let mut dump = Dump::begin(&client.cache).expect("a place");
    let (mut seen, mut most) = (HashSet::new(), 0);
    loop {
        let mut sealed = 0;
        let more = dump.step(now, |listed| {
            sealed += usize::from(listed.is_sealed);
            assert!(seen.insert(listed.record.key.to_vec()), "shown twice");
        });
        most = most.max(sealed);
        if !more {
            break;
        }
    }
    assert_eq!((seen.len() as u64, most), (RECORDS, SHOWN_MAX));
}

/// Walks over all records, and has `change` done before each step. The keys that were shown.
fn walk_beside(client: &mut Client, mut change: impl FnMut(&mut Client)) -> HashSet<Vec<u8>> {
    let mut dump = Dump::begin(&client.cache).expect("a place");
    let mut seen = HashSet::new();
    loop {
        change(client);
        let more = dump.step(client.now, |listed| {
            seen.insert(listed.record.key.to_vec());
        });
        if !more {
            return seen;
        }
    }
}

fn missing(seen: &HashSet<Vec<u8>>, keys: u64) -> Vec<u64> {
    (0..keys).filter(|n| !seen.contains(&key(*n))).collect()
}

#[test]
fn keys_overwritten_in_a_row_during_a_walk_are_all_shown() {
    for tiered in [true, false] {
        let mut config = config();
        if !tiered {
            config.tiers.clear();
        }
        let mut machine = Machine::new(config);
        let client = &mut machine.client;
        const KEYS: u64 = 3000;
        (0..KEYS).for_each(|n| assert!(client.set(&key(n), &value(n, 1))));
        client.settle();
        for (per_step, settles) in [(50, false), (1000, true), (5000, true)] {
            let mut turn = 0;
            let seen = walk_beside(client, |client| {
                // A walk that others keep from its end goes on alone at last.
                for n in (turn..turn + per_step).map(|n| n % KEYS) {
                    assert!(client.set(&key(n), &value(n, turn)));
                }
                turn += per_step;
                if settles {
                    client.settle();
                }
            });
            let missing = missing(&seen, KEYS);
            assert!(missing.is_empty(), "tiered {tiered}, {per_step} a step: {missing:?}");
        }
    }
}

#[test]
fn hot_keys_are_shown_however_often_they_are_overwritten() {
    let mut machine = Machine::new(config());
    let client = &mut machine.client;
    const HOT: u64 = 10;
    (0..2000).for_each(|n| assert!(client.set(&key(n), &value(n, 1))));
    client.settle();
    // More walks than there may be at once.
    for round in 0..100 {
        let seen = walk_beside(client, |client| {
            for turn in 0..10 {
                (0..HOT).for_each(|n| assert!(client.set(&key(n), &value(n, round + turn))));
            }
        });
        assert_eq!(missing(&seen, HOT), [0; 0]);
    }
}

#[test]
fn shows_all_records_and_nothing_else() {
    let mut machine = Machine::new(config());
    for n in 0..4000 {
        assert!(machine.client.set(&key(n), &value(n, 1)));
    }
    machine.client.settle();
    let expired = value(5, 9);
    let client = &mut machine.client;
    for n in (0..4000).step_by(7) {
        client.delete(&key(n));
    }
    for n in (1..4000).step_by(7) {
        assert!(client.set(&key(n), &value(n, 2)));
    }
    let until = client.now - 1;
    assert!(client.update(&key(5000), false, |_| {
        let mut new = record(&expired);
        new.expires = until;
        Change::Store(new)
    }));
    // Some have hot copies.
    for n in (2..4000).step_by(7) {
        client.get(&key(n));
        client.get(&key(n));
    }
    let now = client.now;
    let mut seen = HashMap::new();
    let mut dump = Dump::begin(&client.cache).expect("a place");
    while dump.step(now, |listed| {
        let Body::Inline(value) = listed.record.body() else { panic!("not a small one") };
        assert!(seen.insert(listed.record.key.to_vec(), value.to_vec()).is_none(), "shown twice");
        assert!(listed.accessed > 0);
    }) {}
    for n in 0..4000 {
        let expected = match n % 7 {
            0 => None,
            1 => Some(value(n, 2)),
            _ => Some(value(n, 1)),
        };
        assert_eq!(seen.remove(&key(n)), expected, "{n}");
    }
    assert!(seen.is_empty());
}
