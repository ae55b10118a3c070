//! Background work in progress in a shard, and its free segment numbers.

use crate::dram::lane::{FullBlock, Lane};
use crate::index::sealed::SealedIndex;
use crate::records::key::Name;
use crate::segments::segment::Sealed;
use crate::shard::Locked;
use crate::shard::recovering::Recovering;
use std::collections::HashSet;

impl Locked<'_> {
    /// Takes a free segment number.
    pub(crate) fn take_number(&mut self) -> Option<u16> {
        self.state.numbers.pop()
    }

    /// Returns segment numbers.
    pub(crate) fn give_numbers(&mut self, numbers: impl IntoIterator<Item = u16>) {
        self.state.numbers.extend(numbers);
    }

    /// Makes all segment numbers below `rows` free.
    pub(crate) fn free_numbers(&mut self, rows: u16) {
        self.state.numbers = (0..rows).rev().collect();
    }

    /// Counts a `flush_all`: background work that began before it must not finish.
    pub(crate) fn begin_generation(&mut self) {
        self.state.generation += 1;
    }

    /// Sets what must be recovered, and takes the numbers of these segments.
    pub(crate) fn await_segments(&mut self, recovering: Recovering, numbers: &HashSet<u16>) {
        self.state.numbers.retain(|number| !numbers.contains(number));
        self.state.recovering = Some(Box::new(recovering));
    }

    /// Ends the recovery of the shard, when it is done or no longer needed.
    pub(crate) fn take_recovering(&mut self) -> Option<Box<Recovering>> {
        self.state.recovering.take()
    }

    /// Begins a growth: `index` will replace the shard's; changes go to both.
    pub(crate) fn begin_growth(&mut self, index: SealedIndex) {
        self.state.growing = Some(Box::new(index));
        self.state.carried.clear();
    }

    /// Ends a growth: returns its index, and the entries that only that one has.
    pub(crate) fn take_growth(&mut self) -> (Option<Box<SealedIndex>>, Vec<(Name, u16)>) {
        (self.state.growing.take(), std::mem::take(&mut self.state.carried))
    }

    /// Adds segments to those that are being reclaimed.
    pub(crate) fn begin_leaving(&mut self, segments: &[Sealed]) {
        self.state.leaving.extend_from_slice(segments);
    }

    /// Ends the reclaim of all segments.
    pub(crate) fn end_leaving(&mut self) {
        self.state.leaving.clear();
    }

    /// Adds a segment, not committed yet, that records of reclaimed segments are relocated to.
    pub(crate) fn begin_arriving(&mut self, segment: Sealed) {
        self.state.arriving.push(segment);
    }

    /// Must be called when the segments that records were relocated to are committed, or given up.
    pub(crate) fn end_arriving(&mut self) {
        self.state.arriving.clear();
    }

    /// Sets the segment that a seal moves records to; `None` when it is done.
    pub(crate) fn set_sealing(&mut self, segment: Option<Sealed>) {
        self.state.sealing = segment;
    }

    /// Notes that records are chosen for a segment now (unix seconds); returns the time before, 0 for never.
    pub(crate) fn note_gathered(&mut self, now: u32) -> u32 {
        std::mem::replace(&mut self.state.gathered, now)
    }

    /// Takes over a full block of fresh records of an earlier process.
    pub(crate) fn adopt_block(&mut self, block: FullBlock) {
        self.state.fresh.push_full(block);
        self.note_ages(Lane::Fresh);
    }

    /// Counts a fresh record of an earlier process.
    pub(crate) fn adopt_bytes(&mut self, bytes: u64) {
        self.state.fresh_bytes += bytes;
        self.shared.counters().fresh_bytes().add(self.shard.at, bytes);
    }
}
