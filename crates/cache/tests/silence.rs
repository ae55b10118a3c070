//! A drive that answers nothing is passed over, is asked nothing that could be lost by it, and has all that it had
//! when it answers again.

mod common;

use common::Client;
use std::sync::Arc;
use std::time::Duration;
use terrace_cache::{Config, Tuning};
use terrace_device::Drive;
use terrace_device::sim::SimDevice;

const DRIVE_BYTES: u64 = 16 << 20;
const SILENT: Duration = Duration::from_secs(10);

fn open(drives: &[Arc<SimDevice>]) -> Client {
    let mut config = Config::new(4 << 20);
    config.tuning = Tuning {
        seed: Some(1),
        shards: Some(2),
        segment_bytes: Some(64 << 10),
        ..Tuning::default()
    };
    let devices = drives.iter().map(|drive| Arc::clone(drive) as Arc<dyn Drive>).collect();
    Client::open(config, devices)
}

fn drives(count: u64) -> Vec<Arc<SimDevice>> {
    (1..=count).map(|seed| Arc::new(SimDevice::new(DRIVE_BYTES, seed))).collect()
}

fn key(n: u64) -> Vec<u8> {
    format!("key-{n:08}").into_bytes()
}

fn value(n: u64) -> Vec<u8> {
    vec![n as u8; 500 + n as usize % 500]
}

/// Stores records with these numbers, with background work in between; says how many were taken before one was
/// refused.
fn store(client: &mut Client, numbers: std::ops::Range<u64>) -> u64 {
    for n in numbers.clone() {
        if !client.set(&key(n), &value(n)) {
            return n - numbers.start;
        }
        if n.is_multiple_of(50) {
            client.session.quiesce();
            client.cache.maintain(client.now);
        }
    }
    numbers.end - numbers.start
}

/// How many of these records are gone; of the others none has another value.
fn missing(client: &Client, numbers: std::ops::Range<u64>, value: impl Fn(u64) -> Vec<u8>) -> u64 {
    let is_missing = |&n: &u64| {
        let found = client.get(&key(n));
        assert!(found.as_ref().is_none_or(|found| found.value == value(n)), "{n} is wrong");
        found.is_none()
    };
    numbers.filter(is_missing).count() as u64
}

#[test]
fn the_other_drive_takes_what_a_silent_one_does_not() {
    let drives = drives(2);
    let mut client = open(&drives);
    assert_eq!(store(&mut client, 0..6000), 6000);
    client.settle();
    let before = client.cache.stats();
    assert!(before.tiers.iter().all(|tier| tier.segments_used > 20), "{:?}", before.tiers);
    drives[0].fall_silent(SILENT);
    assert_eq!(store(&mut client, 6000..14_000), 8000, "stored beside it");
    let after = client.cache.stats();
    assert_eq!(after.tiers[0].unresponsive_seconds, 10);
    // A few may share a fingerprint with what was stored, which can't be told without reading them.
    let records = after.tiers[0].records;
    assert!(records + 10 > before.tiers[0].records, "{records} of {}", before.tiers[0].records);
    assert_eq!(after.tiers[0].segment_writes, before.tiers[0].segment_writes);
    assert!(after.tiers[1].segment_writes > before.tiers[1].segment_writes + 50);
    for tier in &after.tiers {
        assert!(!tier.failed && tier.write_errors == 0 && tier.read_errors == 0, "{tier:?}");
    }
    drives[0].fall_silent(Duration::ZERO);
    assert_eq!(store(&mut client, 14_000..16_000), 2000);
    client.settle();
    let last = client.cache.stats();
    assert!(last.tiers[0].segment_writes > after.tiers[0].segment_writes, "it is used again");
    // The index could not grow meanwhile, and some of what the other drive holds had to give way.
    assert_eq!(missing(&client, 0..16_000, value), last.evictions);
}

#[test]
fn the_only_drive_falls_silent_and_loses_nothing() {
    let drives = drives(1);
    let mut client = open(&drives);
    assert_eq!(store(&mut client, 0..6000), 6000);
    client.settle();
    drives[0].fall_silent(SILENT);
    let stored = store(&mut client, 6000..20_000);
    assert!(stored < 14_000, "more than DRAM has room for");
    let stats = client.cache.stats();
    assert!(!stats.tiers[0].failed && stats.evictions == 0, "{:?}", stats.tiers);
    drives[0].fall_silent(Duration::ZERO);
    let (from, to) = (6000 + stored, 8000 + stored);
    client.settle();
    assert_eq!(store(&mut client, from..to), 2000);
    client.settle();
    assert_eq!(missing(&client, 0..to, value), 0);
    assert_eq!(client.cache.stats().evictions, 0);
}

#[test]
fn what_is_changed_while_a_drive_is_silent_stays_changed() {
    let drives = drives(2);
    let mut client = open(&drives);
    assert_eq!(store(&mut client, 0..8000), 8000);
    client.settle();
    drives[1].fall_silent(SILENT);
    // A write that is under way when it falls silent comes late, where nothing else was written meanwhile.
    assert_eq!(store(&mut client, 20_000..23_000), 3000);
    for n in (0..8000).step_by(2) {
        assert!(client.set(&key(n), b"changed"), "{n}");
        if n.is_multiple_of(50) {
            client.session.quiesce();
            client.cache.maintain(client.now);
        }
    }
    drives[1].fall_silent(Duration::ZERO);
    assert_eq!(store(&mut client, 30_000..33_000), 3000);
    client.settle();
    let wanted = |n: u64| if n.is_multiple_of(2) { b"changed".to_vec() } else { value(n) };
    let missing = missing(&client, 0..8000, wanted)
        + missing(&client, 20_000..23_000, value)
        + missing(&client, 30_000..33_000, value);
    // What gave way may have been stored anew since.
    assert!(missing <= client.cache.stats().evictions, "{missing}");
}

/// All that an index of one shard names is on a silent drive, whose footers it would need to grow.
#[test]
fn what_finds_no_room_in_an_index_that_can_not_grow_is_refused() {
    let drives = drives(2);
    let mut config = Config::new(4 << 20);
    config.tuning = Tuning {
        seed: Some(1),
        shards: Some(1),
        segment_bytes: Some(64 << 10),
        ..Tuning::default()
    };
    let devices = drives.iter().map(|drive| Arc::clone(drive) as Arc<dyn Drive>).collect();
    let mut client = Client::open(config, devices);
    drives[0].fall_silent(SILENT);
    let (mut first, small) = (0, |n: u64| n.to_le_bytes().to_vec());
    while client.cache.stats().tiers[1].segments_used == 0 {
        assert!(client.set(&key(first), &small(first)) && first < 100_000);
        client.session.quiesce();
        client.cache.maintain(client.now);
        first += 1;
    }
    drives[0].fall_silent(Duration::ZERO);
    drives[1].fall_silent(SILENT);
    let refused = (first..100_000).find(|&n| {
        client.session.quiesce();
        client.cache.maintain(client.now);
        !client.set(&key(n), &small(n))
    });
    let refused = refused.expect("more than DRAM has room for");
    drives[1].fall_silent(Duration::ZERO);
    client.settle();
    assert!(client.set(&key(refused), &small(refused)), "there is room again");
    assert_eq!(missing(&client, 0..refused + 1, small), 0);
    assert_eq!(client.cache.stats().evictions, 0);
}
