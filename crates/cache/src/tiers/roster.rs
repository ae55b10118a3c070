//! The roster of a set: which members it has.

use crate::platform::getters::getters;
use crate::segments::layout::{PAGE, checksum, put_u32, put_u64, u32_at, u64_at};
use crate::state::standing::{RosterId, Standing};
use std::sync::Arc;

/// Members of a set, at most: as many as a superblock has room for.
pub(crate) const MEMBERS_MAX: usize = 256;
const MAGIC: &[u8; 8] = b"TRROSTER";
const VERSION: u32 = 1;
const STANDING_AT: usize = 24;
const MEMBERS_AT: usize = 512;
const _: () = assert!(MEMBERS_AT + MEMBERS_MAX * 8 <= PAGE);

/// A roster, as a superblock or the witness has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Roster {
    standing: Standing,
    /// The newest generation that was known when the present line of rosters began: see [`next_line`].
    base: u64,
    /// The witness has it, too.
    has_witness: bool,
    /// The ids of the members that have joined.
    members: Arc<[u64]>,
}

/// Bits of a generation that count rosters of a line.
const LINE_BITS: u32 = 32;

/// The generation ahead of the first one of a new line. A start that believes no member begins one: it is newer than
/// what other parts of the set do meanwhile, however often they start.
pub(crate) fn next_line(generation: u64) -> u64 {
    generation + (1 << LINE_BITS)
}

getters! {
    Roster {
        base: u64,
        standing: Standing,
        has_witness: bool,
        members: &Arc<[u64]>,
    }
}

impl Roster {
    /// # Panics
    /// If there are more than [`MEMBERS_MAX`] members.
    pub(crate) fn new(standing: Standing, has_witness: bool, members: Arc<[u64]>) -> Self {
        assert!(members.len() <= MEMBERS_MAX, "{} members", members.len());
        Self { standing, base: 0, has_witness, members }
    }

    /// The same roster, in the line that began with `base`.
    pub(crate) fn of_line(self, base: u64) -> Self {
        Self { base, ..self }
    }

    /// Whether a roster that was in force can't be an ancestor of this one: a part of the set went on with another line
    /// when this one began.
    pub(crate) fn is_fork_of(&self, other: RosterId) -> bool {
        let count = |generation: u64| generation & ((1 << LINE_BITS) - 1);
        let line = |generation: u64| generation >> LINE_BITS;
        let own = self.standing.roster().generation();
        line(other.generation()) < line(own) && count(other.generation()) > count(self.base)
    }

    /// The same roster, in force.
    pub(crate) fn put_in_force(&self) -> Self {
        Self { standing: self.standing.put_in_force(), ..self.clone() }
    }

    pub(crate) fn has(&self, member: u64) -> bool {
        self.members.contains(&member)
    }

    /// Writes it into a superblock: from byte `at` on the standing and two counts, from `members_at` on the members.
    pub(super) fn put(&self, page: &mut [u8], at: usize, members_at: usize) {
        for (word, bits) in self.standing.to_words().into_iter().enumerate() {
            put_u64(page, at + word * 8, bits);
        }
        let counts = at + Standing::WORDS * 8;
        put_u32(page, counts, self.members.len() as u32);
        put_u32(page, counts + 4, self.has_witness.into());
        put_u64(page, counts + 8, self.base);
        for (place, &member) in self.members.iter().enumerate() {
            put_u64(page, members_at + place * 8, member);
        }
    }

    /// Reads what [`Roster::put`] wrote; `None` if it has too many members.
    pub(super) fn get(page: &[u8], at: usize, members_at: usize) -> Option<Self> {
        let standing =
            Standing::from_words(std::array::from_fn(|word| u64_at(page, at + word * 8)));
        let counts = at + Standing::WORDS * 8;
        let members = u32_at(page, counts) as usize;
        (members <= MEMBERS_MAX).then(|| Self {
            standing,
            has_witness: u32_at(page, counts + 4) != 0,
            base: u64_at(page, counts + 8),
            members: (0..members).map(|place| u64_at(page, members_at + place * 8)).collect(),
        })
    }

    /// For the witness of a set.
    pub(crate) fn encode(&self, set: u64) -> Vec<u8> {
        let mut page = vec![0; PAGE];
        page[..8].copy_from_slice(MAGIC);
        put_u32(&mut page, 8, VERSION);
        put_u64(&mut page, 16, set);
        self.put(&mut page, STANDING_AT, MEMBERS_AT);
        let crc = checksum(0, &page[16..]);
        put_u32(&mut page, 12, crc);
        page
    }

    /// The set and the roster that the witness has; `None` if the bytes are damaged, or of another version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(u64, Self)> {
        let fits = bytes.len() == PAGE
            && &bytes[..8] == MAGIC
            && u32_at(bytes, 8) == VERSION
            && u32_at(bytes, 12) == checksum(0, &bytes[16..]);
        let roster = fits.then(|| Self::get(bytes, STANDING_AT, MEMBERS_AT)).flatten()?;
        Some((u64_at(bytes, 16), roster))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn witness_round_trips_and_damage_is_found() {
        let standing = Standing::proposed(RosterId::new(3, 4), RosterId::new(2, 5));
        for members in [vec![], vec![7, u64::MAX], vec![1; MEMBERS_MAX]] {
            let roster = Roster::new(standing, true, members.into());
            let mut bytes = roster.encode(9);
            assert_eq!(Roster::decode(&bytes), Some((9, roster)));
            bytes[600] ^= 1;
            assert_eq!(Roster::decode(&bytes), None);
        }
        assert_eq!(Roster::decode(b"TRROSTER"), None);
    }
}
