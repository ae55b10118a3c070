//! Drives that flip bits, fail or hold somebody else's data: a miss or an error, never a wrong value.

mod common;

use common::{Client, RamDevice, Random, record};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_cache::{Access, Cache, Change, Config, Lookup, OpenError, Tier, Tuning};
use terrace_device::Drive;

fn config() -> Config {
    let mut config = Config::new(2 << 20);
    config.tuning = Tuning {
        seed: Some(1),
        shards: Some(2),
        segment_bytes: Some(64 << 10),
        ..Tuning::default()
    };
    config
}

fn open(device: &Arc<RamDevice>) -> Client {
    Client::open(config(), vec![Arc::clone(device) as Arc<dyn Drive>])
}

fn key(n: u64) -> Vec<u8> {
    format!("key-{n:08}").into_bytes()
}

/// Stores so many records that most lie on the drive.
fn fill(client: &mut Client, records: u64) {
    for n in 0..records {
        assert!(client.set(&key(n), &vec![n as u8; 100 + n as usize % 900]));
        if n.is_multiple_of(50) {
            client.session.quiesce();
            client.cache.maintain(client.now);
        }
    }
    client.settle();
}

fn is_right(n: u64, value: &[u8]) -> bool {
    value == vec![n as u8; 100 + n as usize % 900]
}

const RECORDS: u64 = 5000;

#[test]
fn a_flipped_bit_is_a_counted_miss() {
    let device = RamDevice::new(8 << 20);
    let mut client = open(&device);
    fill(&mut client, RECORDS);
    device.tamper(|bytes| {
        let mut random = Random(3);
        for _ in 0..200 {
            let at = 65536 + random.below(bytes.len() as u64 - 65536) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
    });
    let found = (0..RECORDS).filter(|&n| {
        let found = client.get(&key(n));
        assert!(found.as_ref().is_none_or(|found| is_right(n, &found.value)), "wrong value");
        found.is_some()
    });
    let found = found.count() as u64;
    let corrupt = client.cache.stats().tiers[0].corrupt_pages;
    assert!(found < RECORDS && found > RECORDS / 2, "{found} found");
    assert!(corrupt >= (RECORDS - found) / 2, "{corrupt} counted for {} lost", RECORDS - found);
}

#[test]
fn garbage_over_the_whole_drive_is_survived() {
    let device = RamDevice::new(8 << 20);
    let mut client = open(&device);
    fill(&mut client, RECORDS);
    device.tamper(|bytes| {
        let mut random = Random(4);
        bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
    });
    for n in 0..RECORDS {
        assert!(
            client.get(&key(n)).is_none_or(|found| found.from_dram && is_right(n, &found.value))
        );
    }
    // Reclaim and growth meet the garbage too; the cache goes on with what comes new.
    for n in RECORDS..4 * RECORDS {
        assert!(client.set(&key(n), &vec![n as u8; 100 + n as usize % 900]));
        client.session.quiesce();
        client.cache.maintain(client.now);
    }
    client.settle();
    let newest = 4 * RECORDS - 1000..4 * RECORDS;
    for n in newest {
        assert!(client.get(&key(n)).is_some_and(|found| is_right(n, &found.value)), "{n}");
    }
}

#[test]
fn a_value_behind_an_unreadable_page_does_not_come_back() {
    let device = RamDevice::new(8 << 20);
    let mut client = open(&device);
    fill(&mut client, RECORDS);
    let on_flash: Vec<u64> = (0..RECORDS)
        .filter(|&n| client.get_as(&key(n), Access::Peek).is_some_and(|found| !found.from_dram))
        .collect();
    assert!(on_flash.len() > 3000);
    device.fail_reads.store(true, Ordering::Relaxed);
    for &n in &on_flash {
        assert!(client.get(&key(n)).is_none(), "a failed read is a miss");
    }
    // Written and deleted while the drive does not answer.
    for &n in on_flash.iter().take(1000) {
        client.update(&key(n), false, |_| Change::Store(record(b"newer")));
        assert!(client.delete(&key(n)));
    }
    for &n in on_flash.iter().skip(1000).take(1000) {
        client.delete(&key(n));
    }
    device.fail_reads.store(false, Ordering::Relaxed);
    let mut lost = 0;
    for (at, &n) in on_flash.iter().enumerate() {
        let found = client.get(&key(n));
        assert!(at >= 2000 || found.is_none(), "{n} is back from the dead");
        assert!(found.as_ref().is_none_or(|found| is_right(n, &found.value)));
        lost += u32::from(at >= 2000 && found.is_none());
    }
    // A record of equal name on a page that could not be read goes too: it could not be told apart.
    assert!(lost <= 5, "{lost} bystanders were lost");
    assert!(client.cache.stats().tiers[0].read_errors > 3000);
}

#[test]
fn a_drive_that_refuses_writes_leaves_a_cache_in_dram() {
    let device = RamDevice::new(8 << 20);
    let mut client = open(&device);
    fill(&mut client, RECORDS);
    device.fail_writes.store(true, Ordering::Relaxed);
    for n in RECORDS..20 * RECORDS {
        assert!(client.set(&key(n), &vec![n as u8; 100 + n as usize % 900]), "{n}");
        client.session.quiesce();
    }
    client.settle();
    let stats = client.cache.stats();
    assert!(stats.tiers[0].failed && stats.tiers[0].write_errors >= 3);
    let newest = 20 * RECORDS - 200..20 * RECORDS;
    for n in newest {
        assert!(client.get(&key(n)).is_some_and(|found| is_right(n, &found.value)), "{n}");
    }
}

/// What a state keeps for records on their way to the drive holds others once there is no such way.
#[test]
fn all_of_dram_is_used_once_the_drive_takes_no_writes() {
    let device = RamDevice::new(8 << 20);
    let mut client = open(&device);
    fill(&mut client, 1000);
    device.fail_writes.store(true, Ordering::Relaxed);
    for round in 0..4 {
        fill(&mut client, RECORDS);
        let memory = client.cache.stats().memory;
        assert!(memory.free * 4 < memory.write_buffer, "round {round}: {memory:#?}");
        // They are all used, and go nevertheless.
        (0..RECORDS).for_each(|n| _ = client.get(&key(n)));
    }
}

#[test]
fn a_device_that_is_not_ours_is_refused_and_left_alone() {
    let device = RamDevice::new(8 << 20);
    device.tamper(|bytes| bytes[..10].copy_from_slice(b"My thesis."));
    let mut config = config();
    config.tiers = vec![Tier::new(Arc::clone(&device) as Arc<dyn Drive>)];
    assert!(matches!(Cache::open(config), Err(OpenError::Foreign { .. })));
    device.tamper(|bytes| assert_eq!(&bytes[..11], b"My thesis.\0"));
}

#[test]
fn hot_records_come_to_dram_and_a_scan_does_not_push_them_out() {
    let device = RamDevice::new(16 << 20);
    let mut client = open(&device);
    fill(&mut client, 12_000);
    for _ in 0..6 {
        for n in 0..100 {
            assert!(client.get(&key(n)).is_some());
        }
        client.session.quiesce();
        client.cache.maintain(client.now);
    }
    for n in 200..9000 {
        assert!(client.get(&key(n)).is_some());
        client.session.quiesce();
    }
    let before = device.reads.load(Ordering::Relaxed);
    for n in 0..100 {
        let key = client.session.key(&key(n)).bytes().to_vec();
        let lookup = client.session.get(client.session.key(&key), client.now, Access::Use, None);
        assert!(matches!(lookup, Lookup::Hit(_)), "{n} is not in DRAM");
    }
    assert_eq!(device.reads.load(Ordering::Relaxed), before);
}

/// A drive that brings another segment than the one that was written there: neither its records nor its
/// footer are taken for those that were wanted.
#[test]
fn segments_in_each_others_places_are_survived() {
    const KEYS: u64 = 1000;
    const SEGMENT: usize = 64 << 10;
    let device = RamDevice::new(3 << 20);
    let mut config = config();
    config.tuning.fingerprint_bits = 4;
    let mut client = Client::open(config, vec![Arc::clone(&device) as Arc<dyn Drive>]);
    let mut versions = vec![0u8; KEYS as usize];
    let value = |n: u64, version: u8| {
        let mut value = vec![n as u8; 100 + n as usize % 900];
        value[0] = version;
        value
    };
    let mut random = Random(4);
    for round in 1..=200u8 {
        for _ in 0..300 {
            let n = random.below(KEYS);
            versions[n as usize] = round;
            assert!(client.set(&key(n), &value(n, round)));
            client.session.quiesce();
            client.cache.maintain(client.now);
        }
        device.tamper(|bytes| {
            let segments = (bytes.len() / SEGMENT - 1) as u64;
            let place = (random.below(segments - 1) + 1) as usize * SEGMENT;
            bytes[place..place + 2 * SEGMENT].rotate_left(SEGMENT);
        });
        for n in 0..KEYS {
            let found = client.get_as(&key(n), Access::Peek);
            let is_right = found.is_none_or(|found| found.value == value(n, versions[n as usize]));
            assert!(is_right, "{n} in round {round}");
        }
    }
}

fn is_inside_a_value(block: &[u8]) -> bool {
    block[0] != 0 && block.iter().all(|&byte| byte == block[0])
}

/// A record that could not be read, and that is changed then, must not be there when it can be read
/// again. Long ones lie apart from the pages in which short ones are looked for next.
#[test]
fn what_was_unreadable_when_it_was_deleted_stays_away() {
    let device = RamDevice::new(8 << 20);
    let mut client = open(&device);
    for n in 0..1500 {
        assert!(client.set(&key(n), &vec![n as u8; if n % 3 == 0 { 7800 } else { 50 }]));
        client.session.quiesce();
        client.cache.maintain(client.now);
    }
    client.settle();
    let mut damaged = 0;
    device.tamper(|bytes| {
        for block in bytes.chunks_exact_mut(4096).filter(|block| is_inside_a_value(block)) {
            block[1] ^= 1;
            damaged += 1;
        }
    });
    assert!(damaged > 200, "{damaged} blocks");
    for n in 0..1000 {
        client.delete(&key(n));
    }
    device.tamper(|bytes| {
        for block in bytes.chunks_exact_mut(4096) {
            block[1] ^= 1;
            if !is_inside_a_value(block) {
                block[1] ^= 1;
            }
        }
    });
    for n in 0..1000 {
        assert!(client.get(&key(n)).is_none(), "{n} is back from the dead");
    }
}

/// Reclaim keeps live records. One that straddles from a sound page into a damaged one is not to be
/// kept with the damaged bytes.
#[test]
fn reclaim_does_not_keep_what_is_damaged() {
    let device = RamDevice::new(9 << 19);
    let mut client = open(&device);
    fill(&mut client, RECORDS);
    device.tamper(|bytes| {
        // Some pages of every segment, not its footer.
        for segment in (65536..bytes.len() - 65536).step_by(65536) {
            for page in [1, 4, 7, 10] {
                bytes[segment + page * 4096 + 40] ^= 1;
            }
        }
    });
    // Overwriting here and there leaves segments that are alive in part, which reclaim empties.
    let mut random = Random(8);
    for _ in 0..8 {
        for _ in 0..2000 {
            let n = random.below(RECORDS);
            assert!(client.set(&key(n), &vec![n as u8; 100 + n as usize % 900]));
            client.session.quiesce();
            client.cache.maintain(client.now);
        }
        for n in 0..RECORDS {
            let found = client.get_as(&key(n), Access::Peek);
            assert!(found.is_none_or(|found| is_right(n, &found.value)), "{n} is damaged");
        }
    }
    assert!(client.cache.stats().tiers[0].reinserted_records > 100);
}

/// What a drive does not give any more is lost, and SETs do not wait for it: beside another drive there is room.
#[test]
fn the_index_grows_without_a_drive_that_does_not_answer() {
    let (good, bad) = (RamDevice::new(32 << 20), RamDevice::new(32 << 20));
    let devices = [&good, &bad].map(|device| Arc::clone(device) as Arc<dyn Drive>);
    let mut client = Client::open(config(), devices.to_vec());
    fill(&mut client, RECORDS);
    let sealed =
        client.cache.stats().tiers.iter().map(|tier| tier.segments_used).collect::<Vec<_>>();
    assert!(sealed.iter().all(|&segments| segments > 4), "{sealed:?}");
    bad.fail_reads.store(true, Ordering::Relaxed);
    bad.fail_writes.store(true, Ordering::Relaxed);
    let before = client.cache.stats().memory.tier_index;
    for n in RECORDS..10 * RECORDS {
        assert!(client.set(&key(n), &[n as u8; 100]), "{n}");
        if n.is_multiple_of(50) {
            client.session.quiesce();
            client.cache.maintain(client.now);
        }
    }
    client.settle();
    assert!(client.cache.stats().memory.tier_index > 2 * before, "the index had to grow");
    assert!(client.cache.stats().tiers[1].failed);
    let newest = 10 * RECORDS - 2000..10 * RECORDS;
    for n in newest {
        assert!(client.get(&key(n)).is_some_and(|found| found.value == vec![n as u8; 100]), "{n}");
    }
}
