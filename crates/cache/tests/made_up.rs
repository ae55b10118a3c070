//! Drives whose pages check out and say what can't be, as somebody may write them: no start panics, or takes memory
//! without end.

mod common;

use common::machine::{Machine, config, key, value};
use crc_fast::{CrcAlgorithm, Digest};
use terrace_cache::{Durability, StateFile};

const RECORDS: u64 = 3000;
const PAGE: usize = 4096;

/// As in `segments/layout.rs`.
fn checksum(at: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!at));
    digest.update(bytes);
    digest.finalize() as u32
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// A machine that was strict, stopped cleanly, and lost its state; `change` has changed what its drive holds.
fn start_after(change: impl FnOnce(&mut [u8])) -> Machine {
    start_after_versions(3, change)
}

/// As [`start_after`], of as many versions of all records.
fn start_after_versions(versions: u64, change: impl FnOnce(&mut [u8])) -> Machine {
    let mut machine = Machine::new(strict());
    for version in 1..=versions {
        for n in 0..RECORDS {
            assert!(machine.client.set(&key(n), &value(n, version)));
        }
        machine.client.settle();
    }
    machine.stop_cleanly();
    let mut remains = machine.remains();
    remains.state = StateFile::volatile().expect("memory").into();
    remains.device.tamper(change);
    let machine = machine.again(remains);
    machine.recover();
    machine
}

fn strict() -> terrace_cache::Config {
    terrace_cache::Config { durability: Durability::Power, ..config() }
}

fn found(machine: &Machine) -> usize {
    (0..RECORDS).filter(|&n| machine.client.get(&key(n)).is_some()).count()
}

fn is_cold_and_works(mut machine: Machine) {
    assert_eq!(machine.client.cache.notes().len(), 1);
    assert_eq!(found(&machine), 0);
    for n in 0..RECORDS {
        assert!(machine.client.set(&key(n), &value(n, 9)));
    }
    machine.client.settle();
    assert_eq!(found(&machine), RECORDS as usize);
}

#[test]
fn nothing_made_up_is_all_there() {
    let machine = start_after(|_| {});
    assert_eq!((machine.client.cache.notes().len(), found(&machine)), (0, RECORDS as usize));
}

#[test]
fn a_place_that_the_tier_does_not_have_is_no_place() {
    // Kind, slot 2^20 - 1, and the rest that the kind wants.
    let words =
        [(1, 5), (2, 7), (3, 7), (4, 0), (5, 1), (5, 2), (5, 4), (5, 5), (5, 4 | 0xfffff << 3)];
    for (kind, rest) in words {
        let slot = if rest > 7 { 0 } else { 0xfffff_u64 };
        let word = kind << 61 | slot << 41 | rest;
        is_cold_and_works(start_after(|bytes| {
            for page in bytes.chunks_exact_mut(PAGE).filter(|page| &page[4..8] == b"KLOG") {
                put(page, 32, &u64::to_le_bytes(word));
                // It follows any page.
                put(page, 24, &[0; 4]);
                let number = u64::from_le_bytes(page[16..24].try_into().expect("8 bytes"));
                let crc = checksum(number as u32, &page[8..]);
                put(page, 0, &crc.to_le_bytes());
            }
        }));
    }
}

#[test]
fn a_log_that_begins_nowhere_is_no_log() {
    for tail in [u64::MAX, u64::MAX / 8, 1 << 50, 1 << 40, 3] {
        is_cold_and_works(start_after(|bytes| {
            for at in [16 << 10, 32 << 10] {
                let directory = &mut bytes[at..at + 4 * PAGE];
                put(directory, 32, &u64::to_le_bytes(tail));
                let crc = checksum(0, &directory[16..]);
                put(directory, 12, &crc.to_le_bytes());
            }
        }));
    }
    // Slots that the tier does not have.
    is_cold_and_works(start_after(|bytes| {
        for at in [16 << 10, 32 << 10] {
            let directory = &mut bytes[at..at + 4 * PAGE];
            directory[64..].fill(0xff);
            let crc = checksum(0, &directory[16..]);
            put(directory, 12, &crc.to_le_bytes());
        }
    }));
}

/// A log whose oldest pages are gone says which page was ahead of its first.
#[test]
fn a_page_that_follows_another_one_does_not_begin_a_log() {
    let change = |link_of: fn(u32) -> u32| {
        start_after_versions(30, |bytes| {
            let mut cleaned = false;
            for at in [16 << 10, 32 << 10] {
                let directory = &mut bytes[at..at + 4 * PAGE];
                let link = u32::from_le_bytes(directory[44..48].try_into().expect("4 bytes"));
                cleaned |= link != 0 && directory[32] != 0;
                put(directory, 44, &link_of(link).to_le_bytes());
                let crc = checksum(0, &directory[16..]);
                put(directory, 12, &crc.to_le_bytes());
            }
            assert!(cleaned, "all pages are still there");
        })
    };
    let machine = change(|link| link);
    assert_eq!((machine.client.cache.notes().len(), found(&machine)), (0, RECORDS as usize));
    is_cold_and_works(change(|link| link ^ 1));
}

#[test]
fn an_index_larger_than_memory_does_not_come_back() {
    let machine = start_after(|bytes| {
        let at =
            (0..bytes.len() / 8).map(|n| n * 8).filter(|&at| bytes[at..].starts_with(b"TRCFOOT\0"));
        for header in at.collect::<Vec<_>>() {
            let count = |at: usize| {
                u32::from_le_bytes(bytes[header + at..][..4].try_into().expect("4 bytes")) as usize
            };
            let pages = (count(28) & 0xffff) * 2;
            let straddlers = if bytes[header + 31] & 1 != 0 { pages } else { 0 };
            let length = 128 * 4 + count(24) * 5 + pages + straddlers + count(32) * 8 + 64;
            let footer = &mut bytes[header + 64 - length..header + 64];
            let at = length - 64;
            put(footer, at + 56, &u32::MAX.to_le_bytes());
            let crc = checksum(checksum(0, &footer[..at + 12]), &footer[at + 16..]);
            put(footer, at + 12, &crc.to_le_bytes());
        }
    });
    assert_eq!(found(&machine), 0, "the checksums of the footers do not fit");
    assert!(machine.client.cache.stats().memory.tier_index < 64 << 20);
}
