//! Prefetches the lines that the requests of a pipeline need, before the first of them is executed.
//!
//! A lookup goes from line to line: the DRAM table names a record, the sealed index a segment, its row a place on the
//! tier. Each line, and the translation of its page, may have to come from memory. So all keys take each step together,
//! in a loop without other work: then the processor fetches as many lines at once as it can, where a loop that also
//! worked for each key would wait for one after the other.

use crate::records::key::{Key, Name};
use crate::request::session::Session;
use crate::shard::Shard;
use crate::shared::Shared;
use arrayvec::ArrayVec;

/// Keys that are prefetched together, at most.
const AHEAD_MAX: usize = 32;

/// What a request is about to do with the record of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Read it.
    Read,
    /// Store, remove or change it.
    Change,
}

#[derive(Clone, Copy)]
struct Place<'s> {
    shard: &'s Shard,
    name: Name,
    intent: Intent,
}

type Places<'s> = ArrayVec<Place<'s>, AHEAD_MAX>;

impl Session {
    /// Prefetches the lines for the requests of a pipeline; worth it for more than one. Keys behind the 32nd are
    /// ignored.
    #[inline]
    pub fn look_ahead<'k>(&self, keys: impl Iterator<Item = (Key<'k>, Intent)>) {
        let place = |(key, intent): (Key<'k>, Intent)| {
            let (shard, name) = self.shard(&key);
            Place { shard, name, intent }
        };
        let places: Places<'_> = keys.take(AHEAD_MAX).map(place).collect();
        let guard = self.guard();
        for at in &places {
            at.shard.table().load(guard).prefetch(at.name.pos);
        }
        let (shared, has_tiers) = (self.engine().shared(), self.engine().has_tiers());
        for at in places.iter().filter(|at| at.intent == Intent::Change) {
            at.shard.prefetch_change(shared, at.name.pos);
        }
        let (mut records, mut on_tiers) = (ArrayVec::<_, AHEAD_MAX>::new(), Places::new());
        for at in &places {
            let record = at.shard.table().load(guard).likely(at.name.pos);
            // A record in DRAM that changes may be a copy: its original has an entry.
            if has_tiers && (record.is_none() || at.intent == Intent::Change) {
                on_tiers.push(*at);
            }
            records.extend(record);
        }
        for addr in records {
            shared.arena().prefetch(addr);
        }
        if !on_tiers.is_empty() {
            self.look_ahead_on_tiers(&on_tiers);
        }
    }

    /// The second half, for records that may be on a tier.
    fn look_ahead_on_tiers(&self, places: &[Place<'_>]) {
        let (guard, shared) = (self.guard(), self.engine().shared());
        for at in places {
            at.shard.index().load(guard).prefetch(at.name.pos);
        }
        let mut found = ArrayVec::<_, AHEAD_MAX>::new();
        for at in places {
            if let Some(number) = at.shard.index().load(guard).likely(at.name) {
                found.push((at, number));
            }
        }
        for (at, number) in &found {
            match at.intent {
                Intent::Read => at.shard.segments().prefetch_plan(*number, at.name.pos),
                Intent::Change => at.shard.segments().prefetch(*number),
            }
        }
        for (at, number) in found.iter().filter(|(at, _)| at.intent == Intent::Change) {
            at.shard.prefetch_tombstone(shared, *number);
        }
    }
}

impl Shard {
    /// Prefetches the counts that a change updates when it voids a record in this segment; the row should be there by
    /// now.
    fn prefetch_tombstone(&self, shared: &Shared, number: u16) {
        self.deferred_at().prefetch_tally(number);
        if let Some(slot) = self.segments().likely_slot(number)
            && let Some(log) = shared.log(slot.tier)
        {
            log.prefetch(shared.slots().index(slot));
        }
    }
}
