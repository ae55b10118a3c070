//! Census: finds chunks of large items that no manifest owns, and removes them.
//!
//! A chunk has the number of its item, but not the key. A crash leaves chunks of unfinished uploads, and of items that
//! were deleted or replaced before their chunks were removed; so does a segment with manifests that could not be read
//! and was dropped. A pass of the census searches all shards, and notes every item that has a chunk, and every item
//! that a manifest owns:
//!
//! 1. The partition of the background that works on a shard searches it, so that no segment of it is sealed, compacted
//!    or reclaimed meanwhile. Segments and blocks do not change: each is read once, in any order.
//! 2. The shard is done when none is left, which is checked under its lock: then every live record was seen where it
//!    is, or where it was before. So changes and relocations of records need no note.
//! 3. When all shards are done, items with chunks and without an owner are orphans, unless their upload was in progress
//!    when the pass began, or began later.
//!
//! A segment that can't be read may hold a manifest: no chunk is removed before it can be read, or is gone. A crash
//! during a census leaves the remaining chunks to the next one.

use crate::background::footers::Unreadable;
use crate::background::reclaim::{Keeps, Victim};
use crate::background::{items, reclaim};
use crate::dram::resident::Resident;
use crate::engine::census::Plan;
use crate::engine::{Engine, chunks};
use crate::platform::quiesce::{Guard, Reader};
use crate::records::large::Large;
use crate::segments::layout::PACKED_MAX;
use crate::segments::segment::Sealed;
use crate::shard::{Locked, Shard};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use terrace_device::AlignedBuf;

/// Blocks of DRAM searched per slice.
const BLOCKS_PER_SLICE: usize = 4;
/// Seconds after which a segment that can't be read is tried again.
const RETRY_S: u32 = 10;

/// Begins a search if one is due and all shards are recovered.
fn begin_if_due(engine: &Engine) {
    let census = engine.recovery().census();
    if census.is_due() && engine.recovery().is_done() {
        census.begin(plan(engine), engine.shared().budget());
    }
}

/// Marks a shard as searched; after the last one the background removes chunks without an owner.
fn finish_shard(engine: &Engine, pass: u64, at: usize) {
    let budget = engine.shared().budget();
    let orphans = engine.recovery().census().finish((pass, at), || plan(engine), budget);
    chunks::discard_runs(engine, orphans.into_iter());
}

fn plan(engine: &Engine) -> Plan {
    Plan::new(
        engine.shards().len(),
        engine.shared().budget().limit(),
        chunks::uploads(engine),
        may_have_large_items(engine),
    )
}

/// Whether large items may be on the tiers. If whole chunks are long enough to lie in extents, the extents show it.
fn may_have_large_items(engine: &Engine) -> bool {
    let are_packed = engine.geometry().inline_bytes_max() as usize <= PACKED_MAX;
    are_packed || engine.shards().iter().any(has_large_items)
}

fn has_large_items(shard: &Shard) -> bool {
    shard.segments().iter().any(|sealed| {
        shard.segments().has_manifests(sealed.number)
            || shard.segments().extents(sealed.number).next().is_some()
    })
}

/// The search of one partition of the background through its shards.
pub(crate) struct Walk {
    shards: Range<usize>,
    /// The pass that the search belongs to.
    pass: u64,
    /// The shard that is being searched.
    at: usize,
    /// Seal sequences of its segments that were read.
    seen: HashSet<u64>,
    /// Its blocks were searched up to here: arrival order of a block, and bytes of it.
    arrival: (u64, u32),
    /// Segments that can't be read, by seal sequence.
    held: HashMap<u64, Held>,
}

/// A segment that could not be read.
struct Held {
    /// Unix seconds at which it is tried again.
    until: u32,
    /// The bytes of the drive are damaged.
    is_damaged: bool,
}

/// The next part of a shard to search.
enum Next {
    Segment(Sealed),
    /// A full block: its number, its fill, the offset from where on to search, and its order.
    Block(u32, u32, u32, u64),
    /// All is searched but a segment that can't be read.
    Held,
    /// All is searched.
    Done,
}

impl Walk {
    pub(crate) fn new(shards: Range<usize>) -> Self {
        let at = shards.start;
        Self { shards, pass: 0, at, seen: HashSet::new(), arrival: (0, 0), held: HashMap::new() }
    }

    /// Searches one segment or some blocks; `false` if there was nothing to do.
    pub(crate) fn step(
        &mut self,
        engine: &Engine,
        reader: &mut Reader,
        buffer: &mut AlignedBuf,
        now: u32,
    ) -> bool {
        if self.shards.start == 0 {
            begin_if_due(engine);
        }
        let Some((number, reads_all)) = engine.recovery().census().pass() else { return false };
        if number != self.pass {
            (self.pass, self.at) = (number, self.shards.start);
            self.begin_shard();
        }
        if self.at >= self.shards.end {
            return false;
        }
        let shard = &engine.shards()[self.at];
        for _ in 0..BLOCKS_PER_SLICE {
            let guard = engine.shared().quiesce().guard(reader);
            match self.next(engine, guard, reads_all, now) {
                Next::Block(id, fill, from, order) => {
                    self.look_at_block(engine, guard, (id, fill, from), now);
                    self.arrival = (order, fill);
                }
                Next::Segment(sealed) => {
                    self.look_at_segment((engine, reader), (shard, sealed), buffer, now);
                    return true;
                }
                Next::Held => return false,
                Next::Done => {
                    finish_shard(engine, self.pass, self.at);
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

    /// The next part to search; searches the rest of the open block itself, if that is all that is left.
    fn next(&mut self, engine: &Engine, guard: Guard<'_>, reads_all: bool, now: u32) -> Next {
        let shard = &engine.shards()[self.at];
        engine.shared().make_log_room();
        let mut locked = shard.lock(engine.shared(), guard);
        let full = locked.state().fresh().full();
        let first = full.partition_point(|block| (block.order, block.fill) <= self.arrival);
        if let Some(block) = full.get(first) {
            return Next::Block(block.id, block.fill, self.seen_of(block.order), block.order);
        }
        if locked.state().growing().is_some() {
            // Some entries may only be in the index that is still being built.
            return Next::Held;
        }
        let is_seen = |sealed: &Sealed| {
            let number = sealed.number;
            let is_void = shard.segments().usage(number).live_records() == 0
                && locked.state().deferred().count(number) == 0;
            is_void
                || self.seen.contains(&sealed.seq)
                || !reads_all && !shard.segments().has_manifests(number)
        };
        let mut held = false;
        for sealed in shard.segments().iter().filter(|sealed| !is_seen(sealed)) {
            if self.held.get(&sealed.seq).is_none_or(|held| held.until <= now) {
                return Next::Segment(sealed);
            }
            held = true;
        }
        if held {
            return Next::Held;
        }
        let open = locked.state().fresh().open();
        if let Some((id, fill, order)) = open.map(|open| (open.id(), open.fill(), open.order())) {
            let from = self.seen_of(order);
            if from == 0 && fill > 0 {
                // It may hold much; the guard keeps it while it is searched.
                return Next::Block(id, fill, from, order);
            }
            let residents: Vec<_> = items::in_block(engine, guard, (id, fill, from));
            self.show(engine, &mut locked, &residents, now);
        }
        Next::Done
    }

    /// Bytes of a block that were searched.
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
            engine.shared().make_log_room();
            let mut locked = engine.shards()[self.at].lock(engine.shared(), guard);
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
        (engine, reader): (&Engine, &mut Reader),
        (shard, sealed): (&Shard, Sealed),
        buffer: &mut AlignedBuf,
        now: u32,
    ) {
        // The drive may be slow, and no memory must wait for it.
        engine.shared().quiesce().park(reader);
        let read = items::read(engine, shard, sealed, buffer);
        let guard = engine.shared().quiesce().guard(reader);
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
            // It stays damaged: its readable records go through DRAM, and the rest is lost.
            let victim = Victim { shard: self.at, sealed, keeps: Keeps::All };
            let _ = reclaim::reclaim(engine, guard, victim, buffer, now);
        }
    }

    fn note(&self, engine: &Engine, found: Vec<Large>) {
        engine.recovery().census().note(self.pass, found, engine.shared().budget());
    }
}
