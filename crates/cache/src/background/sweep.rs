//! Frees the room of expired records when DRAM is full and nothing may be evicted.

use crate::dram::lane::{FullBlock, Lane};
use crate::dram::resident::mark;
use crate::engine::{Engine, chunks};
use crate::platform::quiesce::Guard;
use crate::records::record::Record;
use crate::shard::Locked;

/// Seconds from the beginning of one round over all of DRAM to that of the next.
const INTERVAL_S: u32 = 10;
/// Blocks checked per step.
const BLOCKS_PER_STEP: usize = 8;

/// A round over all full blocks of fresh records.
#[derive(Default)]
pub(crate) struct Sweep {
    /// Unix seconds at which the next round may begin.
    due: u32,
    /// Shards still to be checked, and the remaining block numbers of the present one.
    shards: usize,
    blocks: Vec<u32>,
}

impl Sweep {
    /// Whether a round has begun; it must end, whatever it has gained so far.
    pub(crate) fn is_under_way(&self) -> bool {
        self.shards > 0 || !self.blocks.is_empty()
    }

    /// Checks some blocks; `false` if there are none before the next round is due.
    pub(crate) fn step(&mut self, engine: &Engine, guard: Guard<'_>, now: u32) -> bool {
        if !self.is_under_way() {
            if now < self.due {
                return false;
            }
            (self.due, self.shards) = (now.saturating_add(INTERVAL_S), engine.shards().len());
        }
        if self.blocks.is_empty() {
            self.shards -= 1;
            let locked = engine.shards()[self.shards].lock(engine.shared(), guard);
            self.blocks = locked.state().fresh().full().iter().map(|block| block.id).collect();
        }
        for _ in 0..BLOCKS_PER_STEP {
            let Some(id) = self.blocks.pop() else { break };
            let mut locked = engine.shards()[self.shards].lock(engine.shared(), guard);
            // It may have been emptied since, and filled again with other records.
            let block = locked.state().fresh().full().iter().copied().find(|block| block.id == id);
            if let Some(block) = block {
                drop_expired(engine, &mut locked, block, now);
            }
        }
        true
    }
}

fn drop_expired(engine: &Engine, locked: &mut Locked<'_>, block: FullBlock, now: u32) {
    for resident in engine.shared().arena().records(locked.guard(), block.id, block.fill) {
        let Some((record, _)) = Record::decode(resident.bytes) else { continue };
        if resident.has(mark::VOID) || !record.is_expired(now) {
            continue;
        }
        let hash = engine.hasher().key(record.key, record.is_chunk()).hash();
        let pos = engine.hasher().name(hash).pos;
        let Some(at) = locked.table().find_addr(pos, resident.addr) else { continue };
        locked.note_expired(Lane::Fresh);
        chunks::discard_chunks_of(engine, &record);
        locked.forget(pos, &resident, at);
    }
}
