//! What expires: as little of it is written as can be, and what was is given back unread.

mod common;

use common::machine::{Machine, config, key};
use common::{Client, record};
use std::sync::atomic::Ordering;
use terrace_cache::{CacheStats, Change, Manifest, NewRecord, NewValue, Run, Update};

fn set_until(client: &mut Client, n: u64, expires: u32) {
    let value = [n as u8; 300];
    let new = NewRecord { expires, ..record(&value) };
    assert!(client.update(&key(n), true, |_| Change::Store(new)));
}

/// Gives background work its turn, as often as a server would.
fn breathe(client: &mut Client, n: u64) {
    if n.is_multiple_of(32) {
        client.session.quiesce();
        client.cache.maintain(client.now);
    }
}

fn stats(machine: &Machine) -> CacheStats {
    machine.client.cache.stats()
}

#[test]
fn segments_of_expired_records_are_given_back_unread() {
    for crashes in [false, true] {
        let mut machine = Machine::new(config());
        let soon = machine.client.now + 1000;
        for n in 0..8000 {
            set_until(&mut machine.client, n, soon);
            breathe(&mut machine.client, n);
        }
        machine.client.settle();
        if crashes {
            machine = machine.crash();
            machine.recover();
        }
        let used = stats(&machine).tiers[0].segments_used;
        assert!(used > 20, "{used} segments");
        machine.client.now = soon - 1;
        machine.client.settle();
        assert_eq!(stats(&machine).tiers[0].segments_used, used, "not before their time");
        let reads = machine.device.reads.load(Ordering::Relaxed);
        machine.client.now = soon;
        machine.client.settle();
        let after = stats(&machine);
        assert_eq!(after.tiers[0].segments_used, 0, "crashes: {crashes}");
        assert_eq!((after.tiers[0].records, after.tiers[0].live_bytes), (0, 0));
        assert_eq!(after.tiers[0].expired_segments, used);
        assert_eq!(machine.device.reads.load(Ordering::Relaxed), reads, "no I/O");
        assert!((0..8000).all(|n| machine.client.get(&key(n)).is_none()));
        // The index is as before.
        for n in 0..8000 {
            set_until(&mut machine.client, n, 0);
            breathe(&mut machine.client, n);
        }
        machine.client.settle();
        assert!((0..8000).all(|n| machine.client.get(&key(n)).is_some()));
    }
}

#[test]
fn a_segment_with_one_record_that_stays_is_not_given_back() {
    let mut machine = Machine::new(config());
    let soon = machine.client.now + 1000;
    for n in 0..8000 {
        // Too few of them to fill segments of their own.
        set_until(&mut machine.client, n, if n % 100 == 0 { 0 } else { soon });
        breathe(&mut machine.client, n);
    }
    machine.client.settle();
    machine.client.now = soon + 10;
    machine.client.settle();
    assert!((0..8000).all(|n| machine.client.get(&key(n)).is_some() == (n % 100 == 0)));
}

#[test]
fn records_that_expire_at_one_time_share_segments() {
    let mut machine = Machine::new(config());
    let soon = machine.client.now + 1000;
    // Half of them stay.
    for n in 0..8000 {
        set_until(&mut machine.client, n, if n % 2 == 0 { 0 } else { soon });
        breathe(&mut machine.client, n);
    }
    machine.client.settle();
    let used = stats(&machine).tiers[0].segments_used;
    machine.client.now = soon;
    machine.client.settle();
    let freed = stats(&machine).tiers[0].expired_segments;
    assert!(freed * 10 >= used * 3, "{freed} of {used} segments");
    assert!((0..8000).all(|n| machine.client.get(&key(n)).is_some() == (n % 2 == 0)));
}

#[test]
fn what_lives_shorter_than_it_waits_in_dram_is_never_written() {
    let mut machine = Machine::new(config());
    // A second is a quarter of what DRAM holds back.
    for n in 0..40_000 {
        if n % 300 == 0 {
            machine.client.now += 1;
        }
        let now = machine.client.now;
        // Half of them live for two seconds, the others for an hour.
        set_until(&mut machine.client, n, if n % 2 == 0 { now + 2 } else { now + 3600 });
        breathe(&mut machine.client, n);
    }
    machine.client.settle();
    let after = stats(&machine);
    assert!(after.expired_unwritten > 6_000, "{after:#?}");
}

#[test]
fn what_waits_for_its_end_counts_as_unused() {
    let mut machine = Machine::new(config());
    for n in 0..20_000 {
        if n % 300 == 0 {
            machine.client.now += 1;
        }
        let now = machine.client.now;
        // Half of them are passed over at first, since they will be gone soon; many are written all the same.
        set_until(&mut machine.client, n, if n % 2 == 0 { now + 20 } else { 0 });
        breathe(&mut machine.client, n);
    }
    machine.client.settle();
    let read = (0..20_000).filter_map(|n| machine.client.get(&key(n)));
    let read: Vec<_> = read.collect();
    assert!(read.len() > 10_300, "{} are left", read.len());
    assert!(!read.iter().any(|found| found.fetched), "by nobody");
    assert_eq!(stats(&machine).read_cache_insertions, 0, "read once each");
}

#[test]
fn what_expires_while_a_budget_holds_nothing_was_never_written() {
    let mut config = config();
    config.write_rates = vec![terrace_cache::WriteRate::BytesPerSecond(1.0)];
    config.tuning.budgets_by_given_time = true;
    let mut machine = Machine::new(config);
    for n in 0..20_000 {
        if n % 300 == 0 {
            machine.client.now += 1;
        }
        let expires = machine.client.now + 2;
        set_until(&mut machine.client, n, expires);
        breathe(&mut machine.client, n);
    }
    machine.client.settle();
    let after = stats(&machine);
    assert!(after.reclaimed_expired > 6_000, "{after:#?}");
    assert_eq!(after.expired_unwritten, after.reclaimed_expired);
}

#[test]
fn what_is_overwritten_again_and_again_is_hardly_written() {
    let mut machine = Machine::new(config());
    let mut random = common::Random(5);
    let (mut stored, mut n) = (0u64, 0);
    while stored < 16 << 20 {
        // Four fifths go to the 400 most popular of 4,000 keys.
        let popular = random.below(10) < 8;
        let at = if popular { random.below(400) } else { random.below(4000) };
        assert!(machine.client.set(&key(at), &[n as u8; 300]));
        stored += 310;
        n += 1;
        breathe(&mut machine.client, n);
    }
    let tier = stats(&machine).tiers.remove(0);
    let written = tier.written_bytes + tier.tombstone_log_written_bytes;
    assert!(written * 2 < stored, "{written} bytes written for {stored}; {tier:#?}");
}

#[test]
fn a_miss_for_the_sake_of_expiry_is_counted() {
    let mut machine = Machine::new(config());
    let soon = machine.client.now + 1000;
    set_until(&mut machine.client, 0, soon);
    assert!(machine.client.get(&key(0)).is_some());
    assert!(machine.client.get(&key(1)).is_none(), "never stored");
    assert_eq!(stats(&machine).met_expired, 0);
    machine.client.now = soon;
    assert!(machine.client.get(&key(0)).is_none());
    assert_eq!(stats(&machine).met_expired, 1, "in DRAM");
    machine.client.now = soon - 1000;
    // The others live a little longer, and so do the segments.
    let is_short = |n: &u64| n.is_multiple_of(16);
    for n in 0..8000 {
        set_until(&mut machine.client, n, soon + 500 * u32::from(!is_short(&n)));
        breathe(&mut machine.client, n);
    }
    machine.client.settle();
    let reads = machine.device.reads.load(Ordering::Relaxed);
    machine.client.now = soon;
    assert!((0..8000).filter(is_short).all(|n| machine.client.get(&key(n)).is_none()));
    assert!(machine.device.reads.load(Ordering::Relaxed) > reads + 100, "many are on the drive");
    assert_eq!(stats(&machine).met_expired, 1 + 500, "there too");
}

/// The chunks of large items have no expiry of their own: they go when their manifest is found to have expired.
#[test]
fn the_chunks_of_items_that_expired_go_too() {
    const CHUNK: usize = 6000;
    let (mut config, tier_bytes) = (config(), 32 << 20);
    config.memory_bytes = 6 << 20;
    let mut machine = Machine::with(config, tier_bytes, None);
    let soon = machine.client.now + 1000;
    for n in 0..1200 {
        let client = &mut machine.client;
        let item = client.session.begin_item();
        let store = |client: &Client| {
            let stored = client.session.store_chunk(item, 0, &[n as u8; CHUNK], client.now);
            matches!(stored, Update::Done { .. })
        };
        while !store(client) {
            client.settle();
        }
        let run = Run { item, chunks: 1, chunk_bytes: CHUNK as u32, last_bytes: CHUNK as u32 };
        let manifest = Manifest { runs: vec![run] };
        let value = NewValue::Chunked(&manifest);
        let new = NewRecord { value, expires: soon, ..record(b"") };
        assert!(client.update(&key(n), true, |_| Change::Store(new)));
        // So many beside them that they fill segments of their own.
        (0..30).for_each(|small| set_until(client, 10_000 + n * 30 + small, soon));
        breathe(client, n);
    }
    machine.client.settle();
    let live = |machine: &Machine| stats(machine).tiers[0].live_bytes;
    let before = live(&machine);
    assert!(before > 14_000_000, "{before} bytes");
    // A segment is read for it in each shard every second.
    for second in 0..110 {
        machine.client.now = soon + second;
        machine.client.settle();
    }
    let after = live(&machine);
    assert!(after < before / 10, "{after} bytes of {before}");
}
