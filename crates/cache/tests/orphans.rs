//! Chunks of large items that no manifest owns: a start finds and removes them, and takes no others for such.

mod common;

use common::Client;
use common::machine::{Machine, config, key};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_cache::{CacheStats, Chunks, Config, ItemId, Manifest, Run, StateFile, Update};

const CHUNKS: u32 = 3;
const CHUNK_BYTES: u32 = 7000;
/// Records of an item.
const RECORDS: u64 = CHUNKS as u64 + 1;
/// Seconds after which what could not be read is tried again.
const RETRY_S: u32 = 10;

fn set(client: &mut Client, n: u64) {
    assert!(client.set_large(&key(n), CHUNKS, CHUNK_BYTES), "{n}");
}

/// Stores some chunks of an item.
fn upload(client: &mut Client, item: ItemId, chunks: std::ops::Range<u32>) {
    let chunk = vec![9; client.cache.inline_bytes_max().min(CHUNK_BYTES as usize)];
    for index in chunks {
        while !matches!(
            client.session.store_chunk(item, index, &chunk, client.now),
            Update::Done { .. }
        ) {
            client.settle();
        }
    }
}

/// Leaves so many items with their first chunk.
fn begin_uploads(client: &mut Client, items: u32) {
    for _ in 0..items {
        let item = client.session.begin_item();
        upload(client, item, 0..1);
    }
}

fn stats(client: &Client) -> CacheStats {
    client.cache.stats()
}

/// Lets the search come to its end.
fn search(client: &mut Client) {
    while client.cache.recover() {}
    client.settle();
    assert!(!stats(client).is_searching_chunks, "{:#?}", stats(client));
}

/// Exactly the items of these numbers are there, and whole.
fn assert_items(client: &Client, items: impl Iterator<Item = u64>) {
    let mut count = 0;
    for n in items {
        assert_eq!(client.chunks_of(&key(n)), Some(Chunks::There), "{n}");
        count += 1;
    }
    assert_eq!(stats(client).records, count * RECORDS);
}

/// Items 0 to 19 of which 0 to 4 were deleted, 5 to 9 replaced, and three more did not come to their end: chunks of all
/// of them are left, some sealed and some not.
fn leave_orphans(client: &mut Client, seals: bool) {
    (0..20).for_each(|n| set(client, n));
    if seals {
        client.settle();
    }
    for chunks in 1..4 {
        let item = client.session.begin_item();
        upload(client, item, 0..chunks);
    }
    assert!((0..5).all(|n| client.delete(&key(n))));
    (5..10).for_each(|n| set(client, n));
}

#[test]
fn chunks_without_an_owner_are_removed_by_a_start() {
    for (evict, seals, stops) in [
        (true, true, false),
        (true, false, false),
        (false, true, false),
        (false, false, false),
        (true, true, true),
    ] {
        let mut machine = Machine::new(Config { evict, ..config() });
        leave_orphans(&mut machine.client, seals);
        machine = machine.crash();
        if stops {
            // Before anything was searched.
            machine.recover();
            machine.stop_cleanly();
            machine = machine.crash();
        }
        assert!(stats(&machine.client).is_searching_chunks);
        search(&mut machine.client);
        assert_items(&machine.client, 5..20);
        // Some were removed while others were uploaded.
        assert!(stats(&machine.client).orphaned_chunks >= 6, "evict {evict}, seals {seals}");
    }
}

fn open_without_tiers(state: &Arc<StateFile>, evict: bool) -> Client {
    let state = Some(Arc::clone(state));
    let mut config = Config { memory_bytes: 8 << 20, evict, state, ..config() };
    config.tuning.segment_bytes = None;
    Client::open(config, Vec::new())
}

#[test]
fn chunks_without_an_owner_are_removed_without_tiers() {
    let open = |state: &Arc<StateFile>| open_without_tiers(state, false);
    let state = Arc::new(StateFile::volatile().expect("memory"));
    let mut client = open(&state);
    leave_orphans(&mut client, false);
    let left = Arc::new(state.snapshot().expect("memory"));
    drop(client);
    let mut client = open(&left);
    search(&mut client);
    assert_items(&client, 5..20);
}

/// Eviction moves used manifests while the search walks through DRAM.
#[test]
fn items_that_eviction_moves_during_the_search_keep_their_chunks() {
    let open = |state: &Arc<StateFile>| open_without_tiers(state, true);
    let state = Arc::new(StateFile::volatile().expect("memory"));
    let mut client = open(&state);
    let items = 0..100;
    items.clone().for_each(|n| set(&mut client, n));
    // As much as there is room for, so that eviction begins with the first store after the start.
    for n in 1000..6000 {
        assert!(client.set(&key(n), &[1; 1000]));
        client.cache.maintain(client.now);
        if n % 500 == 0 {
            items.clone().for_each(|n| use_item(&mut client, n));
        }
    }
    let left = Arc::new(state.snapshot().expect("memory"));
    drop(client);
    let mut client = open(&left);
    while client.cache.recover() {}
    items.clone().for_each(|n| use_item(&mut client, n));
    assert!(stats(&client).is_searching_chunks);
    // Eviction frees several blocks in a slice of background work, and the search looks at one.
    let mut next = 10_000;
    while stats(&client).is_searching_chunks {
        for n in next..next + 150 {
            assert!(client.set(&key(n), &[1; 1000]));
        }
        next += 150;
        items.clone().for_each(|n| use_item(&mut client, n));
        client.cache.maintain(client.now);
    }
    assert!(next > 11_000, "it ended early");
    client.settle();
    assert_eq!(stats(&client).orphaned_chunks, 0);
    for n in items {
        assert_eq!(client.chunks_of(&key(n)), Some(Chunks::There), "{n}");
    }
}

fn use_item(client: &mut Client, n: u64) {
    assert!(client.get(&key(n)).is_some(), "in use: {n}");
    let manifest = client.manifest_of(&key(n)).expect("a moment ago");
    client.session.use_chunks(&manifest, client.now);
}

/// Of segments so small that chunks lie in pages as all records do, none says that there are large items.
#[test]
fn chunks_in_pages_of_segments_without_manifests_are_found() {
    let mut config = config();
    config.tuning.segment_bytes = Some(32 << 10);
    let mut machine = Machine::new(config);
    begin_uploads(&mut machine.client, 400);
    machine.client.settle();
    assert!(stats(&machine.client).tiers[0].segment_writes > 0);
    machine = machine.crash();
    search(&mut machine.client);
    assert_eq!(stats(&machine.client).records, 0);
}

/// There are none on the tiers when the search begins, and those of a shard are there when it comes to that.
#[test]
fn chunks_that_are_sealed_during_a_search_are_found() {
    let mut config = config();
    config.tuning.shards = Some(4);
    let mut machine = Machine::new(config);
    begin_uploads(&mut machine.client, 30);
    machine = machine.crash();
    machine.recover();
    let client = &mut machine.client;
    assert!(client.cache.maintain(client.now));
    assert_eq!(stats(client).tiers[0].segment_writes, 0);
    for n in 0..1000 {
        assert!(client.set(&key(n), &[7; 1000]));
    }
    search(client);
    assert_eq!(stats(client).records, 1000);
}

/// A table for 512 items looks at a part of them in each pass.
#[test]
fn more_items_than_the_table_holds_are_searched_in_parts() {
    let mut machine = Machine::new(config());
    for n in 0..3000 {
        assert!(machine.client.set_large(&key(n), 1, 100));
    }
    machine.client.settle();
    assert!((0..1500).all(|n| machine.client.delete(&key(n))));
    machine = machine.crash();
    search(&mut machine.client);
    assert_eq!(stats(&machine.client).records, 1500 * 2);
    assert!((1500..3000).all(|n| machine.client.chunks_of(&key(n)) == Some(Chunks::There)));
}

#[test]
fn an_upload_that_begins_during_recovery_keeps_its_chunks() {
    let mut machine = Machine::new(config());
    leave_orphans(&mut machine.client, true);
    machine = machine.crash();
    let client = &mut machine.client;
    let item = client.session.begin_item();
    upload(client, item, 0..1);
    search(client);
    let before = stats(client).records;
    upload(client, item, 1..CHUNKS);
    let (chunks, chunk_bytes) = (CHUNKS, CHUNK_BYTES);
    let run = Run { item, chunks, chunk_bytes, last_bytes: chunk_bytes };
    assert!(client.set_manifest(&key(100), &Manifest { runs: vec![run] }, 0));
    assert_eq!(stats(client).records, before + RECORDS - 1);
    assert_items(client, (5..20).chain([100]));
}

/// What changes during recovery and search: an item that is touched moves into DRAM, where the search may have been.
#[test]
fn items_that_move_during_a_search_keep_their_chunks() {
    let mut machine = Machine::new(config());
    leave_orphans(&mut machine.client, true);
    machine = machine.crash();
    let client = &mut machine.client;
    let mut n = 5;
    while client.cache.recover() || n < 20 {
        client.session.park();
        client.cache.maintain(client.now);
        if n < 20 && client.cache.recovering() == 0 {
            let later = client.now + 1000;
            let manifest = client.manifest_of(&key(n)).expect("there");
            assert!(client.set_manifest(&key(n), &manifest, later));
            n += 1;
        }
    }
    search(client);
    assert_items(client, 5..20);
}

#[test]
fn a_segment_that_can_not_be_read_holds_up_every_removal() {
    let mut machine = Machine::new(config());
    leave_orphans(&mut machine.client, true);
    machine = machine.crash();
    machine.recover();
    let before = stats(&machine.client).records;
    machine.device.fail_reads.store(true, Ordering::Relaxed);
    machine.client.settle();
    machine.client.now += RETRY_S - 1;
    machine.client.settle();
    let held_up = stats(&machine.client);
    assert_eq!(held_up.records, before, "nothing was removed");
    assert!(held_up.is_searching_chunks && held_up.chunk_search_shards_waiting > 0);
    machine.device.fail_reads.store(false, Ordering::Relaxed);
    machine.client.now += 1;
    search(&mut machine.client);
    assert_items(&machine.client, 5..20);
}

/// In each mode half of the items expire, of segments in which the others stay.
#[test]
fn items_that_expired_are_removed_with_their_chunks_in_every_mode() {
    for (evict, crashes) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut machine = Machine::new(Config { evict, ..config() });
        let soon = machine.client.now + 1000;
        for n in 0..20 {
            let expires = if n % 2 == 0 { soon } else { 0 };
            let client = &mut machine.client;
            assert!(client.set_large_until(&key(n), CHUNKS, CHUNK_BYTES, expires));
        }
        machine.client.settle();
        if crashes {
            machine = machine.crash();
            search(&mut machine.client);
        }
        assert_eq!(stats(&machine.client).records, 20 * RECORDS);
        for second in 0..60 {
            machine.client.now = soon + second;
            machine.client.settle();
        }
        assert_items(&machine.client, (0..20).filter(|n| n % 2 == 1));
    }
}
