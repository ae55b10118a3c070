//! The cache against a map: random operations with background work in between, on plain DRAM, on a
//! tier, and with tables and fingerprints so small that collisions and number reuse are common.

mod common;

use common::{Client, RamDevice, Random, record};
use std::collections::HashMap;
use std::sync::Arc;
use terrace_cache::{Change, Config, Tuning};
use terrace_device::Drive;

fn value_of(key: u64, version: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random(key << 32 | version);
    (0..bytes).map(|_| random.next() as u8).collect()
}

/// Whether a miss of a live record is allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Losses {
    None,
    Allowed,
}

struct Run {
    keys: u64,
    operations: u64,
    sizes: &'static [usize],
    losses: Losses,
    /// One in so many operations is followed by a slice of background work.
    maintain_every: u64,
}

fn run(client: &mut Client, seed: u64, run: &Run) {
    let mut random = Random(seed);
    let mut model: HashMap<u64, (u64, usize, u32)> = HashMap::new();
    let (mut hits, mut lost) = (0, 0);
    for version in 1..=run.operations {
        let key = random.below(run.keys);
        let name = format!("key:{key}");
        let bytes = run.sizes[random.below(run.sizes.len() as u64) as usize];
        let value = value_of(key, version, bytes);
        match random.below(10) {
            0..4 => {
                if client.set(name.as_bytes(), &value) {
                    model.insert(key, (version, bytes, 0));
                }
            }
            4 => {
                let was_there = client.delete(name.as_bytes());
                let expected = model.remove(&key).is_some();
                assert!(!was_there || expected, "deleted {name}, which is not there");
                assert!(was_there == expected || run.losses == Losses::Allowed);
            }
            5 => {
                let expires = client.now + 3;
                let new = terrace_cache::NewRecord { expires, client_flags: 7, ..record(&value) };
                if client.update(name.as_bytes(), true, |_| Change::Store(new)) {
                    model.insert(key, (version, bytes, expires));
                }
            }
            6 => {
                // Add: only if absent.
                let mut added = false;
                client.update(name.as_bytes(), false, |found| {
                    added = found.is_none();
                    if added { Change::Store(record(&value)) } else { Change::Keep }
                });
                assert!(!added || run.losses == Losses::Allowed || !model.contains_key(&key));
                if added {
                    model.insert(key, (version, bytes, 0));
                }
            }
            _ => {
                let found = client.get(name.as_bytes());
                match (found, model.get(&key)) {
                    (Some(found), Some(&(version, bytes, expires))) => {
                        assert_eq!(found.value, value_of(key, version, bytes), "stale {name}");
                        assert_eq!(found.expires, expires);
                        hits += 1;
                    }
                    (Some(_), None) => panic!("{name} is back from the dead"),
                    (None, Some(_)) => {
                        lost += 1;
                        assert!(run.losses == Losses::Allowed, "{name} is lost at {version}");
                        model.remove(&key);
                    }
                    (None, None) => {}
                }
            }
        }
        if version.is_multiple_of(997) {
            client.now += 1;
            let now = client.now;
            model.retain(|_, &mut (_, _, expires)| expires == 0 || expires > now);
        }
        if version.is_multiple_of(50_021) {
            client.cache.flush_all().expect("flushes");
            model.clear();
        }
        if random.below(run.maintain_every) == 0 {
            client.session.quiesce();
            client.cache.maintain(client.now);
        }
    }
    assert!(hits > run.operations / 50, "{hits} hits");
    assert!(run.losses == Losses::None || lost < run.operations / 2);
}

fn tiered(memory: u64, device_bytes: usize, tuning: Tuning) -> Client {
    let mut config = Config::new(memory);
    config.tuning = tuning;
    let device: Arc<dyn Drive> = RamDevice::new(device_bytes);
    Client::open(config, vec![device])
}

fn tiny(fingerprint_bits: u32) -> Tuning {
    Tuning {
        seed: Some(42),
        shards: Some(2),
        segment_bytes: Some(32 << 10),
        fingerprint_bits,
        ..Tuning::default()
    }
}

#[test]
fn dram_alone_loses_nothing_while_not_full() {
    let mut client = Client::open(Config::new(8 << 20), Vec::new());
    let run_ = Run {
        keys: 20_000,
        operations: 400_000,
        sizes: &[0, 1, 80, 100, 300],
        losses: Losses::None,
        maintain_every: 64,
    };
    run(&mut client, 1, &run_);
    assert_eq!(client.cache.stats().evictions, 0);
}

#[test]
fn dram_alone_evicts_when_full() {
    let mut client = Client::open(Config::new(4 << 20), Vec::new());
    let run_ = Run {
        keys: 40_000,
        operations: 300_000,
        sizes: &[0, 80, 100, 300, 2000],
        losses: Losses::Allowed,
        maintain_every: 64,
    };
    run(&mut client, 2, &run_);
    assert!(client.cache.stats().evictions > 1000);
}

#[test]
fn a_tier_loses_nothing_while_not_full() {
    for seed in 1..4 {
        let mut client = tiered(2 << 20, 8 << 20, tiny(15));
        let run_ = Run {
            keys: 15_000,
            operations: 250_000,
            sizes: &[0, 1, 80, 100, 300, 900],
            losses: Losses::None,
            maintain_every: 20,
        };
        run(&mut client, seed, &run_);
        let tier = &client.cache.stats().tiers[0];
        assert!(tier.segment_writes > 100 && tier.hits > 1000, "{tier:?}");
    }
}

#[test]
fn few_fingerprints_collide_and_lose_nothing() {
    for (seed, bits) in [(1, 4), (2, 5), (3, 6), (4, 8)] {
        let mut client = tiered(2 << 20, 8 << 20, tiny(bits));
        let run_ = Run {
            keys: 6_000,
            operations: 120_000,
            sizes: &[80, 100, 900, 3000],
            losses: Losses::None,
            maintain_every: 20,
        };
        run(&mut client, seed, &run_);
        let tier = &client.cache.stats().tiers[0];
        assert!(tier.false_reads > 100, "collisions were to be common: {tier:?}");
    }
}

#[test]
fn a_full_tier_forgets_but_never_lies() {
    for (seed, bits) in [(1, 15), (2, 5), (3, 8)] {
        let mut client = tiered(2 << 20, 4 << 20, tiny(bits));
        let run_ = Run {
            keys: 30_000,
            operations: 250_000,
            sizes: &[0, 80, 100, 300, 900, 3900, 3500],
            losses: Losses::Allowed,
            maintain_every: 10,
        };
        run(&mut client, seed, &run_);
        assert!(client.cache.stats().evictions > 1000);
    }
}

#[test]
fn two_tiers_share_the_records() {
    let mut config = Config::new(2 << 20);
    config.tuning = tiny(15);
    let devices: Vec<Arc<dyn Drive>> = vec![RamDevice::new(4 << 20), RamDevice::new(4 << 20)];
    let mut client = Client::open(config, devices);
    let run_ = Run {
        keys: 12_000,
        operations: 150_000,
        sizes: &[80, 300],
        losses: Losses::None,
        maintain_every: 20,
    };
    run(&mut client, 9, &run_);
    assert!(client.cache.stats().tiers.iter().all(|tier| tier.hits > 100));
}

/// A segment of long records only has no pages: a key of equal name has no place in it to look at, and
/// must not take the long record's entry away.
#[test]
fn long_records_survive_keys_of_equal_name() {
    let mut client = tiered(2 << 20, 16 << 20, Tuning { segment_bytes: Some(64 << 10), ..tiny(6) });
    let long = |n: u64| value_of(n, 0, 6000);
    for n in 0..400 {
        assert!(client.set(format!("long:{n}").as_bytes(), &long(n)));
        client.session.quiesce();
        client.cache.maintain(client.now);
    }
    client.settle();
    for n in 0..20_000u64 {
        assert!(client.set(format!("short:{n}").as_bytes(), b"short"));
        client.session.quiesce();
        client.cache.maintain(client.now);
    }
    for n in 0..400 {
        let found = client.get(format!("long:{n}").as_bytes());
        assert!(found.is_some_and(|found| found.value == long(n)), "long:{n} is lost");
    }
}
