//! The memory cap of an open cache, raised and lowered.

mod common;

use common::{Client, RamDevice, used};
use terrace_cache::{Config, LimitError};

const MIB: u64 = 1 << 20;

fn config(memory_bytes: u64, memory_bytes_max: u64) -> Config {
    Config { memory_bytes_max, ..Config::new(memory_bytes) }
}

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:08}").into_bytes()
}

fn fill(client: &mut Client, range: std::ops::Range<u64>) {
    for n in range {
        assert!(client.set(&key(n), &[n as u8; 1000]));
        if n.is_multiple_of(64) {
            client.session.quiesce();
            client.cache.maintain(client.now);
        }
    }
    client.settle();
}

#[test]
fn a_lower_cap_is_kept_and_a_higher_one_is_used() {
    let mut client = Client::open(config(64 * MIB, 160 * MIB), Vec::new());
    fill(&mut client, 0..100_000);
    let full = client.cache.stats();
    assert!(full.records > 50_000 && used(&full.memory) > 60 * MIB, "{full:#?}");

    client.cache.set_memory_limit(32 * MIB).expect("half of it is possible");
    client.settle();
    let lowered = client.cache.stats();
    assert_eq!(lowered.memory.limit, 32 * MIB);
    assert!(used(&lowered.memory) <= 32 * MIB, "{lowered:#?}");
    assert!(lowered.records > 15_000, "{lowered:#?}");
    assert!((95_000..100_000).all(|n| client.get(&key(n)).is_some()), "the newest are there");
    fill(&mut client, 100_000..150_000);
    let refilled = client.cache.stats();
    assert!(used(&refilled.memory) <= 32 * MIB, "{refilled:#?}");

    client.cache.set_memory_limit(160 * MIB).expect("room was set aside");
    fill(&mut client, 150_000..350_000);
    let raised = client.cache.stats();
    assert!(raised.records > 110_000, "{raised:#?}");
    assert!(used(&raised.memory) <= 160 * MIB, "{raised:#?}");
}

#[test]
fn a_cap_out_of_reach_is_refused_and_changes_nothing() {
    let client = Client::open(config(64 * MIB, 64 * MIB), Vec::new());
    assert_eq!(
        client.cache.set_memory_limit(65 * MIB),
        Err(LimitError::TooHigh { most: 64 * MIB })
    );
    let Err(LimitError::TooLow { least }) = client.cache.set_memory_limit(MIB) else {
        panic!("a cache of 64 MiB can't do with one");
    };
    assert_eq!(client.cache.stats().memory.limit, 64 * MIB);
    assert_eq!(client.cache.set_memory_limit(least), Ok(()));
    assert_eq!(client.cache.set_memory_limit(64 * MIB), Ok(()), "the old one is possible again");
}

/// Reads them often enough that they are copied into DRAM as long as there is room.
fn heat(client: &mut Client) {
    for _ in 0..4 {
        for n in 0..100_000 {
            assert!(client.get(&key(n)).is_some(), "{n}");
            if n.is_multiple_of(64) {
                client.session.quiesce();
                client.cache.maintain(client.now);
            }
        }
    }
    client.settle();
}

/// No block is free when the limit falls, so that the hottest copies of the first one have nowhere to go.
#[test]
fn a_cap_that_was_not_reached_can_be_lowered_below_what_is_there() {
    let device = RamDevice::new(256 << 20);
    let mut client = Client::open(config(64 * MIB, 256 * MIB), vec![device]);
    fill(&mut client, 0..120_000);
    client.cache.set_memory_limit(256 * MIB).expect("room was set aside");
    heat(&mut client);
    let hot = client.cache.stats().memory;
    assert!(hot.read_cache > 90 * MIB && used(&hot) < 200 * MIB, "{hot:#?}");
    for limit in [100, 80, 48] {
        client.cache.set_memory_limit(limit * MIB).expect("most is hot copies");
        client.settle();
        let lowered = client.cache.stats().memory;
        assert!(used(&lowered) <= limit * MIB, "{lowered:#?}");
        assert!(lowered.read_cache > 10 * MIB, "{lowered:#?}");
    }
    assert!((0..120_000).all(|n| client.get(&key(n)).is_some()));
}

/// All of it was used, and there is no block that what is kept of the oldest could move to, but for the rest
/// of the one that is being filled.
#[test]
fn without_tiers_too_the_cap_can_fall_below_what_is_there() {
    for records in (4000..4100).step_by(5) {
        let mut config = config(8 * MIB, 8 * MIB);
        config.tuning.shards = Some(1);
        let mut client = Client::open(config, Vec::new());
        fill(&mut client, 0..records);
        assert!((0..records).all(|n| client.get(&key(n)).is_some()));
        client.cache.set_memory_limit(4 * MIB).expect("half of it is possible");
        client.settle();
        let lowered = client.cache.stats();
        assert!(used(&lowered.memory) <= 4 * MIB, "{lowered:#?}");
        assert!(lowered.records > 1500, "{lowered:#?}");
    }
}

#[test]
fn with_tiers_hot_copies_give_way_and_no_record_is_lost() {
    let device = RamDevice::new(256 << 20);
    let mut client = Client::open(config(64 * MIB, 128 * MIB), vec![device]);
    fill(&mut client, 0..120_000);
    heat(&mut client);
    let hot = client.cache.stats().memory;
    assert!(hot.read_cache > 24 * MIB, "{hot:#?}");

    client.cache.set_memory_limit(40 * MIB).expect("that much is hot copies");
    client.settle();
    let lowered = client.cache.stats().memory;
    assert!(
        lowered.read_cache + lowered.free + 20 * MIB <= hot.read_cache + hot.free,
        "{hot:#?} {lowered:#?}"
    );
    assert!((0..120_000).all(|n| client.get(&key(n)).is_some()));

    client.cache.set_memory_limit(128 * MIB).expect("room was set aside");
    heat(&mut client);
    let raised = client.cache.stats().memory;
    assert!(raised.read_cache > hot.read_cache + 10 * MIB, "{hot:#?} {raised:#?}");
}
