//! Large items whose pieces come back one after the other.

mod common;

use common::machine::{Machine, config, key};
use terrace_cache::Chunks;

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
    assert!(found.contains(&Chunks::Awaited) && !found.contains(&Chunks::Gone), "{found:?}");
    machine.recover();
    for n in 0..ITEMS {
        assert_eq!(machine.client.chunks_of(&key(n)), Some(Chunks::There), "{n}");
    }
}
