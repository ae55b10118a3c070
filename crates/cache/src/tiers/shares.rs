//! Which tier the next segment is written to.
//!
//! Tiers of a level get shares of what is written by the places that they have free and by how fast they write. So equal
//! drives are equally full, one that was added gets most until it is, and one that is slow holds up few writes; its
//! places are used in the end, by records that stay there for long.

use crate::segments::segment::SlotId;
use crate::tiers::slots::{Slots, TierStore};
use std::sync::atomic::Ordering;

/// The speed of the fastest drive; that of another one is a part of it.
const SPEEDS: u64 = 64;
/// 2^32 divided by the golden ratio: multiples of it modulo 2^32 are spread evenly, however few there are.
const GOLDEN: u32 = 0x9E37_79B9;

impl Slots {
    /// Takes a free place on the tier that [`Slots::next`] names.
    pub(crate) fn take(&self) -> Option<SlotId> {
        self.take_on(self.next()?)
    }

    /// The tier that the next segment is written to: one of the highest level that has places to spare and a tier whose
    /// write budget is not spent; where there is none, any that can be had. The same until a place is taken.
    pub(crate) fn next(&self) -> Option<u16> {
        let to_spare = |level: &u16| self.free_on(*level) > self.places_to_move_into(*level);
        let spared = self.levels().filter(to_spare).filter_map(|level| self.next_on(level));
        let mut unspent = spared.filter(|tier| !self.is_spent(*tier));
        unspent.next().or_else(|| self.next_of(|_| true))
    }

    /// The tier of a level that the next segment there is written to; one whose write budget is spent only if there is
    /// no other.
    pub(crate) fn next_on(&self, level: u16) -> Option<u16> {
        self.next_of(|tier| tier.level() == level)
    }

    fn next_of(&self, is_meant: impl Fn(&TierStore) -> bool) -> Option<u16> {
        let takes = |tier: &TierStore| is_meant(tier) && tier.takes_segments() && tier.free() > 0;
        let able =
            || (0..self.tiers.len() as u16).filter(|&at| takes(&self.tiers[usize::from(at)]));
        let is_any_unspent = able().any(|tier| !self.is_spent(tier));
        let shares = || {
            let fastest = able().filter_map(|tier| self.pace(tier)).min();
            let able = able().filter(move |&tier| !(is_any_unspent && self.is_spent(tier)));
            able.map(move |tier| {
                let free = self.tiers[usize::from(tier)].free();
                (tier, u64::from(free) * parts(self.pace(tier), fastest))
            })
        };
        let all: u64 = shares().map(|(_, share)| share).sum();
        let turn = self.turn.load(Ordering::Relaxed).wrapping_mul(GOLDEN);
        // Below `all`, which is above 0 where there is a tier: it has a free place.
        let mut at = ((u128::from(turn) * u128::from(all)) >> 32) as u64;
        let mut shares = shares();
        let (first, share) = shares.next()?;
        let mut found = first;
        let mut end = share;
        while at >= end {
            // Shares may have become smaller meanwhile.
            let Some((tier, share)) = shares.next() else { break };
            at -= end;
            (found, end) = (tier, share);
        }
        Some(found)
    }

    /// Whether a tier writes at less than half of the speed of the fastest working tier of its level.
    pub(crate) fn is_slow(&self, tier: u16) -> bool {
        let level = self.tiers[usize::from(tier)].level();
        let fastest = self.on(level).filter_map(|(at, _)| self.pace(at as u16)).min();
        parts(self.pace(tier), fastest) < SPEEDS
    }

    fn is_spent(&self, tier: u16) -> bool {
        self.tiers[usize::from(tier)].is_spent.load(Ordering::Relaxed)
    }

    fn pace(&self, tier: u16) -> Option<u64> {
        let pace = self.tiers[usize::from(tier)].device().write_pace()?;
        Some((pace.as_nanos() as u64).max(1))
    }
}

/// The speed of a tier in parts of [`SPEEDS`] of the fastest, by the time that each takes for a write. One that is at
/// least half as fast counts as equal: what is measured varies.
fn parts(pace: Option<u64>, fastest: Option<u64>) -> u64 {
    match (pace, fastest) {
        (Some(pace), Some(fastest)) if pace > fastest.saturating_mul(2) => {
            (SPEEDS.saturating_mul(fastest) / pace).max(1)
        }
        _ => SPEEDS,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::config::Tier;
    use crate::stats::counters::Counters;
    use std::collections::HashSet;
    use std::sync::Arc;
    use std::time::Duration;
    use terrace_device::sim::SimDevice;

    const SEGMENT_BYTES: u32 = 64 << 10;
    const PLACES: u32 = 1000;

    /// Drives of one level with [`PLACES`] places each; for each drive the number that is used, and the
    /// milliseconds that it takes to write a MiB.
    fn slots(drives: &[(u32, u64)]) -> Slots {
        let tier = |&(_, millis): &(u32, u64)| {
            let bytes = (u64::from(PLACES) + 1) * u64::from(SEGMENT_BYTES);
            let device = SimDevice::new(bytes, 1);
            device.claim_pace(Duration::from_millis(millis));
            Tier::new(Arc::new(device))
        };
        let tiers: Vec<_> = drives.iter().map(tier).collect();
        let counters = Arc::new(Counters::new(1, 4, drives.len()));
        let used = |at: usize| HashSet::from_iter(0..drives[at].0);
        Slots::new(&tiers, SEGMENT_BYTES, counters, used)
    }

    /// How many of the next `count` segments are written to each tier.
    fn taken(slots: &Slots, count: usize) -> Vec<usize> {
        let mut taken = vec![0; slots.tiers().len()];
        for _ in 0..count {
            taken[usize::from(slots.take().expect("there is room").tier)] += 1;
        }
        taken
    }

    #[test]
    fn equal_drives_are_equally_full() {
        let slots = slots(&[(0, 10), (0, 11), (0, 19), (0, 0)]);
        for share in taken(&slots, 2000) {
            assert!((490..=510).contains(&share), "{share}");
        }
    }

    #[test]
    fn an_added_drive_gets_most() {
        let slots = slots(&[(950, 10), (950, 10), (0, 10)]);
        let taken = taken(&slots, 500);
        assert!(taken[2] > 430, "{taken:?}");
    }

    #[test]
    fn a_slow_drive_gets_as_much_as_it_is_fast() {
        let slots = slots(&[(0, 10), (0, 10), (0, 10), (0, 100)]);
        let taken = taken(&slots, 1000);
        assert!((20..=50).contains(&taken[3]), "{taken:?}");
        assert!(slots.is_slow(3) && !slots.is_slow(0));
    }

    #[test]
    fn all_places_are_used_in_the_end() {
        let slots = slots(&[(0, 10), (0, 1000)]);
        let reserved = 2;
        taken(&slots, 2 * PLACES as usize - reserved);
        assert_eq!(slots.take(), None);
    }

    #[test]
    fn a_drive_whose_budget_is_spent_comes_last() {
        let slots = slots(&[(0, 10), (0, 10)]);
        slots.tiers()[0].is_spent.store(true, Ordering::Relaxed);
        assert_eq!(taken(&slots, 900), [0, 900]);
        assert_eq!(taken(&slots, 200)[0], 101);
    }
}
