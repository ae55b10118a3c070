//! Which copies in DRAM are written to a higher tier level, when they are dropped.

use crate::dram::heat::Origin;
use crate::dram::resident::Resident;
use crate::engine::Engine;
use crate::segments::segment::SegmentTable;
use crate::tiers::slots::Slots;
use std::sync::atomic::Ordering;
use terrace_policy::WritePolicy;

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
        let (slots, ledger) = (engine.shared().slots(), engine.shared().admission().ledger());
        let is_ladder = slots.rungs().count() > 1;
        let may_write = is_ladder
            && !engine.shared().is_short_of_buffers()
            && (0..slots.tiers().len())
                .all(|tier| ledger.write_policy(tier as u16) == WritePolicy::AllOnce);
        let next = if may_write { slots.next() } else { None };
        let rung = next.map(|tier| slots.tiers()[usize::from(tier)].rung());
        Self { slots, rung, bytes: engine.geometry().block_bytes() / 2 }
    }

    /// Whether the original of a copy is on a lower rung, and there is room to write it.
    pub(crate) fn takes(&mut self, segments: &SegmentTable, copy: &Resident<'_>) -> bool {
        let Some(rung) = self.rung else { return false };
        let origin = Origin::from_bits(copy.header.origin().load(Ordering::Relaxed));
        let tier = usize::from(segments.slot(origin.number()).tier);
        let is_below = self.slots.tiers().get(tier).is_some_and(|tier| tier.rung() > rung);
        let takes = is_below && copy.footprint() <= self.bytes;
        if takes {
            self.bytes -= copy.footprint();
        }
        takes
    }
}
