//! Strict mode on drives that refuse writes: what can't be made durable is not acknowledged, and what
//! was acknowledged is not undone by a loss of power.

mod common;

use common::machine::{config, key, value};
use common::{Client, RamDevice};
use std::cell::RefCell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_cache::{Config, Durability, StateFile, set_crash_hook};
use terrace_device::Drive;
use terrace_device::sim::{Crash, Effect, Fault, Operation, SimDevice};

/// More than stays in DRAM.
const RECORDS: u64 = 6000;

fn open<D: Drive + 'static>(devices: &[Arc<D>], boot: u8) -> Client {
    let state = Arc::new(StateFile::volatile().expect("memory"));
    let config =
        Config { durability: Durability::Power, state: Some(state), boot: [boot; 16], ..config() };
    let devices = devices.iter().map(|device| Arc::clone(device) as Arc<dyn Drive>);
    Client::open(config, devices.collect())
}

fn fill(client: &mut Client, version: u64) {
    for n in 0..RECORDS {
        assert!(client.set(&key(n), &value(n, version)));
    }
    client.settle();
}

#[test]
fn a_flush_that_no_drive_takes_is_not_acknowledged() {
    let device = RamDevice::new(8 << 20);
    let mut client = open(&[Arc::clone(&device)], 1);
    fill(&mut client, 1);
    client.cache.flush_all().expect("the drive works");
    client.cache.plan_flush(2_000_000).expect("the drive works");
    fill(&mut client, 2);
    device.fail_writes.store(true, Ordering::Relaxed);
    for _ in 0..10 {
        assert!(client.cache.flush_all().is_err());
        for _ in 0..2 {
            assert!(client.cache.plan_flush(2_000_000).is_err(), "what was asked is not told");
        }
        client.settle();
    }
    assert!(client.get(&key(1)).is_none(), "it took effect all the same");
}

/// Who planned it was answered long before it was due.
#[test]
fn a_planned_flush_outlives_a_power_loss_in_its_midst() {
    const DUE: u32 = 2_000_000;
    let drive = Arc::new(SimDevice::with_blocks(16 << 20, 4096, 16 << 20, 1));
    let mut client = open(&[Arc::clone(&drive)], 1);
    fill(&mut client, 1);
    client.session.make_durable().expect("the drive works");
    client.cache.plan_flush(DUE).expect("the drive works");
    let left = Rc::new(RefCell::new(None));
    let copy = Rc::clone(&left);
    set_crash_hook(Some(Box::new(move |name| {
        if name == "superblocks: one is written" {
            copy.borrow_mut().get_or_insert_with(|| drive.crashed_copy(Crash::LoseAll, 1));
        }
    })));
    // As when it is due.
    client.cache.flush_all().expect("the drive works");
    set_crash_hook(None);
    let client = open(&[Arc::new(left.take().expect("it comes by"))], 2);
    while client.cache.recover() {}
    assert_eq!(client.cache.notes(), &[]);
    let back = (0..RECORDS).filter(|&n| client.get(&key(n)).is_some()).count();
    assert!(client.cache.flush_due() == DUE || back == 0, "{back} records are back for good");
}

/// Whichever of the two dies: the other one has a roster without it, and its own records.
#[test]
fn one_dead_drive_of_two_costs_its_own_records_and_not_the_service() {
    for dead in 0..2 {
        let devices = [RamDevice::new(8 << 20), RamDevice::new(8 << 20)];
        let mut client = open(&devices, 1);
        fill(&mut client, 1);
        client.session.make_durable().expect("the drives work");
        devices[dead].fail_writes.store(true, Ordering::Relaxed);
        let mut acknowledged = 0;
        for version in 2..12 {
            fill(&mut client, version);
            acknowledged += u64::from(client.session.make_durable().is_ok());
        }
        assert!(acknowledged > 5, "drive {dead} is dead: {acknowledged} of 10 rounds");
        client.cache.flush_all().expect("the other drive tells");
        devices[dead].fail_writes.store(false, Ordering::Relaxed);
        let copies = [devices[0].copy(), devices[1].copy()];
        let client = open(&copies, 2);
        while client.cache.recover() {}
        assert_eq!(client.cache.notes().len(), 1, "a tier that starts empty is told");
        assert!((0..RECORDS).all(|n| client.get(&key(n)).is_none()), "all was flushed");
    }
}

/// Its drive failed a flush, and works again.
fn expect_cold_after_power_loss(device: &Arc<RamDevice>, mut client: Client) {
    device.fail_flushes.store(false, Ordering::Relaxed);
    client.settle();
    client.session.make_durable().expect("once the superblock says so");
    let client = open(&[device.copy()], 2);
    while client.cache.recover() {}
    assert!((0..RECORDS).all(|n| client.get(&key(n)).is_none()), "nothing is back");
    assert!(!client.cache.notes().is_empty(), "a cold start says so");
}

/// A drive that could not keep what it was written says so once, and may have dropped it: what it says later is
/// not to be believed.
#[test]
fn after_a_failed_flush_a_power_loss_is_cold() {
    let devices = [RamDevice::new(8 << 20)];
    let mut client = open(&devices, 1);
    fill(&mut client, 1);
    client.session.make_durable().expect("the drive works");
    devices[0].fail_flushes.store(true, Ordering::Relaxed);
    fill(&mut client, 2);
    assert!(client.session.make_durable().is_err(), "not acknowledged");
    expect_cold_after_power_loss(&devices[0], client);
}

/// It may have dropped pages of the log, whatever the flush was for.
#[test]
fn after_a_failed_flush_of_a_superblock_a_power_loss_is_cold() {
    let devices = [RamDevice::new(8 << 20)];
    let mut client = open(&devices, 1);
    fill(&mut client, 1);
    client.session.make_durable().expect("the drive works");
    fill(&mut client, 2);
    devices[0].fail_flushes.store(true, Ordering::Relaxed);
    assert!(client.cache.plan_flush(2_000_000).is_err(), "not acknowledged");
    expect_cold_after_power_loss(&devices[0], client);
}

/// What was written and not flushed reaches a drive in any order, or not at all: that costs what nobody was
/// promised, and not the rest.
#[test]
fn what_nobody_was_promised_may_be_lost_in_any_order() {
    (0..40).for_each(|seed| lose_power_twice(512, 3, seed));
}

/// What of it got there is not to be believed when the log has gone on in another way, and the power is lost again.
#[test]
fn pages_of_a_log_that_ended_otherwise_do_not_come_back() {
    (100..180).for_each(|seed| lose_power_twice(4096, 50, seed));
}

/// Between the losses every so many records are deleted.
fn lose_power_twice(block_bytes: u32, every: u64, seed: u64) {
    const DRIVE: u64 = 16 << 20;
    let first = Arc::new(SimDevice::with_blocks(DRIVE, block_bytes, DRIVE as usize, seed));
    let mut client = open(&[Arc::clone(&first)], 1);
    fill(&mut client, 1);
    client.session.make_durable().expect("the drive works");
    fill(&mut client, 2);

    let second = Arc::new(first.crashed_copy(Crash::Scramble, seed));
    let mut client = open(&[Arc::clone(&second)], 2);
    while client.cache.recover() {}
    assert_eq!(client.cache.notes(), &[], "seed {seed}");
    for n in (0..RECORDS).filter(|n| n % every == 0) {
        client.delete(&key(n));
    }
    client.session.make_durable().expect("the drive works");
    let known: Vec<_> = (0..RECORDS).map(|n| version_of(&client, n)).collect();

    let third = Arc::new(second.crashed_copy(Crash::Scramble, seed));
    let client = open(&[third], 3);
    while client.cache.recover() {}
    assert_eq!(client.cache.notes(), &[], "seed {seed}");
    for (n, known) in (0..RECORDS).zip(known) {
        let found = version_of(&client, n);
        assert!(found.is_none() || found == known, "seed {seed}: {n} is {found:?}, was {known:?}");
    }
}

fn version_of(client: &Client, n: u64) -> Option<u64> {
    let found = client.get(&key(n))?.value;
    Some((1..3).find(|&version| found == value(n, version)).expect("one of ours"))
}

/// Pages that were durable and can't be read are missed, and so is a directory.
#[test]
fn a_log_that_can_not_be_read_is_not_taken_for_a_shorter_one() {
    for directory in [None, Some(16 << 10), Some(32 << 10)] {
        let drive = Arc::new(SimDevice::new(16 << 20, 1));
        let mut client = open(&[Arc::clone(&drive)], 1);
        fill(&mut client, 1);
        client.session.make_durable().expect("the drive works");
        (0..RECORDS).for_each(|n| _ = client.delete(&key(n)));
        client.session.make_durable().expect("the drive works");
        let drive = Arc::new(drive.crashed_copy(Crash::LoseAll, 1));
        let mut last = 0;
        drive.tamper(|bytes| {
            let pages = bytes.chunks_exact(4096).enumerate();
            let logs = pages.filter(|(_, page)| &page[4..8] == b"KLOG");
            let newest = logs.max_by_key(|(_, page)| page[16..24].iter().rev().collect::<Vec<_>>());
            last = newest.expect("a log").0 as u64 * 4096;
        });
        let (at, error) = (directory.unwrap_or(last), Effect::Error(ErrorKind::Other));
        drive.inject(Fault::always(Operation::Read, error).within(at..at + 1));
        let client = open(&[drive], 2);
        while client.cache.recover() {}
        assert!((0..RECORDS).all(|n| client.get(&key(n)).is_none()), "what was deleted is back");
        assert!(
            client.cache.notes()[0].text().contains("can't be read"),
            "{:?}",
            client.cache.notes()
        );
    }
}
