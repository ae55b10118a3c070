//! Growth of the sealed index, shard by shard: a larger one is filled from the segments' footers,
//! filtered by the old one, while both serve; then it takes its place.

use crate::bucket::SLOTS;
use crate::cache::Engine;
use crate::key::Name;
use crate::memory::Guard;
use crate::reclaim::{Unreadable, purge, read_footer};
use crate::sealed::SealedIndex;
use crate::segment::{Sealed, SegmentTable};
use crate::shard::Shard;
use std::sync::atomic::Ordering;
use terrace_device::AlignedBuf;

/// Entries carried over per hold of the shard's lock.
const BATCH: usize = 128;
/// An index this full grows before more is sealed, in permille.
const CROWDED_PERMILLE: u64 = 950;
/// How full the index is meant to be when the tiers are, in permille.
const PLANNED_PERMILLE: u64 = 925;

/// What is to be done before another segment of a shard is sealed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// There is room for its entries.
    Nothing,
    /// Grow to so many buckets.
    Grow(usize),
    /// The index has its share of memory; entries have to go.
    Evict,
}

/// Whether a shard's index takes `coming` more entries.
pub(crate) fn need(engine: &Engine, shard: &Shard, guard: Guard<'_>, coming: u64) -> Need {
    let index = shard.index.load(guard);
    if (index.len() + coming) * 1000 <= index.slots() * CROWDED_PERMILLE {
        return Need::Nothing;
    }
    let buckets = next_buckets(engine, shard, index, coming);
    let added = SealedIndex::bytes_for(buckets) - index.bytes();
    let share = engine.pool.budget.limit() / 100 * u64::from(engine.tuning.index_percent);
    if engine.pool.counters.index_bytes.load(Ordering::Relaxed) + added > share {
        return Need::Evict;
    }
    Need::Grow(buckets)
}

/// A quarter more, unless less will do: growth stops at what full tiers need at the present size of
/// records.
fn next_buckets(engine: &Engine, shard: &Shard, index: &SealedIndex, coming: u64) -> usize {
    let now = index.buckets();
    let planned =
        records_when_full(engine, &shard.segments) * 1000 / PLANNED_PERMILLE / SLOTS as u64;
    let least = (index.len() + coming) * 1000 / CROWDED_PERMILLE / SLOTS as u64 + 1;
    let least = least.max(now as u64 * 103 / 100 + 1);
    let most = (now as u64 * 125 / 100).max(least);
    planned.clamp(least, most) as usize
}

/// How many records a shard has when every place holds a segment like those it has now.
fn records_when_full(engine: &Engine, segments: &SegmentTable) -> u64 {
    let (mut count, mut records) = (0, 0);
    for sealed in segments.iter() {
        count += 1;
        records += u64::from(segments.usage(sealed.number).records);
    }
    let places = u64::from(engine.slots.total()) / engine.shards.len() as u64;
    if count == 0 { u64::MAX / 2000 } else { records * places / count }
}

/// Why an index did not grow.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// No memory at the moment; hot copies have to give way.
    NoMemory,
    /// Everything was flushed meanwhile, a drive did not answer, or entries found no room; later.
    Again,
}

/// Grows a shard's index.
pub(crate) fn grow(
    engine: &Engine,
    shard: &Shard,
    guard: Guard<'_>,
    buckets: usize,
    buffer: &mut AlignedBuf,
) -> Result<(), Stopped> {
    let bytes = SealedIndex::bytes_for(buckets);
    engine.pool.arena.release(bytes, &engine.pool.budget);
    if !engine.pool.budget.take(bytes) {
        return Err(Stopped::NoMemory);
    }
    let mut locked = shard.lock(&engine.pool, guard);
    let generation = locked.state.generation;
    locked.state.growing = Some(Box::new(SealedIndex::new(buckets)));
    let segments: Vec<_> = shard.segments.iter().collect();
    drop(locked);
    // Segments sealed from here on go into both.
    let carried = segments
        .into_iter()
        .all(|sealed| carry_segment(engine, shard, guard, sealed, generation, buffer));
    let mut locked = shard.lock(&engine.pool, guard);
    let grown = locked.state.growing.take();
    match grown {
        Some(grown) if carried && locked.state.generation == generation => {
            let old = shard.index.replace(*grown);
            let counted = &engine.pool.counters.index_bytes;
            counted.fetch_add(bytes, Ordering::Relaxed);
            counted.fetch_sub(old.bytes(), Ordering::Relaxed);
            let old_bytes = old.bytes();
            engine.pool.discard(old, old_bytes);
            Ok(())
        }
        _ => {
            engine.pool.budget.give(bytes);
            Err(Stopped::Again)
        }
    }
}

fn carry_segment(
    engine: &Engine,
    shard: &Shard,
    guard: Guard<'_>,
    sealed: Sealed,
    generation: u64,
    buffer: &mut AlignedBuf,
) -> bool {
    if shard.segments.usage(sealed.number).live_records == 0 {
        return true;
    }
    let footer = match read_footer(engine, shard, sealed.number, buffer) {
        Ok(footer) => footer,
        // Nothing is given up for a drive that may answer again: the index just does not grow now.
        Err(Unreadable::Device) => return false,
        Err(Unreadable::Corrupt) => {
            purge(engine, shard, guard, sealed);
            return true;
        }
    };
    footer.names.chunks(BATCH).all(|batch| {
        let locked = shard.lock(&engine.pool, guard);
        if locked.state.generation != generation {
            return false;
        }
        let Some(growing) = &locked.state.growing else { return false };
        !shard.segments.is_current(sealed)
            || batch.iter().all(|&name| carry(locked.index(), growing, name, sealed.number))
    })
}

fn carry(old: &SealedIndex, new: &SealedIndex, name: Name, number: u16) -> bool {
    match old.get(name, number) {
        Some(entry) if new.get(name, number).is_none() => {
            new.insert(name, number, entry.uses).is_ok()
        }
        _ => true,
    }
}
