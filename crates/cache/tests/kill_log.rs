//! The kill log where it may not become any longer, and how a start reads it.

mod common;

use common::machine::{Machine, Remains, config, key, value as padded};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_cache::{Config, StateFile};

const RECORDS: u64 = 120_000;

/// Of 8,128 words each.
const LOG_SLOTS: u32 = 20;

fn short_log() -> Config {
    let mut config = Config { memory_bytes: 16 << 20, memory_bytes_max: 16 << 20, ..config() };
    config.tuning.log_slots = Some(LOG_SLOTS);
    config
}

fn value(n: u64, round: u64) -> Vec<u8> {
    format!("{n}:{round}").into_bytes()
}

fn store_all(machine: &mut Machine, round: u64) {
    // In an order that has nothing to do with that in which they were stored before.
    let step = 7 * 11u64.pow(round as u32 + 2);
    for n in (0..RECORDS).map(|n| n * step % RECORDS) {
        assert!(machine.client.set(&key(n), &value(n, round)));
        if n.is_multiple_of(64) {
            machine.client.session.quiesce();
            machine.client.cache.maintain(machine.client.now);
        }
    }
}

/// More than two thirds of the tier could be dead before a place is short: kills for all of them would take
/// more than twice the slots.
#[test]
fn segments_are_taken_back_before_the_log_has_no_room_for_more_kills() {
    let mut machine = Machine::with(short_log(), 24 << 20, None);
    (0..6).for_each(|round| store_all(&mut machine, round));
    machine.client.settle();
    let stats = machine.client.cache.stats();
    let tier = &stats.tiers[0];
    assert!(tier.tombstone_log_bytes <= u64::from(LOG_SLOTS) << 16, "{stats:#?}");
    assert!((30_000..100_000).contains(&tier.tombstones), "{stats:#?}");
    assert_eq!(stats.evictions, 0, "{stats:#?}");

    let machine = machine.crash();
    machine.recover();
    for n in 0..RECORDS {
        let found = machine.client.get(&key(n)).map(|found| found.value);
        assert_eq!(found, Some(value(n, 5)), "{n}");
    }
}

/// A start does not wait for the drive page by page.
#[test]
fn the_log_is_read_many_pages_at_a_time() {
    let mut machine = Machine::new(config());
    for version in 0..8 {
        for n in 0..4000 {
            assert!(machine.client.set(&key(n), &padded(n, version)));
        }
        machine.client.settle();
    }
    machine.stop_cleanly();
    let Remains { device, .. } = machine.remains();
    let mut pages = 0;
    device.tamper(|bytes| {
        pages = bytes.chunks_exact(4096).filter(|page| &page[4..8] == b"KLOG").count() as u64;
    });
    assert!(pages > 30, "{pages} pages of the log on the tier");
    let state = Arc::new(StateFile::volatile().unwrap());
    let remains = Remains { device, below: None, state };
    let machine = Machine::start(config(), remains, [2; 16]);
    assert!(machine.client.cache.notes().is_empty(), "{:?}", machine.client.cache.notes());
    let reads = machine.device.reads.load(Ordering::Relaxed);
    assert!(reads < pages / 2, "{reads} reads of {pages} pages");
}
