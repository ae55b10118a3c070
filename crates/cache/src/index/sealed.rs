//! The sealed index: which segment holds the record of a name, in about four bytes per record.
//!
//! Buckets of 18 entries are in hash order. An entry with a full home bucket is a guest in one alternate bucket, which
//! bucket number and fingerprint determine (Fan et al., "Cuckoo Filter", CoNEXT 2014), so that it can be found and
//! moved without its hash. Writers hold the shard's lock. Readers take none: 16 buckets share a version, which is odd
//! during a change; a reader that sees it change reads again.

use crate::index::bucket;
use crate::index::bucket::{Bucket, Entry, SLOTS, USED_EARLIER, WORDS};
use crate::platform::sync::{AtomicU32, AtomicU64, Ordering, Table, fence, spin, table};
use crate::records::key::Name;
use arrayvec::ArrayVec;

/// Planned load of the index when the tiers are full, in permille.
pub(crate) const PLANNED_PERMILLE: u64 = 920;

/// Buckets that share a version.
const GROUP: usize = 16;

/// The segments with entries of a name; at most as many as two buckets can hold.
pub(crate) type Segments = ArrayVec<u16, { 2 * SLOTS }>;

#[repr(align(64))]
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
struct Line([AtomicU64; WORDS]);

#[cfg(loom)]
impl crate::platform::sync::Zeros for Line {
    fn empty() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// One shard's index at one size.
pub(crate) struct SealedIndex {
    lines: Table<Line>,
    versions: Table<AtomicU32>,
    entries: AtomicU64,
    /// Entries in the index when it last refused one; `u64::MAX`: it never did.
    refused_at: AtomicU64,
    /// Buckets of a larger index that refused an entry of this one; 0: none did.
    outgrown: AtomicU64,
}

/// The position of an entry; it may have moved since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryAt {
    bucket: usize,
    slot: usize,
}

/// Whether a bucket's guests are searched, instead of the entries at home there.
type IsGuest = bool;

/// The entry could not be placed: neither of its buckets has or can make room.
#[derive(Debug)]
pub(crate) struct NoRoom;

impl SealedIndex {
    pub(crate) fn new(buckets: usize) -> Self {
        let buckets = buckets.max(2);
        Self {
            lines: table(buckets),
            versions: table(buckets.div_ceil(GROUP)),
            entries: AtomicU64::new(0),
            refused_at: AtomicU64::new(u64::MAX),
            outgrown: AtomicU64::new(0),
        }
    }

    /// Bytes of DRAM of an index with `buckets` buckets, versions included.
    pub(crate) fn bytes_for(buckets: usize) -> u64 {
        (buckets * size_of::<Line>() + buckets.div_ceil(GROUP) * size_of::<AtomicU32>()) as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        Self::bytes_for(self.lines.len())
    }

    pub(crate) fn buckets(&self) -> usize {
        self.lines.len()
    }

    pub(crate) fn slots(&self) -> u64 {
        (self.lines.len() * SLOTS) as u64
    }

    pub(crate) fn len(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Whether it refused an entry when it had fewer than `entries`. Entries with hashes close together, as those of
    /// chunks, fill single buckets long before all are full.
    pub(crate) fn refuses(&self, entries: u64) -> bool {
        entries > self.refused_at.load(Ordering::Relaxed)
    }

    /// A number of buckets that is too small for its entries; 0: none is known.
    pub(crate) fn outgrown(&self) -> u64 {
        self.outgrown.load(Ordering::Relaxed)
    }

    pub(crate) fn note_outgrown(&self, buckets: usize) {
        self.outgrown.store(buckets as u64, Ordering::Relaxed);
    }

    /// The range of `Name::pos` that falls into one bucket, rounded up. It only shrinks as the index
    /// grows, so names that are further apart never come to share a bucket.
    pub(crate) fn bucket_width(&self) -> u32 {
        Self::width_of(self.lines.len())
    }

    /// As [`SealedIndex::bucket_width`], of an index with `buckets` buckets.
    pub(crate) fn width_of(buckets: usize) -> u32 {
        ((1u64 << 32).div_ceil(buckets.max(1) as u64)).min(u64::from(u32::MAX)) as u32
    }

    /// The number of the bucket that a name at `pos` is at home in.
    pub(crate) fn home(&self, pos: u32) -> usize {
        ((u64::from(pos) * self.lines.len() as u64) >> 32) as usize
    }

    /// The other bucket of an entry; its own inverse.
    pub(super) fn alternate(&self, bucket: usize, fingerprint: u16) -> usize {
        let buckets = self.lines.len() as u64;
        let mixed = u64::from(fingerprint).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let sum = (mixed * buckets) >> 32;
        let sum = sum + buckets - bucket as u64;
        (if sum < buckets { sum } else { sum - buckets }) as usize
    }

    pub(super) fn load(&self, bucket: usize) -> Bucket {
        Bucket(std::array::from_fn(|word| self.lines[bucket].0[word].load(Ordering::Relaxed)))
    }

    /// The version of a bucket's group, waiting out a change.
    fn version(&self, bucket: usize) -> u32 {
        loop {
            let version = self.versions[bucket / GROUP].load(Ordering::Acquire);
            if version & 1 == 0 {
                return version;
            }
            spin();
        }
    }

    fn is_unchanged(&self, bucket: usize, version: u32) -> bool {
        fence(Ordering::Acquire);
        self.versions[bucket / GROUP].load(Ordering::Relaxed) == version
    }

    /// Shows `look` the home bucket of a name, and the alternate one if there are guests away and `look` wants more.
    /// Starts again with nothing found if either bucket was changed meanwhile. Lock-free.
    #[inline]
    fn read<R: Default>(
        &self,
        name: Name,
        mut look: impl FnMut(&mut R, usize, &Bucket, IsGuest) -> bool,
    ) -> R {
        let home = self.home(name.pos);
        loop {
            let mut found = R::default();
            let version = self.version(home);
            let bucket = self.load(home);
            if look(&mut found, home, &bucket, false) || bucket.away() == 0 {
                if self.is_unchanged(home, version) {
                    return found;
                }
                continue;
            }
            let other = self.alternate(home, name.fingerprint);
            let other_version = self.version(other);
            look(&mut found, other, &self.load(other), true);
            if self.is_unchanged(home, version) && self.is_unchanged(other, other_version) {
                return found;
            }
        }
    }

    /// Every segment that an entry of this name points to. Lock-free.
    pub(crate) fn find(&self, name: Name) -> Segments {
        self.read(name, |found: &mut Segments, _, bucket, guests| {
            let slots = bucket.matches_among(guests, name.fingerprint);
            found.extend(slots.iter().map(|slot| bucket.segment(slot)));
            false
        })
    }

    /// The position of the entry (name, segment). Lock-free.
    pub(crate) fn locate(&self, name: Name, segment: u16) -> Option<EntryAt> {
        self.read(name, |found, at, bucket, guests| {
            let slot = slot_of(bucket, guests, name, segment);
            *found = slot.map(|slot| EntryAt { bucket: at, slot });
            found.is_some()
        })
    }

    /// The entry (name, segment) and its bucket. The caller must hold the shard's lock, so that nothing moves.
    #[inline]
    fn locate_still(&self, name: Name, segment: u16) -> Option<(EntryAt, Bucket)> {
        let home = self.home(name.pos);
        let bucket = self.load(home);
        if let Some(slot) = slot_of(&bucket, false, name, segment) {
            return Some((EntryAt { bucket: home, slot }, bucket));
        }
        if bucket.away() == 0 {
            return None;
        }
        let other = self.alternate(home, name.fingerprint);
        let bucket = self.load(other);
        let slot = slot_of(&bucket, true, name, segment)?;
        Some((EntryAt { bucket: other, slot }, bucket))
    }

    /// The entry (name, segment). The caller must hold the shard's lock.
    pub(crate) fn get(&self, name: Name, segment: u16) -> Option<Entry> {
        let (at, bucket) = self.locate_still(name, segment)?;
        bucket.entry(at.slot)
    }

    /// [`Entry::uses`] of an entry that was there just now. Lock-free.
    pub(crate) fn uses(&self, EntryAt { bucket, slot }: EntryAt) -> u8 {
        self.load(bucket).entry(slot).map_or(0, |entry| entry.uses)
    }

    /// Counts a use of an entry that was there just now, and returns its [`Entry::uses`] from before. Lock-free: if the
    /// entry has moved since, another one may get the use.
    pub(crate) fn note_use(&self, EntryAt { bucket, slot }: EntryAt) -> u8 {
        let words = Bucket::use_bits(slot).map(|(word, bit)| (&self.lines[bucket].0[word], bit));
        let [once, twice] = words.map(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0);
        let (before, next) = match (once, twice) {
            (true, true) => return 2,
            (true, false) => (1, words[1]),
            (false, true) => (USED_EARLIER, words[0]),
            (false, false) => (0, words[0]),
        };
        let (word, bit) = next;
        word.fetch_or(bit, Ordering::Relaxed);
        before
    }

    /// Adds an entry. The caller must hold the shard's lock.
    pub(crate) fn insert(&self, name: Name, segment: u16, uses: u8) -> Result<(), NoRoom> {
        let entry = Entry { fingerprint: name.fingerprint, segment, uses };
        let home = self.home(name.pos);
        let placed =
            self.place(home, entry) || (self.make_room(home, entry) && self.place(home, entry));
        if !placed {
            self.refused_at.store(self.len(), Ordering::Relaxed);
            return Err(NoRoom);
        }
        self.entries.store(self.len() + 1, Ordering::Relaxed);
        Ok(())
    }

    /// Gives the entry (name, segment) the segment `to`; `false` if there is none. The caller must hold the shard's
    /// lock. A reader finds the old or the new segment. A guest moves to its home if that has room: guests elsewhere
    /// cost every lookup of their home a second line. With `forgets` the entry's uses count as from before the seal.
    pub(crate) fn retarget(&self, name: Name, segment: u16, to: u16, forgets: bool) -> bool {
        let Some((EntryAt { bucket: at, slot }, mut bucket)) = self.locate_still(name, segment)
        else {
            return false;
        };
        bucket.set_segment(slot, to);
        if forgets {
            bucket.forget_uses(slot);
        }
        let guest = bucket.entry(slot).filter(|_| bucket.is_guest(slot));
        if !guest.is_some_and(|guest| self.bring_home(at, slot, guest)) {
            self.store(at, &bucket);
        }
        true
    }

    /// Removes the entry (name, segment); `false` if there is none. The caller must hold the shard's lock.
    pub(crate) fn remove(&self, name: Name, segment: u16) -> bool {
        let Some((EntryAt { bucket: at, slot }, bucket)) = self.locate_still(name, segment) else {
            return false;
        };
        self.remove_from(at, bucket, slot);
        true
    }

    /// Removes every entry of a segment and returns their number; reads the whole index.
    pub(crate) fn purge(&self, segment: u16) -> u64 {
        let mut removed = 0;
        self.purge_buckets(0..self.buckets(), |of| of == segment, |_| removed += 1);
        removed
    }

    /// Removes the entries of segments that are `gone` from `buckets`, and shows `removed` the segment of each.
    pub(crate) fn purge_buckets(
        &self,
        buckets: std::ops::Range<usize>,
        gone: impl Fn(u16) -> bool,
        mut removed: impl FnMut(u16),
    ) {
        for at in buckets {
            let of_gone =
                |slot: &usize| self.load(at).entry(*slot).is_some_and(|entry| gone(entry.segment));
            while let Some(slot) = (0..SLOTS).find(of_gone) {
                if let Some(entry) = self.load(at).entry(slot) {
                    removed(entry.segment);
                }
                self.remove_from(at, self.load(at), slot);
            }
        }
    }

    /// Removes an entry of the bucket `at`, of which `bucket` is a current copy.
    fn remove_from(&self, at: usize, mut bucket: Bucket, slot: usize) {
        let Some(entry) = bucket.entry(slot) else { return };
        let was_guest = bucket.is_guest(slot);
        bucket.remove(slot);
        if was_guest {
            let home_at = self.alternate(at, entry.fingerprint);
            let mut home = self.load(home_at);
            home.came_back();
            self.store_both((at, bucket), (home_at, home));
        } else {
            self.store(at, &bucket);
        }
        self.entries.store(self.len() - 1, Ordering::Relaxed);
    }

    /// Stores a changed bucket; readers see all of the change or none.
    pub(super) fn store(&self, at: usize, bucket: &Bucket) {
        self.begin_change(at);
        fence(Ordering::Release);
        self.put(at, bucket);
        self.end_change(at);
    }

    /// Stores two changed buckets; readers see both changes or none.
    pub(super) fn store_both(
        &self,
        (first, one): (usize, Bucket),
        (second, other): (usize, Bucket),
    ) {
        let is_same = first / GROUP == second / GROUP;
        self.begin_change(first);
        if !is_same {
            self.begin_change(second);
        }
        fence(Ordering::Release);
        self.put(first, &one);
        self.put(second, &other);
        self.end_change(first);
        if !is_same {
            self.end_change(second);
        }
    }

    fn begin_change(&self, at: usize) {
        let version = &self.versions[at / GROUP];
        version.store(version.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    fn end_change(&self, at: usize) {
        let version = &self.versions[at / GROUP];
        version.store(version.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// A use that a reader counts in the bucket meanwhile is lost. Storing only the words that changed would lose
    /// fewer, but these differ from call to call, and the branch would be predicted wrongly.
    fn put(&self, at: usize, bucket: &Bucket) {
        let words = self.lines[at].0.iter().zip(&bucket.0);
        words.for_each(|(word, &value)| word.store(value, Ordering::Relaxed));
    }

    /// Prefetches all lines for the lookups of many names, so that they arrive together.
    pub(crate) fn prefetch_all(&self, names: impl Iterator<Item = Name> + Clone) {
        names.clone().for_each(|name| self.prefetch(name.pos));
        names.for_each(|name| self.prefetch_alternate(name));
    }

    /// Prefetches the line that a lookup begins with.
    pub(crate) fn prefetch(&self, pos: u32) {
        let home = self.home(pos);
        crate::platform::prefetch::line(&self.lines[home]);
        crate::platform::prefetch::line(&self.versions[home / GROUP]);
    }

    /// Prefetches the line that a lookup may need next. Reads the first one, which should be there by now.
    pub(crate) fn prefetch_alternate(&self, name: Name) {
        let home = self.home(name.pos);
        let last_word = self.lines[home].0[WORDS - 1].load(Ordering::Relaxed);
        self.prefetch_away(home, bucket::away(last_word), name);
    }

    /// As [`SealedIndex::prefetch_alternate`]; returns the segment that the name is most likely in, if the home bucket
    /// has one.
    pub(crate) fn likely(&self, name: Name) -> Option<u16> {
        let home = self.home(name.pos);
        let bucket = self.load(home);
        self.prefetch_away(home, bucket.away(), name);
        let slot = bucket.matches_among(false, name.fingerprint).iter().next()?;
        Some(bucket.segment(slot))
    }

    fn prefetch_away(&self, home: usize, away: u32, name: Name) {
        if away > 0 {
            let other = self.alternate(home, name.fingerprint);
            crate::platform::prefetch::line(&self.lines[other]);
            crate::platform::prefetch::line(&self.versions[other / GROUP]);
        }
    }
}

/// The slot of the entry (name, segment) in a bucket, among its guests or the entries at home.
fn slot_of(bucket: &Bucket, guests: IsGuest, name: Name, segment: u16) -> Option<usize> {
    bucket
        .matches_among(guests, name.fingerprint)
        .iter()
        .find(|&slot| bucket.segment(slot) == segment)
}

#[cfg(all(test, not(loom)))]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    pub(crate) fn random(seed: &mut u64) -> u64 {
        *seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *seed >> 16
    }

    /// The load at which the sealed index is grown must be reachable with room to spare.
    #[test]
    fn index_fills_to_96_percent() {
        let index = SealedIndex::new(4001);
        let mut seed = 7;
        let mut next = || {
            let r = random(&mut seed);
            Name { pos: r as u32, fingerprint: (r >> 32) as u16 & 0x7fff | 1 }
        };
        let placed = (0..index.slots()).take_while(|_| index.insert(next(), 3, 0).is_ok()).count();
        let load = placed as f64 / index.slots() as f64;
        assert!(load > 0.96, "first failure at a load of {load:.3}");
    }

    proptest! {
        /// Three fingerprint bits and a few buckets: equal names, guests and moves all the time.
        #[test]
        fn agrees_with_a_set(
            buckets in 2usize..9,
            ops in prop::collection::vec((any::<bool>(), 0u32..40, 1u16..8, 0u16..12), 1..600),
        ) {
            let index = SealedIndex::new(buckets);
            let mut model = HashSet::new();
            let key = |n: &Name, s: u16| (index.home(n.pos), n.fingerprint, s);
            for (add, place, fingerprint, segment) in ops {
                let name = Name { pos: place * 107_374_182, fingerprint };
                let known = model.contains(&key(&name, segment));
                if add && !known {
                    if index.insert(name, segment, 0).is_ok() {
                        model.insert(key(&name, segment));
                    } else {
                        prop_assert!(index.len() * 10 > index.slots() * 5, "refused while empty");
                    }
                } else if !add && segment % 3 == 0 {
                    let to = segment + 1;
                    if !model.contains(&key(&name, to)) {
                        prop_assert_eq!(index.retarget(name, segment, to, false), known);
                        if model.remove(&key(&name, segment)) {
                            model.insert(key(&name, to));
                        }
                    }
                } else if !add {
                    prop_assert_eq!(index.remove(name, segment), known);
                    model.remove(&key(&name, segment));
                }
                prop_assert_eq!(index.len(), model.len() as u64);
                let mut found: Vec<_> = index.find(name).to_vec();
                found.sort_unstable();
                let mut expected: Vec<_> = model.iter()
                    .filter(|k| (k.0, k.1) == (index.home(name.pos), fingerprint))
                    .map(|k| k.2).collect();
                expected.sort_unstable();
                prop_assert_eq!(found, expected);
            }
            for segment in 0..12 {
                let of_segment = model.iter().filter(|k| k.2 == segment).count() as u64;
                prop_assert_eq!(index.purge(segment), of_segment);
            }
            prop_assert_eq!(index.len(), 0);
            let empty = (0..buckets).all(|b| index.load(b) == Bucket::default());
            prop_assert!(empty, "away and guest counts return to nothing");
        }
    }

    #[test]
    fn uses_are_counted_up_to_two() {
        let index = SealedIndex::new(4);
        let name = Name { pos: 1 << 30, fingerprint: 9 };
        index.insert(name, 5, 0).unwrap();
        let at = index.locate(name, 5).unwrap();
        assert_eq!([0; 4].map(|_| index.note_use(at)), [0, 1, 2, 2]);
        assert_eq!(index.get(name, 5).unwrap().uses, 2);
    }

    #[test]
    fn readers_find_an_entry_while_other_entries_move() {
        let index = SealedIndex::new(64);
        let fixed = Name { pos: 12345 << 16, fingerprint: 77 };
        index.insert(fixed, 1000, 0).unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| (0..200_000).all(|_| index.find(fixed).contains(&1000)));
            let mut seed = 3;
            while !reader.is_finished() {
                let mut names = Vec::new();
                while let r = random(&mut seed)
                    && let name = (Name { pos: r as u32, fingerprint: (r >> 32) as u16 & 0xff | 1 })
                    && index.insert(name, 2, 0).is_ok()
                {
                    names.push(name);
                }
                names.into_iter().for_each(|name| assert!(index.remove(name, 2)));
            }
            assert!(reader.join().unwrap(), "an entry was invisible for a moment");
        });
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// A reader never misses an entry while a writer makes it a guest elsewhere and brings it back.
    #[test]
    fn loom_an_entry_is_visible_while_it_moves() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(1);
        model.check(|| {
            let index = Arc::new(SealedIndex::new(2));
            let name = Name { pos: 1, fingerprint: 9 };
            index.insert(name, 3, 0).unwrap();
            let home = index.home(name.pos);
            let slot = index.load(home).matches(9).iter().next().unwrap();
            if index.alternate(home, 9) == home {
                return;
            }
            let reader = {
                let index = Arc::clone(&index);
                thread::spawn(move || assert!(index.find(name).contains(&3), "invisible"))
            };
            assert!(index.move_away(home, slot));
            reader.join().unwrap();
        });
    }

    /// A reader that looks for an entry of one segment must not find a half-written one.
    #[test]
    fn loom_an_entry_of_another_segment_is_not_taken_for_it() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(1);
        model.check(|| {
            let index = Arc::new(SealedIndex::new(2));
            let names = [9, 10].map(|fingerprint| Name { pos: 1, fingerprint });
            index.insert(names[0], 0x555, 0).unwrap();
            let reader = {
                let index = Arc::clone(&index);
                thread::spawn(move || index.locate(names[1], 0x555))
            };
            // Takes the slot of the first.
            index.remove(names[0], 0x555);
            index.insert(names[1], 0x2aa, 0).unwrap();
            assert_eq!(reader.join().unwrap(), None);
        });
    }

    /// A reader sees an entry's old or new segment, nothing in between.
    #[test]
    fn loom_a_replaced_entry_is_never_torn() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(1);
        model.check(|| {
            let index = Arc::new(SealedIndex::new(2));
            let name = Name { pos: 1, fingerprint: 9 };
            index.insert(name, 0x555, 0).unwrap();
            let reader = {
                let index = Arc::clone(&index);
                thread::spawn(move || index.find(name).to_vec())
            };
            index.insert(name, 0x2aa, 0).unwrap();
            index.remove(name, 0x555);
            let seen = reader.join().unwrap();
            assert!(
                !seen.is_empty() && seen.iter().all(|s| [0x555, 0x2aa].contains(s)),
                "{seen:?}"
            );
        });
    }
}
