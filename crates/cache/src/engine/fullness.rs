//! Whether the cache is full, and how many places on its tiers are kept free.

use crate::config::FULL_PERCENT;
use crate::facade::cache::Engine;
use crate::shard::Lane;
use crate::stats::counters::TierCounters;
use std::sync::atomic::Ordering;

/// Without tiers, this much of DRAM is left to the open blocks and to work in progress, in percent.
const WORKING_PERCENT: u64 = 4;

impl Engine {
    /// Places of a rung that are kept free, so that sealing never waits.
    pub(crate) fn places_kept_free(&self, rung: u16) -> u32 {
        let slots = &self.pool.slots;
        (slots.total_on(rung) / 200).max(2) + slots.places_to_move_into(rung)
    }

    /// Whether a segment may be sealed that is not sealed to make room. Where it may not, places are being
    /// taken back: there are fewer than [`Engine::places_kept_free`].
    pub(crate) fn may_seal(&self) -> bool {
        let slots = &self.pool.slots;
        slots.rungs().any(|rung| slots.free_on(rung) > slots.places_to_move_into(rung))
    }

    /// Decides whether the cache is full: whether records may be dropped.
    pub(crate) fn judge_fullness(&self) {
        self.fill_dram_if_tiers_failed();
        if self.pool.slots.are_all_silent() {
            // They hold what they held, and may be asked again.
            return;
        }
        let counters = &self.pool.counters;
        let has_tiers = self.has_working_tiers();
        let crowded = has_tiers && self.is_full_once_written();
        counters.crowded.store(crowded, Ordering::Relaxed);
        let full = match has_tiers {
            true => self.pool.slots.rungs().all(|rung| self.is_full_on(rung)),
            false => self.is_dram_full(),
        };
        if full {
            counters.index_full.store(false, Ordering::Relaxed);
        }
        let full = full || self.no_room.swap(false, Ordering::Relaxed);
        counters.full.store(full, Ordering::Relaxed);
    }

    /// Whether the tiers would be full if what waits in DRAM was written to them. When they are full they let go of
    /// whole segments, and are not for a moment: all the same no room is left but that of others.
    fn is_full_once_written(&self) -> bool {
        let slots = &self.pool.slots;
        let (mut live, mut room) = (self.pool.counters.fresh_bytes.load(Ordering::Relaxed), 0);
        for rung in slots.rungs() {
            live += self.sum_on(rung, TierCounters::live_place_bytes);
            room += self.capacity_of(rung) * u64::from(self.full_percent);
        }
        live * 100 >= room
    }

    /// Whether a SET need not find out whose record it takes the place of: there is room for one of the two.
    pub(crate) fn may_cost_another_its_place(&self) -> bool {
        self.evicts && self.pool.counters.crowded.load(Ordering::Relaxed)
    }

    /// Whether records that are alive may be dropped: the cache is full, and may evict.
    pub(crate) fn may_let_go(&self) -> bool {
        self.evicts && self.pool.counters.is_full()
    }

    /// Bytes of what is alive on a rung.
    pub(crate) fn live_bytes_on(&self, rung: u16) -> u64 {
        self.sum_on(rung, |tier| tier.live_bytes.load(Ordering::Relaxed))
    }

    /// Bytes of what was stored on a rung so far, without what was there before.
    pub(crate) fn stored_bytes_on(&self, rung: u16) -> u64 {
        self.sum_on(rung, |tier| tier.stored_payload_bytes.load(Ordering::Relaxed))
    }

    /// Bytes of all places of a rung.
    pub(crate) fn capacity_of(&self, rung: u16) -> u64 {
        u64::from(self.pool.slots.total_on(rung)) * u64::from(self.geometry.segment_bytes)
    }

    fn sum_on(&self, rung: u16, bytes: impl Fn(&TierCounters) -> u64) -> u64 {
        let counters = &self.pool.counters;
        self.pool.slots.on(rung).map(|(tier, _)| bytes(counters.tier(tier as u16))).sum()
    }

    /// Whether what is alive on a rung takes so much of it that no more is kept there at any price.
    pub(crate) fn is_full_on(&self, rung: u16) -> bool {
        let live = self.sum_on(rung, TierCounters::live_place_bytes);
        live * 100 >= self.capacity_of(rung) * u64::from(self.full_percent)
    }

    /// Without tiers that work.
    pub(crate) fn is_dram_full(&self) -> bool {
        let counters = &self.pool.counters;
        // Blocks are charged with the headers of their records.
        let records = counters.records(Lane::Fresh).load(Ordering::Relaxed);
        let live = counters.fresh_bytes.load(Ordering::Relaxed) + records * 20;
        // Whatever `-m` says.
        live.saturating_mul(100) >= self.dram_capacity().saturating_mul(u64::from(FULL_PERCENT))
    }

    /// Once no drive takes writes, fresh records have all of DRAM.
    fn fill_dram_if_tiers_failed(&self) {
        if self.has_tiers() && !self.has_working_tiers() {
            self.pool.fresh_max.store(u64::MAX, Ordering::Relaxed);
            self.pool.arena.unite();
        }
    }

    /// Bytes that records can take.
    fn dram_capacity(&self) -> u64 {
        let tables = self.pool.counters.table_bytes.load(Ordering::Relaxed) + self.fixed_bytes;
        let blocks = self.pool.budget.limit().saturating_sub(tables);
        blocks / 100 * (100 - WORKING_PERCENT)
    }

    /// The index has used its share of memory, whatever the tiers have room for.
    pub(crate) fn note_index_full(&self) {
        self.note_full();
        self.pool.counters.index_full.store(true, Ordering::Relaxed);
    }

    /// Places or blocks are used up, whatever the records' bytes add up to.
    pub(crate) fn note_full(&self) {
        self.no_room.store(true, Ordering::Relaxed);
        self.pool.counters.full.store(true, Ordering::Relaxed);
        self.pool.counters.index_full.store(false, Ordering::Relaxed);
    }
}
