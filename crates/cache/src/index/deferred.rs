//! Index entries that a SET removed before a read has shown which key they belong to.
//!
//! A plain SET finds a sealed record with the bucket and fingerprint of its key. Most likely this is the key's older
//! record; a page read would make sure, but would cost a drive read for every overwrite. So the SET removes the entry
//! from the index and defers the decision: the segment is kept here under the name of the key. The background reads the
//! footer of the segment later, once for many entries; it has 47 bits of every name. If it has the key, the record is
//! garbage. If it has another key of this bucket and fingerprint, the entry returns to the index. Until then a lookup
//! of that other key finds its record through this table.
//!
//! The table has open addressing and is guarded by the shard's lock. Its words are in the order of positions (ordered
//! linear probing: Amble and Knuth, "Ordered hash tables", 1974). Most names have no entry: their lookup ends at the
//! first word of a later bucket, not at the end of a long run. All names of a footer need one pass over the table.

use crate::index::bucket::SEGMENTS_MAX;
use crate::platform::prefetch;
use crate::records::key::Name;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Set in every word, so that 0 is a free place. Below it are position, fingerprint and segment, so that words are in
/// the order of positions.
const TAKEN: u64 = 1 << 63;
const POS_AT: u32 = 31;
const FINGERPRINT_AT: u32 = 16;
const FINGERPRINT: u16 = 0x7fff;
const PLACES_MIN: usize = 64;

/// One deferred entry: the name that was set, and the segment that may hold its older record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(super) name: Name,
    pub(super) segment: u16,
}

impl Entry {
    /// The segment that may hold the record.
    pub(crate) fn segment(&self) -> u16 {
        self.segment
    }

    fn to_bits(self) -> u64 {
        TAKEN
            | u64::from(self.name.pos) << POS_AT
            | u64::from(self.name.fingerprint) << FINGERPRINT_AT
            | u64::from(self.segment)
    }

    fn from_bits(bits: u64) -> Option<Self> {
        let fingerprint = (bits >> FINGERPRINT_AT) as u16 & FINGERPRINT;
        let name = Name { pos: (bits >> POS_AT) as u32, fingerprint };
        (bits != 0).then_some(Self { name, segment: bits as u16 })
    }
}

/// The entries of some segments at one moment, see [`Deferred::glance`].
#[derive(Default)]
pub(crate) struct Glance(Vec<Glimpse>);

struct Glimpse {
    segment: u16,
    /// [`Tally::inserts`] of the segment: if it differs now, the glimpse lacks entries.
    inserts: u32,
    /// In the order of positions.
    names: Vec<Name>,
}

impl Glance {
    fn take(&mut self, segment: u16) -> Option<Glimpse> {
        let at = self.0.iter().position(|seen| seen.segment == segment)?;
        Some(self.0.swap_remove(at))
    }
}

/// Entries of a segment number.
#[derive(Clone, Copy, Default)]
struct Tally {
    count: u32,
    /// Inserts so far; wraps.
    inserts: u32,
}

/// The deferred entries of one shard.
pub(crate) struct Deferred {
    /// Homes, and behind the last of them some places for words that are not at home.
    words: Vec<u64>,
    len: usize,
    /// Counts by segment number.
    tallies: Box<[Tally]>,
    /// Buckets of the shard's index; they must not change while there are entries.
    buckets: usize,
    /// Homes per bucket, as a fraction of 2^32.
    scale: u64,
}

impl Deferred {
    pub(crate) fn new(rows: usize) -> Self {
        let tallies = vec![Tally::default(); rows].into();
        Self { words: Vec::new(), len: 0, tallies, buckets: 0, scale: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of DRAM.
    pub(crate) fn bytes(&self) -> u64 {
        (self.words.len() * size_of::<u64>()) as u64
    }

    /// Number of entries of a segment.
    pub(crate) fn count(&self, segment: u16) -> u32 {
        self.tallies[usize::from(segment)].count
    }

    /// The segments that have entries.
    pub(crate) fn segments(&self) -> impl Iterator<Item = u16> {
        (0u16..).zip(&self.tallies).filter(|(_, tally)| tally.count > 0).map(|(number, _)| number)
    }

    /// Adds an entry; the index has `buckets` buckets.
    pub(crate) fn insert(&mut self, buckets: usize, name: Name, segment: u16) {
        debug_assert!(self.len == 0 || self.buckets == buckets);
        self.buckets = buckets;
        let word = Entry { name, segment }.to_bits();
        while (self.len + 1) * 8 > self.words.len() * 7 || !self.place(word) {
            self.grow();
        }
        self.len += 1;
        let tally = &mut self.tallies[usize::from(segment)];
        tally.count += 1;
        tally.inserts = tally.inserts.wrapping_add(1);
    }

    /// Entries that share bucket and fingerprint with `name`.
    pub(crate) fn find(&self, name: Name) -> impl Iterator<Item = Entry> {
        let bucket = self.bucket(name.pos);
        let entries = self.from(bucket).map_while(|word| Entry::from_bits(*word));
        let placed = entries.map(move |entry| (self.bucket(entry.name.pos), entry));
        let up_to_bucket = placed.take_while(move |(at, _)| *at <= bucket);
        let same = up_to_bucket
            .filter(move |(at, entry)| *at == bucket && entry.name.fingerprint == name.fingerprint);
        same.map(|(_, entry)| entry)
    }

    /// Whether the table has exactly this entry.
    pub(crate) fn contains(&self, name: Name, segment: u16) -> bool {
        self.find(name).any(|entry| entry == Entry { name, segment })
    }

    /// Removes all entries of a segment that share bucket and fingerprint with `name`.
    pub(crate) fn take(&mut self, name: Name, segment: u16) {
        if self.count(segment) == 0 {
            return;
        }
        let of_segment = self.find(name).filter(|entry| entry.segment == segment);
        let taken: Vec<Entry> = of_segment.collect();
        taken.into_iter().for_each(|entry| self.remove(entry));
    }

    /// Copies the entries of some segments in one pass over the table.
    pub(crate) fn glance(&self, segments: impl Iterator<Item = u16>) -> Glance {
        // Rank of each segment, counted from 1; 0: not asked for.
        let mut ranks = [0; SEGMENTS_MAX as usize];
        let seen = (1..).zip(segments).map(|(rank, segment)| {
            let Tally { count, inserts } = self.tallies[usize::from(segment)];
            ranks[usize::from(segment)] = if count > 0 { rank } else { 0 };
            Glimpse { segment, inserts, names: Vec::with_capacity(count as usize) }
        });
        let mut seen: Vec<_> = seen.collect();
        let entries: u32 = seen.iter().map(|glimpse| self.count(glimpse.segment)).sum();
        for word in self.words_of(&ranks, entries as usize) {
            if let Some(Entry { name, segment }) = Entry::from_bits(word) {
                seen[usize::from(ranks[usize::from(segment)]) - 1].names.push(name);
            }
        }
        Glance(seen)
    }

    /// The words of segments that have a rank, in order; there are `entries` of them.
    fn words_of(&self, ranks: &[u16; SEGMENTS_MAX as usize], entries: usize) -> Vec<u64> {
        if entries == 0 {
            return Vec::new();
        }
        let has_rank = |word: u64| ranks[usize::from(word as u16) % ranks.len()] > 0;
        let mut found = vec![0; entries + 1];
        let mut len = 0;
        // Matches are few and anywhere: a branch would often be predicted wrongly.
        for &word in &self.words {
            found[len] = word;
            len += usize::from((word & TAKEN != 0) & has_rank(word));
        }
        found.truncate(len);
        found
    }

    /// Removes all entries of a segment and returns their names in the order of positions. Searches the table unless
    /// `glance` has all of them.
    pub(crate) fn take_segment(&mut self, segment: u16, glance: &mut Glance) -> Vec<Name> {
        if self.count(segment) == 0 {
            return Vec::new();
        }
        let Tally { count, inserts } = self.tallies[usize::from(segment)];
        let is_whole =
            |seen: &Glimpse| (seen.inserts, seen.names.len()) == (inserts, count as usize);
        let seen = glance.take(segment).filter(is_whole);
        let seen = seen.or_else(|| self.glance(std::iter::once(segment)).take(segment));
        let names = seen.map(|seen| seen.names).unwrap_or_default();
        names.iter().for_each(|&name| self.remove(Entry { name, segment }));
        names
    }

    /// The names at home in the bucket of `pos`, out of `names`, which must be in the order of positions. Searches from
    /// `at` on and advances it: the caller must ask in that order.
    pub(crate) fn beside<'n>(&self, names: &'n [Name], at: &mut usize, pos: u32) -> &'n [Name] {
        let bucket = self.bucket(pos);
        *at += names[*at..].partition_point(|other| self.bucket(other.pos) < bucket);
        let others = names[*at..].iter().take_while(|other| self.bucket(other.pos) == bucket);
        &names[*at..*at + others.count()]
    }

    /// Removes all entries and frees the memory.
    pub(crate) fn clear(&mut self) {
        (self.words, self.len) = (Vec::new(), 0);
        self.tallies.iter_mut().for_each(|tally| tally.count = 0);
    }

    /// The number of the bucket that a name at `pos` is at home in.
    pub(crate) fn bucket(&self, pos: u32) -> usize {
        ((u64::from(pos) * self.buckets as u64) >> 32) as usize
    }

    /// Where a bucket's words would lie if none were in their way.
    fn home(&self, bucket: usize) -> usize {
        ((bucket as u64 * self.scale) >> 32) as usize
    }

    /// The words from a bucket's home on.
    fn from(&self, bucket: usize) -> impl Iterator<Item = &u64> {
        self.words.get(self.home(bucket)..).unwrap_or_default().iter()
    }

    /// Puts a word in front of those of later positions, which move on by a place. `false` if that is
    /// beyond the end.
    fn place(&mut self, word: u64) -> bool {
        let Some(Entry { name, .. }) = Entry::from_bits(word) else { return true };
        let home = self.home(self.bucket(name.pos));
        let Some(free) = self.words[home..].iter().position(|&other| other == 0) else {
            return false;
        };
        let run = &mut self.words[home..=home + free];
        let at = run[..free].partition_point(|&other| other < word);
        run.copy_within(at..free, at + 1);
        run[at] = word;
        true
    }

    /// By a quarter, not to twice the size: it is DRAM that records could have.
    fn grow(&mut self) {
        let before = std::mem::take(&mut self.words);
        let mut homes = before.len();
        loop {
            homes = (homes / 4 * 5).max(PLACES_MIN);
            self.scale = ((homes as u64) << 32) / self.buckets as u64;
            self.words = vec![0; homes + homes / 32];
            if before.iter().all(|&word| self.place(word)) {
                return;
            }
        }
    }

    /// Removes one entry; those behind it that are not at home move up by a place.
    fn remove(&mut self, entry: Entry) {
        let word = entry.to_bits();
        let home = self.home(self.bucket(entry.name.pos));
        let mut run =
            self.words.iter().enumerate().skip(home).take_while(|(_, other)| **other != 0);
        let Some((hole, _)) = run.find(|(_, other)| **other == word) else { return };
        self.len -= 1;
        self.tallies[usize::from(entry.segment)].count -= 1;
        let is_moved = |at: usize| {
            let entry = self.words.get(at).and_then(|&word| Entry::from_bits(word));
            entry.is_some_and(|entry| self.home(self.bucket(entry.name.pos)) < at)
        };
        let mut end = hole + 1;
        while is_moved(end) {
            end += 1;
        }
        self.words.copy_within(hole + 1..end, hole);
        self.words[end - 1] = 0;
        if self.len == 0 {
            self.words = Vec::new();
        }
    }
}

/// Where a shard's [`Deferred`] lies, for prefetches without the lock. If the table has moved meanwhile, another line
/// is prefetched, which does no harm.
#[derive(Default)]
pub(crate) struct DeferredFilter {
    words: AtomicPtr<u64>,
    homes: AtomicU32,
    tallies: AtomicPtr<Tally>,
}

impl DeferredFilter {
    pub(crate) fn note(&self, deferred: &Deferred) {
        let homes = match deferred.words.is_empty() {
            true => 0,
            false => deferred.home(deferred.buckets) as u32,
        };
        self.words.store(deferred.words.as_ptr().cast_mut(), Ordering::Relaxed);
        self.homes.store(homes, Ordering::Relaxed);
        self.tallies.store(deferred.tallies.as_ptr().cast_mut(), Ordering::Relaxed);
    }

    /// Prefetches the line that [`Deferred::find`] begins with.
    pub(crate) fn prefetch(&self, pos: u32) {
        let homes = u64::from(self.homes.load(Ordering::Relaxed));
        if homes == 0 {
            // For an address that is not mapped the processor would walk the page table every time.
            return;
        }
        let home = (u64::from(pos) * homes) >> 32;
        let start = self.words.load(Ordering::Relaxed).wrapping_add(home as usize);
        prefetch::lines::<1>(start.cast_const().cast());
    }

    /// Prefetches the counts of a segment.
    pub(crate) fn prefetch_tally(&self, segment: u16) {
        let tally = self.tallies.load(Ordering::Relaxed).wrapping_add(segment.into());
        prefetch::lines::<1>(tally.cast_const().cast());
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
            ops in prop::collection::vec((0u8..9, 0u32..24, 1u16..4, 0u16..5), 1..500),
        ) {
            let mut table = Deferred::new(5);
            // Taken at an earlier step.
            let mut glance = Glance::default();
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
                        let taken = table.take_segment(segment, &mut glance);
                        let mut expected: Vec<_> = model.iter().filter(|n| n.2 == segment)
                            .map(|n| Name { pos: n.0, fingerprint: n.1 }).collect();
                        expected.sort_unstable();
                        prop_assert_eq!(&taken, &expected);
                        let mut at = 0;
                        let beside = table.beside(&taken, &mut at, name.pos);
                        let is_beside = |n: &&Name| bucket(n.pos) == bucket(name.pos);
                        prop_assert_eq!(
                            beside.iter().collect::<Vec<_>>(),
                            expected.iter().filter(is_beside).collect::<Vec<_>>()
                        );
                        model.retain(|n| n.2 != segment);
                    }
                    7 => glance = table.glance(0..=segment),
                    _ => {
                        table.take(name, segment);
                        model.retain(|n| !(same(n) && n.2 == segment));
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
                }
            }
        }
    }
}
