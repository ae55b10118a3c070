//! Drives of earlier formats, made from present ones.

mod common;

use common::machine::{config, key, value};
use common::{Client, RamDevice};
use crc_fast::{CrcAlgorithm, Digest};
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_cache::{Cache, Config, Durability, OnMismatch, StateFile, Tier};
use terrace_device::Drive;

const PAGE: usize = 4096;
const RECORDS: u64 = 5000;
/// Where the two directories of a log lie, and their length.
const DIRECTORIES: [usize; 2] = [16 << 10, 32 << 10];
const DIRECTORY_BYTES: usize = 4 * PAGE;
/// The epoch that the drives of format 3 say.
const EPOCH: u64 = 7;

fn checksum(seed: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!seed));
    digest.update(bytes);
    digest.finalize() as u32
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// Rewrites a device as format 3 had it: one superblock with place and epoch, a log that is marked with the set.
fn to_format_3(bytes: &mut [u8], tier: u16, tiers: u16) {
    let newest = usize::from(u64_at(&bytes[PAGE..], 144) > u64_at(bytes, 144)) * PAGE;
    let mut superblock = bytes[newest..newest + PAGE].to_vec();
    let set = u64_at(&superblock, 16);
    superblock[128..].fill(0);
    put(&mut superblock, 8, &3u32.to_le_bytes());
    put(&mut superblock, 42, &tier.to_le_bytes());
    put(&mut superblock, 44, &tiers.to_le_bytes());
    put(&mut superblock, 48, &EPOCH.to_le_bytes());
    let crc = checksum(0, &superblock[16..]);
    put(&mut superblock, 12, &crc.to_le_bytes());
    put(bytes, 0, &superblock);
    bytes[PAGE..2 * PAGE].fill(0);
    for at in DIRECTORIES {
        let directory = &mut bytes[at..at + DIRECTORY_BYTES];
        if &directory[..8] == b"TRCKLOG\0" {
            put(directory, 8, &3u32.to_le_bytes());
            put(directory, 16, &set.to_le_bytes());
            let crc = checksum(0, &directory[16..]);
            put(directory, 12, &crc.to_le_bytes());
        }
    }
    // In the order of their numbers, since each has the checksum of the one ahead.
    let is_log = |at: &usize| &bytes[*at + 4..*at + 8] == b"KLOG";
    let pages: BTreeMap<u64, usize> = (0..bytes.len())
        .step_by(PAGE)
        .filter(is_log)
        .map(|at| (u64_at(bytes, at + 16), at))
        .collect();
    let mut checksums = BTreeMap::new();
    for (&number, &at) in &pages {
        let page = &mut bytes[at..at + PAGE];
        put(page, 8, &set.to_le_bytes());
        if u32_at(page, 24) != 0
            && let Some(crc) = checksums.get(&number.wrapping_sub(1))
        {
            put(page, 24, &u32::to_le_bytes(*crc));
        }
        let crc = checksum(number as u32, &page[8..]);
        put(page, 0, &crc.to_le_bytes());
        checksums.insert(number, crc);
    }
}

fn start(drives: &[Arc<RamDevice>], durability: Durability, boot: u8) -> Client {
    let state = Some(Arc::new(StateFile::volatile().expect("memory")));
    let tiers = drives.iter().map(|drive| Arc::clone(drive) as Arc<dyn Drive>).collect();
    let client = Client::open(Config { state, durability, boot: [boot; 16], ..config() }, tiers);
    while client.cache.recover() {}
    client
}

fn assert_holds(client: &Client) {
    for n in 0..RECORDS {
        let found = client.get(&key(n)).map(|found| found.value);
        let expected = (n % 3 != 0).then(|| value(n, n % 2));
        assert_eq!(found, expected, "{n}: {:?}", client.cache.notes());
    }
}

#[test]
fn set_of_format_3_is_warm_in_any_order() {
    for durability in [Durability::Process, Durability::Power] {
        let drives = [RamDevice::new(4 << 20), RamDevice::new(4 << 20)];
        let mut client = start(&drives, durability, 1);
        for version in [0, 1] {
            (0..RECORDS).for_each(|n| assert!(client.set(&key(n), &value(n, version.min(n % 2)))));
            client.settle();
        }
        (0..RECORDS).step_by(3).for_each(|n| assert!(client.delete(&key(n))));
        assert!(client.cache.close(client.now, &|| true));
        drop(client);
        for (tier, drive) in drives.iter().enumerate() {
            drive.tamper(|bytes| to_format_3(bytes, tier as u16, 2));
        }
        for order in [[0, 1], [1, 0]] {
            let drives = order.map(|drive: usize| drives[drive].copy());
            let client = start(&drives, durability, 2);
            assert_holds(&client);
            // It is of the present format from now on.
            assert!(client.cache.close(client.now, &|| true));
            drop(client);
            assert_holds(&start(&drives, durability, 3));
        }
        // One alone is half of the set.
        let one = Config {
            tiers: vec![Tier::new(drives[1].copy() as Arc<dyn Drive>)],
            on_mismatch: OnMismatch::Refuse,
            ..config()
        };
        let refused = Cache::open(one).map(|_| ()).expect_err("refused").to_string();
        assert!(refused.contains("is one of 2 tiers"), "{refused}");
    }
}

/// An older program formats the first page and leaves the second one as it was.
#[test]
fn second_superblock_of_an_earlier_time_is_not_believed() {
    let drive = RamDevice::new(4 << 20);
    let mut client = start(std::slice::from_ref(&drive), Durability::Process, 1);
    (0..RECORDS).for_each(|n| assert!(client.set(&key(n), &value(n, 1))));
    client.settle();
    assert!(client.cache.close(client.now, &|| true));
    drop(client);
    let second = drive.copy();
    drive.tamper(|bytes| to_format_3(bytes, 0, 1));
    drive.tamper(|bytes| {
        // Of another set, and not stopped.
        put(bytes, 16, &99u64.to_le_bytes());
        bytes[72] = 0;
        let crc = checksum(0, &bytes[16..PAGE]);
        put(bytes, 12, &crc.to_le_bytes());
        second.tamper(|old| put(bytes, PAGE, &old[PAGE..2 * PAGE]));
    });
    let client = start(&[drive], Durability::Process, 2);
    assert!((0..RECORDS).all(|n| client.get(&key(n)).is_none()));
    assert!(client.cache.is_cold());
}
