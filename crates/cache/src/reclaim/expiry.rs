//! Segments whose records have all expired are given back, without being read unless there are large items in
//! them.

use crate::cache::Engine;
use crate::dram::memory::Guard;
use crate::reclaim::whole::drop_whole;
use crate::reclaim::{self, Keeps, Victim};
use crate::segments::segment::Sealed;
use crate::stats::counters::count;
use std::ops::Range;
use std::sync::atomic::Ordering;
use terrace_device::AlignedBuf;

/// Shards looked at per slice.
const SHARDS_PER_SLICE: usize = 4;

/// A round over all segments of some shards, every second.
pub(crate) struct Expiry {
    shards: Range<usize>,
    /// Unix seconds of the round.
    round: u32,
    /// Shards still to be looked at.
    left: usize,
}

impl Expiry {
    pub(crate) fn new(shards: Range<usize>) -> Self {
        Self { shards, round: 0, left: 0 }
    }

    /// Frees segments of a few shards; says whether there were any.
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
            read_expired(engine, guard, at, buffer, now) || unread || freed
        })
    }
}

fn free_expired(engine: &Engine, guard: Guard<'_>, at: usize, now: u32) -> bool {
    let shard = &engine.shards[at];
    let is_expired = |sealed: &Sealed| {
        shard.segments.is_expired(sealed.number, now)
            && !shard.segments.has_manifests(sealed.number)
    };
    let expired: Vec<_> = shard.segments.iter().filter(is_expired).collect();
    let is_busy = {
        let locked = shard.lock(&engine.pool, guard);
        locked.state.awaited.is_some() || locked.state.growing.is_some()
    };
    if expired.is_empty() || is_busy {
        return false;
    }
    drop_whole(engine, shard, guard, &expired, |sealed, records| {
        let counters = &engine.pool.counters;
        counters.expired.fetch_add(records.into(), Ordering::Relaxed);
        count(&counters.tier(shard.segments.slot(sealed.number).tier).expired_segments);
    });
    true
}

/// Takes back one expired segment of a shard that has large items: somebody has to read which chunks are theirs.
fn read_expired(
    engine: &Engine,
    guard: Guard<'_>,
    at: usize,
    buffer: &mut AlignedBuf,
    now: u32,
) -> bool {
    let segments = &engine.shards[at].segments;
    let is_expired = |sealed: &Sealed| {
        segments.is_expired(sealed.number, now) && segments.has_manifests(sealed.number)
    };
    let Some(sealed) = segments.iter().find(is_expired) else { return false };
    reclaim::reclaim(engine, guard, Victim { shard: at, sealed, keeps: Keeps::All }, buffer, now)
        .is_ok()
}
