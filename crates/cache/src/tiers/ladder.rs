//! The tier levels: tiers that are alike share a level; slower ones are on later levels.
//!
//! A segment is written to the first level that has free segments to spare. A full level demotes its least used records
//! to the next ([`crate::background::demote`]). A record on a later level is promoted in two cases: its copy in DRAM is
//! dropped, or it was used when its segment is reclaimed. So each level has its own fullness, and only when all are
//! full does the last one evict records.

use crate::tiers::slots::{Slots, TierStore};

/// Segments that background work relocates at once, at most.
pub(crate) const MOVED_MAX: usize = 8;
/// New segments that one such relocation makes, at most.
pub(crate) const OUTPUTS_MAX: u32 = MOVED_MAX as u32 - 1;

impl Slots {
    /// All tier levels, the fastest first.
    pub(crate) fn levels(&self) -> impl DoubleEndedIterator<Item = u16> + use<> {
        0..self.tiers.iter().map(|tier| tier.level + 1).max().unwrap_or(0)
    }

    /// The working tiers of a tier level, with their numbers; a tier that is drained is on none.
    pub(crate) fn on(&self, level: u16) -> impl Iterator<Item = (usize, &TierStore)> {
        let tiers = self.tiers.iter().enumerate();
        tiers.filter(move |(_, tier)| tier.level == level && tier.takes_segments())
    }

    /// The next tier level below with a working tier.
    pub(crate) fn below(&self, level: u16) -> Option<u16> {
        self.levels().find(|&below| below > level && self.on(below).next().is_some())
    }

    /// Free segment slots of a tier level.
    pub(crate) fn free_on(&self, level: u16) -> u32 {
        self.on(level).map(|(_, tier)| tier.free()).sum()
    }

    /// Segment slots of a tier level.
    pub(crate) fn total_on(&self, level: u16) -> u32 {
        self.on(level).map(|(_, tier)| tier.places()).sum()
    }

    /// Bytes of all segments of a tier level.
    pub(crate) fn capacity_on(&self, level: u16) -> u64 {
        self.on(level).map(|(_, tier)| tier.capacity_bytes()).sum()
    }

    /// Free segment slots of a tier level that seals leave to compaction and to demotion, which could free none
    /// without.
    pub(crate) fn places_to_move_into(&self, level: u16) -> u32 {
        self.on(level).map(|(_, tier)| (tier.places() / 64).clamp(1, OUTPUTS_MAX)).sum()
    }
}
