//! Reconciles the entries that SETs deferred: reads the footers of the segments with the most deferred entries, see
//! [`crate::index::deferred`].

use crate::background::drop_segment::purge;
use crate::background::footers::{Unreadable, read_footers};
use crate::background::round::round;
use crate::engine::Engine;
use crate::index::deferred::Glance;
use crate::platform::quiesce::Guard;
use crate::records::key::Name;
use crate::segments::layout::Footer;
use crate::segments::segment::Sealed;
use crate::shard::Shard;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Footers read per slice.
const FOOTERS_PER_SLICE: usize = 16;
/// No further footer is read in a slice once they have this many names, which are kept until it ends.
const NAMES_PER_SLICE: usize = 32 << 10;
/// Slices without a store, a millisecond each, after which all remaining entries are reconciled.
const IDLE_SLICES: u32 = 100;

/// A round over the segments of some shards, one shard after the other.
pub(crate) struct Reconciliation {
    shards: Range<usize>,
    shard: usize,
    left: Vec<Sealed>,
    /// Shards to reconcile although they have room for more deferred entries.
    leftovers: Vec<usize>,
    /// Records stored so far, and slices since that changed.
    stored: u64,
    idle: u32,
    /// Segments that could not be read, left alone for the rest of a second.
    unanswered: HashSet<u64>,
    /// The present second, in unix seconds.
    second: u32,
}

impl Reconciliation {
    pub(crate) fn new(shards: Range<usize>) -> Self {
        Self {
            shard: shards.start,
            shards,
            left: Vec::new(),
            leftovers: Vec::new(),
            stored: 0,
            idle: 0,
            unanswered: HashSet::new(),
            second: 0,
        }
    }

    /// Reconciles a few segments; `false` if there were none.
    pub(crate) fn step(&mut self, engine: &Engine, guard: Guard<'_>, now: u32) -> bool {
        self.note_idleness(engine);
        if self.second != now {
            self.second = now;
            self.unanswered.clear();
        }
        if self.left.is_empty() && !self.begin(engine, guard) {
            return false;
        }
        let shard = &engine.shards()[self.shard];
        let batch = self.next_batch(shard);
        let mut footers = Vec::with_capacity(batch.len());
        let read = read_footers(engine, shard, &batch);
        for (&sealed, footer) in batch.iter().zip(read) {
            match footer {
                Ok(footer) => footers.push((sealed, footer)),
                Err(Unreadable::Corrupt) => purge(engine, shard, guard, &[sealed]),
                Err(Unreadable::Device | Unreadable::Unanswered) => {
                    self.unanswered.insert(sealed.seq);
                }
            }
        }
        // The table is much longer than the entries of one segment: one pass finds those of all.
        let numbers = footers.iter().map(|(sealed, _)| sealed.number);
        let mut glance = shard.lock(engine.shared(), guard).state().deferred().glance(numbers);
        for (sealed, footer) in &footers {
            by_footer(engine, shard, guard, *sealed, footer, &mut glance);
        }
        true
    }

    /// The segments with footers to read next, those of one tier beside each other.
    fn next_batch(&mut self, shard: &Shard) -> Vec<Sealed> {
        let (mut batch, mut names) = (Vec::new(), 0);
        while batch.len() < FOOTERS_PER_SLICE && names < NAMES_PER_SLICE {
            let Some(sealed) = self.left.pop() else { break };
            // It may have been compacted meanwhile.
            if shard.segments().is_current(sealed) {
                names += shard.segments().usage(sealed.number).records() as usize;
                batch.push(sealed);
            }
        }
        batch.sort_unstable_by_key(|sealed| shard.segments().slot(sealed.number).tier);
        batch
    }

    /// Once no record is stored any more, reconciles the remaining entries, too, so that counts become exact.
    fn note_idleness(&mut self, engine: &Engine) {
        let stored = engine.shared().counters().stored().load(Ordering::Relaxed);
        self.idle = if stored == self.stored { self.idle.saturating_add(1) } else { 0 };
        self.stored = stored;
        match self.idle {
            0 => self.leftovers.clear(),
            IDLE_SLICES => self.leftovers = self.shards.clone().collect(),
            _ => {}
        }
    }

    /// Begins a round in the next shard that has used most of its room, or in a remaining one.
    fn begin(&mut self, engine: &Engine, guard: Guard<'_>) -> bool {
        for at in round(&self.shards, self.shard) {
            // Segments with the most entries; those that are reclaimed meanwhile need no reconciliation.
            if engine.shards()[at].is_to_be_reconciled(guard)
                && self.list(engine, guard, at, FOOTERS_PER_SLICE)
            {
                return true;
            }
        }
        while let Some(at) = self.leftovers.pop() {
            if engine.shards()[at].has_deferred() && self.list(engine, guard, at, usize::MAX) {
                return true;
            }
        }
        false
    }

    /// Lists the segments of a shard with the most deferred entries; `false` if there are none.
    fn list(&mut self, engine: &Engine, guard: Guard<'_>, at: usize, wanted: usize) -> bool {
        let shard = &engine.shards()[at];
        let locked = shard.lock(engine.shared(), guard);
        let deferred = locked.state().deferred();
        let segments = deferred.segments().filter_map(|number| shard.segments().sealed(number));
        self.left = segments.filter(|sealed| !self.unanswered.contains(&sealed.seq)).collect();
        self.left.sort_unstable_by_key(|sealed| deferred.count(sealed.number));
        self.left.drain(..self.left.len().saturating_sub(wanted));
        self.shard = at;
        !self.left.is_empty()
    }
}

/// Decides the deferred entries of a segment by its footer; an earlier `glance` may have found them. Returns the names
/// of those that should return, but for which the index has no room.
pub(crate) fn by_footer(
    engine: &Engine,
    shard: &Shard,
    guard: Guard<'_>,
    sealed: Sealed,
    footer: &Footer,
    glance: &mut Glance,
) -> Vec<Name> {
    let mut locked = shard.lock(engine.shared(), guard);
    match shard.segments().is_current(sealed) {
        true => locked.decide_deferred(sealed.number, footer.names(), glance),
        false => Vec::new(),
    }
}
