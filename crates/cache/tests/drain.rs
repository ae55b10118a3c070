//! Tiers that are drained and removed while the cache runs, and the starts after that.

mod common;

use common::fleet::{DRIVE, End, Fleet, InMemory, RECORDS, state};
use common::machine::{config, key, value};
use common::{Client, RamDevice};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_cache::{DrainError, DrainMode, Durability, Remove, RemoveError, TierState};

#[test]
fn drain_loses_no_record_while_others_have_room() {
    let machine = Fleet::filled().drained(1);
    assert_eq!(machine.found(0), RECORDS);
    let stats = machine.client.cache.stats();
    assert_eq!((stats.evictions, stats.tiers[1].segments_used), (0, 0));
    assert_eq!(stats.tiers[1].demoted_records + stats.tiers[0].demoted_records, 0);
    let drain = stats.tiers[1].drain.unwrap();
    assert!(drain.began_with > 0 && drain.bytes_left == 0, "{drain:?}");
}

#[test]
fn drained_tier_gets_no_new_segments_until_cancelled() {
    let mut machine = Fleet::filled().drained(1);
    let writes = machine.tiers()[1].segment_writes;
    for n in 0..RECORDS {
        assert!(machine.client.set(&key(n), &value(n, 2)));
    }
    machine.client.settle();
    assert_eq!(machine.tiers()[1].segment_writes, writes);
    assert_eq!(machine.found(RECORDS), RECORDS);
    assert!(machine.client.cache.cancel_drain(1));
    assert!(!machine.client.cache.cancel_drain(1), "there is none any more");
    for n in 0..RECORDS {
        assert!(machine.client.set(&key(n), &value(n, 2)));
    }
    machine.client.settle();
    assert_eq!(machine.tiers()[1].state, TierState::Working);
    assert!(machine.tiers()[1].segment_writes > writes);
    assert_eq!(machine.found(RECORDS), RECORDS);
}

#[test]
fn changes_during_a_drain_are_kept() {
    let mut machine = Fleet::filled();
    machine.drain(2);
    for n in 0..RECORDS / 2 {
        assert!(match n % 3 {
            0 => machine.client.delete(&key(n)),
            _ => machine.client.set(&key(n), &value(n, 2)),
        });
        if n % 20 == 0 {
            machine.client.session.park();
            machine.client.cache.maintain(machine.client.now);
        }
    }
    machine.client.settle();
    assert_eq!(machine.tiers()[2].state, TierState::Drained);
    let deleted = (RECORDS / 2).div_ceil(3);
    for end in [End::Kill, End::Stop] {
        assert_eq!(machine.found(RECORDS / 2), RECORDS - deleted);
        machine = machine.again(end, &[0, 1, 2]);
    }
    assert_eq!(machine.found(RECORDS / 2), RECORDS - deleted);
}

#[test]
fn drain_ends_with_the_process_and_loses_nothing() {
    for end in [End::Kill, End::Stop] {
        let mut machine = Fleet::filled();
        machine.drain(0);
        // Somewhere in the middle.
        for _ in 0..12 {
            machine.client.session.park();
            machine.client.cache.maintain(machine.client.now);
        }
        let left = machine.tiers()[0].drain.unwrap();
        assert!(left.bytes_left > 0 && left.bytes_left < left.began_with, "{left:?}");
        machine = machine.again(end, &[2, 0, 1]);
        assert_eq!(machine.found(0), RECORDS, "{end:?}");
        assert!(machine.tiers().iter().all(|tier| tier.state == TierState::Working));
    }
}

#[test]
fn last_tier_that_takes_records_is_neither_drained_nor_removed() {
    let machine = Fleet::with(&[DRIVE; 2], 100, |_| ());
    let (cache, now) = (&machine.client.cache, machine.client.now);
    let drain = |tier| cache.drain(tier, DrainMode::KeepAll, now);
    assert_eq!(drain(2), Err(DrainError::NoSuchTier));
    drain(0).unwrap();
    assert_eq!(drain(1), Err(DrainError::LastTier));
    let refused = cache.remove(1, Remove::WithRecords);
    assert!(matches!(refused, Err(RemoveError::LastTier)), "{refused:?}");
    cache.remove(0, Remove::WithRecords).unwrap();
    assert_eq!(drain(0), Err(DrainError::Removed));
    assert_eq!(drain(1), Err(DrainError::LastTier));
}

#[test]
fn drain_without_room_elsewhere_waits_and_drops_nothing() {
    let records = 14_000;
    let mut machine = Fleet::with(&[DRIVE, DRIVE * 4 / 5], records, |_| ());
    let all = machine.client.cache.stats();
    assert_eq!(all.evictions, 0);
    let used: u64 = all.tiers.iter().map(|tier| tier.live_bytes).sum();
    assert!(used > all.tiers[1].capacity_bytes, "it must not fit");
    machine.drain(0);
    machine.client.settle();
    let stats = machine.client.cache.stats();
    assert_eq!((stats.tiers[0].state, stats.evictions), (TierState::NoRoom, 0));
    let left = stats.tiers[0].drain.unwrap();
    assert!(left.bytes_left > 0 && left.bytes_left < left.began_with, "{left:?}");
    let is_there = |client: &Client, n| client.get(&key(n)).is_some();
    assert_eq!((0..records).filter(|&n| is_there(&machine.client, n)).count() as u64, records);
    // Once there is room again, it goes on.
    (0..records).filter(|n| n % 2 == 0).for_each(|n| assert!(machine.client.delete(&key(n))));
    machine.client.now += 2;
    machine.client.settle();
    machine.client.now += 2;
    machine.client.settle();
    assert_eq!(machine.tiers()[0].state, TierState::Drained);
    let odd = (0..records).filter(|n| n % 2 == 1);
    assert!(odd.into_iter().all(|n| is_there(&machine.client, n)));
}

#[test]
fn drain_that_may_drop_records_ends_without_room_elsewhere() {
    let records = 14_000;
    let mut machine = Fleet::with(&[DRIVE, DRIVE * 4 / 5], records, |_| ());
    let (cache, now) = (Arc::clone(&machine.client.cache), machine.client.now);
    cache.drain(0, DrainMode::DropOldest, now).unwrap();
    machine.client.settle();
    let stats = cache.stats();
    assert_eq!(stats.tiers[0].state, TierState::Drained, "{:#?}", stats.tiers[0]);
    assert!(stats.evictions > 0);
    let there: Vec<_> = (0..records).filter(|&n| machine.client.get(&key(n)).is_some()).collect();
    assert!(there.len() as u64 > records / 3, "{}", there.len());
    let old = there.iter().filter(|&&n| n < records / 2).count();
    assert!(old * 2 < there.len(), "the oldest went: {old} of {}", there.len());
}

#[test]
fn removed_tier_that_was_drained_costs_nothing_at_a_later_start() {
    for end in [End::Kill, End::Stop] {
        for drives in [&[0, 2][..], &[0, 1, 2], &[1, 2, 0]] {
            let machine = Fleet::filled().drained(1);
            machine.client.cache.remove(1, Remove::IfEmpty).unwrap();
            assert_eq!(machine.tiers()[1].state, TierState::Removed);
            assert_eq!(machine.client.cache.tiers_empty_next().count(), 0);
            let machine = machine.again(end, drives);
            assert_eq!(machine.found(0), RECORDS, "{end:?} {drives:?}");
            assert!(!machine.client.cache.is_cold());
        }
    }
}

#[test]
fn removed_tier_takes_its_records_with_it() {
    for end in [End::Kill, End::Stop] {
        for drives in [&[0, 1][..], &[2, 0, 1]] {
            let mut machine = Fleet::filled();
            let on_it = machine.tiers()[2].records;
            let refused = machine.client.cache.remove(2, Remove::IfEmpty);
            assert!(matches!(refused, Err(RemoveError::HasRecords)), "{refused:?}");
            assert_eq!(machine.found(0), RECORDS);
            machine.client.cache.remove(2, Remove::WithRecords).unwrap();
            let left = machine.found(0);
            // A few entries that a record of another key took away are not counted.
            let least = RECORDS - on_it - 10;
            assert!(left >= least && left < RECORDS - on_it / 2, "{left} of {least}");
            assert_eq!(machine.tiers()[2].records, 0);
            // What was lost is stored anew, and no older version comes back.
            let changed = RECORDS / 2;
            for n in 0..changed {
                assert!(machine.client.set(&key(n), &value(n, 2)));
            }
            machine.client.settle();
            let left = machine.found(changed);
            let machine = machine.again(end, drives);
            assert_eq!(machine.found(changed), left, "{end:?} {drives:?}");
        }
    }
}

#[test]
fn removed_tier_is_written_no_more() {
    let mut machine = Fleet::filled();
    machine.client.cache.remove(0, Remove::WithRecords).unwrap();
    let (before, content) = (machine.tiers()[0].clone(), machine.drives[0].copy());
    for n in 0..RECORDS {
        assert!(machine.client.set(&key(n), &value(n, 2)));
    }
    machine.client.settle();
    assert!(machine.client.cache.close(machine.client.now, &|| true));
    let after = &machine.tiers()[0];
    assert_eq!(after.written_bytes, before.written_bytes);
    assert_eq!(after.tombstone_log_written_bytes, before.tombstone_log_written_bytes);
    let mut old = Vec::new();
    content.tamper(|bytes| old = bytes.to_vec());
    machine.drives[0].tamper(|bytes| assert!(*bytes == *old, "nor are its superblocks"));
}

#[test]
fn removed_drive_alone_is_not_believed() {
    for has_drained in [true, false] {
        let machine = Fleet::filled();
        let machine = if has_drained { machine.drained(1) } else { machine };
        machine.client.cache.remove(1, Remove::WithRecords).unwrap();
        let machine = machine.again(End::Stop, &[1]);
        assert_eq!(machine.found(0), 0);
    }
}

#[test]
fn strict_mode_keeps_what_was_moved_and_removed_over_a_power_loss() {
    let mut machine =
        Fleet::with(&[DRIVE; 3], RECORDS, |config| config.durability = Durability::Power);
    machine.client.cache.make_durable().unwrap();
    let sealed: u64 = machine.tiers().iter().map(|tier| tier.records).sum();
    machine = machine.drained(1);
    machine.client.cache.make_durable().unwrap();
    let kept = machine.again(End::Power, &[0, 1, 2]).found(0);
    // Those that fill no segment go through DRAM once more, and are gone with it.
    assert!(kept >= sealed - sealed / 100, "{kept} of {sealed}");
    machine.client.cache.remove(1, Remove::IfEmpty).unwrap();
    for n in 0..RECORDS / 2 {
        assert!(machine.client.set(&key(n), &value(n, 2)));
    }
    machine.client.settle();
    machine.client.cache.make_durable().unwrap();
    for drives in [&[0, 2][..], &[2, 1, 0]] {
        // What was not on a drive is gone, and so is what it replaced.
        let after = machine.again(End::Power, drives);
        assert!(after.found(RECORDS / 2) >= RECORDS / 2, "{drives:?}");
    }
}

#[test]
fn tier_stays_if_the_roster_without_it_can_not_be_kept() {
    let witness = Arc::new(InMemory::default());
    let drives = (0..2).map(|_| RamDevice::new(DRIVE)).collect();
    let mut machine = Fleet::start(drives, state(), Some(Arc::clone(&witness)), 1, config());
    for n in 0..RECORDS {
        assert!(machine.client.set(&key(n), &value(n, 1)));
    }
    machine.client.settle();
    witness.refuses.store(true, Ordering::Relaxed);
    let refused = machine.client.cache.remove(0, Remove::WithRecords);
    assert!(matches!(refused, Err(RemoveError::Roster(_))), "{refused:?}");
    assert_eq!(machine.found(0), RECORDS);
    witness.refuses.store(false, Ordering::Relaxed);
    let machine = machine.again(End::Kill, &[0, 1]);
    assert_eq!(machine.found(0), RECORDS);
    machine.client.cache.remove(0, Remove::WithRecords).unwrap();
    let left = machine.found(0);
    let machine = machine.again(End::Kill, &[1, 0]);
    assert_eq!(machine.found(0), left);
}
