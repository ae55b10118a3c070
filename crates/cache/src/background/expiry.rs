//! Drops segments in which all records have expired, without reading them unless they hold large items.

use crate::background::drop_segment::drop_whole;
use crate::background::reclaim::{Keeps, Victim};
use crate::background::{items, reclaim};
use crate::dram::lane::LaneBlocks;
use crate::engine::Engine;
use crate::platform::quiesce::Guard;
use crate::segments::segment::Sealed;
use crate::stats::counters::count;
use std::ops::Range;
use std::sync::atomic::Ordering;
use terrace_device::AlignedBuf;

/// Seconds after which a segment that could not be read is tried again.
const RETRY_S: u32 = 60;
/// Seconds between two searches of the blocks of a shard.
const BLOCKS_S: u32 = 10;
/// Shards checked per slice.
const SHARDS_PER_SLICE: usize = 4;

/// A round over all segments of some shards, once per second.
pub(crate) struct Expiry {
    shards: Range<usize>,
    /// Unix seconds of the round.
    round: u32,
    /// Shards still to be checked.
    left: usize,
    /// Unix seconds from which on the blocks of each shard may be searched.
    blocks_due: Vec<u32>,
}

impl Expiry {
    pub(crate) fn new(shards: Range<usize>) -> Self {
        Self { blocks_due: vec![0; shards.len()], shards, round: 0, left: 0 }
    }

    /// Drops expired segments of a few shards; `false` if there were none.
    pub(crate) fn step(
        &mut self,
        engine: &Engine,
        guard: Guard<'_>,
        buffer: &mut AlignedBuf,
        now: u32,
    ) -> bool {
        if self.left == 0 && now != self.round {
            (self.round, self.left) = (now, self.shards.len());
        }
        (0..SHARDS_PER_SLICE.min(self.left)).fold(false, |freed, _| {
            self.left -= 1;
            let at = self.shards.start + self.left;
            let unread = free_expired(engine, guard, at, now);
            let read = read_expired(engine, guard, at, buffer, now);
            self.look_at_blocks(engine, guard, at, now);
            look_at_due(engine, guard, at, buffer, now) || read || unread || freed
        })
    }

    /// Removes expired manifests from the blocks of fresh records: these may not be sealed while the cache is full of
    /// their chunks.
    fn look_at_blocks(&mut self, engine: &Engine, guard: Guard<'_>, at: usize, now: u32) {
        let (shard, due) = (&engine.shards()[at], &mut self.blocks_due[at - self.shards.start]);
        if *due > now || !shard.items_due().has_come(now) {
            return;
        }
        *due = now.saturating_add(BLOCKS_S);
        shard.items_due().clear();
        let blocks: Vec<_> = {
            let locked = shard.lock(engine.shared(), guard);
            let lanes = [locked.state().fresh(), locked.state().protected()];
            lanes
                .into_iter()
                .flat_map(LaneBlocks::all)
                .map(|block| (block.id, block.fill, 0))
                .collect()
        };
        for block in blocks {
            for batch in items::in_block(engine, guard, block).chunks(items::BATCH) {
                engine.shared().make_log_room();
                let mut locked = shard.lock(engine.shared(), guard);
                items::of_residents(engine, &mut locked, batch, now, |_| {});
            }
        }
    }
}

fn free_expired(engine: &Engine, guard: Guard<'_>, at: usize, now: u32) -> bool {
    let shard = &engine.shards()[at];
    let is_expired = |sealed: &Sealed| {
        shard.segments().is_expired(sealed.number, now)
            && !shard.segments().has_manifests(sealed.number)
    };
    let expired: Vec<_> = shard.segments().iter().filter(is_expired).collect();
    let is_busy = {
        let locked = shard.lock(engine.shared(), guard);
        locked.state().recovering().is_some() || locked.state().growing().is_some()
    };
    if expired.is_empty() || is_busy {
        return false;
    }
    drop_whole(engine, shard, guard, &expired, |sealed, records| {
        let counters = engine.shared().counters();
        counters.expired().fetch_add(records.into(), Ordering::Relaxed);
        count(counters.tier(shard.segments().slot(sealed.number).tier).expired_segments());
    });
    true
}

/// Reclaims one expired segment of a shard that holds large items: it must be read to find their chunks.
fn read_expired(
    engine: &Engine,
    guard: Guard<'_>,
    at: usize,
    buffer: &mut AlignedBuf,
    now: u32,
) -> bool {
    let segments = engine.shards()[at].segments();
    let is_expired = |sealed: &Sealed| {
        segments.is_expired(sealed.number, now) && segments.has_manifests(sealed.number)
    };
    let Some(sealed) = segments.iter().find(is_expired) else { return false };
    reclaim::reclaim(engine, guard, Victim { shard: at, sealed, keeps: Keeps::All }, buffer, now)
        .is_ok()
}

/// Removes expired manifests from one segment that has unexpired records, too.
fn look_at_due(
    engine: &Engine,
    guard: Guard<'_>,
    at: usize,
    buffer: &mut AlignedBuf,
    now: u32,
) -> bool {
    let shard = &engine.shards()[at];
    let is_due = |sealed: &Sealed| (1..=now).contains(&shard.segments().items_due(sealed.number));
    let Some(sealed) = shard.segments().iter().find(is_due) else { return false };
    let read = items::read(engine, shard, sealed, buffer);
    let looked = read
        .and_then(|()| items::of_segment((engine, guard), (shard, sealed), buffer, now, |_| {}));
    if looked.is_err() {
        shard.segments().set_items_due(sealed.number, now.saturating_add(RETRY_S));
    }
    looked.is_ok()
}
