//! A store as a program uses it: on real files, across closes, by many threads and lanes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_runtime::{Change, Done, Error, Operation, Options, Outcome, Set, Store};

const MINUTE: Duration = Duration::from_secs(60);

fn folder() -> tempfile::TempDir {
    // Where tests have a drive, and not only memory.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

fn on_drive(folder: &tempfile::TempDir) -> Options {
    Options::new().memory(16 << 20).drive(folder.path().join("drive"), 256 << 20)
}

fn value(n: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + n * 7 + 1) as u8).collect()
}

fn key(n: usize) -> Vec<u8> {
    format!("key {n}").into_bytes()
}

#[test]
fn values_of_all_sizes_come_back_from_the_drive_and_after_a_close() {
    let folder = folder();
    let sizes = [0, 1, 100, 4_000, 30_000, 200_000, 1_000_000];
    let store = Store::open(on_drive(&folder)).expect("opens");
    let all: Vec<_> = (0..210).map(|n| (key(n), value(n, sizes[n % sizes.len()]))).collect();
    for (key, value) in &all {
        assert!(store.set(key, value, Set::default()).expect("stored"));
    }
    let check = |store: &Store| {
        for (key, value) in &all {
            let found = store.get(key).expect("read");
            assert!(found.as_ref() == Some(value), "{}", String::from_utf8_lossy(key));
            assert_eq!(store.get_with(key, <[u8]>::len).expect("read"), Some(value.len()));
        }
    };
    check(&store);
    store.close().expect("everything is written");
    let store = Store::open(on_drive(&folder)).expect("opens again");
    check(&store);
    assert!(store.remove(&all[0].0).expect("removed"));
    assert!(!store.remove(&all[0].0).expect("nothing there"));
    assert_eq!(store.get(&all[0].0).expect("read"), None);
}

#[test]
fn lanes_answer_every_operation_once_and_keep_the_order_of_a_key() {
    let folder = folder();
    let store = Store::open(on_drive(&folder)).expect("opens");
    let mut lane = store.lane().expect("a lane");
    let (mut done, mut expected) = (Vec::new(), HashMap::new());
    let mut token = 0;
    // More than DRAM holds, so that most are read from the drive.
    for round in 0..2 {
        for n in 0..6_000 {
            let value = value(n + round, 3_000 + n % 50 * 10);
            let set = Operation::Set { key: key(n), value: value.clone(), how: Set::default() };
            lane.submit(set, token);
            lane.submit(Operation::Get(key(n)), token + 1);
            expected.insert(token, Outcome::Set(true));
            expected.insert(token + 1, Outcome::Value(Some(value)));
            token += 2;
            while lane.in_flight() > 500 {
                lane.wait(&mut done, MINUTE).expect("reads");
            }
        }
        for n in (0..6_000).step_by(7) {
            lane.submit(Operation::Get(key(n)), token);
            let value = value(n + round, 3_000 + n % 50 * 10);
            expected.insert(token, Outcome::Value(Some(value)));
            token += 1;
        }
    }
    while lane.in_flight() > 0 {
        lane.wait(&mut done, MINUTE).expect("reads");
    }
    assert_eq!(done.len(), expected.len());
    for Done { token, outcome } in done {
        let outcome = outcome.expect("no error");
        assert!(expected.remove(&token) == Some(outcome), "operation {token}");
    }
}

#[test]
fn updates_of_many_threads_are_all_counted() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 2_000;
    let store = Store::open(Options::new().memory(16 << 20)).expect("opens");
    let add = || {
        for _ in 0..ROUNDS {
            let add = |value: Option<&[u8]>| {
                let before =
                    value.map_or(0, |v| u64::from_le_bytes(v.try_into().expect("8 bytes")));
                Change::Set((before + 1).to_le_bytes().to_vec(), Set::default())
            };
            store.update(b"count", add).expect("updated");
        }
    };
    std::thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(add))));
    let count = store.get(b"count").expect("read").expect("it is there");
    assert_eq!(u64::from_le_bytes(count.try_into().expect("8 bytes")), THREADS * ROUNDS);
    store.update(b"count", |_| Change::Remove).expect("removed");
    store
        .update(b"count", |value| {
            assert_eq!(value, None);
            Change::Keep
        })
        .expect("looked");
}

#[test]
fn more_lanes_than_allowed_are_refused_and_come_back_as_others_go() {
    let options = Options::new().memory(16 << 20).lanes_max(2);
    let store = Store::open(options).expect("opens");
    let lanes = [store.lane().expect("one"), store.lane().expect("two")];
    assert!(matches!(store.lane(), Err(Error::TooManyLanes { most: 2 })));
    assert!(matches!(store.get(b"key"), Err(Error::TooManyLanes { most: 2 })));
    drop(lanes);
    assert_eq!(store.get(b"key").expect("a session is free"), None);
    let _one = store.lane().expect("one");
    let _two = store.lane().expect("the one that the blocking call had");
}

/// A drive is waited for from when it is asked on, however long the lane was idle before.
#[test]
fn lane_that_was_not_polled_for_long_reads_all() {
    let folder = folder();
    let store = Store::open(on_drive(&folder)).expect("opens");
    for n in 0..10_000 {
        store.set(&key(n), &value(n, 3_000), Set::default()).expect("stored");
    }
    let mut lane = store.lane().expect("a lane");
    (0..2_000).for_each(|n| lane.submit(Operation::Get(key(n)), n as u64));
    let (mut done, start) = (Vec::new(), Instant::now());
    while lane.in_flight() > 0 && start.elapsed() < MINUTE {
        lane.wait(&mut done, MINUTE).expect("waits");
    }
    let is_found = |done: &&Done| matches!(done.outcome, Ok(Outcome::Value(Some(_))));
    assert_eq!(done.iter().filter(is_found).count(), 2_000);
}

#[test]
fn lane_outlives_the_store_and_may_be_dropped_with_reads_under_way() {
    let folder = folder();
    let store = Store::open(on_drive(&folder)).expect("opens");
    for n in 0..10_000 {
        store.set(&key(n), &value(n, 3_000), Set::default()).expect("stored");
    }
    let mut lane = store.lane().expect("a lane");
    let other = store.clone();
    assert!(matches!(store.close(), Err(Error::InUse)));
    drop(other);
    let mut done = Vec::new();
    (0..2_000).for_each(|n| lane.submit(Operation::Get(key(n)), n as u64));
    let large = Operation::Set { key: key(0), value: value(1, 900_000), how: Set::default() };
    lane.submit(large, 2_000);
    lane.poll(&mut done).expect("polls");
    assert!(lane.in_flight() > 0, "the drive was faster than this test");
    drop(lane);
    // The last handle is gone, and so is the lock on the drive.
    let store = Store::open(on_drive(&folder)).expect("opens again");
    assert!(store.lane().is_ok());
}

#[test]
fn bad_input_is_refused_and_nothing_else_is_harmed() {
    let store = Store::open(Options::new().memory(16 << 20).value_bytes_max(1000)).expect("opens");
    store.set(b"key", b"value", Set::default()).expect("stored");
    let long = [b'k'; Error::KEY_BYTES_MAX + 1];
    assert!(matches!(store.get(b""), Err(Error::Key { bytes: 0 })));
    assert!(matches!(store.set(&long, b"", Set::default()), Err(Error::Key { bytes: 251 })));
    assert!(store.set(&long[1..], b"as long as can be", Set::default()).expect("stored"));
    let refused = store.set(b"key", &[0; 1001], Set::default());
    assert!(matches!(refused, Err(Error::Value { bytes: 1001, most: 1000 })));
    let mut lane = store.lane().expect("a lane");
    lane.submit(Operation::Get(Vec::new()), 7);
    let mut done = Vec::new();
    lane.poll(&mut done).expect("polls");
    assert!(matches!(done[..], [Done { token: 7, outcome: Err(Error::Key { bytes: 0 }) }]));
    assert_eq!(store.get(b"key").expect("read").as_deref(), Some(&b"value"[..]));
}

#[test]
fn record_that_expired_is_gone() {
    let store = Store::open(Options::new().memory(16 << 20)).expect("opens");
    let second = Set::default().expires_in(Duration::from_millis(1));
    store.set(b"key", b"value", second).expect("stored");
    let start = Instant::now();
    while store.get(b"key").expect("read").is_some() {
        assert!(start.elapsed() < MINUTE, "it is still there");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn drive_of_another_program_is_refused_and_left_alone() {
    let folder = folder();
    let path = folder.path().join("drive");
    std::fs::write(&path, vec![b'x'; 1 << 20]).expect("written");
    let refused = Store::open(Options::new().memory(16 << 20).drive(&path, 64 << 20));
    let error = refused.err().expect("refused").to_string();
    assert!(error.contains("Terrace did not write"), "{error}");
    assert_eq!(std::fs::read(&path).expect("there"), vec![b'x'; 1 << 20]);
}

/// Threads that read, change and remove while another one closes lanes and opens others.
#[test]
fn threads_and_lanes_beside_each_other_see_whole_values_only() {
    let folder = folder();
    let store = Store::open(on_drive(&folder)).expect("opens");
    let seen = Arc::new(AtomicU64::new(0));
    let end = Instant::now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        for thread in 0..3usize {
            let (store, seen) = (store.clone(), Arc::clone(&seen));
            scope.spawn(move || {
                let mut state = thread as u64;
                // A linear congruential generator (Knuth's MMIX).
                let mut random = || {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 33) as usize % 500
                };
                while Instant::now() < end {
                    let n = random();
                    let bytes = [100, 5_000, 300_000][n % 3];
                    store.set(&key(n), &value(n, bytes), Set::default()).expect("stored");
                    let other = random();
                    if let Some(found) = store.get(&key(other)).expect("read") {
                        assert!(found == value(other, found.len()), "key {other}");
                        seen.fetch_add(1, Ordering::Relaxed);
                    }
                    store.remove(&key(random())).expect("removed");
                }
            });
        }
        let store = store.clone();
        scope.spawn(move || {
            let mut done = Vec::new();
            while Instant::now() < end {
                let mut lane = store.lane().expect("a lane");
                (0..50).for_each(|n| lane.submit(Operation::Get(key(n)), n as u64));
                lane.wait(&mut done, Duration::from_millis(1)).expect("polls");
            }
        });
    });
    assert!(seen.load(Ordering::Relaxed) > 0);
}
