//! Settling what SETs left undecided: background work reads the footers of the segments that have most
//! suspended entries, see [`crate::suspended`].

use crate::cache::Engine;
use crate::key::Name;
use crate::layout::Footer;
use crate::memory::Guard;
use crate::reclaim::{Unreadable, purge, read_footer};
use crate::segment::Sealed;
use crate::shard::Shard;
use std::sync::atomic::Ordering;
use terrace_device::AlignedBuf;

/// Footers read per slice.
const FOOTERS_PER_SLICE: usize = 8;
/// Slices without a store, a millisecond each, after which everything is settled that is left.
const IDLE_SLICES: u32 = 100;

/// A round over the segments of one shard.
#[derive(Default)]
pub(crate) struct Settling {
    shard: usize,
    left: Vec<Sealed>,
    /// Shards to be settled although their tables are not half full.
    leftovers: Vec<usize>,
    /// Records stored so far, and slices since there were fewer.
    stored: u64,
    idle: u32,
}

impl Settling {
    /// Settles a few segments; says whether there were any.
    pub(crate) fn step(
        &mut self,
        engine: &Engine,
        guard: Guard<'_>,
        buffer: &mut AlignedBuf,
    ) -> bool {
        self.note_idleness(engine);
        if self.left.is_empty() && !self.begin(engine, guard) {
            return false;
        }
        for _ in 0..FOOTERS_PER_SLICE {
            let Some(sealed) = self.left.pop() else { break };
            settle(engine, &engine.shards[self.shard], guard, sealed, buffer);
        }
        true
    }

    /// Once nobody stores any more, what is left is settled too, so that counts come to be exact.
    fn note_idleness(&mut self, engine: &Engine) {
        let stored = engine.pool.counters.stored.load(Ordering::Relaxed);
        self.idle = if stored == self.stored { self.idle.saturating_add(1) } else { 0 };
        self.stored = stored;
        match self.idle {
            0 => self.leftovers.clear(),
            IDLE_SLICES => self.leftovers = (0..engine.shards.len()).collect(),
            _ => {}
        }
    }

    /// Begins a round in the next shard that has used up half of its room, or that is left over.
    fn begin(&mut self, engine: &Engine, guard: Guard<'_>) -> bool {
        let shards = engine.shards.len();
        let turns = (1..=shards).map(|step| (self.shard + step) % shards);
        let is_due = |at: &usize| engine.shards[*at].is_half_suspended(guard);
        let due = turns.into_iter().find(is_due);
        let mut is_left = || {
            std::iter::from_fn(|| self.leftovers.pop())
                .find(|&at| engine.shards[at].has_suspended())
        };
        let Some(at) = due.or_else(&mut is_left) else { return false };
        let shard = &engine.shards[at];
        let locked = shard.lock(&engine.pool, guard);
        let numbers = locked.state.suspended.segments();
        self.left = numbers.filter_map(|number| shard.segments.sealed(number)).collect();
        self.left.sort_unstable_by_key(|sealed| locked.state.suspended.count(sealed.number));
        self.shard = at;
        !self.left.is_empty()
    }
}

fn settle(
    engine: &Engine,
    shard: &Shard,
    guard: Guard<'_>,
    sealed: Sealed,
    buffer: &mut AlignedBuf,
) {
    if !shard.segments.is_current(sealed) {
        return;
    }
    match read_footer(engine, shard, sealed, buffer) {
        Ok(footer) => _ = by_footer(engine, shard, guard, sealed, &footer),
        // The drive may answer another time; until then there is less room.
        Err(Unreadable::Device) => {}
        Err(Unreadable::Corrupt) => purge(engine, shard, guard, sealed),
    }
}

/// Decides about the suspended entries of a segment whose footer this is. Answers the names of those that
/// are to come back, and for which the index has no room.
pub(crate) fn by_footer(
    engine: &Engine,
    shard: &Shard,
    guard: Guard<'_>,
    sealed: Sealed,
    footer: &Footer,
) -> Vec<Name> {
    let mut locked = shard.lock(&engine.pool, guard);
    match shard.segments.is_current(sealed) {
        true => locked.settle(sealed.number, &footer.names),
        false => Vec::new(),
    }
}
