//! The ladder: tiers that are alike stand on one rung, slower ones on rungs below.
//!
//! Segments are written to the highest rung that has places to spare. A rung that is full lets its least used
//! records go down ([`crate::background::demote`]). What was used down there so much that it had a copy in DRAM comes up
//! again when that is dropped, and what was used at all when its segment is taken back. So each rung has its own fullness, and only when all are full does the lowest drop records.

use crate::tiers::slots::{Slots, TierStore};

/// Segments that background work moves at once, at most.
pub(crate) const MOVED_MAX: usize = 8;
/// New segments that one such move makes, at most.
pub(crate) const OUTPUTS_MAX: u32 = MOVED_MAX as u32 - 1;

impl Slots {
    /// All rungs, the fastest first.
    pub(crate) fn rungs(&self) -> impl DoubleEndedIterator<Item = u16> + use<> {
        0..self.tiers.last().map_or(0, |tier| tier.rung + 1)
    }

    /// The working tiers of a rung, with their numbers.
    pub(crate) fn on(&self, rung: u16) -> impl Iterator<Item = (usize, &TierStore)> {
        let tiers = self.tiers.iter().enumerate();
        tiers.filter(move |(_, tier)| tier.rung == rung && tier.works())
    }

    /// The next rung below that works.
    pub(crate) fn below(&self, rung: u16) -> Option<u16> {
        self.rungs().find(|&below| below > rung && self.on(below).next().is_some())
    }

    /// Free places of a rung.
    pub(crate) fn free_on(&self, rung: u16) -> u32 {
        self.on(rung).map(|(_, tier)| tier.free()).sum()
    }

    /// Places of a rung.
    pub(crate) fn total_on(&self, rung: u16) -> u32 {
        self.on(rung).map(|(_, tier)| tier.segments).sum()
    }

    /// Free places of a rung that seals leave to merging, and to what comes down, which could gain none
    /// without.
    pub(crate) fn places_to_move_into(&self, rung: u16) -> u32 {
        self.on(rung).map(|(_, tier)| (tier.segments / 64).clamp(1, OUTPUTS_MAX)).sum()
    }
}
