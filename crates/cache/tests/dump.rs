//! A listing shows every record once, wherever it lies, and none that is gone.

mod common;

use common::machine::{Machine, config, key, value};
use common::record;
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
