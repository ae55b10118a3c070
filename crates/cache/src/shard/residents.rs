//! The records in DRAM that the table of a shard points to.

use crate::dram::heat::hand_on;
use crate::dram::lane::Lane;
use crate::dram::resident::{Addr, Resident};
use crate::dram::table::{DramTable, SlotAt};
use crate::shard::Locked;
use crate::stats::counters::count;
use std::sync::atomic::Ordering;

impl Locked<'_> {
    /// Points the table to a record of a key that has none there.
    pub(crate) fn enter(&mut self, pos: u32, addr: Addr, lane: Lane) {
        self.grow_table();
        self.table().insert(pos, addr);
        self.lane(lane).add_record();
        self.shared.counters().records(lane).add(self.shard.at, 1);
    }

    /// Counts a record that was stored.
    pub(crate) fn note_stored(&self) {
        self.shared.counters().stored().add(self.shard.at, 1);
    }

    /// Counts an expired record that was removed from DRAM.
    pub(crate) fn note_expired(&self, lane: Lane) {
        count(self.shared.counters().expired());
        if lane.is_only_in_dram() && !self.shared.slots().tiers().is_empty() {
            count(self.shared.counters().expired_unwritten());
        }
    }

    /// Points the table to a newer record of the same key and voids the older one.
    pub(crate) fn supersede(
        &mut self,
        pos: u32,
        old: &Resident<'_>,
        at: SlotAt,
        addr: Addr,
        lane: Lane,
    ) {
        if !self.shared.slots().tiers().is_empty() {
            hand_on(self.shared.promotion(), old, &self.shared.arena().view(self.guard, addr));
        }
        self.table().replace(pos, at, addr);
        self.lane(lane).add_record();
        self.shared.counters().records(lane).add(self.shard.at, 1);
        self.void(old);
    }

    /// Removes a record from the table and voids it.
    pub(crate) fn forget(&mut self, pos: u32, old: &Resident<'_>, at: SlotAt) {
        self.table().remove(pos, at);
        self.void(old);
    }

    pub(super) fn void(&mut self, old: &Resident<'_>) {
        self.unlist(old);
        self.void_unlisted(old);
    }

    /// Counts a record out that the table no longer points to.
    #[inline]
    pub(super) fn unlist(&mut self, old: &Resident<'_>) {
        let lane = Lane::of(old);
        self.lane(lane).sub_record();
        self.shared.counters().records(lane).sub(self.shard.at, 1);
        if lane.is_only_in_dram() {
            self.state.fresh_bytes -= old.bytes.len() as u64;
            self.shared.counters().fresh_bytes().sub(self.shard.at, old.bytes.len() as u64);
        }
    }

    /// Removes a record that was written to a segment from the table. It stays in its block until the seal is committed
    /// and [`Locked::void_unlisted`] voids it.
    pub(crate) fn unlist_sealed(
        &mut self,
        pos: u32,
        old: &Resident<'_>,
        at: SlotAt,
        copy: Option<Addr>,
    ) {
        match copy {
            Some(addr) => {
                self.table().replace(pos, at, addr);
                self.lane(Lane::Hot).add_record();
                self.shared.counters().records(Lane::Hot).add(self.shard.at, 1);
            }
            None => self.table().remove(pos, at),
        }
        self.unlist(old);
    }

    pub(super) fn grow_table(&mut self) {
        let table = self.table();
        if !table.is_crowded() {
            return;
        }
        let bits = table.bucket_bits() + 1;
        let bytes = DramTable::bytes_for(bits);
        if !self.shared.budget().take(bytes) {
            if !table.is_full() {
                return;
            }
            // Without a larger table the record can't be found; background work makes up for the bytes.
            self.shared.budget().force(bytes);
        }
        self.swap_table(table.resized(bits));
    }

    /// Replaces the table; the bytes of `table` must have been taken from the budget.
    pub(crate) fn swap_table(&mut self, table: DramTable) {
        let bytes = self.table().bytes();
        self.shared.counters().table_bytes().fetch_add(table.bytes(), Ordering::Relaxed);
        self.shared.counters().table_bytes().fetch_sub(bytes, Ordering::Relaxed);
        self.shared.discard(self.shard.table.replace(table), bytes);
    }

    /// Drops all records that the shard has in DRAM.
    pub(crate) fn drop_residents(&mut self) {
        self.shared.budget().force(DramTable::bytes_for(DramTable::BUCKET_BITS_MIN));
        self.swap_table(DramTable::new(DramTable::BUCKET_BITS_MIN));
        self.clear_lane(Lane::Fresh);
        self.clear_lane(Lane::Hot);
        self.clear_lane(Lane::Protected);
        let fresh_bytes = std::mem::take(&mut self.state.fresh_bytes);
        self.shared.counters().fresh_bytes().sub(self.shard.at, fresh_bytes);
    }
}
