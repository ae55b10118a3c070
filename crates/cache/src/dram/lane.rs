//! The blocks of one lane (fresh records, protected ones, or copies) of one shard.

use crate::dram::memory::{Arena, Block};
use crate::dram::resident::{Resident, mark};
use crate::platform::getters::getters;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// A kind of records in DRAM, with blocks of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Records without a sealed original: not yet sealed, or the cache itself without tiers.
    Fresh,
    /// Copies of sealed records.
    Hot,
    /// Of a cache without tiers: records that were used before eviction came to them for the first time.
    Protected,
}

impl Lane {
    /// The lane that a record in the table lies in.
    #[inline]
    pub(crate) fn of(resident: &Resident<'_>) -> Self {
        match resident.header.mark().load(Ordering::Relaxed) & (mark::HOT | mark::PROTECTED) {
            0 => Self::Fresh,
            mark::PROTECTED => Self::Protected,
            _ => Self::Hot,
        }
    }

    /// Whether its records have no sealed original: what DRAM loses of them is lost.
    #[inline]
    pub(crate) fn is_only_in_dram(self) -> bool {
        self != Self::Hot
    }
}

/// A block that is no longer filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FullBlock {
    pub(crate) id: u32,
    pub(crate) fill: u32,
    /// See [`Block::order`].
    pub(crate) order: u64,
}

impl FullBlock {
    /// Bytes of records in it that are void by now. The gap at the block's end does not count: a record that did not
    /// fit there may leave the same gap in another block.
    pub(crate) fn dead(&self, arena: &Arena) -> u32 {
        self.fill.saturating_sub(arena.live(self.id))
    }
}

/// The blocks of one lane: the one being filled, and the full ones, oldest first.
#[derive(Default)]
#[repr(C)]
pub(crate) struct LaneBlocks {
    pub(super) open: Option<Block>,
    /// Records of this lane in the table.
    pub(super) records: u64,
    pub(super) full: VecDeque<FullBlock>,
}

getters! {
    LaneBlocks {
        full: &VecDeque<FullBlock>,
        records: u64,
    }
}

impl LaneBlocks {
    /// The block that is being filled.
    pub(crate) fn open(&self) -> Option<&Block> {
        self.open.as_ref()
    }

    /// The block that is being filled, to append to.
    pub(crate) fn open_mut(&mut self) -> Option<&mut Block> {
        self.open.as_mut()
    }

    /// Makes `block` the one that is filled; returns the one before.
    pub(crate) fn replace_open(&mut self, block: Block) -> Option<Block> {
        self.open.replace(block)
    }

    /// Stops filling a block; returns the one before.
    pub(crate) fn take_open(&mut self) -> Option<Block> {
        self.open.take()
    }

    /// Adds a full block as the newest.
    pub(crate) fn push_full(&mut self, block: FullBlock) {
        self.full.push_back(block);
    }

    /// Removes a full block.
    pub(crate) fn remove_full(&mut self, id: u32) {
        self.full.retain(|block| block.id != id);
    }

    /// All blocks, the full ones first, as they are filled by now.
    pub(crate) fn all(&self) -> impl Iterator<Item = FullBlock> {
        let open = self.open.iter().map(|block| FullBlock {
            id: block.id(),
            fill: block.fill(),
            order: block.order(),
        });
        self.full.iter().copied().chain(open)
    }

    /// The numbers of all blocks, the full ones first.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        self.full.iter().map(|block| block.id).chain(self.open.iter().map(|block| block.id))
    }

    /// Counts a record of this lane that was added to the table.
    #[inline]
    pub(crate) fn add_record(&mut self) {
        self.records += 1;
    }

    /// Counts a record of this lane that was removed from the table.
    #[inline]
    pub(crate) fn sub_record(&mut self) {
        self.records -= 1;
    }
}
