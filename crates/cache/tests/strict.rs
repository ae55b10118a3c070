//! Strict mode on drives that refuse writes: what can't be made durable is not acknowledged, and what
//! was acknowledged is not undone by a loss of power.

mod common;

use common::machine::{config, key, value};
use common::{Client, RamDevice};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_cache::{Config, Durability, StateFile};
use terrace_device::Device;

/// More than stays in DRAM.
const RECORDS: u64 = 6000;

fn open(devices: &[Arc<RamDevice>], boot: u8) -> Client {
    let state = Arc::new(StateFile::volatile().expect("memory"));
    let config =
        Config { durability: Durability::Power, state: Some(state), boot: [boot; 16], ..config() };
    let devices = devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>);
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
        assert!(client.cache.plan_flush(2_000_000).is_err());
        client.settle();
    }
    assert!(client.get(&key(1)).is_none(), "it took effect all the same");
}

/// Whichever of the two dies: the other one tells the next start, which is cold then.
#[test]
fn one_dead_drive_of_two_costs_the_warm_start_and_not_the_service() {
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
        assert!(!client.cache.notes().is_empty(), "a cold start says so");
        assert!((0..RECORDS).all(|n| client.get(&key(n)).is_none()), "nothing old is back");
    }
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
    devices[0].fail_flushes.store(false, Ordering::Relaxed);
    client.settle();
    client.session.make_durable().expect("once the superblock says so");
    let client = open(&[devices[0].copy()], 2);
    while client.cache.recover() {}
    assert!((0..RECORDS).all(|n| client.get(&key(n)).is_none()), "nothing is back");
    assert!(!client.cache.notes().is_empty(), "a cold start says so");
}
