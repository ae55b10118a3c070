//! The blocks of one kind of records in DRAM, of one shard.

use crate::dram::memory::{Arena, Block};
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
    pub(crate) open: Option<Block>,
    /// Records of this lane in the table.
    pub(crate) records: u64,
    pub(crate) full: VecDeque<FullBlock>,
}
