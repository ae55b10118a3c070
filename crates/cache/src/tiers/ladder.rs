//! The ladder: tiers that are alike stand on one rung, slower ones on rungs below.
//!
//! Segments are written to the highest rung that has places to spare. A rung that is full lets its least used
//! records go down ([`crate::background::descent`]). What was used down there so much that it had a copy in DRAM comes up
//! again when that is dropped, and what was used at all when its segment is taken back. So each rung has its own fullness, and only when all are full does the lowest drop records.

use crate::background::merge;
use crate::dram::hot::Origin;
use crate::dram::resident::Resident;
use crate::facade::cache::Engine;
use crate::segments::segment::SegmentTable;
use crate::tiers::slots::{Slots, TierStore};
use std::sync::atomic::Ordering;
use terrace_policy::WritePolicy;

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
        self.on(rung).map(|(_, tier)| (tier.segments / 64).clamp(1, merge::OUTPUTS_MAX)).sum()
    }
}

/// Which copies in DRAM are written to the rung that is written to at present, when they are dropped.
pub(crate) struct Raise<'e> {
    slots: &'e Slots,
    /// `None` if nothing is to be raised.
    rung: Option<u16>,
    /// Bytes that may still be.
    bytes: u32,
}

impl<'e> Raise<'e> {
    /// From one block of copies; half of it at most, since making room in DRAM is what it is emptied for.
    /// Nothing where write buffers or write budgets are short.
    pub(crate) fn new(engine: &'e Engine) -> Self {
        let (slots, ledger) = (&engine.pool.slots, &engine.pool.admission.ledger);
        let is_ladder = slots.rungs().count() > 1;
        let may_write = is_ladder
            && !engine.is_short_of_buffers()
            && (0..slots.tiers.len())
                .all(|tier| ledger.write_policy(tier as u16) == WritePolicy::AllOnce);
        let next = if may_write { slots.next() } else { None };
        let rung = next.map(|tier| slots.tiers[usize::from(tier)].rung);
        Self { slots, rung, bytes: engine.geometry.block_bytes / 2 }
    }

    /// Whether the original of a copy is on a lower rung, and there is room to write it.
    pub(crate) fn takes(&mut self, segments: &SegmentTable, copy: &Resident<'_>) -> bool {
        let Some(rung) = self.rung else { return false };
        let origin = Origin::from_bits(copy.header.origin.load(Ordering::Relaxed));
        let tier = usize::from(segments.slot(origin.number()).tier);
        let is_below = self.slots.tiers.get(tier).is_some_and(|tier| tier.rung > rung);
        let takes = is_below && copy.footprint() <= self.bytes;
        if takes {
            self.bytes -= copy.footprint();
        }
        takes
    }
}
