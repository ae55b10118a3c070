//! Settling what SETs left undecided: background work reads the footers of the segments that have most
//! suspended entries, see [`crate::index::suspended`].

use crate::background::reclaim::{Unreadable, purge, read_footers};
use crate::background::scheduler::round;
use crate::dram::memory::Guard;
use crate::facade::cache::Engine;
use crate::index::bucket::Entry;
use crate::index::sealed::SealedIndex;
use crate::index::suspended::Glance;
use crate::records::key::Name;
use crate::segments::layout::Footer;
use crate::segments::segment::Sealed;
use crate::shard::{Candidates, Locked, Shard};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Footers read per slice.
const FOOTERS_PER_SLICE: usize = 16;
/// No further footer is read in a slice once they have so many names, which are kept until it ends.
const NAMES_PER_SLICE: usize = 32 << 10;
/// Slices without a store, a millisecond each, after which everything is settled that is left.
const IDLE_SLICES: u32 = 100;

/// One entry in so many may be suspended: up to two thirds of a byte of DRAM per record, while records are
/// overwritten.
const SUSPENDED_SHARE: u64 = 16;
/// Entries that may be suspended however small the index is.
const SUSPENDED_MIN: u64 = 64;

fn suspended_max(index: &SealedIndex) -> u64 {
    (index.len() / SUSPENDED_SHARE).max(SUSPENDED_MIN)
}

/// A round over the segments of one shard after the other, of some.
pub(crate) struct Settling {
    shards: Range<usize>,
    shard: usize,
    left: Vec<Sealed>,
    /// Shards to be settled although they have room for more.
    leftovers: Vec<usize>,
    /// Records stored so far, and slices since there were fewer.
    stored: u64,
    idle: u32,
    /// Segments whose drive did not answer, left alone for the rest of a second.
    unanswered: HashSet<u64>,
    /// Unix seconds.
    second: u32,
}

impl Settling {
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

    /// Settles a few segments; says whether there were any.
    pub(crate) fn step(&mut self, engine: &Engine, guard: Guard<'_>, now: u32) -> bool {
        self.note_idleness(engine);
        if self.second != now {
            self.second = now;
            self.unanswered.clear();
        }
        if self.left.is_empty() && !self.begin(engine, guard) {
            return false;
        }
        let shard = &engine.shards[self.shard];
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
        // The table is longer than what it has of a segment: all are looked for at once.
        let numbers = footers.iter().map(|(sealed, _)| sealed.number);
        let mut glance = shard.lock(&engine.pool, guard).state.suspended.glance(numbers);
        for (sealed, footer) in &footers {
            by_footer(engine, shard, guard, *sealed, footer, &mut glance);
        }
        true
    }

    /// The segments whose footers are read next, those of one tier beside each other.
    fn next_batch(&mut self, shard: &Shard) -> Vec<Sealed> {
        let (mut batch, mut names) = (Vec::new(), 0);
        while batch.len() < FOOTERS_PER_SLICE && names < NAMES_PER_SLICE {
            let Some(sealed) = self.left.pop() else { break };
            // It may have been merged meanwhile.
            if shard.segments.is_current(sealed) {
                names += shard.segments.usage(sealed.number).records as usize;
                batch.push(sealed);
            }
        }
        batch.sort_unstable_by_key(|sealed| shard.segments.slot(sealed.number).tier);
        batch
    }

    /// Once nobody stores any more, what is left is settled too, so that counts come to be exact.
    fn note_idleness(&mut self, engine: &Engine) {
        let stored = engine.pool.counters.stored.load(Ordering::Relaxed);
        self.idle = if stored == self.stored { self.idle.saturating_add(1) } else { 0 };
        self.stored = stored;
        match self.idle {
            0 => self.leftovers.clear(),
            IDLE_SLICES => self.leftovers = self.shards.clone().collect(),
            _ => {}
        }
    }

    /// Begins a round in the next shard that has used up most of its room, or that is left over.
    fn begin(&mut self, engine: &Engine, guard: Guard<'_>) -> bool {
        for at in round(&self.shards, self.shard) {
            // Those that have most now; what is merged or taken back meanwhile needs no settling.
            if engine.shards[at].is_to_be_settled(guard)
                && self.list(engine, guard, at, FOOTERS_PER_SLICE)
            {
                return true;
            }
        }
        while let Some(at) = self.leftovers.pop() {
            if engine.shards[at].has_suspended() && self.list(engine, guard, at, usize::MAX) {
                return true;
            }
        }
        false
    }

    /// Lists the segments of a shard that have most suspended entries; `false` if there are none.
    fn list(&mut self, engine: &Engine, guard: Guard<'_>, at: usize, wanted: usize) -> bool {
        let shard = &engine.shards[at];
        let locked = shard.lock(&engine.pool, guard);
        let suspended = &locked.state.suspended;
        let segments = suspended.segments().filter_map(|number| shard.segments.sealed(number));
        self.left = segments.filter(|sealed| !self.unanswered.contains(&sealed.seq)).collect();
        self.left.sort_unstable_by_key(|sealed| suspended.count(sealed.number));
        self.left.drain(..self.left.len().saturating_sub(wanted));
        self.shard = at;
        !self.left.is_empty()
    }
}

/// Decides about the suspended entries of a segment whose footer this is, which an earlier `glance` may have found.
/// Answers the names of those that are to come back, and for which the index has no room.
pub(crate) fn by_footer(
    engine: &Engine,
    shard: &Shard,
    guard: Guard<'_>,
    sealed: Sealed,
    footer: &Footer,
    glance: &mut Glance,
) -> Vec<Name> {
    let mut locked = shard.lock(&engine.pool, guard);
    match shard.segments.is_current(sealed) {
        true => locked.settle(sealed.number, &footer.names, glance),
        false => Vec::new(),
    }
}

impl Shard {
    /// Whether a record may be there although the index has nothing for its name, see
    /// [`Locked::candidates`].
    pub(crate) fn has_suspended(&self) -> bool {
        self.suspended.load(Ordering::Acquire) > 0
    }

    /// Whether three quarters of the room for suspended entries are used up: the more there are of a
    /// segment, the less a reading of its footer costs for each.
    pub(crate) fn is_to_be_settled(&self, guard: Guard<'_>) -> bool {
        let entries = u64::from(self.suspended.load(Ordering::Relaxed));
        entries > 0 && entries * 4 >= suspended_max(self.index.load(guard)) * 3
    }
}

impl Locked<'_> {
    /// The sealed segments that may hold the record of a name, suspended entries included. What was
    /// suspended by this very name is its own older copy, if it is anything of its.
    pub(crate) fn candidates(&self, name: Name) -> Candidates {
        let mut found = self.shard.candidates(self.guard, name);
        if self.state.suspended.len() == 0 {
            return found;
        }
        let own = |segment| self.state.suspended.contains(name, segment);
        for entry in self.state.suspended.find(name) {
            if let Some(sealed) = self.shard.segments.sealed(entry.segment)
                && !own(entry.segment)
                && !found.contains(&sealed)
            {
                found.push(sealed);
            }
        }
        found
    }

    /// The entry of a record in a segment, be it suspended.
    pub(crate) fn entry(&self, name: Name, number: u16) -> Option<Entry> {
        let entry = Entry { fingerprint: name.fingerprint, segment: number, uses: 0 };
        let suspended = || self.is_suspended(name, number).then_some(entry);
        self.index().get(name, number).or_else(suspended)
    }

    /// Whether these entries may be taken out unread: nothing that needs them in the index is under way.
    pub(crate) fn may_take_out(&self, candidates: &Candidates) -> bool {
        self.state.growing.is_none()
            && self.state.awaited.is_none()
            && !candidates.iter().any(|sealed| self.is_moving(sealed))
    }

    /// Whether there is room to remember these entries, once they are taken out.
    pub(crate) fn has_room_to_suspend(&self, candidates: &Candidates) -> bool {
        let entries = self.state.suspended.len() + candidates.len();
        entries as u64 <= suspended_max(self.index())
    }

    /// Whether a segment is being taken back, or filled with the records of such.
    fn is_moving(&self, sealed: &Sealed) -> bool {
        self.state.leaving.contains(sealed) || self.state.arriving.contains(sealed)
    }

    /// Whether the entry of a record in a segment is suspended for another key.
    pub(crate) fn is_suspended(&self, name: Name, number: u16) -> bool {
        let sealed = self.shard.segments.sealed(number);
        sealed.is_some_and(|sealed| self.candidates(name).contains(&sealed))
            && self.index().get(name, number).is_none()
    }

    /// Takes an entry out of the index unread, for a SET of this name.
    pub(crate) fn suspend(&mut self, name: Name, number: u16) {
        let before = self.state.suspended.bytes();
        let buckets = self.index().buckets();
        self.state.suspended.insert(buckets, name, number);
        self.account_suspended(before);
        // Before the entry goes: who then finds none knows where else to look.
        self.note_suspended();
        self.take_entry(name, number, None);
    }

    /// Decides about the suspended entries of a segment, which has these names. Those that are to come
    /// back and find no room in the index stay suspended; their names are the answer.
    pub(crate) fn settle(&mut self, number: u16, names: &[Name], glance: &mut Glance) -> Vec<Name> {
        let before = self.state.suspended.bytes();
        let suspended = self.state.suspended.take_segment(number, glance);
        let (mut at, mut stuck) = (0, Vec::new());
        let home = |index: &SealedIndex, name: &Name| index.home(name.pos);
        let index = self.index();
        for suspended in suspended.chunk_by(|one, other| home(index, one) == home(index, other)) {
            // What the footer does not have is no record's.
            for &name in self.state.suspended.beside(names, &mut at, suspended[0].pos) {
                // The entries of one bucket and fingerprint stand for one record.
                let mut alike =
                    suspended.iter().filter(|other| other.fingerprint == name.fingerprint);
                let Some(&first) = alike.next() else { continue };
                let is_replaced = first == name || alike.any(|&other| other == name);
                if !is_replaced && !self.reinstate(name, number) {
                    self.state.suspended.insert(index.buckets(), first, number);
                    stuck.push(name);
                }
            }
        }
        self.account_suspended(before);
        self.note_suspended();
        stuck
    }

    /// An entry comes back that was suspended for another key. Where only the index that is being built
    /// has room for it, it is found as suspended until that one takes its place.
    fn reinstate(&mut self, name: Name, number: u16) -> bool {
        let is_carried = |index: &SealedIndex| index.get(name, number).is_some();
        if self.state.growing.as_deref().is_some_and(is_carried) {
            return false;
        }
        let bytes = self.shard.segments.average_bytes(number);
        let is_back = self.link(name, number, 0, bytes).is_ok();
        if is_back {
            self.note_move();
        } else if let Some(growing) = &self.state.growing
            && growing.insert(name, number, 0).is_ok()
        {
            self.state.carried.push((name, number));
        }
        is_back
    }

    /// The entries of a name in a segment go.
    pub(crate) fn forget_suspended(&mut self, name: Name, number: u16) {
        let before = self.state.suspended.bytes();
        self.state.suspended.take(name, number);
        self.account_suspended(before);
        self.note_suspended();
    }

    /// A segment goes, and with it what is suspended of it.
    pub(crate) fn drop_suspended(&mut self, number: u16) {
        let before = self.state.suspended.bytes();
        self.state.suspended.take_segment(number, &mut Glance::default());
        self.account_suspended(before);
        self.note_suspended();
    }

    /// All segments go.
    pub(crate) fn clear_suspended(&mut self) {
        let before = self.state.suspended.bytes();
        self.state.suspended.clear();
        self.account_suspended(before);
        self.note_suspended();
    }

    pub(crate) fn note_suspended(&self) {
        let entries = self.state.suspended.len() as u32;
        self.shard.suspended.store(entries, Ordering::Release);
    }

    fn account_suspended(&self, before: u64) {
        let after = self.state.suspended.bytes();
        if after != before {
            self.shard.suspended_at.note(&self.state.suspended);
        }
        let counted = &self.pool.counters.index_bytes;
        if after > before {
            self.pool.budget.force(after - before);
            counted.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.pool.budget.give(before - after);
            counted.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}
