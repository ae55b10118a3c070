//! The blocks of one kind of records in DRAM, of one shard.

use crate::dram::memory::{Arena, Block};
use crate::platform::getters::getters;
use std::collections::VecDeque;

/// Which blocks a record in DRAM lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Records that are nowhere else: not yet sealed, or the cache itself without tiers.
    Fresh,
    /// Copies of sealed records.
    Hot,
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
    /// Bytes that records took which are dead by now. Not counted from the block's end: what left a gap there
    /// may leave the same one elsewhere.
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

    /// The same, to append to.
    pub(crate) fn open_mut(&mut self) -> Option<&mut Block> {
        self.open.as_mut()
    }

    /// Fills another block from here on; returns the one before.
    pub(crate) fn replace_open(&mut self, block: Block) -> Option<Block> {
        self.open.replace(block)
    }

    /// Fills no block from here on; returns the one before.
    pub(crate) fn take_open(&mut self) -> Option<Block> {
        self.open.take()
    }

    /// Adds a full block, the newest of all.
    pub(crate) fn push_full(&mut self, block: FullBlock) {
        self.full.push_back(block);
    }

    /// Removes a full block.
    pub(crate) fn remove_full(&mut self, id: u32) {
        self.full.retain(|block| block.id != id);
    }

    /// The numbers of all blocks, the full ones first.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        self.full.iter().map(|block| block.id).chain(self.open.iter().map(|block| block.id))
    }

    /// One more record of this lane is in the table.
    #[inline]
    pub(crate) fn add_record(&mut self) {
        self.records += 1;
    }

    /// One less is.
    #[inline]
    pub(crate) fn sub_record(&mut self) {
        self.records -= 1;
    }
}
