//! The write buffers: how long records wait in DRAM before they are written.
//!
//! The longer they wait, the more of them are overwritten or expire first. An overwritten record takes room until its
//! block is empty. So before nearly full buffers are written, the live records of blocks that are two fifths void are
//! moved together. After that, the shard with most to write is written, since it has most to choose from (see
//! [`crate::background::pick`]).

use crate::background::round::round;
use crate::background::{admission, eviction};
use crate::dram::lane::{FullBlock, Lane};
use crate::engine::Engine;
use crate::platform::quiesce::Guard;
use crate::shard::Locked;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// A block with this part of void records is worth emptying: a byte gained costs at most one and a half bytes moved. At
/// a half it would cost one, but the drive would be written a tenth more when popular records are overwritten.
const SPARSE: (u64, u64) = (2, 5);

/// How nearly full buffers were relieved, or must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relief {
    /// They are not nearly full, or the write policies decide.
    NotDue,
    /// A block is free again, and no record was written.
    Compacted,
    /// This shard has most to write.
    Write(usize),
}

/// Makes room in nearly full buffers without a write, or returns the shard to write; `turn` is the shard that was last
/// served.
pub(crate) fn relieve(
    engine: &Engine,
    guard: Guard<'_>,
    (shards, turn): (&Range<usize>, &mut usize),
    now: u32,
) -> Relief {
    if !engine.shared().is_short_of_buffers() || admission::is_choosy(engine) {
        return Relief::NotDue;
    }
    let mut fullest = (0, None);
    for at in round(shards, *turn) {
        let mut locked = engine.shards()[at].lock(engine.shared(), guard);
        if empty_sparse_block(engine, &mut locked, now) {
            *turn = at;
            return Relief::Compacted;
        }
        let bytes = locked.sealable_bytes();
        if bytes > fullest.0 && locked.state().recovering().is_none() {
            fullest = (bytes, Some(at));
        }
    }
    fullest.1.map_or(Relief::NotDue, Relief::Write)
}

fn empty_sparse_block(engine: &Engine, locked: &mut Locked<'_>, now: u32) -> bool {
    let Some(block) = eviction::sparsest(locked, Lane::Fresh) else { return false };
    u64::from(block.dead(engine.shared().arena())) * SPARSE.1
        >= u64::from(engine.geometry().block_bytes()) * SPARSE.0
        && eviction::compact(locked, Lane::Fresh, block, now)
        && locked.state().fresh().full().iter().all(|full| full.id != block.id)
}

/// Records of the next segment of a shard, at most.
pub(crate) fn records_per_segment(engine: &Engine, locked: &Locked<'_>) -> u64 {
    let average = locked.state().fresh_bytes() / locked.state().fresh().records().max(1);
    engine.seal_bytes() / average.max(1)
}

/// Whether the records that a shard has to seal may stay in DRAM for now: within its own share of the buffers, and
/// while a sixth of all buffers is free for new ones. Where buffers are not reserved in addition to the budget, copies
/// and the index need that memory, too: then all shards may hold at most an eighth of it.
pub(crate) fn may_wait(engine: &Engine, locked: &Locked<'_>) -> bool {
    let held = 2 * engine.seal_bytes();
    let is_little = engine.shared().arena().prepaid_blocks() > 0
        || held * engine.shards().len() as u64 <= engine.shared().budget().limit() / 8;
    is_little && locked.sealable_bytes() < held && !engine.shared().is_short_of_buffers()
}

/// Encoded bytes of fresh records at which a shard is sealed: a segment's worth. If requests have no more blocks to
/// fill and the shard has its share of them, one byte is enough: short records take much more room in DRAM than in a
/// segment, and would else never be written.
pub(crate) fn least_to_seal(engine: &Engine, locked: &Locked<'_>) -> u64 {
    let blocks = engine.shared().counters().blocks(Lane::Fresh).load(Ordering::Relaxed);
    let most = engine.shared().fresh_max().load(Ordering::Relaxed);
    let full_and_open = locked.state().fresh().full().len() as u64 + 1;
    let has_its_share = full_and_open * engine.shards().len() as u64 >= most;
    if blocks >= most && has_its_share { 1 } else { engine.seal_bytes() }
}

/// Whether the blocks of a shard that has too little for a segment have so many void bytes that compaction is worth it.
pub(crate) fn wastes_blocks(engine: &Engine, locked: &Locked<'_>) -> bool {
    let (block, full) = (u64::from(engine.geometry().block_bytes()), locked.state().fresh().full());
    if full.len() as u64 * block > 2 * engine.seal_bytes() {
        return true;
    }
    let dead = |block: &FullBlock| u64::from(block.dead(engine.shared().arena()));
    engine.shared().is_short_of_buffers() && full.iter().map(dead).sum::<u64>() >= 2 * block
}
