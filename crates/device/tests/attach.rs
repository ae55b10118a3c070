//! One queue over drives that are read in different ways, and drives that come and go.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
#[path = "common/queue.rs"]
mod queue;

use common::{BLOCK, Scratch, is_stamped, stamped};
use queue::{DEPTH, Silent, Waiter, read, with_each};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_device::sim::SimDevice;
use terrace_device::{AlignedBuf, Done, Drive, Engine, Read, ReadPath, ReadQueue, WorkerQueue};

/// A file, a drive that threads read, and one that the worker reads, behind one event.
fn mixed(scratch: &Scratch) -> [Arc<dyn Drive>; 3] {
    let of_threads = Arc::new(SimDevice::new(1 << 20, 1));
    let of_the_worker = Arc::new(SimDevice::new(1 << 20, 2).synchronous());
    for (drive, byte) in [(&of_threads, 0x11), (&of_the_worker, 0x22)] {
        let mut block = AlignedBuf::zeroed(BLOCK);
        block.fill(byte);
        drive.write_at(0, &block).unwrap();
    }
    [stamped(scratch, 64), of_threads, of_the_worker]
}

#[test]
fn drive_without_descriptor_leaves_io_uring_to_the_others() {
    let scratch = Scratch::new();
    let drives = mixed(&scratch);
    with_each(&drives[..1], |engine, _| {
        let mut queue = WorkerQueue::open(&drives, engine, DEPTH).unwrap();
        let of_file = if engine == Engine::IoUring { ReadPath::IoUring } else { ReadPath::Threads };
        assert_eq!(queue.path(0), Some(of_file));
        assert_eq!(queue.path(1), Some(ReadPath::Threads));
        assert_eq!(queue.path(2), Some(ReadPath::Synchronous));
        assert_eq!(queue.path(3), None);
        for level in [false, true] {
            let mut waiter = Waiter::new(&queue, level);
            for token in 0..300 {
                let device = token as usize % 3;
                let block = if device == 0 { token % 64 } else { 0 };
                let buf = queue.buffer(BLOCK);
                queue.submit(Read { device, offset: block * BLOCK as u64, buf, token });
            }
            queue.flush().unwrap();
            let mut done = Vec::new();
            while queue.in_flight() > 0 {
                waiter.wait_and_reap(&mut queue, &mut done);
            }
            assert_eq!(done.len(), 300);
            for Done { token, buf, result } in done {
                result.unwrap();
                match token % 3 {
                    0 => assert!(is_stamped(&buf, token % 64)),
                    device => assert!(buf.iter().all(|&byte| u64::from(byte) == device * 0x11)),
                }
            }
        }
        // Each alone, by waiting in the queue: nothing of another drive wakes the worker.
        for device in 0..3 {
            let mut done = Vec::new();
            queue.submit(read(device, 0, 1));
            while done.is_empty() {
                queue.wait(&mut done, Duration::from_secs(60)).unwrap();
            }
            assert_eq!((done.len(), queue.in_flight()), (1, 0));
        }
    });
}

#[test]
fn drives_come_and_go_while_others_are_read() {
    let scratches = [Scratch::new(), Scratch::new()];
    let [one, other] = [stamped(&scratches[0], 64), stamped(&scratches[1], 32)];
    let mut marked = AlignedBuf::zeroed(BLOCK);
    marked.fill(0xee);
    other.write_at(0, &marked).unwrap();
    with_each(&[Arc::clone(&one)], |engine, _| {
        let mut queue = WorkerQueue::open(&[Arc::clone(&one)], engine, DEPTH).unwrap();
        let mut waiter = Waiter::new(&queue, false);
        let mut ask = |queue: &mut WorkerQueue, device| {
            queue.submit(read(device, 0, 1));
            queue.flush().unwrap();
            let mut done = Vec::new();
            while queue.in_flight() > 0 {
                waiter.wait_and_reap(queue, &mut done);
            }
            let Done { buf, result, .. } = done.remove(0);
            result.map(|()| buf[0]).map_err(|error| error.kind())
        };
        let first = stamp_of(0);
        assert_eq!(ask(&mut queue, 0), Ok(first));
        assert_eq!(ask(&mut queue, 1), Err(io::ErrorKind::InvalidInput), "{engine}");
        // More often than a ring has files: numbers grow, files are used again.
        for number in 1..=200 {
            assert_eq!(queue.attach(Arc::clone(&other)).unwrap(), number);
            assert_eq!(queue.path(number), queue.path(0), "{engine}");
            assert_eq!(ask(&mut queue, number), Ok(0xee));
            assert_eq!(ask(&mut queue, 0), Ok(first));
            queue.detach(number);
            assert_eq!(queue.path(number), None);
            assert_eq!(ask(&mut queue, number), Err(io::ErrorKind::NotConnected), "{engine}");
        }
        queue.detach(0);
        queue.detach(0);
        queue.detach(1000);
        assert_eq!(ask(&mut queue, 0), Err(io::ErrorKind::NotConnected), "{engine}");
    });
}

/// The first byte of a stamped block.
fn stamp_of(number: u64) -> u8 {
    let mut block = AlignedBuf::zeroed(BLOCK);
    common::stamp(&mut block, number);
    block[0]
}

#[test]
fn detaching_a_busy_drive_brings_every_read_back() {
    let scratch = Scratch::new();
    let drives = mixed(&scratch);
    with_each(&drives[..1], |engine, _| {
        for detached in 0..3 {
            let mut queue = WorkerQueue::open(&drives, engine, DEPTH).unwrap();
            let mut waiter = Waiter::new(&queue, false);
            // Far above the depth, so that some wait inside; and some that were not flushed.
            (0..600).for_each(|token| {
                queue.submit(Read { token, ..read(token as usize % 3, 0, 1) });
                if token == 400 {
                    queue.flush().unwrap();
                }
            });
            queue.detach(detached);
            let mut done = Vec::new();
            while queue.in_flight() > 0 {
                queue.flush().unwrap();
                waiter.wait_and_reap(&mut queue, &mut done);
            }
            done.sort_by_key(|done| done.token);
            assert!(done.iter().map(|done| done.token).eq(0..600), "{engine}: {detached}");
            let of_others = |done: &&Done| done.token as usize % 3 != detached;
            assert!(done.iter().filter(of_others).all(|done| done.result.is_ok()));
            let kinds = done.iter().filter_map(|done| done.result.as_ref().err());
            assert!(kinds.clone().all(|error| error.kind() == io::ErrorKind::NotConnected));
            assert!(kinds.count() > 0, "{engine}: {detached}");
        }
    });
}

#[test]
fn detaching_a_silent_drive_does_not_wait_for_it() {
    let (reader, writer) = io::pipe().unwrap();
    let scratch = Scratch::new();
    let silent = Arc::new(Silent { pipe: Some(reader), ..Silent::default() });
    let drives: [Arc<dyn Drive>; 2] = [silent.clone(), stamped(&scratch, 64)];
    with_each(&drives, |engine, _| {
        let mut queue = WorkerQueue::open(&drives, engine, 4 * DEPTH).unwrap();
        let mut waiter = Waiter::new(&queue, false);
        (0..u64::from(DEPTH)).for_each(|block| queue.submit(read(0, block, 1)));
        queue.flush().unwrap();
        let start = Instant::now();
        queue.detach(0);
        assert!(start.elapsed() < Duration::from_secs(1), "{engine}");
        let (mut done, mut healthy) = (Vec::new(), 0);
        queue.submit(Read { token: 1000, ..read(1, 7, 1) });
        queue.flush().unwrap();
        while healthy == 0 {
            waiter.wait_and_reap(&mut queue, &mut done);
            for done in done.drain(..).filter(|done| done.token == 1000) {
                assert!(done.result.is_ok() && is_stamped(&done.buf, 7), "{engine}");
                healthy += 1;
            }
        }
        (&writer).write_all(&[0xaa; 2 * BLOCK]).unwrap();
    });
    *silent.is_open.lock().unwrap() = true;
    silent.opened.notify_all();
}
