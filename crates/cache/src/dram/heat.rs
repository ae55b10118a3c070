//! Uses of a record in DRAM, and the sealed original of a copy.

use crate::dram::resident::{Resident, mark};
use crate::index::bucket::SEGMENTS_MAX;
use crate::records::record::Record;
use crate::segments::segment::Sealed;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_policy::{Heat, Promotion};

/// The sealed original of a hot copy: segment number, and the low bits of the seal sequence, which distinguish it from
/// a later use of the number. It is only used to remove the original's entry from the index, which the name has to fit
/// too. A copy that outlives its original by 2^21 seals could be taken for that of another segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin(u32);

impl Origin {
    /// The record has no sealed original.
    pub(crate) const NONE: u32 = 0;

    /// Takes the next seal sequence. Skips sequences of segments that could have an origin equal to [`Self::NONE`]: no
    /// tombstone would be written when their records are replaced.
    pub(crate) fn next_seq(counter: &AtomicU64) -> u64 {
        let is_distinct = |seq| Self::of(Sealed { number: 0, seq }).to_bits() != Self::NONE;
        loop {
            let seq = counter.fetch_add(1, Ordering::Relaxed);
            if is_distinct(seq) {
                return seq;
            }
        }
    }

    pub(crate) fn of(sealed: Sealed) -> Self {
        Self(u32::from(sealed.number) | (sealed.seq as u32) << SEGMENTS_MAX.trailing_zeros())
    }

    pub(crate) fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub(crate) fn to_bits(self) -> u32 {
        self.0
    }

    pub(crate) fn number(self) -> u16 {
        (self.0 & (SEGMENTS_MAX - 1)) as u16
    }

    pub(crate) fn is_of(self, sealed: Sealed) -> bool {
        self == Self::of(sealed)
    }
}

/// Uses of a record in DRAM. Not a part of its marks, since it changes with every hit. A plain store may lose the count
/// of another thread; an estimate bears that.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Warmth(u16);

/// 2 means twice or more.
const USES_MAX: u16 = 2;

impl Warmth {
    pub(crate) fn new(heat: Heat, uses: u16) -> Self {
        Self(heat.to_bits() | uses.min(USES_MAX) << Heat::BITS)
    }

    pub(crate) fn of(resident: &Resident<'_>) -> Self {
        Self(resident.header.warmth.load(Ordering::Relaxed))
    }

    pub(crate) fn put(self, resident: &Resident<'_>) {
        resident.header.warmth.store(self.0, Ordering::Relaxed);
    }

    /// Its recent frequency of use.
    pub(crate) fn heat(self) -> Heat {
        Heat::from_bits(self.0)
    }

    /// Uses since its key came into DRAM, at most 2.
    pub(crate) fn uses(self) -> u8 {
        (self.0 >> Heat::BITS).min(USES_MAX) as u8
    }

    fn used(self, epoch: u8) -> Self {
        Self::new(self.heat().used(epoch), u16::from(self.uses()) + 1)
    }
}

/// Counts a use of a record in DRAM. Counts of hot records reach their limit soon and are then no longer stored.
pub(crate) fn warm(resident: &Resident<'_>, promotion: &Promotion) {
    let before = Warmth::of(resident);
    let after = before.used(promotion.epoch());
    if after != before {
        after.put(resident);
    }
}

/// Marks a record that a client stored in the place of another of the same key in DRAM.
pub(crate) fn note_rewrite(old: &Resident<'_>, new: &Resident<'_>) {
    if !old.has(mark::HOT | mark::SEALED) {
        new.set(mark::REWRITTEN);
    }
}

pub(crate) fn is_of_same_key(one: &[u8], other: &[u8]) -> bool {
    let key = |bytes| Record::decode(bytes).map(|(record, _)| (record.key, record.is_chunk()));
    key(one).is_some_and(|one| key(other) == Some(one))
}

/// Gives a record that takes the place of another of the same key in DRAM its frequency. If that deserves a copy, the
/// record counts as used, so that sealing asks the policy for one.
pub(crate) fn hand_on(promotion: &Promotion, old: &Resident<'_>, new: &Resident<'_>) {
    let warmth = Warmth::of(old);
    warmth.put(new);
    if old.has(mark::HOT | mark::INHERITED) {
        new.set(mark::INHERITED);
    }
    if promotion.keeps(warmth.heat(), new.footprint()) {
        new.set(mark::USED);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// One seal in 2^21 would have it; a copy of such a segment would be taken for a record without an original.
    #[test]
    fn no_segment_has_the_origin_none() {
        let none = 7 << 21;
        let counter = AtomicU64::new(none - 2);
        let seqs = [0; 4].map(|_| Origin::next_seq(&counter));
        assert_eq!(seqs, [none - 2, none - 1, none + 1, none + 2]);
    }
}
