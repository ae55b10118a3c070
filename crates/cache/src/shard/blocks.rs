//! The blocks of DRAM that a shard fills, in three lanes.

use crate::dram::lane::{FullBlock, Lane};
use crate::dram::memory::{Block, Stamp};
use crate::dram::resident::{Addr, Resident};
use crate::platform::crash::crash_point;
use crate::records::record::Encoder;
use crate::shard::{Asker, LaneBlocks, Locked, NoBlock};
use std::sync::atomic::Ordering;

impl Locked<'_> {
    pub(crate) fn lane(&mut self, lane: Lane) -> &mut LaneBlocks {
        match lane {
            Lane::Fresh => &mut self.state.fresh,
            Lane::Hot => &mut self.state.hot,
            Lane::Protected => &mut self.state.protected,
        }
    }

    /// The blocks of a lane.
    pub(crate) fn blocks_of(&self, lane: Lane) -> &LaneBlocks {
        match lane {
            Lane::Fresh => &self.state.fresh,
            Lane::Hot => &self.state.hot,
            Lane::Protected => &self.state.protected,
        }
    }

    /// Writes a record into a lane's open block. It is not visible before it is in the table, and a fresh one does not
    /// outlive the process before [`Locked::commit`].
    pub(crate) fn append(
        &mut self,
        lane: Lane,
        asker: Asker,
        bytes: usize,
        stamp: Stamp,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<Addr, NoBlock> {
        let shared = self.shared;
        let has_room = |block: &Block| {
            crate::dram::resident::footprint(bytes) <= shared.arena().block_bytes() - block.fill()
        };
        if !self.lane(lane).open().is_some_and(has_room) {
            self.open_block(lane, asker)?;
        }
        let block = self.lane(lane).open_mut().ok_or(NoBlock)?;
        let addr = block.append(shared.arena(), bytes, stamp, write).ok_or(NoBlock)?;
        if lane.is_only_in_dram() {
            self.state.fresh_bytes += bytes as u64;
            shared.counters().fresh_bytes().add(self.shard.at, bytes as u64);
        }
        Ok(addr)
    }

    /// Writes a record into the fresh lane.
    #[inline]
    pub(crate) fn append_fresh(
        &mut self,
        asker: Asker,
        encoder: &Encoder<'_>,
        now: u32,
    ) -> Result<Addr, NoBlock> {
        let stamp = Stamp { accessed: now, ..Stamp::default() };
        self.append(Lane::Fresh, asker, encoder.bytes(), stamp, |out| encoder.write(out))
    }

    pub(super) fn open_block(&mut self, lane: Lane, asker: Asker) -> Result<(), NoBlock> {
        let shared = self.shared;
        // Copies leave the last blocks to fresh records.
        let reserve = match (asker, lane) {
            (Asker::Background, _) => 0,
            (Asker::Request, Lane::Hot) => shared.reserve() * 2,
            (Asker::Request, _) => shared.reserve(),
        };
        let fresh = shared.counters().blocks_only_in_dram();
        let is_ahead = (asker, lane) == (Asker::Request, Lane::Fresh)
            && fresh >= shared.fresh_max().load(Ordering::Relaxed);
        let place = shared.place_for(lane);
        if is_ahead || shared.arena().available(shared.budget(), place) <= reserve {
            return Err(NoBlock);
        }
        let block = shared.arena().take(shared.budget(), place, self.shard.at).ok_or(NoBlock)?;
        shared.counters().blocks(lane).fetch_add(1, Ordering::Relaxed);
        if let Some(old) = self.lane(lane).replace_open(block) {
            self.shelve(lane, old);
        }
        self.note_ages(lane);
        Ok(())
    }

    pub(super) fn shelve(&mut self, lane: Lane, block: Block) {
        if self.shared.arena().live(block.id()) == 0 {
            self.retire(lane, block.id());
        } else {
            let full = FullBlock { id: block.id(), fill: block.fill(), order: block.order() };
            self.lane(lane).push_full(full);
        }
    }

    /// Updates [`crate::dram::ages::Ages`] with the lane's blocks.
    pub(crate) fn note_ages(&mut self, lane: Lane) {
        let blocks = self.lane(lane);
        let oldest = blocks.full().front().map(|block| block.order);
        let open = blocks.open().map(Block::order);
        self.shared.ages().set_oldest(lane, self.shard.at, oldest);
        self.shared.ages().set_open(lane, self.shard.at, open);
    }

    /// Makes all records appended to the fresh lane outlive the process. The log must have a tombstone for everything
    /// that they replace before this.
    pub(crate) fn commit(&mut self) {
        crash_point("a record: before its commit");
        if let Some(block) = self.state.fresh.open() {
            block.commit(self.shared.arena());
        }
        crash_point("a record: after its commit");
    }

    /// The same for records that were moved to the protected lane.
    pub(crate) fn commit_protected(&mut self) {
        if let Some(block) = self.state.protected.open() {
            block.commit(self.shared.arena());
        }
    }

    /// Encoded bytes of fresh records in full blocks, at least.
    pub(crate) fn sealable_bytes(&self) -> u64 {
        let open = self.state.fresh.open().map_or(0, |block| block.fill().into());
        self.state.fresh_bytes.saturating_sub(open)
    }

    /// Closes the open block of a lane: nothing is appended to it any more.
    pub(crate) fn shelve_open(&mut self, lane: Lane) {
        if let Some(block) = self.lane(lane).take_open() {
            self.shelve(lane, block);
            self.note_ages(lane);
        }
    }

    /// Retires a full block without live records.
    pub(crate) fn retire_full(&mut self, lane: Lane, id: u32) {
        self.lane(lane).remove_full(id);
        self.note_ages(lane);
        self.retire(lane, id);
    }

    /// Voids a record that no table points to.
    pub(crate) fn void_unlisted(&mut self, old: &Resident<'_>) {
        if self.shared.arena().void(old) {
            let lane = Lane::of(old);
            let id = self.shared.arena().block_of(old.addr);
            if self.lane(lane).full().iter().any(|block| block.id == id) {
                self.retire_full(lane, id);
            }
        }
    }

    /// Drops every record and every block of a lane; the table must not point to any of them any more.
    pub(crate) fn clear_lane(&mut self, lane: Lane) {
        let blocks = std::mem::take(self.lane(lane));
        self.shared.counters().records(lane).sub(self.shard.at, blocks.records());
        blocks.ids().for_each(|id| self.retire(lane, id));
        self.note_ages(lane);
    }

    pub(super) fn retire(&mut self, lane: Lane, id: u32) {
        self.shared.counters().blocks(lane).fetch_sub(1, Ordering::Relaxed);
        self.shared.arena().retire(id, self.shared.quiesce());
    }
}
