//! Whether the cache is full, and how many places on its tiers are kept free.

use crate::cache::Engine;
use crate::merge;
use crate::shard::Lane;
use std::sync::atomic::Ordering;

/// Without tiers, this much of DRAM is left to the open blocks and to work in progress, in percent.
const WORKING_PERCENT: u64 = 4;

impl Engine {
    /// Places for segments that are kept free, so that sealing never waits.
    pub(crate) fn places_kept_free(&self) -> u32 {
        (self.pool.slots.total() / 200).max(2) + self.places_to_merge_into()
    }

    /// Free places that seals leave to merging, which could gain none without.
    fn places_to_merge_into(&self) -> u32 {
        let slots = &self.pool.slots;
        let working = slots.tiers.iter().filter(|tier| !tier.has_failed());
        working.map(|tier| (tier.segments / 64).clamp(1, merge::OUTPUTS_MAX)).sum()
    }

    /// Whether a segment may be sealed that is not sealed to make room. Where it may not, places are being
    /// taken back: there are fewer than [`Engine::places_kept_free`].
    pub(crate) fn may_seal(&self) -> bool {
        self.pool.slots.free() > self.places_to_merge_into()
    }

    /// Decides whether the cache is full: whether records may be dropped.
    pub(crate) fn judge_fullness(&self) {
        self.fill_dram_if_tiers_failed();
        let counters = &self.pool.counters;
        let live: u64 = if self.has_working_tiers() {
            counters.tiers().iter().map(|tier| tier.live_bytes.load(Ordering::Relaxed)).sum()
        } else {
            // Blocks are charged with the headers of their records.
            let records = counters.records(Lane::Fresh).load(Ordering::Relaxed);
            counters.fresh_bytes.load(Ordering::Relaxed) + records * 20
        };
        let full = live * 100 >= self.capacity() * u64::from(self.full_percent());
        let full = full || self.no_room.swap(false, Ordering::Relaxed);
        counters.full.store(full, Ordering::Relaxed);
    }

    /// Once no drive takes writes, fresh records have all of DRAM.
    fn fill_dram_if_tiers_failed(&self) {
        if self.has_tiers() && !self.has_working_tiers() {
            self.pool.fresh_max.store(u64::MAX, Ordering::Relaxed);
        }
    }

    fn full_percent(&self) -> u32 {
        self.tuning.full_percent
    }

    /// Bytes that records can take.
    fn capacity(&self) -> u64 {
        if self.has_working_tiers() {
            return u64::from(self.pool.slots.total()) * u64::from(self.geometry.segment_bytes);
        }
        let tables = self.pool.counters.table_bytes.load(Ordering::Relaxed) + self.fixed_bytes;
        let blocks = self.pool.budget.limit().saturating_sub(tables);
        blocks / 100 * (100 - WORKING_PERCENT)
    }

    /// Index or blocks are used up, whatever the records' bytes add up to.
    pub(crate) fn note_full(&self) {
        self.no_room.store(true, Ordering::Relaxed);
        self.pool.counters.full.store(true, Ordering::Relaxed);
    }
}
