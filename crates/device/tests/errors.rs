//! Errors of drives have a class, whatever reads and writes them.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
#[path = "common/queue.rs"]
mod queue;

use common::{BLOCK, Scratch, stamped};
use queue::{DEPTH, Waiter, read};
use std::sync::Arc;
use terrace_device::sim::{Effect, Fault, Operation, SimDevice};
use terrace_device::{
    AlignedBuf, Drive, Engine, ErrorClass, FileDevice, Health, ReadPath, ReadQueue, WorkerQueue,
};

#[test]
fn every_class_is_counted_whatever_the_operation() {
    for class in ErrorClass::ALL {
        let drive = SimDevice::new(1 << 20, 3);
        let mut buf = AlignedBuf::zeroed(BLOCK);
        for operation in [Operation::Read, Operation::Write, Operation::Flush] {
            drive.inject(Fault::next(operation, Effect::Fail(class)));
        }
        let errors = [
            drive.read_at(0, &mut buf).unwrap_err(),
            drive.write_at(0, &buf).unwrap_err(),
            drive.flush().unwrap_err(),
        ];
        assert!(errors.iter().all(|error| ErrorClass::of(error) == class), "{errors:?}");
        let counts = ErrorClass::ALL.map(|class| drive.errors().of(class));
        assert_eq!((counts[class as usize], counts.iter().sum()), (3, 3));
        drive.write_at(0, &buf).unwrap();
        assert_eq!(drive.health(), Health::Working);
    }
}

/// Reads of a ring go past the drive's own methods: the queue records their errors.
#[test]
fn errors_of_workers_reads_are_counted_once() {
    let scratch = Scratch::new();
    let file = std::fs::OpenOptions::new();
    drop(stamped(&scratch, 64));
    for engine in [Engine::IoUring, Engine::Pool] {
        let drive = Arc::new(FileDevice::open(scratch.path("stamped"), Some(64 * 4096)).unwrap());
        file.clone().write(true).open(scratch.path("stamped")).unwrap().set_len(4096).unwrap();
        let drives = [Arc::clone(&drive) as Arc<dyn Drive>];
        let mut queue = match WorkerQueue::open(&drives, engine, DEPTH) {
            Ok(queue) => queue,
            Err(error) => {
                println!("skipped: errors_of_workers_reads_are_counted_once: {engine}: {error}");
                continue;
            }
        };
        let (mut waiter, mut done) = (Waiter::new(&queue, false), Vec::new());
        (0..64).for_each(|block| queue.submit(read(0, block, 1)));
        queue.flush().unwrap();
        while queue.in_flight() > 0 {
            waiter.wait_and_reap(&mut queue, &mut done);
        }
        let counts = ErrorClass::ALL.map(|class| drive.errors().of(class));
        assert_eq!(counts, [0, 0, 63, 0, 0, 0], "{engine}");
        // By the call that waits in the kernel, too.
        queue.submit(read(0, 5, 1));
        while done.len() < 65 {
            queue.wait(&mut done, std::time::Duration::from_secs(60)).unwrap();
        }
        let counts = ErrorClass::ALL.map(|class| drive.errors().of(class));
        assert_eq!(counts, [0, 0, 64, 0, 0, 0], "{engine}");
    }
}

#[test]
fn errors_of_synchronous_reads_are_counted_once() {
    let drive = Arc::new(SimDevice::new(1 << 20, 3).synchronous());
    drive.inject(Fault::always(Operation::Read, Effect::Fail(ErrorClass::Gone)));
    let drives = [Arc::clone(&drive) as Arc<dyn Drive>];
    let mut queue = WorkerQueue::open(&drives, Engine::Auto, DEPTH).unwrap();
    assert_eq!(queue.path(0), Some(ReadPath::Synchronous));
    queue.submit(read(0, 0, 1));
    let mut done = Vec::new();
    queue.wait(&mut done, std::time::Duration::from_secs(60)).unwrap();
    assert_eq!(ErrorClass::of(done[0].result.as_ref().unwrap_err()), ErrorClass::Gone);
    assert_eq!((drive.errors().of(ErrorClass::Gone), drive.health().name()), (1, "gone"));
}
