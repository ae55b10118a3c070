//! Many threads on one cache: every key has one writer, who knows exactly what it holds, and readers,
//! who must never see a value that was never written or that is older than one they saw before.

mod common;

use common::{Client, RamDevice, Random};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_cache::{Config, Tuning};
use terrace_device::Drive;

const THREADS: u64 = 4;
const KEYS_EACH: u64 = 1500;

fn name(key: u64) -> String {
    format!("k{key}")
}

/// Version first, then bytes that follow from key and version.
fn value(key: u64, version: u64) -> Vec<u8> {
    let mut random = Random(key.wrapping_mul(31).wrapping_add(version));
    let bytes = 20 + random.below(700) as usize;
    let tail = (0..bytes).map(|_| random.next() as u8);
    version.to_le_bytes().into_iter().chain(tail).collect()
}

fn version(key: u64, found: &[u8]) -> u64 {
    let version = u64::from_le_bytes(*found.first_chunk().expect("a version"));
    assert_eq!(found, value(key, version), "torn or foreign value under {}", name(key));
    version
}

/// One thread's life: writes its own keys, reads everybody's.
fn live(client: &mut Client, me: u64, operations: u64, acked: &[AtomicU64], may_lose: bool) {
    let mut random = Random(me + 77);
    // 0 stands for "not there".
    let mut own = vec![0u64; KEYS_EACH as usize];
    for n in 1..=operations {
        let mine = random.below(KEYS_EACH);
        let key = me * KEYS_EACH + mine;
        match random.below(8) {
            0..3 => {
                assert!(client.set(name(key).as_bytes(), &value(key, n)));
                own[mine as usize] = n;
                acked[key as usize].store(n, Ordering::SeqCst);
            }
            3 => {
                let was_there = client.delete(name(key).as_bytes());
                assert!(!was_there || own[mine as usize] != 0, "deleted what was not there");
                assert!(may_lose || was_there == (own[mine as usize] != 0));
                own[mine as usize] = 0;
            }
            4..6 => match client.get(name(key).as_bytes()) {
                Some(found) => assert_eq!(version(key, &found.value), own[mine as usize], "stale"),
                None if own[mine as usize] == 0 => {}
                None => {
                    assert!(may_lose, "{} is lost", name(key));
                    own[mine as usize] = 0;
                }
            },
            _ => {
                let key = random.below(THREADS * KEYS_EACH);
                let before = acked[key as usize].load(Ordering::SeqCst);
                if let Some(found) = client.get(name(key).as_bytes()) {
                    let seen = version(key, &found.value);
                    assert!(seen >= before, "{}: {seen} is older than {before}", name(key));
                }
            }
        }
        client.session.quiesce();
    }
}

fn storm(mut config: Config, device_bytes: Option<usize>, operations: u64, may_lose: bool) {
    config.tuning.seed = Some(4711);
    let devices: Vec<Arc<dyn Drive>> =
        device_bytes.into_iter().map(|bytes| RamDevice::new(bytes) as Arc<dyn Drive>).collect();
    let background_threads = config.background_threads;
    let first = Client::open(config, devices);
    assert_eq!(first.cache.background_threads(), background_threads);
    let (done, acked): (_, Vec<_>) =
        (AtomicBool::new(false), (0..THREADS * KEYS_EACH).map(|_| AtomicU64::new(0)).collect());
    std::thread::scope(|scope| {
        let (cache, now) = (&first.cache, first.now);
        let (done, acked) = (&done, &acked);
        for _ in 0..cache.background_threads() {
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    if !cache.maintain(now) {
                        std::thread::sleep(std::time::Duration::from_micros(200));
                    }
                }
            });
        }
        let threads: Vec<_> = (0..THREADS)
            .map(|me| {
                let mut client = first.sibling();
                scope.spawn(move || live(&mut client, me, operations, acked, may_lose))
            })
            .collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok), "a thread failed");
    });
    println!("{:#?}", first.cache.stats());
}

#[test]
fn plain_dram() {
    storm(Config::new(16 << 20), None, 120_000, false);
}

#[test]
fn plain_dram_that_evicts() {
    storm(Config::new(1 << 20), None, 120_000, true);
}

fn small(fingerprint_bits: u32) -> Config {
    let mut config = Config::new(1 << 20);
    config.tuning = Tuning {
        shards: Some(2),
        segment_bytes: Some(32 << 10),
        fingerprint_bits,
        ..Tuning::default()
    };
    config
}

#[test]
fn a_tier_with_room() {
    storm(small(15), Some(8 << 20), 60_000, false);
}

#[test]
fn a_tier_with_few_fingerprints() {
    storm(small(6), Some(8 << 20), 60_000, false);
}

/// As [`small`], with as many background threads as shards.
fn small_and_shared(fingerprint_bits: u32) -> Config {
    let mut config = small(fingerprint_bits);
    config.memory_bytes = 8 << 20;
    config.memory_bytes_max = 8 << 20;
    config.tuning.shards = Some(4);
    config.background_threads = 4;
    config
}

#[test]
fn several_background_threads() {
    storm(small_and_shared(15), Some(16 << 20), 60_000, false);
    storm(small_and_shared(6), Some(16 << 20), 60_000, false);
}

#[test]
fn several_background_threads_and_a_tier_that_is_too_small() {
    storm(small_and_shared(15), Some(4 << 20), 60_000, true);
}

#[test]
fn a_tier_that_is_too_small() {
    storm(small(15), Some(2 << 20), 60_000, true);
}
