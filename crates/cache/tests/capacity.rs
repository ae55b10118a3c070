//! How much DRAM and drive a record takes when a tier is filled until it evicts.

mod common;

use common::{Client, RamDevice, Random, record};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use terrace_cache::{Access, Change, Config, NewRecord};
use terrace_device::Drive;
use terrace_device::sim::SimDevice;

/// 256 MiB of 100-byte records: 20 bytes of key, 80 of value.
#[test]
fn index_and_file_are_used_well_when_full() {
    const FILE: usize = 256 << 20;
    let device: Arc<dyn Drive> = RamDevice::new(FILE);
    let mut client = Client::open(Config::new(24 << 20), vec![device]);
    let records = 2_800_000u64;
    for n in 0..records {
        let key = format!("key:{n:016}");
        assert!(client.set(key.as_bytes(), &[n as u8; 80]));
        if n.is_multiple_of(200) {
            client.session.quiesce();
            client.cache.maintain(client.now);
        }
    }
    client.settle();
    let stats = client.cache.stats();
    let (memory, tier) = (&stats.memory, &stats.tiers[0]);
    let overhead = memory.tier_index + memory.page_tables + memory.segment_table;
    let per_record = overhead as f64 / tier.records as f64;
    let live_share = tier.live_bytes as f64 / FILE as f64;
    let amplification = tier.written_bytes as f64 / tier.stored_payload_bytes as f64;
    println!(
        "{per_record:.3} B of DRAM per record, {:.1} % of the file live, {amplification:.3} bytes \
         written per byte, {} records, {} evicted\n{stats:#?}",
        live_share * 100.0,
        tier.records,
        stats.evictions
    );
    assert!(per_record <= 4.1, "{per_record:.3} bytes per record");
    assert!(live_share >= 0.90, "{live_share:.3} of the file is live");
    assert!(amplification <= 1.25, "write amplification {amplification:.3}");
    let mut random = Random(5);
    let mut missing = |newest: u64, of: u64| {
        let missing = (0..of).filter(|_| {
            let n = records - 1 - random.below(newest);
            let found = client.get_as(format!("key:{n:016}").as_bytes(), Access::Peek);
            assert!(found.as_ref().is_none_or(|found| found.value == [n as u8; 80]));
            found.is_none()
        });
        missing.count()
    };
    let lost = missing(tier.records * 95 / 100, 20_000);
    assert!(lost <= 100, "{lost} of 20,000 of the newest are gone");
    // Reclaim is far from these, but once it was full some gave their place to new keys of equal fingerprints. One
    // in a thousand of those may cost that, and each has made one of the evicted go.
    let lost = missing(tier.records / 2, 200_000);
    let replaced = records - stats.records - stats.evictions;
    println!("{lost} of 200,000 of the newer half are gone, {replaced} of all");
    assert!(lost <= 100, "{lost} of 200,000 of the newer half are gone");
    assert!(replaced <= stats.evictions / 1000, "{replaced} are gone");
    assert!(stats.lost_to_collisions <= records / 1000);
}

/// While records wait in DRAM only free places of fast drives count, and the small one never has as many as all drives
/// together must keep.
#[test]
fn drives_are_not_full_while_the_only_fast_one_is_small() {
    let drive = |(mebibytes, millis): (u64, u64)| {
        let drive = SimDevice::new(mebibytes << 20, mebibytes);
        drive.claim_pace(Duration::from_millis(millis));
        Arc::new(drive) as Arc<dyn Drive>
    };
    let drives = [(120, 100), (120, 100), (120, 100), (24, 1)].map(drive);
    let mut client = Client::open(Config::new(24 << 20), drives.into());
    let key = |n: u64| format!("key:{n:016}");
    for n in 0..60_000 {
        assert!(client.set(key(n).as_bytes(), &[n as u8; 800]));
    }
    client.settle();
    let stats = client.cache.stats();
    assert_eq!(stats.evictions, 0, "{stats:#?}");
    for n in 0..60_000 {
        assert!(client.get_as(key(n).as_bytes(), Access::Peek).is_some(), "{n}");
    }
}

/// Records that straddle pages: one read per hit, and none worth counting per miss.
#[test]
fn records_of_816_bytes_take_one_read() {
    let device = RamDevice::new(128 << 20);
    let mut client =
        Client::open(Config::new(24 << 20), vec![Arc::clone(&device) as Arc<dyn Drive>]);
    let records = 90_000u64;
    for n in 0..records {
        assert!(client.set(format!("key:{n:016}").as_bytes(), &[n as u8; 796]));
        client.session.quiesce();
        client.cache.maintain(client.now);
    }
    client.settle();
    let reads = |client: &Client| client.cache.stats().tiers[0].reads;
    let before = reads(&client);
    let on_flash = (0..records).filter(|n| {
        let found = client.get_as(format!("key:{n:016}").as_bytes(), Access::Peek);
        !found.expect("nothing is lost").from_dram
    });
    let on_flash = on_flash.count() as u64;
    let per_hit = (reads(&client) - before) as f64 / on_flash as f64;
    let before = reads(&client);
    for n in records..2 * records {
        assert!(client.get(format!("key:{n:016}").as_bytes()).is_none());
    }
    let per_miss = (reads(&client) - before) as f64 / records as f64;
    assert!(on_flash > records / 2 && per_hit <= 1.01, "{per_hit:.4} reads per hit");
    assert!(per_miss <= 0.002, "{per_miss:.5} reads per miss");
}

/// Records of half a block leave holes: DRAM is used up long before their bytes add up to it. Who may
/// not evict is to be told so then, and not to wait.
#[test]
fn holes_are_full_too() {
    let mut config = Config::new(4 << 20);
    config.evict = false;
    let mut client = Client::open(config, Vec::new());
    let bytes = client.cache.inline_bytes_max() - 4000;
    let stored = (0..1000u32).take_while(|n| client.set(&n.to_le_bytes(), &vec![7; bytes]));
    let stored = stored.count();
    assert!((20..1000).contains(&stored), "{stored} stored");
}

/// Records of somewhat more than a tenth of a segment leave gaps: places are used up before live bytes
/// pass the share that counts as full. Old records go then, and nobody waits.
#[test]
fn gaps_in_segments_are_full_too() {
    let mut config = Config::new(2 << 20);
    config.tuning.shards = Some(1);
    config.tuning.segment_bytes = Some(16 << 10);
    let device: Arc<dyn Drive> = RamDevice::new(600 << 10);
    let mut client = Client::open(config, vec![device]);
    for n in 0..3000u32 {
        assert!(client.set(&n.to_le_bytes(), &[7; 1650]));
        client.session.quiesce();
    }
    let stats = client.cache.stats();
    assert!(stats.evictions_tier > 1000);
    assert_eq!(stats.evictions_index, 0);
}

/// Two records and a gap in every block: moving them together gains nothing, and is not tried for ever.
#[test]
fn holes_do_not_keep_requests_waiting() {
    let mut client = Client::open(Config::new(8 << 20), Vec::new());
    let bytes = client.cache.inline_bytes_max() * 3 / 4;
    for n in 0..3000u32 {
        assert!(client.set(&n.to_le_bytes(), &vec![7; bytes]));
        client.session.quiesce();
    }
    assert!(client.get(&2999u32.to_le_bytes()).is_some());
}

/// Who may not evict is told that there is no room; what has expired since gives its own back.
#[test]
fn without_eviction_what_has_expired_makes_room() {
    let mut config = Config::new(4 << 20);
    config.evict = false;
    let mut client = Client::open(config, Vec::new());
    let soon = client.now + 100;
    let fill = |client: &mut Client, from: u32| {
        (from..100_000)
            .take_while(|n| {
                // Every eighth stays.
                let expires = if n % 8 == 0 { 0 } else { soon };
                let new = NewRecord { expires, ..record(&[7; 300]) };
                let stored = client.update(&n.to_le_bytes(), true, |_| Change::Store(new));
                client.session.quiesce();
                client.cache.maintain(client.now);
                stored
            })
            .count() as u32
    };
    let first = fill(&mut client, 0);
    assert!(first > 3000, "{first} stored");
    assert_eq!(fill(&mut client, first), 0, "full");
    client.now = soon;
    client.settle();
    let second = fill(&mut client, first);
    assert!(second > first / 2, "{second} stored after {first} of which most have expired");
    let stays = (0..first).filter(|n| n % 8 == 0);
    assert!(stays.into_iter().all(|n| client.get(&n.to_le_bytes()).is_some()));
    assert_eq!(client.cache.stats().evictions, 0);
}

/// Holes that deleted records leave between others are put together once they are all there is.
#[test]
fn without_eviction_what_is_deleted_makes_room() {
    let mut config = Config::new(4 << 20);
    config.evict = false;
    let mut client = Client::open(config, Vec::new());
    let store = |client: &mut Client, n: u32, bytes: usize| {
        let stored = client.set(&n.to_le_bytes(), &vec![7; bytes]);
        client.session.quiesce();
        client.cache.maintain(client.now);
        stored
    };
    let first = (0..100_000).take_while(|&n| store(&mut client, n, 300)).count() as u32;
    assert!(first > 3000, "{first} stored");
    // What was left for changes is used up as well, by longer values.
    let mut random = Random(3);
    let mut any = || random.below(first.into()) as u32;
    let changed = (0..4 * first).take_while(|_| store(&mut client, any(), 400)).count() as u32;
    assert!(changed < 4 * first, "{changed} were stored again");
    (0..first).filter(|n| n % 2 == 0).for_each(|n| _ = client.delete(&n.to_le_bytes()));
    client.settle();
    let new = (first..first * 2).filter(|&n| store(&mut client, n + 200_000, 300)).count() as u32;
    assert!(new > first / 4, "{new} stored after half of {first} were deleted");
    assert_eq!(client.cache.stats().evictions, 0);
}

/// When new keys are refused, those that are there may be changed all the same, and for ever: the room of what
/// was changed comes back.
#[test]
fn without_eviction_what_is_there_may_be_changed() {
    let mut config = Config::new(4 << 20);
    config.evict = false;
    let mut client = Client::open(config, Vec::new());
    let store = |client: &mut Client, n: u32, value: &[u8]| {
        let stored = client.set(&n.to_le_bytes(), value);
        client.session.quiesce();
        client.cache.maintain(client.now);
        stored
    };
    let first = (0..100_000).take_while(|&n| store(&mut client, n, &[7; 300])).count() as u32;
    assert!(first > 3000, "{first} stored");
    let mut random = Random(3);
    for change in 0..10 * first {
        let n = random.below(first.into()) as u32;
        assert!(store(&mut client, n, &[8; 300]), "{change} changes after {first} were stored");
    }
    assert!(!store(&mut client, 200_000, &[7; 300]), "a new key");
    assert!((0..first).all(|n| client.get(&n.to_le_bytes()).is_some()));
    assert_eq!(client.cache.stats().evictions, 0);
}

/// A block that is looked at is emptied and filled anew, with less, while others are looked at: what it held
/// before is no record.
#[test]
fn without_eviction_a_block_that_is_used_again_is_walked_as_it_is() {
    let mut config = Config::new(1 << 20);
    config.evict = false;
    config.tuning.shards = Some(1);
    let mut client = Client::open(config, Vec::new());
    // As headers these would be of records that are longer than memory.
    let value = [0xf0, 0xff, 0xff, 0xff].repeat(750);
    let mut stored = 0u32;
    while client.set(&stored.to_le_bytes(), &value) {
        stored += 1;
    }
    client.settle();
    client.now += 20;
    let maintain = |client: &mut Client, times: u32| {
        client.session.park();
        (0..times).for_each(|_| _ = client.cache.maintain(client.now));
    };
    maintain(&mut client, 1);
    (0..70u32).for_each(|n| assert!(client.delete(&n.to_le_bytes())));
    maintain(&mut client, 2);
    (0..36).for_each(|n| assert!(client.set(&(stored + n).to_le_bytes(), &[7; 4200])));
    maintain(&mut client, 10);
    let found = (70..stored).filter(|n| client.get(&n.to_le_bytes()).is_some());
    assert_eq!(found.count() as u32, stored - 70);
}

/// In DRAM such records take more for their headers than for themselves: all blocks that requests may fill are full
/// before there is a segment's worth of them.
#[test]
fn records_of_a_few_bytes_are_written_however_little_memory_there_is() {
    for (memory, drives) in [(1 << 20, vec![100 << 20]), (4 << 20, vec![64 << 20, 512 << 20])] {
        let drives = drives.into_iter().map(|bytes| RamDevice::new(bytes) as Arc<dyn Drive>);
        let mut config = Config::new(memory);
        // As it would be; a server refuses so little where its index is next to nothing.
        config.tuning.segment_bytes = Some(256 << 10);
        let mut client = Client::open(config, drives.collect());
        for n in 0..100_000u32 {
            assert!(client.set(&n.to_le_bytes(), b"x"), "{n} with {memory} bytes");
        }
        let written: u64 =
            client.cache.stats().tiers.iter().map(|tier| tier.stored_payload_bytes).sum();
        assert!(written > 100_000, "{written} with {memory} bytes");
    }
}

/// The same with a drive: until it is full all is kept, and then too.
#[test]
fn without_eviction_a_full_drive_refuses_and_loses_nothing() {
    let mut config = Config::new(2 << 20);
    config.evict = false;
    config.tuning.shards = Some(2);
    config.tuning.segment_bytes = Some(64 << 10);
    let device = RamDevice::new(4 << 20);
    let mut client = Client::open(config, vec![device]);
    let mut random = Random(7);
    let mut versions = Vec::<u64>::new();
    let value = |n: u64, version: u64| [n.to_le_bytes(), version.to_le_bytes()].concat().repeat(20);
    let mut refused = 0;
    for _ in 0..60_000 {
        // Half of them are new.
        let n = random.below(2 * versions.len() as u64 + 1);
        let version = versions.get(n as usize).map_or(0, |version| version + 1);
        let n = n.min(versions.len() as u64);
        if client.set(&n.to_le_bytes(), &value(n, version)) {
            versions.resize(versions.len().max(n as usize + 1), 0);
            versions[n as usize] = version;
        } else {
            refused += 1;
        }
        client.session.quiesce();
        client.cache.maintain(client.now);
    }
    client.settle();
    assert!(refused > 1000 && versions.len() > 5000, "{refused} refused, {}", versions.len());
    for (n, &version) in (0..).zip(&versions) {
        let found = client.get(&u64::to_le_bytes(n));
        assert!(found.is_some_and(|found| found.value == value(n, version)), "{n}");
    }
    assert_eq!(client.cache.stats().evictions, 0);
    // What is deleted makes room again.
    for n in 0..versions.len() as u64 / 2 {
        assert!(client.delete(&n.to_le_bytes()));
    }
    client.settle();
    let fresh = 1_000_000..1_000_000 + versions.len() as u64 / 4;
    assert!(fresh.clone().all(|n| client.set(&n.to_le_bytes(), &value(n, 0))));
    client.settle();
    assert!(fresh.into_iter().all(|n| client.get(&n.to_le_bytes()).is_some()));
}

/// An index of 5 % of the memory, which is full long before the drive is.
fn with_a_small_index() -> Config {
    let mut config = Config::new(2 << 20);
    config.tuning.shards = Some(2);
    config.tuning.segment_bytes = Some(64 << 10);
    config.tuning.index_percent = 5;
    config
}

#[test]
fn evictions_are_counted_by_their_cause() {
    let cases = [
        ("index", with_a_small_index(), Some(16 << 20)),
        ("tier", Config::new(2 << 20), Some(2 << 20)),
        ("dram", Config::new(1 << 20), None),
    ];
    for (cause, mut config, tier) in cases {
        config.tuning.shards = Some(2);
        if tier.is_some() {
            config.tuning.segment_bytes = Some(64 << 10);
        }
        let tiers = tier.map(|bytes| RamDevice::new(bytes) as Arc<dyn Drive>);
        let mut client = Client::open(config, tiers.into_iter().collect());
        for n in 0..80_000u64 {
            client.set(&n.to_le_bytes(), &n.to_be_bytes().repeat(5));
            client.session.quiesce();
            client.cache.maintain(client.now);
        }
        client.settle();
        let stats = client.cache.stats();
        let causes = [stats.evictions_index, stats.evictions_tier, stats.evictions_dram];
        assert_eq!(causes.iter().sum::<u64>(), stats.evictions, "{cause}: {causes:?}");
        assert!(stats.evictions > 10_000, "{cause}: {causes:?}");
        let at = ["index", "tier", "dram"].iter().position(|name| *name == cause).unwrap();
        assert!(causes[at] * 10 > stats.evictions * 9, "{cause}: {causes:?}");
    }
}

#[test]
fn without_eviction_a_full_index_refuses_and_loses_nothing() {
    let config = Config { evict: false, ..with_a_small_index() };
    let device = RamDevice::new(16 << 20);
    let mut client = Client::open(config, vec![Arc::clone(&device) as Arc<dyn Drive>]);
    let (mut stored, mut refused) = (Vec::new(), 0);
    for n in 0..80_000u64 {
        match client.set(&n.to_le_bytes(), &n.to_be_bytes().repeat(5)) {
            true => stored.push(n),
            false => refused += 1,
        }
        client.session.quiesce();
        client.cache.maintain(client.now);
    }
    client.settle();
    assert!(
        stored.len() > 15_000 && refused > 10_000,
        "{} stored, {refused} refused",
        stored.len()
    );
    for n in stored {
        let found = client.get(&n.to_le_bytes());
        assert!(found.is_some_and(|found| found.value == n.to_be_bytes().repeat(5)), "{n}");
    }
    assert_eq!(client.cache.stats().evictions, 0);
    let written = client.cache.stats().tiers[0].written_bytes;
    assert!(written < 32 << 20, "{written} bytes: nothing is written anew in vain");
}

/// Values of 4 KiB take a page each, of which three can begin in one step of the page table.
#[test]
fn values_that_fill_a_page_are_all_found() {
    let mut config = Config::new(64 << 20);
    config.tuning.shards = Some(1);
    config.tuning.segment_bytes = Some(4 << 20);
    let device: Arc<dyn Drive> = RamDevice::new(512 << 20);
    let mut client = Client::open(config, vec![device]);
    let key = |n: u32| format!("key:{n:08}").into_bytes();
    for n in 0..90_000 {
        // With its header as long as may be in one piece.
        assert!(client.set(&key(n), &[n as u8; 4160 - 12 - 12]));
        if n % 32 == 0 {
            client.session.quiesce();
            client.cache.maintain(client.now);
        }
    }
    client.settle();
    for n in 0..90_000 {
        let found = client.get(&key(n));
        assert!(found.is_some_and(|found| found.value == [n as u8; 4136]), "{n} is gone");
    }
    assert_eq!(client.cache.stats().evictions, 0);
}

/// Background work does no more slices than it has to, and each seals as many chunks of new values as those that they
/// replace have: these are removed as fast.
#[test]
fn what_large_items_leave_behind_makes_room_for_the_next() {
    const CHUNK: u32 = 7000;
    const CHUNKS: u32 = 12;
    const KEYS: u32 = 36;
    let mut config = Config::new(4 << 20);
    config.tuning.shards = Some(2);
    config.tuning.segment_bytes = Some(64 << 10);
    config.evict = false;
    let mut client = Client::open(config, vec![RamDevice::new(8 << 20)]);
    for n in 0..40 * KEYS {
        let stored = client.set_large(&(n % KEYS).to_le_bytes(), CHUNKS, CHUNK);
        assert!(stored, "full of what is gone after {n} items");
    }
    client.settle();
    let live = client.cache.stats().tiers[0].live_bytes;
    let alive = u64::from(KEYS * CHUNKS * CHUNK);
    assert!(live < alive * 11 / 10, "{live} bytes where {alive} are alive");
}

/// Long records are taken back one segment after the other, and what is set meanwhile takes each place at once: that
/// goes on for as long as somebody sets, and is no reason to let anything go.
#[test]
fn nothing_goes_while_places_are_taken_as_fast_as_they_are_gained() {
    const KEYS: u64 = 450;
    let mut config = Config::new(4 << 20);
    config.tuning.shards = Some(2);
    config.tuning.segment_bytes = Some(64 << 10);
    let mut client = Client::open(config, vec![RamDevice::new(8 << 20)]);
    let (mut random, mut keys) = (Random(5), VecDeque::from_iter(0..KEYS));
    for n in 0..60 * KEYS {
        // None that is still in DRAM.
        let at = if n < KEYS { 0 } else { random.below(KEYS - 100) as usize };
        let key = keys.remove(at).expect("one of all");
        keys.push_back(key);
        assert!(client.set(&key.to_le_bytes(), &[7; 7900]));
    }
    client.settle();
    assert_eq!(client.cache.stats().evictions, 0);
    assert!((0..KEYS).all(|n| client.get(&n.to_le_bytes()).is_some()));
}
