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

/// Blocks of DRAM looked through per slice.
const BLOCKS_PER_SLICE: usize = 4;
/// Seconds after which a segment that can't be read is tried again.
const RETRY_S: u32 = 10;

/// Begins a search if one is due and all shards are back.
fn begin_if_due(engine: &Engine) {
    let census = engine.recovery().census();
    if census.is_due() && engine.recovery().is_done() {
        census.begin(plan(engine), engine.shared().budget());
    }
}

/// A shard was looked through: with the last one, chunks without an owner are removed in time.
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

/// Whether large items may be on the tiers. Where a whole chunk is long enough to lie in an extent, that tells.
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

    /// Looks at what is left of the open block, if that is all there is.
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
            // Some entries may be in the index that is still being built alone.
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
        // The drive may take long, and no memory is to wait for it.
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
            // It stays damaged: what is left of it goes through DRAM, and what is not is gone.
            let victim = Victim { shard: self.at, sealed, keeps: Keeps::All };
            let _ = reclaim::reclaim(engine, guard, victim, buffer, now);
        }
    }

    fn note(&self, engine: &Engine, found: Vec<Large>) {
        engine.recovery().census().note(self.pass, found, engine.shared().budget());
    }
}
