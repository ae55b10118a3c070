//! What a remote drive does when its target stalls, goes, comes back, or comes back as another.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use common::{BLOCK, BYTES, Mode, Relay, Target, nqn, open, sim, stamped, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use terrace_device::sim::{Crash, SimDevice};
use terrace_device::{
    AlignedBuf, Done, Drive, Engine, ErrorClass, Read, ReadQueue, WorkerQueue, is_unanswered,
};
use terrace_remote::RemoteDrive;

const AT: u64 = 64 << 10;

/// A target, a relay in front of it, a drive behind both, and a worker's queue over it.
struct Set {
    sim: Arc<SimDevice>,
    nqn: String,
    relay: Relay,
    drive: Arc<RemoteDrive>,
    queue: WorkerQueue,
    tick: u32,
}

impl Set {
    fn new() -> (Self, Target) {
        let (sim, nqn) = (sim(0), nqn());
        let target = Target::of(&sim, &nqn);
        let relay = Relay::to(&target);
        let drive = Arc::new(open(relay.address(), &nqn));
        drive.begin_timing();
        drive.write_at(AT, &stamped(1 << 20, 1)).unwrap();
        let queue =
            WorkerQueue::open(&[Arc::clone(&drive) as Arc<dyn Drive>], Engine::Auto, 32).unwrap();
        let mut set = Self { sim, nqn, relay, drive, queue, tick: 1 };
        set.queue.give_up_late(set.tick);
        assert!(set.reads_right(4), "at first");
        (set, target)
    }

    fn ask(&mut self, reads: u64) {
        for token in 0..reads {
            let buf = AlignedBuf::zeroed(BLOCK);
            self.queue.submit(Read { device: 0, offset: AT + token * BLOCK as u64, buf, token });
        }
        self.queue.flush().unwrap();
    }

    fn take(&mut self, reads: u64) -> Vec<Done> {
        let (mut done, end) = (Vec::new(), Instant::now() + Duration::from_secs(60));
        while done.len() < reads as usize {
            assert!(Instant::now() < end, "{} of {reads} reads came", done.len());
            self.queue.wait(&mut done, Duration::from_millis(100)).unwrap();
        }
        done
    }

    /// Whether reads succeed; those that do must be right.
    fn reads_right(&mut self, reads: u64) -> bool {
        self.ask(reads);
        let whole = stamped(1 << 20, 1);
        let done = self.take(reads);
        for Done { token, buf, result } in &done {
            let at = *token as usize * BLOCK;
            assert!(result.is_err() || buf[..] == whole[at..][..BLOCK], "wrong data");
        }
        done.iter().all(|done| done.result.is_ok())
    }

    fn are_unanswered(&mut self, reads: u64) -> bool {
        self.take(reads).iter().all(|done| done.result.as_ref().is_err_and(is_unanswered))
    }

    /// Whether reads fail at once, without a tick.
    fn fails_at_once(&mut self, reads: u64) -> bool {
        self.ask(reads);
        self.are_unanswered(reads)
    }

    fn comes_back(&mut self) {
        until("reads again", || {
            self.tick += 1;
            self.queue.give_up_late(self.tick);
            thread::sleep(Duration::from_millis(20));
            self.reads_right(8)
        });
        until("working again", || {
            self.drive.unresponsive_for().is_zero() && self.drive.health().name() == "working"
        });
        self.drive.write_at(AT, &stamped(1 << 20, 1)).unwrap();
        assert!(self.reads_right(8));
    }
}

#[test]
fn stalled_target_costs_its_reads_a_second_and_all_is_there_when_it_goes_on() {
    let (mut set, _target) = Set::new();
    set.relay.set(Mode::Hold);
    set.ask(20);
    for _ in 0..4 {
        set.tick += 1;
        set.queue.give_up_late(set.tick);
    }
    assert!(set.are_unanswered(20));
    assert_eq!(set.drive.health().name(), "unresponsive");
    until("the session is lost", || !set.drive.unresponsive_for().is_zero());
    assert!(set.fails_at_once(5));
    let write = set.drive.write_at(AT, &stamped(BLOCK, 1)).unwrap_err();
    assert!(is_unanswered(&write), "{write}");
    set.relay.set(Mode::Pass);
    set.comes_back();
}

#[test]
fn lost_connection_fails_what_is_under_way_at_once() {
    let (mut set, _target) = Set::new();
    set.relay.set(Mode::Hold);
    set.ask(20);
    set.relay.cut();
    assert!(set.are_unanswered(20));
    set.relay.set(Mode::Pass);
    set.comes_back();
}

#[test]
fn connection_that_ends_within_a_pdu_gives_no_wrong_data() {
    let (mut set, _target) = Set::new();
    for bytes in [1, 23, 24, 25, 4000, 4119, 4121, 9000, 50_000] {
        set.relay.cut_after(bytes);
        set.reads_right(20);
        set.comes_back();
    }
}

#[test]
fn target_that_returns_with_its_drive_has_all_and_with_another_has_lost_it() {
    let (mut set, target) = Set::new();
    let before = Arc::new(set.sim.crashed_copy(Crash::KeepAll, 1));
    target.stop();
    until("lost", || !set.drive.unresponsive_for().is_zero());
    assert!(set.fails_at_once(3));
    let target = Target::of(&set.sim, &set.nqn);
    set.relay.redirect(&target);
    set.comes_back();
    // Older than the last association: the mark says so, though all else is the same.
    target.stop();
    let target = Target::of(&before, &set.nqn);
    set.relay.redirect(&target);
    until("given up", || set.drive.health().name() == "gone");
    let error = set.drive.write_at(AT, &stamped(BLOCK, 1)).unwrap_err();
    assert_eq!(ErrorClass::of(&error), ErrorClass::Gone, "{error}");
    set.ask(2);
    assert!(set.take(2).iter().all(|done| done.result.is_err() && done.buf.len() == BLOCK));
}

#[test]
fn empty_smaller_or_changed_namespace_is_not_believed() {
    for change in 0..3 {
        let (set, target) = Set::new();
        target.stop();
        let other = match change {
            0 => common::sim(0),
            1 => Arc::new(SimDevice::with_blocks(BYTES / 2, BLOCK as u32, 0, 7)),
            _ => {
                // A superblock that another server wrote.
                set.sim.tamper(|bytes| bytes[BLOCK] ^= 1);
                Arc::clone(&set.sim)
            }
        };
        let target = Target::of(&other, &set.nqn);
        set.relay.redirect(&target);
        until("given up", || set.drive.health().name() == "gone");
    }
}

#[test]
fn write_that_was_given_up_lands_before_the_next_association_or_never() {
    let (mut set, _target) = Set::new();
    let writing = Arc::clone(&set.drive);
    set.relay.set(Mode::Hold);
    let thread = thread::spawn(move || writing.write_at(AT, &stamped(1 << 20, 99)));
    thread::sleep(Duration::from_millis(50));
    // The target has heard nothing of it yet, and does not learn either that its host has closed the connection.
    set.relay.cut_hosts();
    let error = thread.join().unwrap().unwrap_err();
    assert!(is_unanswered(&error), "{error}");
    // New connections pass what old ones hold back.
    set.relay.hold_old();
    until("a new association", || set.drive.unresponsive_for().is_zero());
    set.drive.write_at(AT, &stamped(1 << 20, 1)).unwrap();
    set.relay.set(Mode::Pass);
    set.relay.release_old();
    thread::sleep(Duration::from_millis(500));
    // The first find their own connection lost. None may find what was written late.
    until("reads again", || set.reads_right(200));
}

#[test]
fn transfers_without_a_deadline_wait_for_the_target() {
    let (sim, nqn) = (sim(0), nqn());
    let target = Target::of(&sim, &nqn);
    let relay = Relay::to(&target);
    let drive = Arc::new(open(relay.address(), &nqn));
    relay.set(Mode::Hold);
    let (writing, is_done) = (Arc::clone(&drive), Arc::new(AtomicBool::new(false)));
    let done = Arc::clone(&is_done);
    let thread = thread::spawn(move || {
        let written = writing.write_at(AT, &stamped(1 << 20, 4));
        done.store(true, Ordering::Relaxed);
        written
    });
    thread::sleep(Duration::from_millis(50));
    relay.cut();
    thread::sleep(Duration::from_millis(300));
    assert!(!is_done.load(Ordering::Relaxed), "it waits");
    relay.set(Mode::Pass);
    thread.join().unwrap().unwrap();
    let mut read = AlignedBuf::zeroed(1 << 20);
    drive.read_at(AT, &mut read).unwrap();
    assert!(read[..] == stamped(1 << 20, 4)[..]);
}

#[test]
fn drive_that_is_closed_while_its_target_is_away_does_not_wait_for_it() {
    let (set, target) = Set::new();
    target.stop();
    until("lost", || !set.drive.unresponsive_for().is_zero());
    let begun = Instant::now();
    set.drive.close();
    assert!(begun.elapsed() < Duration::from_secs(30));
    let error = set.drive.write_at(AT, &stamped(BLOCK, 1)).unwrap_err();
    assert_eq!(ErrorClass::of(&error), ErrorClass::Gone, "{error}");
}
