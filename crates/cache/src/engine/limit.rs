//! Raises and lowers the memory cap of an open cache (`cache_memlimit`).
//!
//! Raising needs address space, which is reserved at the start. A lower limit is reached with time: background work
//! drops copies, or evicts records where there are no tiers, as if the blocks beyond the limit did not exist, and
//! returns the freed ones to the system.

use crate::dram::lane::Lane;
use crate::engine::Engine;
use std::sync::atomic::Ordering;

/// Why the cap was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Memory that can't be freed at present takes more.
    #[error("the cache needs {least} bytes for what it holds at present")]
    TooLow {
        /// The lowest cap that is possible now, in bytes.
        least: u64,
    },
    /// The reserved address space is too small.
    #[error("the cache was opened for {most} bytes at most")]
    TooHigh {
        /// The highest cap that is possible, in bytes.
        most: u64,
    },
    /// All records lie in the state, and other files have taken the space that a lower cap returned.
    #[error("the file system of the state has no room for this limit")]
    NoRoom,
}

pub(crate) fn set_memory_limit(engine: &Engine, bytes: u64) -> Result<(), LimitError> {
    let budget = engine.shared.budget();
    let (least, most) = (memory_limit_min(engine), memory_limit_max(engine));
    if bytes > most && bytes > budget.limit() {
        return Err(LimitError::TooHigh { most });
    }
    if bytes < least && bytes < budget.limit() {
        return Err(LimitError::TooLow { least });
    }
    if bytes > budget.limit() && !engine.shared.arena().reserve(bytes.saturating_sub(budget.used()))
    {
        return Err(LimitError::NoRoom);
    }
    budget.set_limit(bytes);
    Ok(())
}

fn memory_limit_max(engine: &Engine) -> u64 {
    engine.memory_bytes_max.min(engine.shared.arena().reserved_bytes())
}

/// Bytes that remain when everything is dropped that may be: indexes, tables, buffers, an open block for each shard,
/// and the blocks that are kept free.
fn memory_limit_min(engine: &Engine) -> u64 {
    let blocks = |lane| engine.shared.counters().blocks(lane).load(Ordering::Relaxed);
    let only_here =
        if engine.has_tiers() { 0 } else { engine.shared.counters().blocks_only_in_dram() };
    let droppable = only_here + blocks(Lane::Hot) + engine.shared.arena().releasable();
    let kept = engine.shards.len() as u64 + engine.spare_blocks();
    let block = u64::from(engine.geometry.block_bytes());
    engine.shared.budget().used().saturating_sub(droppable * block) + kept * block
}

/// Bytes that the indexes of all shards may have together once the fresh records are written: their share of memory, or
/// less if other memory that can't be freed leaves less.
pub(crate) fn index_room(engine: &Engine) -> u64 {
    let counters = engine.shared.counters();
    let waiting = counters.blocks_only_in_dram() * u64::from(engine.geometry.block_bytes());
    let index = counters.index_bytes().load(Ordering::Relaxed);
    let room =
        (engine.shared.budget().limit() + waiting + index).saturating_sub(memory_limit_min(engine));
    room.min(engine.index_share())
}

/// Returns free blocks to the system after the limit was lowered, except those that requests need next. Returns whether
/// there were any.
pub(crate) fn shrink_to_limit(engine: &Engine) -> bool {
    let shared = &engine.shared;
    let excess = shared.budget().excess();
    if excess == 0 {
        return false;
    }
    let block = u64::from(engine.geometry.block_bytes());
    let free = shared.arena().releasable().saturating_sub(engine.spare_blocks()) * block;
    let returned = free.min(excess);
    shared.arena().release(returned, shared.budget());
    returned > 0
}
