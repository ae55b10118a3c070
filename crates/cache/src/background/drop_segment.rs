//! Drops whole segments without reading their records: all have expired, or can't be read any more.

use crate::engine::{Engine, chunks, durability};
use crate::platform::crash::crash_point;
use crate::platform::quiesce::Guard;
use crate::segments::segment::Sealed;
use crate::shard::Shard;

/// Buckets of the index searched per hold of the shard's lock: some ten microseconds.
const BUCKETS_PER_HOLD: usize = 256;

/// Drops segments of a shard, with one pass over its index for all of them. Shows `note` each dropped segment with its
/// number of records.
pub(crate) fn drop_whole(
    engine: &Engine,
    shard: &Shard,
    guard: Guard<'_>,
    gone: &[Sealed],
    mut note: impl FnMut(Sealed, u32),
) {
    end(engine, shard, guard, gone);
    let removed = remove_entries(engine, shard, guard, gone);
    for (&sealed, removed) in gone.iter().zip(removed) {
        let mut locked = shard.lock(engine.shared(), guard);
        if !shard.segments().is_current(sealed) {
            continue;
        }
        let records = shard.segments().usage(sealed.number).live_records();
        if records != removed {
            // Entries move when new ones come; one may have been missed.
            locked.index().purge(sealed.number);
        }
        note(sealed, records);
        engine.free_segment(&mut locked, sealed.number);
    }
}

/// Appends to the log that segments hold no records any more. From then on their entries need no tombstone to be
/// removed: no restart brings them back.
pub(crate) fn end(engine: &Engine, shard: &Shard, guard: Guard<'_>, gone: &[Sealed]) {
    crash_point("reclaim: before the end of a segment");
    for &sealed in gone {
        let locked = shard.lock(engine.shared(), guard);
        if shard.segments().is_current(sealed) {
            engine.log_free(&locked, sealed.number);
        }
    }
    durability::make_frees_durable(engine);
    crash_point("reclaim: after the end of a segment");
}

/// Removes the entries of segments from the index, some buckets at a time, and from the one that is being built;
/// returns their numbers by segment.
fn remove_entries(engine: &Engine, shard: &Shard, guard: Guard<'_>, gone: &[Sealed]) -> Vec<u32> {
    let mut removed = vec![0; gone.len()];
    let mut places = vec![None; engine.geometry().segments_per_shard()];
    for (at, sealed) in gone.iter().enumerate() {
        places[usize::from(sealed.number)] = Some(at);
    }
    let place = |number| places[usize::from(number)];
    let is_gone = |number| place(number).is_some();
    let buckets = shard.index().load(guard).buckets();
    for first in (0..buckets).step_by(BUCKETS_PER_HOLD) {
        let locked = shard.lock(engine.shared(), guard);
        // Everything was flushed meanwhile.
        if locked.index().buckets() != buckets
            || !gone.iter().any(|s| shard.segments().is_current(*s))
        {
            return removed;
        }
        let some = first..(first + BUCKETS_PER_HOLD).min(buckets);
        let count = |number| _ = place(number).map(|at| removed[at] += 1);
        locked.index().purge_buckets(some, is_gone, count);
    }
    if let Some(growing) = &shard.lock(engine.shared(), guard).state().growing() {
        growing.purge_buckets(0..growing.buckets(), is_gone, |_| {});
    }
    removed
}

/// Drops segments with footers that can't be read, and all their records.
pub(crate) fn purge(engine: &Engine, shard: &Shard, guard: Guard<'_>, lost: &[Sealed]) {
    lost.iter().for_each(|sealed| chunks::note_lost(engine, shard, *sealed));
    drop_whole(engine, shard, guard, lost, |_, _| {});
}
