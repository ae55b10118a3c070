//! The simulated drive does what it is told, and the same again from the same seed.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use common::{BLOCK, Random, is_stamped, stamp};
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use terrace_device::sim::{Crash, Effect, Fault, Operation, SimDevice, SimQueue};
use terrace_device::{AlignedBuf, Drive, Engine, Read, ReadPath, ReadQueue, WorkerQueue};

const BLOCKS: u64 = 64;

fn drive(seed: u64) -> SimDevice {
    SimDevice::new(BLOCKS * BLOCK as u64, seed)
}

fn write(drive: &SimDevice, block: u64, blocks: usize, byte: u8) -> io::Result<()> {
    let mut buf = AlignedBuf::zeroed(blocks * BLOCK);
    buf.fill(byte);
    drive.write_at(block * BLOCK as u64, &buf)
}

fn content(drive: &SimDevice) -> Vec<u8> {
    let mut buf = AlignedBuf::zeroed(drive.geometry().bytes as usize);
    drive.read_at(0, &mut buf).unwrap();
    buf.to_vec()
}

/// The first byte of each block, which must be that of the whole block.
fn blocks(drive: &SimDevice) -> Vec<u8> {
    let bytes = content(drive);
    let blocks = bytes.chunks(BLOCK);
    blocks
        .map(|block| {
            assert!(block.iter().all(|&byte| byte == block[0]), "torn inside a block");
            block[0]
        })
        .collect()
}

#[test]
fn it_holds_what_was_written_and_counts() {
    let drive = drive(1);
    write(&drive, 3, 2, 7).unwrap();
    assert_eq!(blocks(&drive)[2..6], [0, 7, 7, 0]);
    drive.flush().unwrap();
    let counts = drive.counts();
    assert_eq!((counts.reads, counts.writes, counts.flushes, counts.faults), (1, 1, 1, 0));
    assert_eq!((counts.bytes_read, counts.bytes_written), (BLOCKS * 4096, 8192));
    let mut outside = AlignedBuf::zeroed(2 * BLOCK);
    let error = drive.read_at((BLOCKS - 1) * BLOCK as u64, &mut outside).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn a_crash_takes_what_was_not_flushed() {
    let drive = drive(1);
    write(&drive, 0, 4, 1).unwrap();
    drive.flush().unwrap();
    write(&drive, 2, 4, 2).unwrap();
    let kept = drive.crashed_copy(Crash::KeepAll, 0);
    assert_eq!(blocks(&kept)[..7], [1, 1, 2, 2, 2, 2, 0]);
    drive.crash(Crash::LoseAll);
    assert_eq!(blocks(&drive)[..7], [1, 1, 1, 1, 0, 0, 0]);
    drive.crash(Crash::KeepAll);
    assert_eq!(blocks(&drive)[..7], [1, 1, 1, 1, 0, 0, 0], "came back");
}

#[test]
fn a_crash_loses_tears_and_reorders() {
    let drive = drive(1);
    write(&drive, 0, 8, 1).unwrap();
    drive.flush().unwrap();
    write(&drive, 0, 8, 2).unwrap();
    write(&drive, 4, 8, 3).unwrap();
    let images: Vec<_> =
        (0..200).map(|seed| blocks(&drive.crashed_copy(Crash::Scramble, seed))).collect();
    let any = |wanted: &dyn Fn(&[u8]) -> bool| images.iter().any(|image| wanted(image));
    assert!(any(&|image| image[..4].contains(&1) && image[..4].contains(&2)), "no torn write");
    assert!(any(&|image| image[4] == 3 && image[0] == 1), "no later write before an earlier");
    for image in &images {
        assert!(image[..4].iter().all(|byte| [1, 2].contains(byte)));
        assert!(image[4..8].iter().all(|byte| [1, 2, 3].contains(byte)));
        assert!(image[8..12].iter().all(|byte| [0, 3].contains(byte)));
    }
    let again = blocks(&drive.crashed_copy(Crash::Scramble, 77));
    assert_eq!(again, images[77], "the same seed");
}

#[test]
fn a_full_cache_makes_the_oldest_writes_durable() {
    let drive = SimDevice::with_blocks(BLOCKS * BLOCK as u64, 4096, 2 * BLOCK, 1);
    for at in 0..4 {
        write(&drive, at, 1, 9).unwrap();
    }
    drive.crash(Crash::LoseAll);
    assert_eq!(blocks(&drive)[..5], [9, 9, 0, 0, 0]);
}

#[test]
fn small_blocks_tear_inside_pages() {
    let torn = (0..50).any(|seed| {
        let drive = SimDevice::with_blocks(BLOCK as u64, 512, 1 << 20, seed);
        write(&drive, 0, 1, 5).unwrap();
        drive.crash(Crash::Scramble);
        let bytes = content(&drive);
        bytes.contains(&5) && bytes.contains(&0)
    });
    assert!(torn);
}

#[test]
fn errors_strike_where_and_when_they_were_told() {
    let drive = drive(1);
    let kind = |result: io::Result<()>| result.err().map(|error| error.kind());
    let full = Effect::Error(ErrorKind::StorageFull);
    drive.inject(Fault::next(Operation::Write, full).within(8 * 4096..9 * 4096).after(1));
    assert_eq!(kind(write(&drive, 7, 1, 1)), None);
    assert_eq!(kind(write(&drive, 7, 2, 1)), None, "spared");
    assert_eq!(kind(write(&drive, 9, 1, 1)), None);
    assert_eq!(kind(write(&drive, 8, 1, 2)), Some(ErrorKind::StorageFull));
    assert_eq!(kind(write(&drive, 8, 1, 3)), None);
    assert_eq!(blocks(&drive)[7..10], [1, 3, 1]);
    drive.inject(Fault::always(Operation::Read, Effect::Error(ErrorKind::TimedOut)));
    let mut buf = AlignedBuf::zeroed(BLOCK);
    for _ in 0..3 {
        assert_eq!(kind(drive.read_at(0, &mut buf)), Some(ErrorKind::TimedOut));
    }
    drive.clear_faults();
    assert_eq!(kind(drive.read_at(0, &mut buf)), None);
    drive.inject(Fault::next(Operation::Flush, Effect::Error(ErrorKind::Other)));
    assert_eq!(kind(drive.flush()), Some(ErrorKind::Other));
    assert_eq!(drive.counts().faults, 5);
}

#[test]
fn bits_flip_for_one_read_or_for_good() {
    let drive = drive(3);
    let differing = |drive: &SimDevice| -> u32 {
        content(drive).iter().map(|byte| (byte ^ 0xff).count_ones()).sum()
    };
    write(&drive, 0, BLOCKS as usize, 0xff).unwrap();
    drive.inject(Fault::next(Operation::Read, Effect::Flip));
    assert_eq!(differing(&drive), 1);
    assert_eq!(differing(&drive), 0);
    drive.inject(Fault::next(Operation::Write, Effect::Flip));
    write(&drive, 5, 1, 0xff).unwrap();
    assert_eq!((differing(&drive), differing(&drive)), (1, 1));
    drive.tamper(|bytes| bytes[0] = 0);
    drive.crash(Crash::LoseAll);
    assert_eq!(differing(&drive), 9);
}

#[test]
fn lies_are_told_with_success() {
    let drive = drive(4);
    drive.inject(Fault::next(Operation::Write, Effect::Lose));
    write(&drive, 0, 4, 1).unwrap();
    assert_eq!(blocks(&drive)[..4], [0; 4]);
    drive.inject(Fault::next(Operation::Write, Effect::Tear));
    write(&drive, 0, 32, 1).unwrap();
    let stored = blocks(&drive).iter().filter(|&&byte| byte == 1).count();
    assert!((1..32).contains(&stored), "{stored}");
    drive.inject(Fault::next(Operation::Write, Effect::Partial(ErrorKind::Other)));
    assert!(write(&drive, 32, 32, 2).is_err());
    assert!(blocks(&drive).contains(&2));
    drive.inject(Fault::next(Operation::Flush, Effect::Lose));
    drive.flush().unwrap();
    drive.crash(Crash::LoseAll);
    assert_eq!(blocks(&drive), [0; BLOCKS as usize]);
}

#[test]
fn without_power_nothing_works_until_the_crash() {
    let drive = drive(5);
    drive.inject(Fault::next(Operation::Write, Effect::PowerOff).after(1));
    write(&drive, 0, 1, 1).unwrap();
    assert!(write(&drive, 1, 8, 2).is_err());
    assert!(!drive.is_powered());
    assert!(drive.flush().is_err() && drive.read_at(0, &mut AlignedBuf::zeroed(BLOCK)).is_err());
    drive.crash(Crash::KeepAll);
    assert!(drive.is_powered());
    let after = blocks(&drive);
    assert_eq!(after[0], 1);
    assert!(after[1..9].contains(&2) && after[1..9].contains(&0), "cut off in the middle");
}

#[test]
fn the_hook_sees_every_operation() {
    let drive = drive(6);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    drive.before_each(move |transfer| {
        log.lock().unwrap().push((transfer.operation, transfer.offset, transfer.bytes));
    });
    write(&drive, 2, 1, 1).unwrap();
    drive.flush().unwrap();
    let expected = [(Operation::Write, 8192, 4096), (Operation::Flush, 0, 0)];
    assert_eq!(*seen.lock().unwrap(), expected);
}

/// A run of everything at once, in full; only the seed may decide how it ends.
fn chaos(seed: u64) -> (Vec<u8>, Vec<u64>, u64) {
    let drive = Arc::new(drive(seed));
    let mut random = Random(seed);
    let mut queue = SimQueue::new(&[Arc::clone(&drive) as Arc<dyn Drive>], seed).unwrap();
    let (mut done, mut buf) = (Vec::new(), AlignedBuf::zeroed(BLOCK));
    for token in 0..500 {
        let block = random.below(BLOCKS);
        stamp(&mut buf, token);
        // Some of these fail or are lost, which is what is wanted.
        let _ = drive.write_at(block * BLOCK as u64, &buf);
        let buf = AlignedBuf::zeroed(BLOCK);
        queue.submit(Read { device: 0, offset: block * BLOCK as u64, buf, token });
        queue.flush().unwrap();
        let effects = [Effect::Flip, Effect::Tear, Effect::Error(ErrorKind::Other), Effect::Lose];
        let operations = [Operation::Read, Operation::Write, Operation::Flush];
        let effect = effects[random.below(4) as usize];
        match random.below(8) {
            0 => drive.inject(Fault::next(operations[random.below(3) as usize], effect)),
            1 => drive.crash(Crash::Scramble),
            2 => drop(drive.flush()),
            3 | 4 => queue.reap(&mut done),
            _ => {}
        }
    }
    drive.clear_faults();
    let tokens = done.iter().map(|done| done.token).collect();
    (content(&drive), tokens, drive.counts().faults)
}

#[test]
fn a_seed_repeats_a_run() {
    let first = chaos(11);
    assert!(first == chaos(11));
    assert!(first != chaos(12));
    assert!(first.2 > 20, "{} faults", first.2);
}

#[test]
fn the_simulated_queue_gives_every_read_back_once_in_any_order() {
    let drive = drive(8);
    let mut buf = AlignedBuf::zeroed(BLOCK);
    for block in 0..BLOCKS {
        stamp(&mut buf, block);
        drive.write_at(block * BLOCK as u64, &buf).unwrap();
    }
    let mut queue = SimQueue::new(&[Arc::new(drive)], 8).unwrap();
    for token in 0..BLOCKS {
        let buf = AlignedBuf::zeroed(BLOCK);
        queue.submit(Read { device: 0, offset: token * BLOCK as u64, buf, token });
    }
    let mut done = Vec::new();
    queue.reap(&mut done);
    assert!(done.is_empty(), "not flushed yet");
    queue.flush().unwrap();
    let mut reaps = 0;
    while queue.in_flight() > 0 {
        queue.reap(&mut done);
        reaps += 1;
    }
    assert!(reaps > 1);
    assert!(done.iter().all(|done| done.result.is_ok() && is_stamped(&done.buf, done.token)));
    let mut tokens: Vec<_> = done.iter().map(|done| done.token).collect();
    assert!(!tokens.is_sorted());
    tokens.sort_unstable();
    assert_eq!(tokens, (0..BLOCKS).collect::<Vec<_>>());
}

/// Threads serve a drive without a descriptor, whatever engine the others have.
#[test]
fn real_queues_read_simulated_drives_by_the_pool() {
    let drive = drive(9);
    write(&drive, 1, 1, 4).unwrap();
    drive.inject(Fault::always(Operation::Read, Effect::Error(ErrorKind::Other)).within(0..4096));
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    drive.before_each(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let devices: [Arc<dyn Drive>; 1] = [Arc::new(drive)];
    let mut queue = WorkerQueue::open(&devices, Engine::IoUring, 4).unwrap();
    assert_eq!((queue.path(0), queue.uses_io_uring()), (Some(ReadPath::Threads), false));
    for token in 0..2 {
        let buf = AlignedBuf::zeroed(BLOCK);
        queue.submit(Read { device: 0, offset: token * BLOCK as u64, buf, token });
    }
    queue.flush().unwrap();
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.reap(&mut done);
        std::thread::yield_now();
    }
    done.sort_by_key(|done| done.token);
    assert!(done[0].result.is_err());
    assert!(done[1].result.is_ok() && done[1].buf.iter().all(|&byte| byte == 4));
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}
