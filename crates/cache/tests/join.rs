//! Tiers that are added while the cache runs, and the starts after that.

mod common;

use common::RamDevice;
use common::fleet::{DRIVE, End, Fleet, InMemory, RECORDS};
use common::machine::{key, value};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_cache::{Durability, JoinError, Remove, TierState};
use terrace_device::{AlignedBuf, Drive};

/// Adds a drive.
fn join(fleet: &mut Fleet, drive: Arc<RamDevice>) -> Result<usize, JoinError> {
    let joined = fleet.client.join(Arc::clone(&drive) as Arc<dyn Drive>, false);
    if joined.is_ok() {
        fleet.drives.push(drive);
    }
    joined
}

/// Writes version 2 of the first `changed` records.
fn change(fleet: &mut Fleet, changed: u64) {
    for n in 0..changed {
        assert!(fleet.client.set(&key(n), &value(n, 2)));
    }
    fleet.client.settle();
}

fn joined(mut fleet: Fleet) -> Fleet {
    let number = fleet.drives.len();
    assert_eq!(join(&mut fleet, RamDevice::new(DRIVE)).expect("it joins"), number);
    fleet
}

#[test]
fn added_tier_takes_most_of_what_is_written_and_nothing_is_lost() {
    let mut fleet = joined(Fleet::filled());
    assert_eq!(fleet.found(0), RECORDS);
    change(&mut fleet, RECORDS / 2);
    let tiers = fleet.tiers();
    let taken = tiers.iter().map(|tier| tier.segment_writes).collect::<Vec<_>>();
    assert_eq!(tiers[3].state, TierState::Working);
    assert!(tiers[3].records > RECORDS / 8, "{taken:?}");
    assert_eq!(fleet.found(RECORDS / 2), RECORDS);
}

#[test]
fn added_tier_is_a_member_of_all_later_starts() {
    for end in [End::Kill, End::Stop] {
        let mut fleet = joined(Fleet::filled());
        change(&mut fleet, RECORDS / 2);
        let mut fleet = fleet.again(end, &[3, 0, 2, 1]);
        assert_eq!(fleet.found(RECORDS / 2), RECORDS, "{end:?}");
        // A second one, whose log has an area behind the first one's.
        fleet = joined(fleet);
        change(&mut fleet, RECORDS / 2 + 500);
        let fleet = fleet.again(end, &[4, 3, 2, 1, 0]);
        assert_eq!(fleet.found(RECORDS / 2 + 500), RECORDS, "{end:?}");
    }
}

#[test]
fn start_without_the_added_tier_costs_its_records_only() {
    let mut fleet = joined(Fleet::filled());
    change(&mut fleet, RECORDS / 2);
    let next = fleet.again(End::Stop, &[0, 1, 2]);
    // Of the cache that was closed, what came to the drive at the end included.
    let lost = fleet.tiers()[3].records;
    assert!(lost > 0);
    assert_eq!(next.found(RECORDS / 2), RECORDS - lost);
}

#[test]
fn deletes_in_the_added_tier_hold_after_a_power_loss() {
    let mut fleet = Fleet::with(&[DRIVE; 2], RECORDS / 2, |config| {
        config.durability = Durability::Power;
    });
    fleet = joined(fleet);
    for n in 0..RECORDS / 4 {
        assert!(fleet.client.set(&key(n), &value(n, 2)));
    }
    fleet.client.settle();
    fleet.client.cache.make_durable().unwrap();
    let sealed = fleet.tiers()[2].records;
    for n in 0..1000 {
        assert!(fleet.client.delete(&key(n)));
    }
    fleet.client.cache.make_durable().unwrap();
    let fleet = fleet.again(End::Power, &[0, 1, 2]);
    assert!((0..1000).all(|n| fleet.client.get(&key(n)).is_none()));
    assert!(sealed > 500 && fleet.tiers()[2].records > 0, "{sealed} were on it");
}

#[test]
fn joins_drains_and_removals_follow_each_other() {
    let mut fleet = joined(Fleet::filled()).drained(0);
    fleet.client.cache.remove(0, Remove::IfEmpty).unwrap();
    // The drive that left comes back as another member.
    let back = fleet.drives[0].copy();
    let refused = fleet.client.join(Arc::clone(&back) as Arc<dyn Drive>, false);
    assert!(matches!(refused, Err(JoinError::Used { .. })), "{refused:?}");
    let number = fleet.client.join(Arc::clone(&back) as Arc<dyn Drive>, true).unwrap();
    assert_eq!(number, 4);
    fleet.drives[0] = back;
    change(&mut fleet, RECORDS / 2);
    assert!(fleet.tiers()[4].records > 0);
    let fleet = fleet.again(End::Kill, &[0, 1, 2, 3]);
    assert_eq!(fleet.found(RECORDS / 2), RECORDS);
}

#[test]
fn unfit_drives_are_refused_and_nothing_changes() {
    let mut fleet = Fleet::filled();
    let mut refused = |drive: &Arc<RamDevice>, may_overwrite| {
        fleet.client.join(Arc::clone(drive) as Arc<dyn Drive>, may_overwrite).unwrap_err()
    };
    let foreign = RamDevice::new(DRIVE);
    let mut page = AlignedBuf::zeroed(4096);
    page.fill(7);
    foreign.write_at(0, &page).unwrap();
    assert!(matches!(refused(&foreign, true), JoinError::Foreign { .. }));
    assert!(matches!(refused(&RamDevice::new(64 << 10), false), JoinError::TooSmall { .. }));
    let huge = refused(&RamDevice::new(400 * DRIVE), false);
    assert!(matches!(huge, JoinError::TooLarge { .. }), "{huge}");
    let broken = RamDevice::new(DRIVE);
    broken.fail_reads.store(true, Ordering::Relaxed);
    assert!(matches!(refused(&broken, false), JoinError::Open(_)));
    assert_eq!((fleet.tiers().len(), fleet.found(0)), (3, RECORDS));
    assert_eq!(fleet.again(End::Stop, &[0, 1, 2]).found(0), RECORDS);
}

#[test]
fn cache_without_tiers_takes_none() {
    let mut fleet = Fleet::with(&[], 10, |_| ());
    let refused = fleet.client.join(RamDevice::new(DRIVE), false);
    assert!(matches!(refused, Err(JoinError::NoTiers)), "{refused:?}");
}

/// The cache was one in DRAM meanwhile.
#[test]
fn tier_is_added_in_place_of_the_only_one_that_failed() {
    let mut fleet = Fleet::with(&[DRIVE], 2000, |_| ());
    fleet.drives[0].fail_writes.store(true, Ordering::Relaxed);
    change(&mut fleet, 6000);
    assert_eq!(fleet.tiers()[0].state, TierState::Failed);
    fleet = joined(fleet);
    for n in 0..10_000 {
        assert!(fleet.client.set(&key(n), &value(n, 2)), "{n}");
    }
    fleet.client.settle();
    assert!(fleet.tiers()[1].records > 8000, "{}", fleet.tiers()[1].records);
    assert!((5000..10_000).all(|n| fleet.client.get(&key(n)).is_some()));
}

/// It is in the lists, and takes part in nothing; the others go on.
#[test]
fn tier_that_does_not_come_into_the_roster_gets_nothing() {
    let witness = Arc::new(InMemory::default());
    let mut fleet = Fleet::filled_with(Some(Arc::clone(&witness)));
    witness.refuses.store(true, Ordering::Relaxed);
    let refused = join(&mut fleet, RamDevice::new(DRIVE));
    assert!(matches!(refused, Err(JoinError::Open(_))), "{refused:?}");
    let unwritable = RamDevice::new(DRIVE);
    unwritable.fail_writes.store(true, Ordering::Relaxed);
    witness.refuses.store(false, Ordering::Relaxed);
    assert!(join(&mut fleet, unwritable).is_err());
    assert_eq!(join(&mut fleet, RamDevice::new(DRIVE)).unwrap(), 5);
    change(&mut fleet, RECORDS / 2);
    let states: Vec<_> = fleet.tiers().iter().map(|tier| tier.state).collect();
    assert_eq!(states[3], TierState::Removed);
    assert_ne!(states[4], TierState::Working);
    assert_eq!(states[5], TierState::Working);
    assert_eq!(fleet.tiers()[3].records + fleet.tiers()[4].records, 0);
    let fleet = fleet.again(End::Kill, &[0, 1, 2, 3]);
    assert_eq!(fleet.found(RECORDS / 2), RECORDS);
}
