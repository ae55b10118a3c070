//! Entries that a SET took out of the index unread.
//!
//! A plain SET whose key shares bucket and fingerprint with a sealed record most likely replaces that
//! very record, and reading a page to be sure would cost a drive read for every overwrite. So the entry
//! goes, and its segment is noted here under the name of the key that was set. The segment's footer
//! decides later, for many at once: it has 47 bits of every name. Either it names the key, and the record
//! is dead; or another one of the same bucket and fingerprint, whose entry comes back. Until then that
//! other key finds its record through this table.
//!
//! A table of open addressing, under the shard's lock. Words of names that share bucket and fingerprint
//! lie in one run.

use crate::key::Name;

/// Set in every word, so that 0 is a free place.
const TAKEN: u64 = 1 << 63;
const SEGMENT_AT: u32 = 47;
const FINGERPRINT_BITS: u32 = 15;
const PLACES_MIN: usize = 64;

/// One suspended entry: who was set, and in which segment there may be an older copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Name,
    pub(crate) segment: u16,
}

impl Entry {
    fn to_bits(self) -> u64 {
        TAKEN
            | u64::from(self.segment) << SEGMENT_AT
            | u64::from(self.name.pos) << FINGERPRINT_BITS
            | u64::from(self.name.fingerprint)
    }

    fn from_bits(bits: u64) -> Option<Self> {
        let name = Name {
            pos: (bits >> FINGERPRINT_BITS) as u32,
            fingerprint: bits as u16 & ((1 << FINGERPRINT_BITS) - 1),
        };
        let segment = (bits & !TAKEN) >> SEGMENT_AT;
        (bits != 0).then_some(Self { name, segment: segment as u16 })
    }
}

/// The suspended entries of one shard.
pub(crate) struct Suspended {
    words: Vec<u64>,
    len: usize,
    /// Entries of each segment number.
    counts: Vec<u32>,
    /// Of the shard's index; it does not change while there are entries.
    buckets: usize,
}

impl Suspended {
    pub(crate) fn new(rows: usize) -> Self {
        Self { words: Vec::new(), len: 0, counts: vec![0; rows], buckets: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of DRAM.
    pub(crate) fn bytes(&self) -> u64 {
        (self.words.len() * size_of::<u64>()) as u64
    }

    /// How many entries a segment has.
    pub(crate) fn count(&self, segment: u16) -> u32 {
        self.counts[usize::from(segment)]
    }

    /// The segments that have entries.
    pub(crate) fn segments(&self) -> impl Iterator<Item = u16> {
        (0u16..).zip(&self.counts).filter(|(_, count)| **count > 0).map(|(number, _)| number)
    }

    /// Notes an entry, in an index of so many buckets.
    pub(crate) fn insert(&mut self, buckets: usize, name: Name, segment: u16) {
        debug_assert!(self.len == 0 || self.buckets == buckets);
        self.buckets = buckets;
        if (self.len + 1) * 8 > self.words.len() * 7 {
            self.grow();
        }
        self.place(Entry { name, segment }.to_bits());
        self.len += 1;
        self.counts[usize::from(segment)] += 1;
    }

    /// Entries that share bucket and fingerprint with `name`.
    pub(crate) fn find(&self, name: Name) -> impl Iterator<Item = Entry> {
        self.run(name).filter_map(|at| Entry::from_bits(self.words[at])).filter(move |entry| {
            entry.name.fingerprint == name.fingerprint
                && self.bucket(entry.name.pos) == self.bucket(name.pos)
        })
    }

    /// Removes all entries of a segment that share bucket and fingerprint with `name`; whose they were.
    pub(crate) fn take(&mut self, name: Name, segment: u16) -> Vec<Name> {
        if self.len == 0 || self.count(segment) == 0 {
            return Vec::new();
        }
        let of_segment = self.find(name).filter(|entry| entry.segment == segment);
        let taken: Vec<Entry> = of_segment.collect();
        taken.iter().for_each(|&entry| self.remove(entry));
        taken.into_iter().map(|entry| entry.name).collect()
    }

    /// The names of a segment's entries; looks at the whole table.
    pub(crate) fn of_segment(&self, segment: u16) -> Vec<Name> {
        if self.count(segment) == 0 {
            return Vec::new();
        }
        let entries = self.words.iter().filter_map(|&word| Entry::from_bits(word));
        entries.filter(|entry| entry.segment == segment).map(|entry| entry.name).collect()
    }

    /// Removes what a segment has; for one that is gone.
    pub(crate) fn remove_segment(&mut self, segment: u16) {
        for name in self.of_segment(segment) {
            self.remove(Entry { name, segment });
        }
    }

    /// Removes everything, and gives memory back.
    pub(crate) fn clear(&mut self) {
        (self.words, self.len) = (Vec::new(), 0);
        self.counts.fill(0);
    }

    /// The number of the bucket that a name at `pos` is at home in.
    pub(crate) fn bucket(&self, pos: u32) -> usize {
        ((u64::from(pos) * self.buckets as u64) >> 32) as usize
    }

    /// In the order of positions, so that who goes through a segment's names goes through the table once.
    fn home(&self, name: Name) -> usize {
        self.bucket(name.pos) * self.words.len() / self.buckets
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.words.len() { 0 } else { at + 1 }
    }

    /// Places from one to another, forwards.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to < from { to + self.words.len() - from } else { to - from }
    }

    /// The places from a name's home to the next free one.
    fn run(&self, name: Name) -> impl Iterator<Item = usize> {
        let mut next = if self.words.is_empty() { 0 } else { self.home(name) };
        std::iter::from_fn(move || {
            let at = next;
            (*self.words.get(at)? != 0).then(|| {
                next = self.after(at);
                at
            })
        })
    }

    fn place(&mut self, word: u64) {
        let Some(entry) = Entry::from_bits(word) else { return };
        let mut at = self.home(entry.name);
        while self.words[at] != 0 {
            at = self.after(at);
        }
        self.words[at] = word;
    }

    /// By a quarter, not to twice the size: it is DRAM that records could have.
    fn grow(&mut self) {
        let places = (self.words.len() / 4 * 5).max(PLACES_MIN);
        let words = std::mem::replace(&mut self.words, vec![0; places]);
        words.into_iter().for_each(|word| self.place(word));
    }

    /// Removes one entry, and moves those behind it up that it was in the way of (Knuth, volume 3,
    /// section 6.4, algorithm R).
    fn remove(&mut self, entry: Entry) {
        let word = entry.to_bits();
        let Some(mut hole) = self.run(entry.name).find(|&at| self.words[at] == word) else {
            return;
        };
        self.len -= 1;
        self.counts[usize::from(entry.segment)] -= 1;
        let mut at = hole;
        loop {
            at = self.after(at);
            let Some(next) = Entry::from_bits(self.words[at]) else { break };
            if self.distance(self.home(next.name), at) >= self.distance(hole, at) {
                self.words[hole] = self.words[at];
                hole = at;
            }
        }
        self.words[hole] = 0;
        if self.len == 0 {
            self.words = Vec::new();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        /// Few names, few buckets, few segments: runs, wraps and removals all the time.
        #[test]
        fn agrees_with_a_set(
            ops in prop::collection::vec((0u8..8, 0u32..24, 1u16..4, 0u16..5), 1..500),
        ) {
            let mut table = Suspended::new(5);
            let mut model: HashSet<(u32, u16, u16)> = HashSet::new();
            let buckets = 5;
            let bucket = |pos: u32| (u64::from(pos) * buckets as u64) >> 32;
            for (op, place, fingerprint, segment) in ops {
                let name = Name { pos: place * 178_956_970, fingerprint };
                let same = |n: &(u32, u16, u16)| bucket(n.0) == bucket(name.pos) && n.1 == fingerprint;
                match op {
                    0..5 => {
                        if model.insert((name.pos, fingerprint, segment)) {
                            table.insert(buckets, name, segment);
                        }
                    }
                    5 | 6 => {
                        let mut taken: Vec<_> = table.take(name, segment);
                        let mut expected: Vec<_> = model.iter()
                            .filter(|n| same(n) && n.2 == segment)
                            .map(|n| Name { pos: n.0, fingerprint: n.1 }).collect();
                        taken.sort_unstable();
                        expected.sort_unstable();
                        prop_assert_eq!(taken, expected);
                        model.retain(|n| !(same(n) && n.2 == segment));
                    }
                    _ => {
                        table.remove_segment(segment);
                        model.retain(|n| n.2 != segment);
                    }
                }
                prop_assert_eq!(table.len(), model.len());
                let found: HashSet<_> = table.find(name)
                    .map(|e| (e.name.pos, e.name.fingerprint, e.segment)).collect();
                let expected: HashSet<_> = model.iter().copied().filter(|n| same(n)).collect();
                prop_assert_eq!(found, expected);
                for segment in 0..5 {
                    let of_segment = model.iter().filter(|n| n.2 == segment).count();
                    prop_assert_eq!(table.count(segment) as usize, of_segment);
                    prop_assert_eq!(table.of_segment(segment).len(), of_segment);
                }
            }
        }
    }
}
