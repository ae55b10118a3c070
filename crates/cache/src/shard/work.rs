//! What background work has under way in a shard, and the segment numbers that it takes and gives back.

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

    /// Gives segment numbers back.
    pub(crate) fn give_numbers(&mut self, numbers: impl IntoIterator<Item = u16>) {
        self.state.numbers.extend(numbers);
    }

    /// All segment numbers below `rows` are free.
    pub(crate) fn free_numbers(&mut self, rows: u16) {
        self.state.numbers = (0..rows).rev().collect();
    }

    /// Counts a `flush_all`: background work that began before it must not finish.
    pub(crate) fn begin_generation(&mut self) {
        self.state.generation += 1;
    }

    /// These segments are to come back; their numbers are taken.
    pub(crate) fn await_segments(&mut self, recovering: Recovering, numbers: &HashSet<u16>) {
        self.state.numbers.retain(|number| !numbers.contains(number));
        self.state.recovering = Some(Box::new(recovering));
    }

    /// The shard is back, or need not come back any more.
    pub(crate) fn take_recovering(&mut self) -> Option<Box<Recovering>> {
        self.state.recovering.take()
    }

    /// An index is being built that is to take the place of the shard's; changes go to both.
    pub(crate) fn begin_growth(&mut self, index: SealedIndex) {
        self.state.growing = Some(Box::new(index));
        self.state.carried.clear();
    }

    /// The index that was being built, and the entries that it alone has.
    pub(crate) fn take_growth(&mut self) -> (Option<Box<SealedIndex>>, Vec<(Name, u16)>) {
        (self.state.growing.take(), std::mem::take(&mut self.state.carried))
    }

    /// These segments are being taken back.
    pub(crate) fn begin_leaving(&mut self, segments: &[Sealed]) {
        self.state.leaving.extend_from_slice(segments);
    }

    /// No segment is being taken back any more.
    pub(crate) fn end_leaving(&mut self) {
        self.state.leaving.clear();
    }

    /// Records of segments that are being taken back move to this one, which is not committed.
    pub(crate) fn begin_arriving(&mut self, segment: Sealed) {
        self.state.arriving.push(segment);
    }

    /// The segments that records moved to are committed, or given up.
    pub(crate) fn end_arriving(&mut self) {
        self.state.arriving.clear();
    }

    /// A seal hands records over to this segment; `None` when it has.
    pub(crate) fn set_sealing(&mut self, segment: Option<Sealed>) {
        self.state.sealing = segment;
    }

    /// Records are chosen for a segment now (unix seconds); returns when they were before, 0 for never.
    pub(crate) fn note_gathered(&mut self, now: u32) -> u32 {
        std::mem::replace(&mut self.state.gathered, now)
    }

    /// A full block of fresh records that an earlier process left.
    pub(crate) fn adopt_block(&mut self, block: FullBlock) {
        self.state.fresh.push_full(block);
        self.note_ages(Lane::Fresh);
    }

    /// Counts a fresh record that an earlier process left.
    pub(crate) fn adopt_bytes(&mut self, bytes: u64) {
        self.state.fresh_bytes += bytes;
        self.shared.counters().fresh_bytes().add(self.shard.at, bytes);
    }
}
