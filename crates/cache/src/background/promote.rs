//! Promotion to a higher tier level: decides which copies are written there when they are dropped from DRAM.

use crate::dram::heat::Origin;
use crate::dram::resident::Resident;
use crate::engine::Engine;
use crate::segments::segment::SegmentTable;
use crate::tiers::slots::Slots;
use std::sync::atomic::Ordering;
use terrace_policy::WritePolicy;

/// Decides which copies are written to the present level of writes when they are dropped.
pub(crate) struct Promote<'e> {
    slots: &'e Slots,
    /// The level that is written; `None`: no copy is promoted.
    level: Option<u16>,
    /// Bytes that may still be promoted.
    bytes: u32,
}

impl<'e> Promote<'e> {
    /// For one block of copies. Takes at most half of it, since the block is emptied to make room in DRAM; takes
    /// nothing while write buffers or write budgets are short.
    pub(crate) fn new(engine: &'e Engine) -> Self {
        let (slots, ledger) = (engine.shared().slots(), engine.shared().admission().ledger());
        let is_ladder = slots.levels().count() > 1;
        let may_write = is_ladder
            && !engine.shared().is_short_of_buffers()
            && (0..slots.tiers().len())
                .all(|tier| ledger.write_policy(tier as u16) == WritePolicy::AllOnce);
        let next = if may_write { slots.next() } else { None };
        let level = next.map(|tier| slots.tiers()[usize::from(tier)].level());
        Self { slots, level, bytes: engine.geometry().block_bytes() / 2 }
    }

    /// Whether the original of a copy is on a lower level, and there is room to write it.
    pub(crate) fn takes(&mut self, segments: &SegmentTable, copy: &Resident<'_>) -> bool {
        let Some(level) = self.level else { return false };
        let origin = Origin::from_bits(copy.header.origin().load(Ordering::Relaxed));
        let tier = usize::from(segments.slot(origin.number()).tier);
        let is_below = self.slots.tiers().get(tier).is_some_and(|tier| tier.level() > level);
        let takes = is_below && copy.footprint() <= self.bytes;
        if takes {
            self.bytes -= copy.footprint();
        }
        takes
    }
}
