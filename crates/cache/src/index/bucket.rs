//! One bucket of the sealed index: 18 entries in the 64 bytes of a cache line.
//!
//! ```text
//! bits   0..288  18 lanes of 16: fingerprint (15; 0 means empty) | used once (1)
//! bits 288..504  18 lanes of 12: segment number (11) | used twice (1)
//! bits 504..507  guests: entries at the end with another home bucket
//! bits 507..512  away: entries of this home that are guests elsewhere; 31 means 31 or more
//! ```
//!
//! Readers set the two bits of use without a lock, each in one atomic step. So use is counted in unary: never, once,
//! twice or more; twice without once means used before the seal.

use crate::platform::getters::getters;
use crate::platform::lanes;

/// Entries per bucket.
pub(crate) const SLOTS: usize = 18;
/// Words per bucket.
pub(crate) const WORDS: usize = 8;
/// Segment numbers are below this.
pub(crate) const SEGMENTS_MAX: u32 = 1 << 11;

const GUESTS_MAX: u32 = 7;
/// An away count of 31 means 31 or more.
const AWAY_MANY: u32 = 31;

const FINGERPRINT: u64 = 0x7fff;

/// Not used since its seal, but before; counts as one of two uses.
pub(crate) const USED_EARLIER: u8 = 3;

/// Uses since the seal, of [`Entry::uses`].
pub(crate) fn since_seal(uses: u8) -> u8 {
    if uses == USED_EARLIER { 0 } else { uses }
}

/// What an entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// 1 to 32767.
    pub(super) fingerprint: u16,
    /// Segment number within the shard, below [`SEGMENTS_MAX`].
    pub(super) segment: u16,
    /// Since it was sealed: 0 never, 1 once, 2 twice or more; or [`USED_EARLIER`].
    pub(super) uses: u8,
}

getters! {
    Entry {
        uses: u8,
    }
}

impl Entry {
    /// An entry of a record in this segment, with its uses since the seal.
    pub(crate) fn new(fingerprint: u16, segment: u16, uses: u8) -> Self {
        Self { fingerprint, segment, uses }
    }
}

/// A copy of a bucket, to look at or to change before it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bucket(pub(crate) [u64; WORDS]);

impl Bucket {
    /// The slots that hold `fingerprint`.
    pub(crate) fn matches(&self, fingerprint: u16) -> SlotSet {
        let [a, b, c, d, rest, ..] = self.0;
        let is_in =
            |lane: u32| u32::from((rest >> (16 * lane) & FINGERPRINT) as u16 == fingerprint);
        let most = lanes::equal([a, b, c, d], FINGERPRINT as u16, fingerprint);
        SlotSet(most | is_in(0) << 16 | is_in(1) << 17)
    }

    /// The slots of entries with `fingerprint` that are, or are not, guests.
    pub(crate) fn matches_among(&self, guests: bool, fingerprint: u16) -> SlotSet {
        if fingerprint == 0 {
            return SlotSet(0);
        }
        let at_home = (1 << (SLOTS - self.guests())) - 1;
        SlotSet(self.matches(fingerprint).0 & if guests { !at_home } else { at_home })
    }

    /// The segment number of the entry in a slot.
    pub(crate) fn segment(&self, slot: usize) -> u16 {
        self.place(slot) & (SEGMENTS_MAX as u16 - 1)
    }

    pub(crate) fn entry(&self, slot: usize) -> Option<Entry> {
        let lane = self.0[slot / 4] >> (16 * (slot % 4));
        let fingerprint = (lane & FINGERPRINT) as u16;
        if fingerprint == 0 {
            return None;
        }
        let place = self.place(slot);
        let uses = match (lane >> 15 & 1, place >> 11) {
            (0, 0) => 0,
            (0, _) => USED_EARLIER,
            (_, 0) => 1,
            _ => 2,
        };
        Some(Entry { fingerprint, segment: place & (SEGMENTS_MAX as u16 - 1), uses })
    }

    pub(crate) fn set(&mut self, slot: usize, entry: Option<Entry>) {
        let (lane, place) = match entry {
            None => (0, 0),
            Some(e) => (
                u64::from(e.fingerprint) | u64::from(matches!(e.uses, 1 | 2)) << 15,
                u64::from(e.segment) | u64::from(e.uses >= 2) << 11,
            ),
        };
        put(&mut self.0, 16 * slot, 16, lane);
        put(&mut self.0, place_bit(slot), 12, place);
    }

    /// Gives the entry in a slot another segment; it keeps its uses.
    pub(crate) fn set_segment(&mut self, slot: usize, segment: u16) {
        put(&mut self.0, place_bit(slot), 11, segment.into());
    }

    /// The entry in a slot counts its uses from the start.
    pub(crate) fn forget_uses(&mut self, slot: usize) {
        if let Some(entry) = self.entry(slot).filter(|entry| entry.uses > 0) {
            self.set(slot, Some(Entry { uses: USED_EARLIER, ..entry }));
        }
    }

    fn place(&self, slot: usize) -> u16 {
        get(&self.0, place_bit(slot), 12) as u16
    }

    /// Entries at the end of the bucket that have another home.
    pub(crate) fn guests(&self) -> usize {
        (self.0[7] >> 56 & 7) as usize
    }

    /// Entries of this home that are guests elsewhere; [`AWAY_MANY`] at most.
    pub(crate) fn away(&self) -> u32 {
        away(self.0[7])
    }

    fn set_guests(&mut self, guests: usize) {
        self.0[7] = self.0[7] & !(7 << 56) | (guests as u64) << 56;
    }

    /// Counts one more entry of this home elsewhere. A count of [`AWAY_MANY`] stays until an index is filled anew:
    /// chunks of large items come to one home in groups.
    pub(crate) fn sent_away(&mut self) {
        if self.away() < AWAY_MANY {
            self.0[7] += 1 << 59;
        }
    }

    pub(crate) fn came_back(&mut self) {
        debug_assert!(self.away() > 0);
        if self.away() < AWAY_MANY {
            self.0[7] -= 1 << 59;
        }
    }

    /// Whether the entry in `slot` is a guest.
    pub(crate) fn is_guest(&self, slot: usize) -> bool {
        slot >= SLOTS - self.guests()
    }

    /// A free slot for an entry of this home.
    pub(crate) fn free_home_slot(&self) -> Option<usize> {
        self.matches(0).iter().find(|&slot| !self.is_guest(slot))
    }

    /// Puts an entry in as a guest, moving a home entry out of the slot before the guests if need
    /// be; `false` if there is no room.
    pub(crate) fn add_guest(&mut self, entry: Entry) -> bool {
        let guests = self.guests();
        let Some(free) = self.free_home_slot().filter(|_| guests < GUESTS_MAX as usize) else {
            return false;
        };
        let boundary = SLOTS - guests - 1;
        if free != boundary {
            let moved = self.entry(boundary);
            self.set(free, moved);
        }
        self.set(boundary, Some(entry));
        self.set_guests(guests + 1);
        true
    }

    /// Empties a slot, keeping the guests together at the end.
    pub(crate) fn remove(&mut self, slot: usize) {
        if !self.is_guest(slot) {
            return self.set(slot, None);
        }
        let first = SLOTS - self.guests();
        let moved = self.entry(first);
        self.set(slot, moved);
        self.set(first, None);
        self.set_guests(self.guests() - 1);
    }

    /// The word and the bit for "used once" and for "used twice" of a slot.
    pub(crate) fn use_bits(slot: usize) -> [(usize, u64); 2] {
        let twice = place_bit(slot) + 11;
        [(slot / 4, 1 << (16 * (slot % 4) + 15)), (twice / 64, 1 << (twice % 64))]
    }
}

/// As [`Bucket::away`], from the last word of a bucket.
pub(crate) fn away(last_word: u64) -> u32 {
    (last_word >> 59) as u32
}

/// Slots of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotSet(u32);

impl SlotSet {
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        let mut bits = self.0;
        std::iter::from_fn(move || {
            let slot = bits.trailing_zeros();
            bits &= bits.wrapping_sub(1);
            (slot < u32::BITS).then_some(slot as usize)
        })
    }
}

fn place_bit(slot: usize) -> usize {
    16 * SLOTS + 12 * slot
}

fn get(words: &[u64; WORDS], bit: usize, bits: usize) -> u64 {
    let (word, offset) = (bit / 64, bit % 64);
    let mut value = words[word] >> offset;
    if offset + bits > 64 {
        value |= words[word + 1] << (64 - offset);
    }
    value & ((1 << bits) - 1)
}

fn put(words: &mut [u64; WORDS], bit: usize, bits: usize, value: u64) {
    let (word, offset) = (bit / 64, bit % 64);
    let mask = (1u64 << bits) - 1;
    words[word] = words[word] & !(mask << offset) | value << offset;
    if offset + bits > 64 {
        let done = 64 - offset;
        words[word + 1] = words[word + 1] & !(mask >> done) | value >> done;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(fingerprint: u16, segment: u16, uses: u8) -> Entry {
        Entry { fingerprint, segment, uses }
    }

    proptest! {
        #[test]
        fn entries_of_a_bucket_are_independent(
            entries in prop::collection::vec(
                prop::option::of((1u16..0x8000, 0u16..2048, 0u8..4)), SLOTS..=SLOTS),
        ) {
            let mut bucket = Bucket::default();
            let entries: Vec<_> = entries.into_iter().map(|e| e.map(|(f, s, u)| entry(f, s, u))).collect();
            for (slot, e) in entries.iter().enumerate().rev() {
                bucket.set(slot, *e);
            }
            for (slot, e) in entries.iter().enumerate() {
                prop_assert_eq!(bucket.entry(slot), *e);
                let wanted = e.map_or(0, |e| e.fingerprint);
                let matching: Vec<_> = (0..SLOTS)
                    .filter(|&s| entries[s].map_or(0, |e| e.fingerprint) == wanted).collect();
                prop_assert_eq!(bucket.matches(wanted).iter().collect::<Vec<_>>(), matching);
            }
            prop_assert_eq!((bucket.guests(), bucket.away()), (0, 0));
        }
    }

    #[test]
    fn guests_stay_at_the_end() {
        let mut bucket = Bucket::default();
        for slot in 0..15 {
            bucket.set(slot, Some(entry(slot as u16 + 1, 1, 0)));
        }
        for guest in 0..3 {
            assert!(bucket.add_guest(entry(100 + guest, 2, 1)));
        }
        assert!(!bucket.add_guest(entry(200, 2, 1)), "full");
        assert_eq!(bucket.guests(), 3);
        bucket.remove(4);
        assert!(bucket.add_guest(entry(103, 2, 1)), "a home entry moves into the hole");
        assert_eq!(bucket.guests(), 4);
        let slot = bucket.matches(101).iter().next().unwrap();
        bucket.remove(slot);
        let guests: Vec<_> = (0..SLOTS).filter(|&s| bucket.is_guest(s)).collect();
        assert_eq!(guests, [15, 16, 17]);
        assert!(guests.iter().all(|&s| bucket.entry(s).unwrap().fingerprint >= 100));
        assert!((0..15).all(|s| bucket.entry(s).is_none_or(|e| e.fingerprint < 100)));
    }

    #[test]
    fn use_bits_agree_with_entries() {
        for slot in 0..SLOTS {
            let mut bucket = Bucket::default();
            bucket.set(slot, Some(entry(5, 2047, 0)));
            for (n, (word, bit)) in Bucket::use_bits(slot).into_iter().enumerate() {
                bucket.0[word] |= bit;
                assert_eq!(bucket.entry(slot), Some(entry(5, 2047, n as u8 + 1)));
            }
        }
    }
}
