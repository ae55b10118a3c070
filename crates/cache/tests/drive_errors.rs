//! Errors of drives have a class, in the statistics of their tier and in why it was given up.

mod common;

use common::Client;
use std::sync::Arc;
use std::time::Duration;
use terrace_cache::{Config, Tuning};
use terrace_device::sim::{Effect, Fault, Operation, SimDevice};
use terrace_device::{Drive, ErrorClass, Health};

fn config() -> Config {
    let mut config = Config::new(2 << 20);
    config.tuning = Tuning {
        seed: Some(1),
        shards: Some(2),
        segment_bytes: Some(64 << 10),
        ..Tuning::default()
    };
    config
}

/// A cache on a simulated drive that has more than DRAM.
fn open() -> (Arc<SimDevice>, Client) {
    let config = config();
    let drive = Arc::new(SimDevice::new(16 << 20, 1));
    let mut client = Client::open(config, vec![Arc::clone(&drive) as Arc<dyn Drive>]);
    fill(&mut client, 0);
    (drive, client)
}

/// Stores 10,000 records from this number on, as far as they are taken.
fn fill(client: &mut Client, first: u64) {
    for n in first..first + 10_000 {
        client.set(format!("key-{n:08}").as_bytes(), &[n as u8; 300]);
        if n.is_multiple_of(50) {
            client.session.quiesce();
            client.cache.maintain(client.now);
        }
    }
}

#[test]
fn write_errors_have_the_class_that_the_drive_reports() {
    for class in [ErrorClass::NoSpace, ErrorClass::ReadOnly, ErrorClass::Medium, ErrorClass::Gone] {
        let (drive, mut client) = open();
        assert!(client.cache.failures().next().is_none());
        drive.inject(Fault::always(Operation::Write, Effect::Fail(class)));
        if class == ErrorClass::Gone {
            drive.inject(Fault::always(Operation::Read, Effect::Fail(class)));
        }
        fill(&mut client, 10_000);
        let tier = client.cache.stats().tiers.remove(0);
        assert!(tier.failed && tier.write_errors >= 3, "{class}");
        let others = ErrorClass::ALL.into_iter().filter(|other| *other != class);
        assert!(tier.drive_errors.of(class) >= 3, "{class}");
        assert!(others.into_iter().all(|other| tier.drive_errors.of(other) == 0), "{class}");
        let (_, failure) = client.cache.failures().next().expect("it was given up");
        assert_eq!(failure.class, class);
        let health = match class {
            ErrorClass::ReadOnly => "read_only",
            ErrorClass::Gone => "gone",
            _ => "working",
        };
        assert_eq!(tier.health.name(), health, "{class}");
    }
}

#[test]
fn read_errors_have_the_class_that_the_drive_reports() {
    for class in [ErrorClass::Medium, ErrorClass::Gone] {
        let (drive, client) = open();
        drive.inject(Fault::always(Operation::Read, Effect::Fail(class)));
        (0..10_000).for_each(|n| drop(client.get(format!("key-{n:08}").as_bytes())));
        let tier = client.cache.stats().tiers.remove(0);
        assert!(tier.read_errors > 0 && !tier.failed, "{class}");
        assert_eq!(tier.drive_errors.of(class), tier.read_errors, "{class}");
        let (_, errors) = client.cache.drive_errors().next().expect("one tier");
        assert_eq!(errors.classes, tier.drive_errors);
    }
}

#[test]
fn unresponsive_drive_is_no_failed_one() {
    let (drive, mut client) = open();
    drive.fall_silent(Duration::from_secs(77));
    fill(&mut client, 10_000);
    let tier = client.cache.stats().tiers.remove(0);
    assert!(!tier.failed && tier.write_errors == 0);
    assert!(tier.drive_errors.of(ErrorClass::Unresponsive) > 0);
    assert_eq!(tier.health, Health::Unresponsive(Duration::from_secs(77)));
    assert_eq!(tier.unresponsive_seconds, 77);
    drive.fall_silent(Duration::ZERO);
    assert_eq!(client.cache.stats().tiers[0].health, Health::Working);
}

/// Takes no write that begins behind its first 6 MiB, as a file whose blocks are not all there on a full file system.
fn without_space() -> Arc<SimDevice> {
    let drive = Arc::new(SimDevice::new(16 << 20, 2));
    let fault = Fault::always(Operation::Write, Effect::Fail(ErrorClass::NoSpace));
    drive.inject(fault.within(6 << 20..u64::MAX));
    drive
}

/// It goes on with the places that it has, and so it is not given up, and its records are there after a stop.
#[test]
fn drive_without_space_keeps_what_was_written() {
    let drives = [without_space(), Arc::new(SimDevice::new(16 << 20, 3))];
    let devices = || drives.iter().map(|drive| Arc::clone(drive) as Arc<dyn Drive>).collect();
    let mut client = Client::open(config(), devices());
    (0..6).for_each(|round| fill(&mut client, 10_000 * round));
    // Tombstones in the log of each tier.
    (0..60_000).step_by(7).for_each(|n| _ = client.delete(format!("key-{n:08}").as_bytes()));
    client.settle();
    let tiers = client.cache.stats().tiers;
    assert!(!tiers[0].failed && tiers[0].drive_errors.of(ErrorClass::NoSpace) > 10);
    assert!(tiers[0].records > 3000, "{}", tiers[0].records);
    let found = |client: &Client, n| client.get(format!("key-{n:08}").as_bytes()).is_some();
    let there: Vec<u64> = (0..60_000).filter(|&n| found(&client, n)).collect();
    assert!(client.cache.close(client.now, &|| true), "all is written");
    drop(client);
    drives[0].clear_faults();
    let client = Client::open(config(), devices());
    while client.cache.recover() {}
    let back = (0..60_000).filter(|&n| found(&client, n)).collect::<Vec<u64>>();
    assert_eq!(back.len(), there.len());
    assert_eq!(back, there);
}
