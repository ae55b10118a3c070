//! The words of the tombstone log: 8 bytes each, so that one store writes each.
//!
//! ```text
//! kind 3 bits | slot of the tier 20 bits | 41 bits: name (32 of position, 9 of fingerprint), or seal
//!                                          sequence, or shard and segment number
//! ```
//!
//! 0 is a position that was taken and not yet written.

/// One entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// The record of this name in the segment at this slot is void.
    Tombstone { slot: u32, name: u64 },
    /// As `Tombstone`, for the record of the segment that shares bucket and fingerprint with this name: its entry was
    /// removed unread, so its key is unknown.
    TombstoneByPrefix { slot: u32, name: u64 },
    /// A segment was written to a slot. It does not count before its `Commit`.
    Begin { slot: u32, seq: u64 },
    /// As `Begin` and `Commit`, appended again when the log's oldest pages go; tombstones before it count.
    Relog { slot: u32, seq: u64 },
    /// Shard and number of the segment that began in the slot.
    Place { slot: u32, shard: u16, number: u16 },
    /// From here on the segment holds its records, and no longer DRAM.
    Commit { slot: u32 },
    /// The segment holds no records any more.
    Free { slot: u32 },
    /// The commit of the segment at slot `leader`, if it comes, also commits the segment at this slot, or ends it if it
    /// was committed before.
    Follow { slot: u32, leader: u32 },
    /// As `Follow`, for a segment that was written for this on another tier: the bits of a seal sequence in [`abroad`]
    /// are unique, too.
    FollowAbroad { leader: u32, seq: u64 },
    /// No segment of this shard that began before holds the newest record of the name's key.
    TombstoneInShard { shard: u16, name: u64 },
    /// Fills a page up.
    Pad,
}

/// Slots of a tier that a word can name.
pub(crate) const SLOTS_MAX: u32 = (1 << SLOT_BITS) - 1;
pub(crate) const SLOT_BITS: u32 = 20;
const REST_BITS: u32 = 41;
const REST: u64 = (1 << REST_BITS) - 1;
/// The lowest three bits of a `Follow` and of a `FollowAbroad`; other words of their kind have 1 to 3 there.
const FOLLOW: u64 = 4;
const FOLLOW_ABROAD: u64 = 5;

/// The bits of a seal sequence that fit into a `FollowAbroad`.
pub(crate) fn abroad(seq: u64) -> u64 {
    seq & (REST >> 3)
}

impl Word {
    pub(crate) fn to_bits(self) -> u64 {
        let word = |kind: u64, slot: u32, rest: u64| {
            kind << (SLOT_BITS + REST_BITS) | u64::from(slot) << REST_BITS | rest & REST
        };
        match self {
            Word::Tombstone { slot, name } => word(1, slot, name),
            Word::Begin { slot, seq } => word(2, slot, seq),
            Word::Relog { slot, seq } => word(3, slot, seq),
            Word::Place { slot, shard, number } => {
                word(4, slot, u64::from(shard) << 16 | u64::from(number))
            }
            Word::Commit { slot } => word(5, slot, 1),
            Word::Free { slot } => word(5, slot, 2),
            Word::TombstoneInShard { shard, name } => word(6, shard.into(), name),
            Word::Pad => word(5, 0, 3),
            Word::Follow { slot, leader } => word(5, slot, FOLLOW | u64::from(leader) << 3),
            Word::FollowAbroad { leader, seq } => word(5, leader, FOLLOW_ABROAD | abroad(seq) << 3),
            Word::TombstoneByPrefix { slot, name } => word(7, slot, name),
        }
    }

    /// The slots of the tier that the word names.
    pub(crate) fn slots(self) -> impl Iterator<Item = u32> {
        let slots = match self {
            Word::Tombstone { slot, .. } | Word::TombstoneByPrefix { slot, .. } => {
                [Some(slot), None]
            }
            Word::Begin { slot, .. } | Word::Relog { slot, .. } => [Some(slot), None],
            Word::Place { slot, .. } => [Some(slot), None],
            Word::Commit { slot } | Word::Free { slot } => [Some(slot), None],
            Word::Follow { slot, leader } => [Some(slot), Some(leader)],
            Word::FollowAbroad { leader, .. } => [Some(leader), None],
            Word::TombstoneInShard { .. } | Word::Pad => [None, None],
        };
        slots.into_iter().flatten()
    }

    /// `None` for a position that was not written, or for unknown bits.
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        let slot = (bits >> REST_BITS) as u32 & SLOTS_MAX;
        let rest = bits & REST;
        match bits >> (SLOT_BITS + REST_BITS) {
            1 => Some(Word::Tombstone { slot, name: rest }),
            2 => Some(Word::Begin { slot, seq: rest }),
            3 => Some(Word::Relog { slot, seq: rest }),
            4 => Some(Word::Place { slot, shard: (rest >> 16) as u16, number: rest as u16 }),
            5 if rest == 1 => Some(Word::Commit { slot }),
            5 if rest == 2 => Some(Word::Free { slot }),
            6 => Some(Word::TombstoneInShard { shard: slot as u16, name: rest }),
            5 if rest == 3 => Some(Word::Pad),
            5 if rest & 7 == FOLLOW => {
                Some(Word::Follow { slot, leader: (rest >> 3) as u32 & SLOTS_MAX })
            }
            5 if rest & 7 == FOLLOW_ABROAD => {
                Some(Word::FollowAbroad { leader: slot, seq: rest >> 3 })
            }
            7 => Some(Word::TombstoneByPrefix { slot, name: rest }),
            _ => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::records::key::Name;

    #[test]
    fn words_round_trip() {
        let name = (Name { pos: u32::MAX, fingerprint: 0x7fff }).short();
        let slot = SLOTS_MAX;
        let words = [
            Word::Tombstone { slot, name },
            Word::TombstoneByPrefix { slot, name },
            Word::Begin { slot, seq: REST },
            Word::Relog { slot: 0, seq: 1 },
            Word::Place { slot: 1, shard: 255, number: 2047 },
            Word::Commit { slot },
            Word::Free { slot: 2 },
            Word::Follow { slot, leader: slot },
            Word::Follow { slot: 0, leader: 0 },
            Word::FollowAbroad { leader: slot, seq: REST >> 3 },
            Word::FollowAbroad { leader: 0, seq: 1 },
            Word::TombstoneInShard { shard: 255, name },
            Word::Pad,
        ];
        for word in words {
            assert_eq!(Word::from_bits(word.to_bits()), Some(word));
            assert_ne!(word.to_bits(), 0);
        }
        assert_eq!(Word::from_bits(0), None);
    }
}
