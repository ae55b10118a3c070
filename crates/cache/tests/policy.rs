//! What stays in DRAM, what is written to a full tier, and how a write budget is kept.

mod common;

use common::{Client, RamDevice, Random, record};
use std::time::{Duration, Instant};
use terrace_cache::{
    Access, CacheStats, Change, Config, Lookup, Manifest, NewRecord, NewValue, Run, TierStats,
    Tuning, WritePolicy, WriteRate,
};

const MIB: u64 = 1 << 20;

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:010}").into_bytes()
}

fn client(memory_mib: u64, tier_mib: usize, change: impl FnOnce(&mut Config)) -> Client {
    let tuning = Tuning { seed: Some(1), ..Tuning::default() };
    let mut config = Config { tuning, ..Config::new(memory_mib * MIB) };
    change(&mut config);
    Client::open(config, vec![RamDevice::new(tier_mib << 20)])
}

/// Gives background work its turn, as often as a server would.
fn breathe(client: &mut Client, n: u64) {
    if n.is_multiple_of(32) {
        client.session.quiesce();
        client.cache.maintain(client.now);
    }
}

fn store(client: &mut Client, keys: impl Iterator<Item = u64>, bytes: usize) {
    for n in keys {
        assert!(client.set(&key(n), &vec![n as u8; bytes]));
        breathe(client, n);
    }
}

fn tier(client: &Client) -> TierStats {
    client.cache.stats().tiers.remove(0)
}

#[test]
fn a_scan_leaves_hot_records_in_dram() {
    let mut client = client(16, 256, |_| {});
    store(&mut client, 0..120_000, 400);
    client.settle();
    // More than fits, so that copies have to compete.
    for round in 0..12 {
        for n in 0..20_000 {
            assert!(client.get(&key(n)).is_some(), "{n} in round {round}");
            breathe(&mut client, n);
        }
    }
    let hot_hits = |client: &mut Client| {
        let in_dram = (0..5_000).filter(|&n| client.get(&key(n)).is_some_and(|f| f.from_dram));
        in_dram.count()
    };
    for n in (0..5_000).cycle().take(100_000) {
        assert!(client.get(&key(n)).is_some());
        breathe(&mut client, n);
    }
    let before: CacheStats = client.cache.stats();
    assert!(hot_hits(&mut client) > 4_900, "{before:#?}");
    let written = tier(&client).written_bytes;
    for n in 20_000..120_000 {
        assert!(client.get(&key(n)).is_some());
        breathe(&mut client, n);
    }
    let after = client.cache.stats();
    let promoted = after.read_cache_insertions - before.read_cache_insertions;
    assert!(promoted < 1_000, "{promoted} of 100,000 records that were read once");
    assert!(hot_hits(&mut client) > 4_900, "{after:#?}");
    assert_eq!(tier(&client).written_bytes, written, "moving copies writes nothing");
}

/// In the room of a long one many short ones answer as many requests each.
#[test]
fn of_records_used_alike_short_ones_are_copied_first() {
    const RECORDS: u64 = 80_000;
    let mut client = client(16, 256, |_| {});
    for n in 0..RECORDS {
        let bytes = if n.is_multiple_of(2) { 50 } else { 800 };
        store(&mut client, n..n + 1, bytes);
    }
    client.settle();
    let mut random = Random(1);
    for n in 0..1_500_000 {
        // The lower a number, the more often.
        let at = random.below(RECORDS) * random.below(RECORDS) / RECORDS;
        assert!(client.get(&key(at)).is_some());
        breathe(&mut client, n);
    }
    let mut is_copied = |n: &u64| {
        let found = client.get_as(&key(*n), Access::Peek);
        found.is_some_and(|found| found.from_dram)
    };
    let [short, long] =
        [0, 1].map(|first| (first..RECORDS).step_by(2).filter(&mut is_copied).count());
    assert!(short * 2 > long * 3 && short > 15_000 && long > 5_000, "{short} and {long}");
}

#[test]
fn the_manifest_of_a_large_item_is_in_dram_once_it_was_read() {
    let mut client = client(16, 256, |_| {});
    let item = client.session.begin_item();
    let run = Run { item, chunks: 1, chunk_bytes: 20_000, last_bytes: 20_000 };
    client.session.store_chunk(item, 0, &[7; 20_000], client.now);
    let manifest = Manifest { runs: vec![run] };
    let value = NewValue::Chunked(&manifest);
    assert!(client.update(b"large", true, |_| Change::Store(NewRecord { value, ..record(b"") })));
    store(&mut client, 0..120_000, 400);
    client.settle();
    assert!(client.get(&key(0)).is_some_and(|found| !found.from_dram));
    assert!(
        client.get(&key(0)).is_some_and(|found| !found.from_dram),
        "no room for what is like others"
    );
    let key = client.session.key(b"large");
    let Lookup::Read(search) = client.session.get(key, client.now, Access::Use, None) else {
        panic!("not sealed")
    };
    let seen = client.read(b"large", search);
    let evidence = seen.evidence().expect("it was read");
    let first = client.session.get(key, client.now, Access::Use, Some(evidence));
    assert!(matches!(first, Lookup::Hit(hit) if !hit.from_dram));
    let second = client.session.get(key, client.now, Access::Use, None);
    assert!(matches!(second, Lookup::Hit(hit) if hit.from_dram));
}

#[test]
fn a_full_tier_in_write_policy_c_is_written_what_was_used_twice_or_came_back() {
    let run = |write_policy| {
        let mut client = client(8, 16, |config| config.full_write_policy = write_policy);
        store(&mut client, 0..60_000, 400);
        client.settle();
        let before = tier(&client);
        assert!(before.dropped_records == 0 || before.write_policy == write_policy, "{before:#?}");
        // One of ten is read, thrice.
        for n in 100_000..300_000 {
            assert!(client.set(&key(n), &vec![n as u8; 400]));
            if n % 10 == 0 {
                (0..3).for_each(|_| assert!(client.get(&key(n)).is_some(), "{n}"));
            }
            breathe(&mut client, n);
        }
        client.settle();
        let used = (290_000..299_000).step_by(10);
        let found = used.filter(|&n| client.get(&key(n)).is_some()).count();
        (tier(&client).written_bytes - before.written_bytes, found, tier(&client))
    };
    let (all, _, _) = run(WritePolicy::AllOnce);
    let (chosen, found, after) = run(WritePolicy::ReusedOnce);
    assert!(chosen * 5 < all, "{chosen} of {all} bytes; {after:#?}");
    assert!(found > 850, "{found} of 900 that were used are there; {after:#?}");
    assert!(after.dropped_records > 150_000, "{after:#?}");
}

#[test]
fn nothing_is_let_go_below_full_whatever_the_write_policy() {
    let mut client = client(8, 64, |config| config.full_write_policy = WritePolicy::ReusedNone);
    store(&mut client, 0..60_000, 400);
    client.settle();
    assert_eq!(tier(&client).dropped_records, 0);
    assert!((0..60_000).all(|n| client.get(&key(n)).is_some()));
}

#[test]
fn a_tier_that_is_full_sooner_holds_less_and_is_written_less() {
    let run = |percent| {
        let mut client = client(8, 32, |config| config.full_percent = percent);
        // About as many as fit at most.
        store(&mut client, 0..70_000, 400);
        let before = tier(&client).written_bytes;
        let at_random = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % 70_000;
        store(&mut client, (0..300_000).map(at_random), 400);
        let after = tier(&client);
        (after.live_bytes as f64 / (32 * MIB) as f64, after.written_bytes - before)
    };
    let (usual, much) = run(Config::new(0).full_percent);
    let (half, little) = run(50);
    assert!((0.7..0.82).contains(&usual), "{usual}");
    assert!((0.5..0.7).contains(&half), "{half}: above full little is moved, and the rest dropped");
    assert!(little * 4 < much * 3, "{little} and {much} bytes");
}

#[test]
fn a_tenfold_overload_stays_inside_the_write_budget() {
    const RATE: u64 = 2 * MIB;
    const FOR: Duration = Duration::from_secs(4);
    let rate = WriteRate::BytesPerSecond(RATE as f64);
    let mut client = client(8, 64, |config| config.write_rates = vec![rate]);
    let start = Instant::now();
    let mut n = 0;
    while start.elapsed() < FOR {
        // 20 MiB a second, unless the machine is too slow for that.
        while n * 400 < start.elapsed().as_millis() as u64 * 20 * MIB / 1000
            && start.elapsed() < FOR
        {
            assert!(client.set(&key(n), &[1; 400]));
            n += 1;
            breathe(&mut client, n);
        }
        client.session.quiesce();
        client.cache.maintain(client.now);
    }
    let seconds = start.elapsed().as_secs_f64();
    let after = tier(&client);
    let written = (after.written_bytes + after.tombstone_log_written_bytes) as f64;
    assert!(written <= RATE as f64 * seconds * 1.05, "{seconds} s, {after:#?}");
    assert!(written >= RATE as f64 * seconds * 0.8, "{seconds} s, {after:#?}");
    assert!(after.dropped_records > n / 2, "{n} stored, {after:#?}");
    assert_eq!(after.budget_bytes_per_second, RATE);
    assert!(client.get(&key(n - 1)).is_some(), "the newest is there");
}
