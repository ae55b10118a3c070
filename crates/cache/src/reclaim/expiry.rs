//! Segments whose records have all expired are given back without being read.

use crate::cache::Engine;
use crate::dram::memory::Guard;
use crate::recovery::crash::crash_point;
use crate::segments::segment::Sealed;
use crate::shard::Shard;
use crate::stats::counters::count;
use std::sync::atomic::Ordering;

/// Shards looked at per slice.
const SHARDS_PER_SLICE: usize = 4;
/// Buckets of the index looked at per hold of the shard's lock: some ten microseconds.
const BUCKETS_PER_HOLD: usize = 256;

/// A round over all segments, every second.
#[derive(Default)]
pub(crate) struct Expiry {
    /// Unix seconds of the round.
    round: u32,
    /// Shards still to be looked at.
    left: usize,
}

impl Expiry {
    /// Frees segments of a few shards; says whether there were any.
    pub(crate) fn step(&mut self, engine: &Engine, guard: Guard<'_>, now: u32) -> bool {
        if self.left == 0 && now != self.round {
            (self.round, self.left) = (now, engine.shards.len());
        }
        (0..SHARDS_PER_SLICE.min(self.left)).fold(false, |freed, _| {
            self.left -= 1;
            free_expired(engine, guard, self.left, now) || freed
        })
    }
}

fn free_expired(engine: &Engine, guard: Guard<'_>, at: usize, now: u32) -> bool {
    let shard = &engine.shards[at];
    // An item's chunks have no expiry of their own: somebody has to read which they are.
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
    let removed = remove_entries(engine, shard, guard, &expired);
    for (sealed, removed) in expired.into_iter().zip(removed) {
        give_back(engine, shard, guard, sealed, removed);
    }
    true
}

/// Takes the entries of segments out of the index, some buckets at a time; how many each had.
fn remove_entries(
    engine: &Engine,
    shard: &Shard,
    guard: Guard<'_>,
    expired: &[Sealed],
) -> Vec<u32> {
    let mut removed = vec![0; expired.len()];
    let place = |number| expired.iter().position(|sealed| sealed.number == number);
    let buckets = shard.index.load(guard).buckets();
    for first in (0..buckets).step_by(BUCKETS_PER_HOLD) {
        let locked = shard.lock(&engine.pool, guard);
        let index = locked.index();
        // Everything was flushed meanwhile.
        if index.buckets() != buckets || !expired.iter().all(|s| shard.segments.is_current(*s)) {
            break;
        }
        let some = first..(first + BUCKETS_PER_HOLD).min(buckets);
        let count = |number| {
            if let Some(at) = place(number) {
                removed[at] += 1;
            }
        };
        index.purge_buckets(some, |number| place(number).is_some(), count);
    }
    removed
}

fn give_back(engine: &Engine, shard: &Shard, guard: Guard<'_>, sealed: Sealed, removed: u32) {
    let mut locked = shard.lock(&engine.pool, guard);
    if !shard.segments.is_current(sealed) {
        return;
    }
    let records = shard.segments.usage(sealed.number).live_records;
    if records != removed {
        // Entries change places as others come; one may have gone past.
        locked.index().purge(sealed.number);
    }
    engine.pool.counters.expired.fetch_add(records.into(), Ordering::Relaxed);
    let slot = shard.segments.slot(sealed.number);
    count(&engine.pool.counters.tier(slot.tier).expired_segments);
    crash_point("expiry: before the end of a segment");
    engine.log_free(&locked, sealed.number);
    engine.free_segment(&mut locked, sealed.number);
    crash_point("expiry: after the end of a segment");
}
