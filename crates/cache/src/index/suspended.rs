//! Entries that a SET took out of the index unread.
//!
//! A plain SET whose key shares bucket and fingerprint with a sealed record most likely replaces that
//! very record, and reading a page to be sure would cost a drive read for every overwrite. So the entry
//! goes, and its segment is noted here under the name of the key that was set. The segment's footer
//! decides later, for many at once: it has 47 bits of every name. Either it names the key, and the record
//! is dead; or another one of the same bucket and fingerprint, whose entry comes back. Until then that
//! other key finds its record through this table.
//!
//! A table of open addressing, under the shard's lock, whose words lie in the order of positions (ordered
//! linear probing: Amble and Knuth, "Ordered hash tables", 1974). Most names have no entry, and who looks
//! for one ends at the first word of a later bucket, not at the end of a long run; and who goes through a
//! footer's names goes through the table once.

use crate::records::key::Name;

/// Set in every word, so that 0 is a free place. Below it position, fingerprint and segment: words are
/// in order as positions are.
const TAKEN: u64 = 1 << 63;
const POS_AT: u32 = 31;
const FINGERPRINT_AT: u32 = 16;
const FINGERPRINT: u16 = 0x7fff;
const PLACES_MIN: usize = 64;
/// Of a segment's entries there is most often none in so many words.
const WORDS_AT_ONCE: usize = 16;

/// One suspended entry: who was set, and in which segment there may be an older copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Name,
    pub(crate) segment: u16,
}

impl Entry {
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

/// The suspended entries of one shard.
pub(crate) struct Suspended {
    /// Homes, and behind the last of them some places for words that others have moved on.
    words: Vec<u64>,
    len: usize,
    /// Entries of each segment number.
    counts: Vec<u32>,
    /// Of the shard's index; it does not change while there are entries.
    buckets: usize,
    /// Homes per bucket, as a fraction of 2^32.
    scale: u64,
}

impl Suspended {
    pub(crate) fn new(rows: usize) -> Self {
        Self { words: Vec::new(), len: 0, counts: vec![0; rows], buckets: 0, scale: 0 }
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
        let word = Entry { name, segment }.to_bits();
        while (self.len + 1) * 8 > self.words.len() * 7 || !self.place(word) {
            self.grow();
        }
        self.len += 1;
        self.counts[usize::from(segment)] += 1;
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

    /// Asks the processor for the line that [`Suspended::find`] begins with.
    #[inline]
    pub(crate) fn prefetch(&self, name: Name) {
        let start = self.words.as_ptr().wrapping_add(self.home(self.bucket(name.pos)));
        crate::platform::prefetch::lines::<1>(start.cast());
    }

    /// Whether there is this very entry.
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

    /// Removes all entries of a segment, and says whose they were, in the order of positions. Goes through the
    /// whole table, which is quicker than to look for each name that the segment has.
    pub(crate) fn take_segment(&mut self, segment: u16) -> Vec<Name> {
        if self.count(segment) == 0 {
            return Vec::new();
        }
        let (mask, wanted) = (TAKEN | u64::from(u16::MAX), TAKEN | u64::from(segment));
        let is_of_segment = |word: &u64| word & mask == wanted;
        let mut names = Vec::with_capacity(self.count(segment) as usize);
        for words in self.words.chunks(WORDS_AT_ONCE) {
            // Without a branch for each word: whether a place is free can't be foretold.
            if words.iter().fold(false, |any, word| any | is_of_segment(word)) {
                let found = words.iter().filter(|word| is_of_segment(word));
                names.extend(found.filter_map(|&word| Some(Entry::from_bits(word)?.name)));
            }
        }
        names.iter().for_each(|&name| self.remove(Entry { name, segment }));
        names
    }

    /// Those of some names, which are in the order of positions, that share bucket and fingerprint with
    /// `name`. Looks from `at` on and moves it: who asks for names in that order walks along both.
    pub(crate) fn alike<'n>(
        &self,
        names: &'n [Name],
        at: &mut usize,
        name: Name,
    ) -> impl Iterator<Item = &'n Name> {
        let bucket = self.bucket(name.pos);
        let place = move |other: &Name| self.bucket(other.pos).cmp(&bucket);
        if *at > 0 && place(&names[*at - 1]).is_ge() {
            *at = 0;
        }
        *at += names[*at..].iter().take_while(|other| place(other).is_lt()).count();
        let beside = names[*at..].iter().take_while(move |other| place(other).is_eq());
        beside.filter(move |other| other.fingerprint == name.fingerprint)
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
        self.counts[usize::from(entry.segment)] -= 1;
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
                        let taken = table.take_segment(segment);
                        let mut expected: Vec<_> = model.iter().filter(|n| n.2 == segment)
                            .map(|n| Name { pos: n.0, fingerprint: n.1 }).collect();
                        expected.sort_unstable();
                        prop_assert_eq!(&taken, &expected);
                        // From wherever the walk stands.
                        let mut at = usize::from(fingerprint).min(taken.len());
                        let alike: Vec<_> = table.alike(&taken, &mut at, name).collect();
                        let is_alike = |n: &&Name| same(&(n.pos, n.fingerprint, segment));
                        prop_assert_eq!(alike, expected.iter().filter(is_alike).collect::<Vec<_>>());
                        model.retain(|n| n.2 != segment);
                    }
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
