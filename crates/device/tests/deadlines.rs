//! A drive that does not answer keeps no caller for longer than the deadline, and no other drive at all.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
#[path = "common/queue.rs"]
mod queue;

use common::{BLOCK, Scratch, is_stamped, stamped};
use queue::{DEPTH, Silent, Waiter, read};
use std::io::{self, PipeWriter, Write};
use std::sync::Arc;
use std::time::Duration;
use terrace_device::{
    Done, Drive, Engine, ErrorClass, Health, Read, ReadQueue, WorkerQueue, is_unanswered,
};

/// Of the clock that the tests tell.
const BEGIN: u32 = 1_700_000_000;

/// A drive that answers nothing, by a ring or by threads, and a file.
struct Drives {
    all: [Arc<dyn Drive>; 2],
    silent: Arc<Silent>,
    writer: PipeWriter,
    _scratch: Scratch,
}

impl Drives {
    fn new() -> Self {
        let scratch = Scratch::new();
        let (reader, writer) = io::pipe().unwrap();
        let silent = Arc::new(Silent { pipe: Some(reader), ..Silent::default() });
        let all = [Arc::clone(&silent) as Arc<dyn Drive>, stamped(&scratch, 64)];
        Self { all, silent, writer, _scratch: scratch }
    }

    /// Answers one read of a ring, and all of threads.
    fn answer(&self) {
        (&self.writer).write_all(&[0xaa; BLOCK]).unwrap();
        *self.silent.is_open.lock().unwrap() = true;
        self.silent.opened.notify_all();
    }

    fn health(&self) -> Health {
        self.silent.health()
    }

    /// A queue over both, where this engine can be had.
    fn queue(&self, engine: Engine) -> Option<WorkerQueue> {
        match WorkerQueue::open(&self.all, engine, DEPTH) {
            Ok(mut queue) => {
                queue.give_up_late(BEGIN);
                Some(queue)
            }
            Err(error) if engine == Engine::IoUring => {
                println!("skipped: deadlines: io_uring: {error}");
                None
            }
            Err(error) => panic!("{engine}: {error}"),
        }
    }
}

/// Reads of the drive without an answer, with tokens from 1000 on.
fn ask(queue: &mut WorkerQueue, reads: u64) {
    (0..reads).for_each(|at| queue.submit(Read { token: 1000 + at, ..read(0, at, 1) }));
    queue.flush().unwrap();
}

/// Reaps without waiting; all must be unanswered.
fn unanswered(queue: &mut WorkerQueue) -> usize {
    let mut done = Vec::new();
    queue.reap(&mut done);
    for Done { buf, result, .. } in &done {
        assert!(is_unanswered(result.as_ref().unwrap_err()));
        assert_eq!(buf.len(), BLOCK);
    }
    done.len()
}

/// A read of the file comes whatever the other drive does.
fn read_file(queue: &mut WorkerQueue) {
    let mut done = Vec::new();
    queue.submit(Read { token: 7, ..read(1, 7, 1) });
    while done.iter().all(|done: &Done| done.token != 7) {
        queue.wait(&mut done, Duration::from_secs(60)).unwrap();
    }
    assert!(done.iter().any(|done| done.token == 7 && is_stamped(&done.buf, 7)));
}

#[test]
fn reads_without_answer_come_back_after_the_deadline() {
    const READS: u64 = DEPTH as u64 / 4;
    for engine in [Engine::IoUring, Engine::Pool] {
        let drives = Drives::new();
        let Some(mut queue) = drives.queue(engine) else { continue };
        ask(&mut queue, READS);
        queue.give_up_late(BEGIN + 1);
        queue.give_up_late(BEGIN + 3);
        assert_eq!((unanswered(&mut queue), drives.health()), (0, Health::Working), "{engine}");
        read_file(&mut queue);
        queue.give_up_late(BEGIN + 4);
        assert_eq!(queue.in_flight(), READS as usize, "they are still to be reaped");
        assert_eq!(unanswered(&mut queue), READS as usize, "{engine}");
        assert_eq!((queue.in_flight(), queue.holds_given_up()), (0, true));
        assert_eq!(drives.silent.errors().of(ErrorClass::Unresponsive), READS);
        assert!(drives.health().unresponsive_for() > Duration::ZERO);
        // From now on reads fail at once, but for one in a tick.
        ask(&mut queue, 10);
        assert_eq!(unanswered(&mut queue), 10, "{engine}");
        queue.give_up_late(BEGIN + 5);
        ask(&mut queue, 10);
        assert_eq!((unanswered(&mut queue), queue.in_flight()), (9, 1), "{engine}");
        read_file(&mut queue);
        // An answer ends it, also one to a read that was given up.
        drives.answer();
        let mut waiter = Waiter::new(&queue, false);
        let mut done = Vec::new();
        while drives.health() != Health::Working {
            waiter.wait_and_reap(&mut queue, &mut done);
        }
        assert!(done.iter().all(|done| done.token == 1000), "what was given up comes once");
        ask(&mut queue, 10);
        assert_eq!(unanswered_of(&mut queue), 0, "{engine}: its reads are under way again");
    }
}

#[test]
fn unresponsive_drive_is_given_no_more_reads_than_its_share() {
    for engine in [Engine::IoUring, Engine::Pool] {
        let drives = Drives::new();
        let Some(mut queue) = drives.queue(engine) else { continue };
        ask(&mut queue, 1);
        for tick in 11..200 {
            queue.give_up_late(BEGIN + tick);
            ask(&mut queue, 1);
            unanswered(&mut queue);
        }
        let mut done = Vec::new();
        queue.give_up_late(BEGIN + 300);
        queue.reap(&mut done);
        // In a ring of which the drive had all, this would wait for ever.
        read_file(&mut queue);
        drives.answer();
    }
}

#[test]
fn workers_learn_of_an_unresponsive_drive_from_each_other() {
    for engine in [Engine::IoUring, Engine::Pool] {
        let drives = Drives::new();
        let Some(mut first) = drives.queue(engine) else { continue };
        let Some(mut second) = drives.queue(engine) else { continue };
        ask(&mut first, 1);
        first.give_up_late(BEGIN + 1);
        for queue in [&mut first, &mut second] {
            queue.give_up_late(BEGIN + 4);
        }
        assert_eq!(unanswered(&mut first), 1);
        ask(&mut second, 5);
        assert_eq!(unanswered(&mut second), 5, "{engine}: none is kept waiting");
        drives.answer();
        let (mut waiter, mut done) = (Waiter::new(&first, false), Vec::new());
        while drives.health() != Health::Working {
            waiter.wait_and_reap(&mut first, &mut done);
        }
        second.give_up_late(BEGIN + 5);
        ask(&mut second, 5);
        assert_eq!(unanswered_of(&mut second), 0, "{engine}: they are under way");
    }
}

/// How many of the reads that are reaped without waiting were not answered.
fn unanswered_of(queue: &mut WorkerQueue) -> usize {
    let mut done = Vec::new();
    queue.reap(&mut done);
    done.iter().filter(|done| done.result.as_ref().is_err_and(is_unanswered)).count()
}
