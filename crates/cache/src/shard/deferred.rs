//! Entries that are not in the index until the footer of their segment is read; see [`crate::index::deferred`].

use crate::index::bucket::Entry;
use crate::index::deferred::Glance;
use crate::index::sealed::SealedIndex;
use crate::records::key::Name;
use crate::segments::segment::Sealed;
use crate::shard::{Candidates, Guard, Locked, Shard};
use std::sync::atomic::Ordering;

/// At most a sixteenth of the index's entries may be deferred: up to two thirds of a byte of DRAM per record, while
/// records are overwritten.
const DEFERRED_SHARE: u64 = 16;

/// Entries that may always be deferred, however small the index is.
const DEFERRED_MIN: u64 = 64;

fn deferred_max(index: &SealedIndex) -> u64 {
    (index.len() / DEFERRED_SHARE).max(DEFERRED_MIN)
}

impl Shard {
    /// Whether a record may exist without an entry of its name in the index, see [`Locked::candidates`].
    pub(crate) fn has_deferred(&self) -> bool {
        self.deferred.load(Ordering::Acquire) > 0
    }

    /// Whether three quarters of the room for deferred entries are used: the more entries a segment has, the less a
    /// read of its footer costs for each.
    pub(crate) fn is_to_be_reconciled(&self, guard: Guard<'_>) -> bool {
        let entries = u64::from(self.deferred.load(Ordering::Relaxed));
        entries > 0 && entries * 4 >= deferred_max(self.index.load(guard)) * 3
    }
}

impl Locked<'_> {
    /// The sealed segments that may hold the record of a name, including those of deferred entries. An entry that was
    /// deferred under exactly this name is left out: if it is the key's record, it is an older one.
    pub(crate) fn candidates(&self, name: Name) -> Candidates {
        let mut found = self.shard.candidates(self.guard, name);
        if self.state.deferred.len() == 0 {
            return found;
        }
        let own = |segment| self.state.deferred.contains(name, segment);
        for entry in self.state.deferred.find(name) {
            if let Some(sealed) = self.shard.segments.sealed(entry.segment())
                && !own(entry.segment())
                && !found.contains(&sealed)
            {
                found.push(sealed);
            }
        }
        found
    }

    /// The entry of a record in a segment, even if it is deferred.
    pub(crate) fn entry(&self, name: Name, number: u16) -> Option<Entry> {
        let entry = Entry::new(name.fingerprint, number, 0);
        let deferred = || self.is_deferred(name, number).then_some(entry);
        self.index().get(name, number).or_else(deferred)
    }

    /// Whether these entries may be removed unread: no work in progress needs them in the index.
    pub(crate) fn may_take_out(&self, candidates: &Candidates) -> bool {
        self.state.growing.is_none()
            && self.state.recovering.is_none()
            && !candidates.iter().any(|sealed| self.is_moving(sealed))
    }

    /// Whether there is room to defer these entries.
    pub(crate) fn has_room_to_defer(&self, candidates: &Candidates) -> bool {
        let entries = self.state.deferred.len() + candidates.len();
        entries as u64 <= deferred_max(self.index())
    }

    /// Whether a segment is being reclaimed, or filled with the records of one that is.
    fn is_moving(&self, sealed: &Sealed) -> bool {
        self.state.leaving.contains(sealed) || self.state.arriving.contains(sealed)
    }

    /// Whether the entry of a record in a segment was deferred under another key's name.
    pub(crate) fn is_deferred(&self, name: Name, number: u16) -> bool {
        let sealed = self.shard.segments.sealed(number);
        sealed.is_some_and(|sealed| self.candidates(name).contains(&sealed))
            && self.index().get(name, number).is_none()
    }

    /// Removes an entry from the index unread, for a SET of this name, and defers the decision about it.
    pub(crate) fn defer(&mut self, name: Name, number: u16) {
        let before = self.state.deferred.bytes();
        let buckets = self.index().buckets();
        self.state.deferred.insert(buckets, name, number);
        self.account_deferred(before);
        // Before the entry is removed: a reader that no longer finds it must know to look here.
        self.note_deferred();
        self.take_entry(name, number, None);
    }

    /// Decides the deferred entries of a segment, which has these names. An entry that should return but finds no room
    /// in the index stays deferred; the names of these are returned.
    pub(crate) fn decide_deferred(
        &mut self,
        number: u16,
        names: &[Name],
        glance: &mut Glance,
    ) -> Vec<Name> {
        let before = self.state.deferred.bytes();
        let deferred = self.state.deferred.take_segment(number, glance);
        let (mut at, mut stuck) = (0, Vec::new());
        let home = |index: &SealedIndex, name: &Name| index.home(name.pos);
        let index = self.index();
        for deferred in deferred.chunk_by(|one, other| home(index, one) == home(index, other)) {
            // An entry of a name that the footer does not have belongs to no record.
            for &name in self.state.deferred.beside(names, &mut at, deferred[0].pos) {
                // All deferred entries of one bucket and fingerprint stand for one record.
                let mut alike =
                    deferred.iter().filter(|other| other.fingerprint == name.fingerprint);
                let Some(&first) = alike.next() else { continue };
                let is_replaced = first == name || alike.any(|&other| other == name);
                if !is_replaced && !self.reinstate(name, number) {
                    self.state.deferred.insert(index.buckets(), first, number);
                    stuck.push(name);
                }
            }
        }
        self.account_deferred(before);
        self.note_deferred();
        stuck
    }

    /// Returns an entry to the index that was deferred under another key's name. If only the index that is being built
    /// has room for it, it is found as deferred until that one replaces the present one.
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

    /// Removes the deferred entries of a name in a segment.
    pub(crate) fn forget_deferred(&mut self, name: Name, number: u16) {
        let before = self.state.deferred.bytes();
        self.state.deferred.take(name, number);
        self.account_deferred(before);
        self.note_deferred();
    }

    /// Removes the deferred entries of a segment, which is dropped.
    pub(crate) fn drop_deferred(&mut self, number: u16) {
        let before = self.state.deferred.bytes();
        self.state.deferred.take_segment(number, &mut Glance::default());
        self.account_deferred(before);
        self.note_deferred();
    }

    /// Removes all deferred entries; all segments are dropped.
    pub(crate) fn clear_deferred(&mut self) {
        let before = self.state.deferred.bytes();
        self.state.deferred.clear();
        self.account_deferred(before);
        self.note_deferred();
    }

    pub(crate) fn note_deferred(&self) {
        let entries = self.state.deferred.len() as u32;
        self.shard.deferred.store(entries, Ordering::Release);
    }

    fn account_deferred(&self, before: u64) {
        let after = self.state.deferred.bytes();
        if after != before {
            self.shard.deferred_at.note(&self.state.deferred);
        }
        let counted = &self.shared.counters().index_bytes();
        if after > before {
            self.shared.budget().force(after - before);
            counted.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.shared.budget().give(before - after);
            counted.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}
