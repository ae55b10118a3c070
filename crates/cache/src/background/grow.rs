//! Growth of the sealed index, shard by shard: a larger index is filled from the segments' footers, filtered by the
//! present one, while both are updated; then it replaces that.

use crate::background::drop_segment::purge;
use crate::background::footers::{Unreadable, read_footer};
use crate::background::reconcile;
use crate::engine::Engine;
use crate::index::bucket::SLOTS;
use crate::index::deferred::Glance;
use crate::index::sealed::{PLANNED_PERMILLE, SealedIndex};
use crate::platform::quiesce::Guard;
use crate::records::key::Name;
use crate::segments::segment::{Sealed, SegmentTable};
use crate::shard::Shard;
use std::sync::atomic::Ordering;
use terrace_device::AlignedBuf;

/// Entries copied per hold of the shard's lock.
const BATCH: usize = 128;
/// Segments copied per slice, which takes about a millisecond.
const SEGMENTS_PER_SLICE: usize = 8;
/// An index this full should grow, in permille.
const WANTED_PERMILLE: u64 = 930;
/// An index this full takes no more entries, in permille; see the test that fills one.
const CROWDED_PERMILLE: u64 = 960;

/// How urgently a shard's index must grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pressure {
    None,
    /// Growth should begin soon.
    Wanted,
    /// Growth must end before the next seal.
    Needed,
}

/// How urgently a shard's index must grow to take `coming` more entries.
pub(crate) fn pressure(shard: &Shard, guard: Guard<'_>, coming: u64) -> Pressure {
    let index = shard.index().load(guard);
    let permille = (index.len() + coming) * 1000 / index.slots();
    if permille > CROWDED_PERMILLE || index.refuses(index.len() + coming) {
        Pressure::Needed
    } else if permille > WANTED_PERMILLE {
        Pressure::Wanted
    } else {
        Pressure::None
    }
}

/// A quarter more, unless fewer are enough: growth stops at what full tiers need with the present record size. Far
/// below that it is half more, since each step reads all footers again.
fn next_buckets(engine: &Engine, shard: &Shard, index: &SealedIndex, coming: u64) -> usize {
    let now = index.buckets() as u64;
    let planned =
        records_when_full(engine, shard.segments()) * 1000 / PLANNED_PERMILLE / SLOTS as u64;
    let too_few = now.max(index.outgrown());
    let least = least_buckets(index, coming).max(too_few * 103 / 100 + 1);
    let step = if now * 2 < planned { 150 } else { 125 };
    planned.clamp(least, (now * step / 100).max(least)) as usize
}

fn least_buckets(index: &SealedIndex, coming: u64) -> u64 {
    (index.len() + coming) * 1000 / WANTED_PERMILLE / SLOTS as u64 + 1
}

/// Records of a shard when every slot holds a segment like those it has now.
fn records_when_full(engine: &Engine, segments: &SegmentTable) -> u64 {
    let (mut count, mut records) = (0, 0);
    for sealed in segments.iter() {
        count += 1;
        records += u64::from(segments.usage(sealed.number).records());
    }
    let places = u64::from(engine.shared().slots().total()) / engine.shards().len() as u64;
    // Without any segment, nothing limits a step.
    (records * places).checked_div(count).unwrap_or(u64::MAX / 2000)
}

/// Why an index can't grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There is no memory at the moment; copies must be dropped.
    NoMemory,
    /// The indexes have their share of memory; entries must be removed.
    AtShare,
    /// A drive does not answer, so that its segments can't be copied.
    Unanswered,
}

/// The growth of one shard's index, done in slices.
pub(crate) struct Growth {
    shard: usize,
    generation: u64,
    /// Bytes of the new index, taken from the budget.
    bytes: u64,
    /// Bytes that it has more than the old one.
    more: u64,
    /// Entries that it must have room for in addition.
    coming: u64,
    /// Segments still to be copied. Those sealed since the start are in both indexes anyway.
    segments: Vec<Sealed>,
    /// Segments with a failed read, to be tried a second time after all the rest.
    unread: Vec<Sealed>,
    is_second_try: bool,
}

/// The result of copying a segment's entries.
#[derive(Debug, PartialEq, Eq)]
enum Carried {
    Done,
    /// Its drive failed.
    Unread,
    /// The new index can't replace the old one.
    Failed,
}

/// Takes the memory for a larger index of shard `at` and begins to fill it.
pub(crate) fn start(
    engine: &Engine,
    guard: Guard<'_>,
    at: usize,
    coming: u64,
) -> Result<Growth, Refused> {
    if engine.shared().slots().is_any_silent() {
        return Err(Refused::Unanswered);
    }
    let shard = &engine.shards()[at];
    let index = shard.index().load(guard);
    let mut buckets = next_buckets(engine, shard, index, coming);
    if let Err(refused) = take_memory(engine, index, buckets) {
        if shard.segments().iter().next().is_some() {
            return Err(refused);
        }
        // There is no segment to reclaim: a shard that can't seal its first one would wait for ever.
        buckets = least_buckets(index, coming) as usize;
        force_memory(engine, index, buckets);
    }
    let (bytes, more) = (SealedIndex::bytes_for(buckets), more_bytes(index, buckets));
    let mut locked = shard.lock(engine.shared(), guard);
    locked.begin_growth(SealedIndex::new(buckets));
    let generation = locked.state().generation();
    let segments = shard.segments().iter().collect();
    let unread = Vec::new();
    Ok(Growth {
        shard: at,
        generation,
        bytes,
        more,
        coming,
        segments,
        unread,
        is_second_try: false,
    })
}

/// Bytes that an index of `buckets` buckets has more than this one.
fn more_bytes(index: &SealedIndex, buckets: usize) -> u64 {
    SealedIndex::bytes_for(buckets).saturating_sub(index.bytes())
}

/// Takes the memory for an index of `buckets` buckets beside this one.
fn take_memory(engine: &Engine, index: &SealedIndex, buckets: usize) -> Result<(), Refused> {
    let (bytes, more) = (SealedIndex::bytes_for(buckets), more_bytes(index, buckets));
    let counters = engine.shared().counters();
    let counted = counters.index_bytes().load(Ordering::Relaxed);
    let growing = counters.index_growing_bytes().fetch_add(more, Ordering::Relaxed);
    let refuse = |why| {
        counters.index_growing_bytes().fetch_sub(more, Ordering::Relaxed);
        Err(why)
    };
    if counted + growing + more > engine.index_share() {
        return refuse(Refused::AtShare);
    }
    engine.shared().arena().release(bytes, engine.shared().budget());
    if !engine.shared().budget().take(bytes) {
        return refuse(Refused::NoMemory);
    }
    Ok(())
}

/// As [`take_memory`], beyond the share of the indexes and the budget.
fn force_memory(engine: &Engine, index: &SealedIndex, buckets: usize) {
    let more = more_bytes(index, buckets);
    engine.shared().counters().index_growing_bytes().fetch_add(more, Ordering::Relaxed);
    engine.shared().budget().force(SealedIndex::bytes_for(buckets));
}

impl Growth {
    /// Copies some segments; `false` when the growth has ended.
    pub(crate) fn step(
        &mut self,
        engine: &Engine,
        guard: Guard<'_>,
        buffer: &mut AlignedBuf,
    ) -> bool {
        let shard = &engine.shards()[self.shard];
        for _ in 0..SEGMENTS_PER_SLICE {
            let Some(sealed) = self.segments.pop() else {
                if self.try_again() {
                    return true;
                }
                let is_complete = self.give_up_unread(engine, guard);
                self.finish(engine, guard, is_complete);
                return false;
            };
            match carry_segment(engine, shard, guard, sealed, self.generation, buffer) {
                Carried::Done => {}
                Carried::Unread => self.unread.push(sealed),
                Carried::Failed => {
                    self.finish(engine, guard, false);
                    return false;
                }
            }
        }
        true
    }

    /// Returns once to the segments with a failed read.
    fn try_again(&mut self) -> bool {
        if !std::mem::replace(&mut self.is_second_try, true) {
            self.segments = std::mem::take(&mut self.unread);
        }
        !self.segments.is_empty()
    }

    /// Whether the new index can do without the segments that were not read. The growth is given up, since a drive may
    /// recover, unless nothing can be sealed any more: then these segments are dropped.
    fn give_up_unread(&mut self, engine: &Engine, guard: Guard<'_>) -> bool {
        let shard = &engine.shards()[self.shard];
        if self.unread.is_empty() {
            return true;
        }
        let is_needed = pressure(shard, guard, self.coming) == Pressure::Needed;
        if is_needed {
            purge(engine, shard, guard, &self.unread);
        }
        is_needed
    }

    /// Replaces the old index by the new one, or drops the new one if entries are missing.
    fn finish(&self, engine: &Engine, guard: Guard<'_>, is_complete: bool) {
        let shard = &engine.shards()[self.shard];
        engine.shared().counters().index_growing_bytes().fetch_sub(self.more, Ordering::Relaxed);
        let mut locked = shard.lock(engine.shared(), guard);
        let (grown, carried) = locked.take_growth();
        match grown {
            Some(grown) if is_complete && locked.state().generation() == self.generation => {
                // Entries that are still deferred were decided; those that must return are in the new index, unless
                // their record is gone.
                for (name, number) in carried {
                    if grown.get(name, number).is_some() {
                        locked.add_live(number, shard.segments().average_bytes(number));
                    }
                }
                let old = shard.index().replace(*grown);
                let old_bytes = old.bytes();
                let counted = &engine.shared().counters().index_bytes();
                counted.fetch_add(self.bytes, Ordering::Relaxed);
                counted.fetch_sub(old_bytes, Ordering::Relaxed);
                engine.shared().discard(old, old_bytes);
                // In this order: a reader that saw the old index and no deferred entries must look again.
                locked.note_move();
                locked.clear_deferred();
            }
            _ => engine.shared().budget().give(self.bytes),
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
) -> Carried {
    // The segments were listed when the growth began; some were reclaimed since, and their numbers may have new ones.
    if !shard.segments().is_current(sealed) {
        return Carried::Done;
    }
    let is_deferred =
        shard.lock(engine.shared(), guard).state().deferred().count(sealed.number) > 0;
    if shard.segments().usage(sealed.number).live_records() == 0 && !is_deferred {
        return Carried::Done;
    }
    let footer = match read_footer(engine, shard, sealed, buffer) {
        Ok(footer) => footer,
        Err(Unreadable::Device) => return Carried::Unread,
        // A later growth can read it; nothing is lost.
        Err(Unreadable::Unanswered) => return Carried::Failed,
        Err(Unreadable::Corrupt) => {
            purge(engine, shard, guard, &[sealed]);
            return Carried::Done;
        }
    };
    let stuck = reconcile::by_footer(engine, shard, guard, sealed, &footer, &mut Glance::default());
    let is_carried = |name: &Name| {
        let locked = shard.lock(engine.shared(), guard);
        let growing = locked.state().growing().as_ref();
        growing.is_some_and(|index| index.get(*name, sealed.number).is_some())
            || !locked.is_deferred(*name, sealed.number)
    };
    if !stuck.iter().all(is_carried) {
        return Carried::Failed;
    }
    let is_carried = footer.names().chunks(BATCH).all(|batch| {
        let locked = shard.lock(engine.shared(), guard);
        if locked.state().generation() != generation {
            return false;
        }
        let Some(growing) = locked.state().growing() else { return false };
        !shard.segments().is_current(sealed)
            || batch.iter().all(|&name| carry(locked.index(), growing, name, sealed.number))
    });
    if is_carried { Carried::Done } else { Carried::Failed }
}

fn carry(old: &SealedIndex, new: &SealedIndex, name: Name, number: u16) -> bool {
    match old.get(name, number) {
        Some(entry) if new.get(name, number).is_none() => {
            let carried = new.insert(name, number, entry.uses()).is_ok();
            if !carried {
                old.note_outgrown(new.buckets());
            }
            carried
        }
        _ => true,
    }
}
