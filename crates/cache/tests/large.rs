//! Large items whose pieces come back one after the other.

mod common;

use common::machine::{Machine, config, key};
use common::{Client, RamDevice};
use terrace_cache::{Chunks, Config};

const ITEMS: u64 = 40;

/// Whoever hears that a chunk is gone removes its item.
#[test]
fn a_chunk_that_is_not_back_yet_is_not_taken_for_a_lost_one() {
    let mut machine = Machine::new(config());
    for n in 0..ITEMS {
        assert!(machine.client.set_large(&key(n), 12, 7000));
    }
    machine.stop_cleanly();
    let machine = machine.crash();
    assert!(machine.client.cache.recover(), "one shard of two");
    let found: Vec<_> = (0..ITEMS).filter_map(|n| machine.client.chunks_of(&key(n))).collect();
    assert!(found.contains(&Chunks::Recovering) && !found.contains(&Chunks::Gone), "{found:?}");
    machine.recover();
    for n in 0..ITEMS {
        assert_eq!(machine.client.chunks_of(&key(n)), Some(Chunks::There), "{n}");
    }
}

/// Chunks of an item come to one place of the index, which takes no more of them there long before it is full.
#[test]
fn chunks_that_the_index_refuses_are_not_written_again_and_again() {
    for _ in 0..4 {
        let mut client = Client::open(Config::new(24 << 20), vec![RamDevice::new(128 << 20)]);
        // Three quarters of the tier, which is not full then.
        let mut stored = 0;
        while stored < 96 << 20 {
            assert!(client.set_large(format!("key:{stored}").as_bytes(), 4, 10_000));
            stored += 40_000;
        }
        client.settle();
        let written = client.cache.stats().tiers[0].written_bytes;
        assert!(written * 100 < stored * 105, "{stored} bytes stored, {written} written");
    }
}
