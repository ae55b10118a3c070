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
/// Bytes that a roster takes before its members.
pub(crate) const HEADER_BYTES: usize = Standing::WORDS * 8 + 16 + BEGINS_MAX * 16;

/// A roster, as a superblock or the witness has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Roster {
    standing: Standing,
    line: Line,
    /// The witness has it, too.
    has_witness: bool,
    /// The ids of the members that have joined.
    members: Arc<[u64]>,
}

/// The line of rosters that one belongs to. A start that believes no member begins a new line: its rosters are newer than
/// what other parts of the set do meanwhile, however often they start. So does a roster that most members do not take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// Where the latest lines began that led to this one, which is the last: the number of the line before, with the
    /// count of the newest roster in force that was known, and a random number that tells it from another line that
    /// began in another part of the set.
    begins: Vec<(u64, u64)>,
}

/// Generations of rosters that are known.
#[derive(Clone, Copy, Default)]
pub(crate) struct Generations {
    /// The newest one that was in force.
    in_force: u64,
    /// The newest one that was proposed.
    proposed: u64,
}

/// Bits of a generation that count rosters; those above count lines.
const LINE_BITS: u32 = 32;
/// Beginnings of lines that a roster has, at most.
const BEGINS_MAX: usize = 16;

fn count(generation: u64) -> u64 {
    generation & ((1 << LINE_BITS) - 1)
}

impl Generations {
    pub(crate) fn new(in_force: u64, proposed: u64) -> Self {
        Self { in_force, proposed }
    }

    /// The newest ones of some standings.
    pub(crate) fn of(standings: impl Iterator<Item = Standing>) -> Self {
        standings.fold(Self::default(), |known, standing| Self {
            in_force: Line::newest(known.in_force, standing.last_in_force().generation()),
            proposed: Line::newest(known.proposed, standing.roster().generation()),
        })
    }

    pub(crate) fn proposed(self) -> u64 {
        self.proposed
    }
}

impl Line {
    /// A new one behind this one, and the generation ahead of its first roster.
    pub(crate) fn begin(&self, known: Generations, nonce: u64) -> (Self, u64) {
        // Behind a roster that was proposed only, another part of the set may have one of its own in force.
        let base = (known.proposed >> LINE_BITS) << LINE_BITS | count(known.in_force);
        let begins = self.begins.iter().copied().chain([(base, nonce)]);
        let skipped = (self.begins.len() + 1).saturating_sub(BEGINS_MAX);
        (Self { begins: begins.skip(skipped).collect() }, known.proposed + (1 << LINE_BITS))
    }

    /// The generation ahead of the next roster in the line of the generation `last`, where `generation` is the newest
    /// that is known.
    pub(crate) fn go_on(last: u64, generation: u64) -> u64 {
        (last >> LINE_BITS) << LINE_BITS | count(generation)
    }

    /// A generation that is as new as each of two.
    pub(crate) fn newest(a: u64, b: u64) -> u64 {
        (a >> LINE_BITS).max(b >> LINE_BITS) << LINE_BITS | count(a).max(count(b))
    }

    /// The known beginnings of lines with their numbers, the oldest first.
    fn numbered(&self) -> impl Iterator<Item = (u64, (u64, u64))> {
        self.begins.iter().map(|&begin| ((begin.0 >> LINE_BITS) + 1, begin))
    }
}

getters! {
    Roster {
        line: &Line,
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
        Self { standing, line: Line::default(), has_witness, members }
    }

    /// The same roster in this line.
    pub(crate) fn of_line(self, line: Line) -> Self {
        Self { line, ..self }
    }

    /// Whether a roster that was in force can't be an ancestor of this one, as far as its generation shows: a part of the
    /// set went on with an older line when a later line began.
    pub(crate) fn is_fork_of(&self, other: RosterId) -> bool {
        let line = other.generation() >> LINE_BITS;
        let next = self.line.numbered().find(|&(number, _)| number > line);
        next.is_some_and(|(_, (base, _))| count(other.generation()) > count(base))
    }

    /// Whether a roster in force is of a line that began beside those that led to this one.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        let line = other.standing.roster().generation() >> LINE_BITS;
        let is_known = self.line.numbered().next().is_some_and(|(first, _)| first <= line);
        let nonce = |roster: &Self| {
            let begin = roster.line.numbered().find(|&(number, _)| number == line);
            begin.map(|(_, (_, nonce))| nonce)
        };
        line > 0 && is_known && nonce(self) != nonce(other)
    }

    /// The same roster, in force.
    pub(crate) fn put_in_force(&self) -> Self {
        Self { standing: self.standing.put_in_force(), ..self.clone() }
    }

    pub(crate) fn has(&self, member: u64) -> bool {
        self.members.contains(&member)
    }

    /// Whether so many of its members are more than half of them.
    pub(crate) fn are_most(&self, members: usize) -> bool {
        members * 2 > self.members.len()
    }

    /// Writes it into a superblock: from byte `at` on the standing and two counts, from `members_at` on the members.
    pub(super) fn put(&self, page: &mut [u8], at: usize, members_at: usize) {
        for (word, bits) in self.standing.to_words().into_iter().enumerate() {
            put_u64(page, at + word * 8, bits);
        }
        let counts = at + Standing::WORDS * 8;
        put_u32(page, counts, self.members.len() as u32);
        put_u32(page, counts + 4, self.has_witness.into());
        put_u64(page, counts + 8, self.line.begins.len() as u64);
        for (place, &(base, nonce)) in self.line.begins.iter().enumerate() {
            put_u64(page, counts + 16 + place * 16, base);
            put_u64(page, counts + 24 + place * 16, nonce);
        }
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
        let begins = u64_at(page, counts + 8) as usize;
        (members <= MEMBERS_MAX && begins <= BEGINS_MAX).then(|| Self {
            standing,
            has_witness: u32_at(page, counts + 4) != 0,
            line: Line {
                begins: (0..begins)
                    .map(|place| counts + 16 + place * 16)
                    .map(|at| (u64_at(page, at), u64_at(page, at + 8)))
                    .collect(),
            },
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
