//! Census: finds the chunks of large items that no manifest owns, and has them removed.
//!
//! A chunk does not say which key it belongs to, only the number of its item. A crash leaves chunks behind of uploads
//! that did not come to their end, and of items that were deleted or replaced and whose chunks were still to be
//! removed; so does a segment with manifests that could not be read and was given up. A pass of the census looks
//! through all shards, and notes every item that has a chunk, and every one that a manifest owns:
//!
//! 1. A shard is looked through by the part of the background that works on it, so that no segment of it is sealed,
//!    merged or taken back meanwhile. Segments and blocks do not change: each is looked at once, in any order.
//! 2. The shard is done when none is left, which is found out under its lock: then every record that is alive was seen
//!    where it lies, or where it lay before. So nothing need be noted when records change or move.
//! 3. When all shards are done, items that have chunks and no owner are orphans, unless their upload was under way when
//!    the pass began, or began later.
//!
//! A segment that can't be read may have a manifest in it: until it can be, or is gone, no chunk is removed. A crash
//! within a census leaves what it has not removed to the next one.

use crate::background::items::Large;
use crate::background::reclaim::{Keeps, Unreadable, Victim};
use crate::background::{items, reclaim};
use crate::dram::resident::Resident;
use crate::facade::cache::Engine;
use crate::platform::lock::lock;
use crate::platform::quiesce::{Guard, Participant};
use crate::records::manifest::{ItemId, Run};
use crate::segments::layout::PACKED_MAX;
use crate::segments::segment::Sealed;
use crate::shard::{Locked, Shard};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use terrace_device::AlignedBuf;

/// One part of memory in so many is what the table of items takes, at most.
const MEMORY_SHARE: u64 = 64;
/// Bytes for an item: its entry, and what a table that grows holds besides.
const ITEM_BYTES: u64 = 64;
/// Blocks of DRAM looked through per slice.
const BLOCKS_PER_SLICE: usize = 4;
/// Seconds after which a segment that can't be read is tried again.
const RETRY_S: u32 = 10;

/// The search for chunks without an owner.
#[derive(Default)]
pub(crate) struct Census {
    /// Another search is to be made.
    is_due: AtomicBool,
    is_under_way: AtomicBool,
    /// Shards that the pass has yet to look through.
    waiting: AtomicUsize,
    orphaned_chunks: AtomicU64,
    pass: Mutex<Pass>,
}

/// One pass through all shards.
#[derive(Default)]
struct Pass {
    /// Counts passes.
    number: u64,
    /// By shard: whether it was looked through.
    done: Vec<bool>,
    /// Items that have a chunk or an owner; at most `items_max`.
    items: HashMap<ItemId, Item>,
    items_max: usize,
    /// Bytes of the budget that the table has.
    bytes: u64,
    /// Which items are noted.
    sample: Sample,
    /// Those of later passes.
    samples: Vec<Sample>,
    /// Uploads that were under way at the beginning.
    uploads: HashSet<ItemId>,
    /// The number of the first item that began later.
    next_item: u64,
    /// Segments without a manifest are looked through: there are large items on the tiers.
    reads_all: bool,
}

/// What is known of an item.
#[derive(Clone, Copy, Default)]
struct Item {
    /// One more than the highest chunk that was found.
    chunks: u32,
    has_owner: bool,
}

/// The items whose scattered numbers begin with some bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sample {
    bits: u32,
    value: u64,
}

impl Sample {
    fn holds(self, item: ItemId) -> bool {
        // Numbers follow each other; a multiple of 2^64 divided by the golden ratio scatters them.
        let scattered = item.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        scattered.checked_shr(u64::BITS - self.bits).unwrap_or(0) == self.value
    }

    fn halves(self) -> [Self; 2] {
        [0, 1].map(|bit| Self { bits: self.bits + 1, value: self.value << 1 | bit })
    }
}

impl Census {
    /// Has the search begin as soon as all shards are back.
    pub(crate) fn ask(&self) {
        self.is_due.store(true, Ordering::Release);
    }

    /// Whether a search is under way, or about to be.
    pub(crate) fn is_running(&self) -> bool {
        self.is_due.load(Ordering::Acquire) || self.is_under_way.load(Ordering::Acquire)
    }

    pub(crate) fn shards_waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Chunks that were found without an owner since the start.
    pub(crate) fn orphaned_chunks(&self) -> u64 {
        self.orphaned_chunks.load(Ordering::Relaxed)
    }

    /// Begins a search if one is due.
    fn begin_if_due(&self, engine: &Engine) {
        let is_due = self.is_due.load(Ordering::Acquire) && engine.recovery.is_done();
        if !is_due || self.is_under_way.load(Ordering::Acquire) {
            return;
        }
        let mut pass = lock(&self.pass);
        pass.samples = vec![Sample::default()];
        self.begin_next(&mut pass, engine);
        self.is_due.store(false, Ordering::Release);
    }

    /// Begins the next pass, or ends the search.
    fn begin_next(&self, pass: &mut Pass, engine: &Engine) {
        pass.clear(engine);
        let Some(sample) = pass.samples.pop() else {
            return self.is_under_way.store(false, Ordering::Release);
        };
        pass.sample = sample;
        (pass.uploads, pass.next_item) = engine.uploads();
        let room = engine.pool.budget.limit() / MEMORY_SHARE / ITEM_BYTES;
        pass.items_max = room.max(1) as usize;
        pass.done = vec![false; engine.shards.len()];
        pass.reads_all = may_have_large_items(engine);
        pass.number += 1;
        self.waiting.store(engine.shards.len(), Ordering::Relaxed);
        self.is_under_way.store(true, Ordering::Release);
    }

    /// A shard of a pass was looked through. With the last one it is known who has no owner.
    fn finish(&self, engine: &Engine, number: u64, at: usize) {
        let mut pass = lock(&self.pass);
        if pass.number != number || std::mem::replace(&mut pass.done[at], true) {
            return;
        }
        if self.waiting.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        if !pass.reads_all && may_have_large_items(engine) {
            // They were sealed meanwhile, and some may have left their block before that was looked at.
            let sample = pass.sample;
            pass.samples.push(sample);
            return self.begin_next(&mut pass, engine);
        }
        let orphans = pass.orphans(engine.next_item.load(Ordering::Relaxed));
        let chunks: u64 = orphans.iter().map(|run| u64::from(run.chunks)).sum();
        self.orphaned_chunks.fetch_add(chunks, Ordering::Relaxed);
        engine.discard_runs(orphans.into_iter());
        self.begin_next(&mut pass, engine);
    }
}

/// Whether large items may be on the tiers. Where a whole chunk is long enough to lie in an extent, that tells.
fn may_have_large_items(engine: &Engine) -> bool {
    let are_packed = engine.geometry.inline_bytes_max() as usize <= PACKED_MAX;
    are_packed || engine.shards.iter().any(has_large_items)
}

fn has_large_items(shard: &Shard) -> bool {
    shard.segments.iter().any(|sealed| {
        shard.segments.has_manifests(sealed.number)
            || shard.segments.extents(sealed.number).next().is_some()
    })
}

impl Pass {
    fn clear(&mut self, engine: &Engine) {
        self.items = HashMap::new();
        self.uploads = HashSet::new();
        engine.pool.budget.give(std::mem::take(&mut self.bytes));
    }

    fn note(&mut self, large: Large, engine: &Engine) {
        match large {
            Large::Chunk(item, index) => self.note_item(item, index.saturating_add(1), false),
            Large::Manifest(manifest) => {
                manifest.runs.iter().for_each(|run| self.note_item(run.item, 0, true));
            }
        }
        let bytes = self.items.len() as u64 * ITEM_BYTES;
        engine.pool.budget.force(bytes.saturating_sub(self.bytes));
        self.bytes = self.bytes.max(bytes);
    }

    fn note_item(&mut self, number: ItemId, chunks: u32, has_owner: bool) {
        if !self.sample.holds(number) {
            return;
        }
        let item = self.items.entry(number).or_default();
        item.chunks = item.chunks.max(chunks);
        item.has_owner |= has_owner;
        while self.items.len() > self.items_max && self.sample.bits + 1 < u64::BITS {
            let [sample, later] = self.sample.halves();
            self.sample = sample;
            self.samples.push(later);
            self.items.retain(|&item, _| sample.holds(item));
        }
    }

    /// The chunks of items without an owner, in the order of their numbers; `next_item` is the next one's.
    fn orphans(&self, next_item: u64) -> Vec<Run> {
        let begun = next_item.wrapping_sub(self.next_item);
        let is_new = |item: ItemId| {
            self.uploads.contains(&item) || item.0.wrapping_sub(self.next_item) < begun
        };
        let orphans =
            self.items.iter().filter(|(number, item)| !item.has_owner && !is_new(**number));
        let run = |(&item, &Item { chunks, .. }): (&ItemId, &Item)| Run {
            item,
            chunks,
            chunk_bytes: 0,
            last_bytes: 0,
        };
        let mut orphans: Vec<_> = orphans.map(run).collect();
        orphans.sort_unstable_by_key(|run| run.item.0);
        orphans
    }
}

/// What one part of the background has looked at of its shards.
pub(crate) struct Walk {
    shards: Range<usize>,
    /// The pass that it is of.
    pass: u64,
    /// The shard whose turn it is.
    at: usize,
    /// Seal sequences of its segments that were looked through.
    seen: HashSet<u64>,
    /// Its blocks were looked through up to here: arrival order of a block, and bytes of it.
    arrival: (u64, u32),
    /// Segments that can't be read, by their seal sequences.
    held: HashMap<u64, Held>,
}

/// A segment that could not be read.
struct Held {
    /// Unix seconds at which it is tried again.
    until: u32,
    /// What the drive brought does not check out.
    is_damaged: bool,
}

/// What is to be looked at next of a shard.
enum Next {
    Segment(Sealed),
    /// The number of a full block, how far it is filled, and from where on it was not looked at.
    Block(u32, u32, u32, u64),
    /// Everything was looked at but a segment that can't be read.
    Held,
    /// Everything was looked at.
    Done,
}

impl Walk {
    pub(crate) fn new(shards: Range<usize>) -> Self {
        let at = shards.start;
        Self { shards, pass: 0, at, seen: HashSet::new(), arrival: (0, 0), held: HashMap::new() }
    }

    /// Looks at one segment or some blocks; says whether there was anything to do.
    pub(crate) fn step(
        &mut self,
        engine: &Engine,
        participant: &mut Participant,
        buffer: &mut AlignedBuf,
        now: u32,
    ) -> bool {
        let census = &engine.recovery.census;
        if self.shards.start == 0 {
            census.begin_if_due(engine);
        }
        if !census.is_under_way.load(Ordering::Acquire) {
            return false;
        }
        let (number, reads_all) = {
            let pass = lock(&census.pass);
            (pass.number, pass.reads_all)
        };
        if number != self.pass {
            (self.pass, self.at) = (number, self.shards.start);
            self.begin_shard();
        }
        if self.at >= self.shards.end {
            return false;
        }
        let shard = &engine.shards[self.at];
        for _ in 0..BLOCKS_PER_SLICE {
            let guard = engine.pool.quiesce.guard(participant);
            match self.next(engine, guard, reads_all, now) {
                Next::Block(id, fill, from, order) => {
                    self.look_at_block(engine, guard, (id, fill, from), now);
                    self.arrival = (order, fill);
                }
                Next::Segment(sealed) => {
                    self.look_at_segment((engine, participant), (shard, sealed), buffer, now);
                    return true;
                }
                Next::Held => return false,
                Next::Done => {
                    census.finish(engine, self.pass, self.at);
                    self.at += 1;
                    self.begin_shard();
                    return true;
                }
            }
        }
        true
    }

    fn begin_shard(&mut self) {
        self.seen.clear();
        self.held.clear();
        self.arrival = (0, 0);
    }

    /// Looks at what is left of the open block, if that is all there is.
    fn next(&mut self, engine: &Engine, guard: Guard<'_>, reads_all: bool, now: u32) -> Next {
        let shard = &engine.shards[self.at];
        engine.pool.make_log_room();
        let mut locked = shard.lock(&engine.pool, guard);
        let full = &locked.state.fresh.full;
        let first = full.partition_point(|block| (block.order, block.fill) <= self.arrival);
        if let Some(block) = full.get(first) {
            return Next::Block(block.id, block.fill, self.seen_of(block.order), block.order);
        }
        if locked.state.growing.is_some() {
            // Some entries may be in the index that is still being built alone.
            return Next::Held;
        }
        let is_seen = |sealed: &Sealed| {
            let number = sealed.number;
            let is_void = shard.segments.usage(number).live_records == 0
                && locked.state.suspended.count(number) == 0;
            is_void
                || self.seen.contains(&sealed.seq)
                || !reads_all && !shard.segments.has_manifests(number)
        };
        let mut held = false;
        for sealed in shard.segments.iter().filter(|sealed| !is_seen(sealed)) {
            if self.held.get(&sealed.seq).is_none_or(|held| held.until <= now) {
                return Next::Segment(sealed);
            }
            held = true;
        }
        if held {
            return Next::Held;
        }
        let open = locked.state.fresh.open.as_ref();
        if let Some((id, fill, order)) = open.map(|open| (open.id, open.fill(), open.order())) {
            let from = self.seen_of(order);
            if from == 0 && fill > 0 {
                // It may hold much, and stays for as long as it is looked at.
                return Next::Block(id, fill, from, order);
            }
            let residents: Vec<_> = items::in_block(engine, guard, (id, fill, from));
            self.show(engine, &mut locked, &residents, now);
        }
        Next::Done
    }

    /// Bytes of a block that were looked at.
    fn seen_of(&self, order: u64) -> u32 {
        if self.arrival.0 == order { self.arrival.1 } else { 0 }
    }

    fn look_at_block(
        &self,
        engine: &Engine,
        guard: Guard<'_>,
        (id, fill, from): (u32, u32, u32),
        now: u32,
    ) {
        let residents = items::in_block(engine, guard, (id, fill, from));
        for batch in residents.chunks(items::BATCH) {
            engine.pool.make_log_room();
            let mut locked = engine.shards[self.at].lock(&engine.pool, guard);
            self.show(engine, &mut locked, batch, now);
        }
    }

    fn show(&self, engine: &Engine, locked: &mut Locked<'_>, residents: &[Resident<'_>], now: u32) {
        let mut found = Vec::new();
        items::of_residents(engine, locked, residents, now, |large| found.push(large));
        self.note(engine, found);
    }

    fn look_at_segment(
        &mut self,
        (engine, participant): (&Engine, &mut Participant),
        (shard, sealed): (&Shard, Sealed),
        buffer: &mut AlignedBuf,
        now: u32,
    ) {
        // The drive may take long, and no memory is to wait for it.
        engine.pool.quiesce.park(participant);
        let read = items::read(engine, shard, sealed, buffer);
        let guard = engine.pool.quiesce.guard(participant);
        let mut found = Vec::new();
        let looked = read.and_then(|()| {
            let parts = (engine, guard);
            items::of_segment(parts, (shard, sealed), buffer, now, |large| found.push(large))
        });
        let is_damaged = match looked {
            Ok(()) => {
                self.note(engine, found);
                self.seen.insert(sealed.seq);
                return;
            }
            Err(Unreadable::Corrupt) => true,
            Err(Unreadable::Device | Unreadable::Unanswered) => false,
        };
        let held = Held { until: now.saturating_add(RETRY_S), is_damaged };
        let before = self.held.insert(sealed.seq, held);
        if is_damaged && before.is_some_and(|held| held.is_damaged) {
            // It stays damaged: what is left of it goes through DRAM, and what is not is gone.
            let victim = Victim { shard: self.at, sealed, keeps: Keeps::All };
            let _ = reclaim::reclaim(engine, guard, victim, buffer, now);
        }
    }

    fn note(&self, engine: &Engine, found: Vec<Large>) {
        let mut pass = lock(&engine.recovery.census.pass);
        if pass.number == self.pass {
            found.into_iter().for_each(|large| pass.note(large, engine));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_leaves_the_other_half_of_the_items_to_a_later_pass() {
        let mut pass = Pass { items_max: 100, ..Pass::default() };
        (0..1000).for_each(|item| pass.note_item(ItemId(item), 1, false));
        assert!(pass.items.len() <= 100);
        assert!(pass.items.keys().all(|&item| pass.sample.holds(item)));
        let samples: Vec<_> = pass.samples.iter().chain([&pass.sample]).collect();
        for item in (0..1000).map(ItemId) {
            assert_eq!(samples.iter().filter(|sample| sample.holds(item)).count(), 1);
        }
        let noted = (0..1000).filter(|&item| pass.sample.holds(ItemId(item))).count();
        assert_eq!(pass.orphans(0).len(), noted, "all that are of this pass");
    }

    #[test]
    fn items_with_an_owner_and_new_ones_are_no_orphans() {
        let (items_max, next_item) = (100, 50);
        let uploads = HashSet::from([ItemId(7)]);
        let mut pass = Pass { items_max, next_item, uploads, ..Pass::default() };
        for item in [3, 7, 9, 11, 49, 50, 59, 60] {
            pass.note_item(ItemId(item), item as u32, false);
        }
        pass.note_item(ItemId(9), 0, true);
        let orphans: Vec<_> = pass.orphans(60).iter().map(|run| (run.item.0, run.chunks)).collect();
        assert_eq!(orphans, [(3, 3), (11, 11), (49, 49), (60, 60)]);
    }
}
