//! Reading a tier's kill log: which segments count, and which of their records do not.

use crate::kill_log::log_page::PAGES_MAX;
use crate::kill_log::word::{FINGERPRINT, FINGERPRINT_BITS, Word, abroad};
use crate::kill_log::{KillLog, PAGE_WORDS, Seat};
use crate::recovery::state::LogField;
use crate::tiers::slots::Slots;
use std::cmp;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::Ordering;

/// A segment as the log has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged {
    pub(crate) seat: Seat,
    /// Position of its beginning; 0 if that is gone from the log, which then says it again.
    begin: u64,
    is_placed: bool,
    pub(crate) is_committed: bool,
    /// Its log does not say in so many words that it counts, or says more of it than came true.
    pub(crate) is_to_be_said_again: bool,
}

/// What a tier's log says.
#[derive(Default)]
pub(crate) struct Replay {
    /// By slot.
    pub(crate) segments: HashMap<u32, Logged>,
    /// Slot and short name, sorted.
    kills: Vec<(u32, u64)>,
    /// Those that name a record by another one that it shared bucket and fingerprint with.
    likes: Vec<(u32, u64)>,
    /// Shard, short name, position.
    kill_alls: Vec<(u16, u64, u64)>,
    /// By slot, the slots whose segments follow the commit of the one there.
    followers: HashMap<u32, Vec<u32>>,
    /// By slot, seal sequences of segments on other tiers that do.
    followers_abroad: HashMap<u32, Vec<u64>>,
    /// Those of which that commit came.
    committed_abroad: Vec<u64>,
}

/// Segments count that were committed in the log of another tier.
pub(crate) fn commit_abroad(replays: &mut [Replay]) {
    let committed: HashSet<u64> =
        replays.iter().flat_map(|replay| replay.committed_abroad.iter().copied()).collect();
    for logged in replays.iter_mut().flat_map(|replay| replay.segments.values_mut()) {
        if !logged.is_committed && committed.contains(&abroad(logged.seat.seq)) {
            (logged.is_committed, logged.is_to_be_said_again) = (true, true);
        }
    }
}

impl Replay {
    /// Takes in the words of the log in their order.
    pub(crate) fn of(words: &[(u64, Word)]) -> Self {
        let mut replay = Self::default();
        for &(at, word) in words {
            replay.take_segment(at, word);
        }
        replay.segments.retain(|_, logged| logged.seat.seq != 0 && logged.is_placed);
        // A commit that did not come may not do so later, for another reason.
        let leaders = replay.followers.keys().chain(replay.followers_abroad.keys());
        for leader in leaders {
            if let Some(logged) = replay.segments.get_mut(leader) {
                logged.is_to_be_said_again = true;
            }
        }
        for &(at, word) in words {
            replay.take_kill(at, word);
        }
        replay.kills.sort_unstable();
        replay.likes.sort_unstable();
        replay.kill_alls.sort_unstable();
        replay
    }

    fn take_segment(&mut self, at: u64, word: Word) {
        let unknown = Logged {
            seat: Seat { shard: 0, number: 0, seq: 0 },
            begin: 0,
            is_placed: false,
            is_committed: false,
            is_to_be_said_again: false,
        };
        match word {
            Word::Begin { slot, seq } => {
                let seat = Seat { seq, ..unknown.seat };
                self.lose_followers(slot);
                self.segments.insert(slot, Logged { seat, begin: at, ..unknown });
            }
            Word::Again { slot, seq } => {
                self.lose_followers(slot);
                let logged = self.segments.entry(slot).or_insert(unknown);
                if logged.seat.seq == 0 {
                    logged.seat.seq = seq;
                }
                // Another one that is there was freed and began anew since.
                logged.is_committed |= logged.seat.seq == seq;
            }
            Word::Place { slot, shard, number } => {
                let logged = self.segments.entry(slot).or_insert(unknown);
                (logged.seat.shard, logged.seat.number) = (shard, number);
                logged.is_placed = true;
            }
            Word::Kill { slot, .. } | Word::KillLike { slot, .. } => {
                // Its segment began in a page that is gone, and is said again further on.
                self.segments.entry(slot).or_insert(unknown);
            }
            Word::Commit { slot } => {
                if let Some(logged) = self.segments.get_mut(&slot) {
                    logged.is_committed = true;
                }
                let followers = self.followers.remove(&slot).unwrap_or_default();
                followers.into_iter().for_each(|slot| self.follow(slot));
                let abroad = self.followers_abroad.remove(&slot).unwrap_or_default();
                self.committed_abroad.extend(abroad);
            }
            Word::Follow { slot, leader } => self.followers.entry(leader).or_default().push(slot),
            Word::FollowAbroad { leader, seq } => {
                self.followers_abroad.entry(leader).or_default().push(seq);
            }
            Word::Free { slot } => {
                self.lose_followers(slot);
                self.segments.remove(&slot);
            }
            Word::KillAll { .. } | Word::Pad => {}
        }
    }

    fn lose_followers(&mut self, slot: u32) {
        self.followers.remove(&slot);
        self.followers_abroad.remove(&slot);
    }

    /// What a segment followed was committed: it began for this, or it ends.
    fn follow(&mut self, slot: u32) {
        match self.segments.get_mut(&slot) {
            Some(logged) if !logged.is_committed && logged.seat.seq != 0 => {
                logged.is_committed = true
            }
            _ => _ = self.segments.remove(&slot),
        }
    }

    fn take_kill(&mut self, at: u64, word: Word) {
        match word {
            Word::Kill { slot, name }
                if self.segments.get(&slot).is_some_and(|logged| at >= logged.begin) =>
            {
                self.kills.push((slot, name));
            }
            Word::KillLike { slot, name }
                if self.segments.get(&slot).is_some_and(|logged| at >= logged.begin) =>
            {
                self.likes.push((slot, name));
            }
            Word::KillAll { shard, name } => self.kill_alls.push((shard, name, at)),
            _ => {}
        }
    }

    /// What is said of the records of the segment in a slot. `width` is how wide, in positions, a bucket was
    /// when it was sealed.
    pub(crate) fn kills(&self, slot: u32, logged: &Logged, width: u32) -> Kills<'_> {
        let shard = logged.seat.shard;
        Kills {
            kills: equal(&self.kills, |kill| kill.0.cmp(&slot)),
            likes: equal(&self.likes, |like| like.0.cmp(&slot)),
            kill_alls: equal(&self.kill_alls, |kill| kill.0.cmp(&shard)),
            begin: logged.begin,
            width: width.into(),
        }
    }

    /// Tells the running log what counts.
    pub(crate) fn seat_all(&self, log: &KillLog) {
        for (&slot, logged) in &self.segments {
            log.seat(slot, logged.begin, logged.seat);
        }
        self.kills.iter().chain(&self.likes).for_each(|&(slot, _)| log.count_kill(slot));
    }
}

/// The part of a sorted list for which `order` answers `Equal`.
fn equal<T>(sorted: &[T], order: impl Fn(&T) -> cmp::Ordering) -> &[T] {
    let from = sorted.partition_point(|item| order(item).is_lt());
    let to = sorted.partition_point(|item| order(item).is_le());
    &sorted[from..to]
}

/// The kills that may be meant for records of one segment: most often none, and a restart asks for each
/// record.
pub(crate) struct Kills<'r> {
    kills: &'r [(u32, u64)],
    likes: &'r [(u32, u64)],
    kill_alls: &'r [(u16, u64, u64)],
    begin: u64,
    width: u64,
}

impl Kills<'_> {
    /// Whether the record of a short name is not to come back.
    pub(crate) fn void(&self, name: u64) -> bool {
        self.name(name) || self.have_one_like(name) || self.have_one_for_all(name)
    }

    /// Whether a kill names this very record.
    pub(crate) fn name(&self, name: u64) -> bool {
        self.kills.binary_search_by_key(&name, |kill| kill.1).is_ok()
    }

    /// Buckets only get narrower, so whatever shared one with a record after it was sealed lies within the
    /// width; two records of a segment that near to each other have different fingerprints.
    fn have_one_like(&self, name: u64) -> bool {
        let (position, fingerprint) = (name >> FINGERPRINT_BITS, name & FINGERPRINT);
        let first = position.saturating_sub(self.width) << FINGERPRINT_BITS;
        let from = self.likes.partition_point(|like| like.1 < first);
        let mut near = self.likes[from..]
            .iter()
            .map(|like| like.1)
            .take_while(|like| like >> FINGERPRINT_BITS <= position + self.width);
        near.any(|like| like & FINGERPRINT == fingerprint)
    }

    fn have_one_for_all(&self, name: u64) -> bool {
        let from = self.kill_alls.partition_point(|kill| kill.1 < name);
        let mut same = self.kill_alls[from..].iter().take_while(|kill| kill.1 == name);
        same.any(|&(.., at)| at >= self.begin)
    }
}

/// All words of a log, from tier and ring; what is appended to it follows them.
///
/// # Errors
/// A page that was written can't be read, or names what there is not: then nothing on the tier can be trusted.
pub(crate) fn read_log(log: &KillLog, slots: &Slots) -> io::Result<Vec<(u64, Word)>> {
    let get = |field| log.field(field).load(Ordering::Acquire);
    let (tail, spilled) = (get(LogField::Tail), get(LogField::Spilled));
    let head = get(LogField::Head);
    let ring_end = spilled.saturating_add(log.ring_pages()).saturating_mul(PAGE_WORDS);
    if tail > spilled || spilled > PAGES_MAX || head > ring_end {
        return Err(nonsense());
    }
    let mut words = Vec::new();
    let mut take = |page: u64, bits: Vec<u64>| {
        for (at, bits) in (page * PAGE_WORDS..head).zip(bits) {
            let Some(word) = Word::from_bits(bits) else { continue };
            if !word.slots().all(|slot| log.has_slot(slot)) {
                return Err(nonsense());
            }
            words.push((at, word));
        }
        Ok(())
    };
    let (mut page, mut last) = (tail, log.tail_link());
    while page < spilled {
        for read in log.read_run(page, spilled, slots)? {
            take(page, read.words)?;
            (page, last) = (page + 1, read.checksum);
        }
    }
    (spilled..head.div_ceil(PAGE_WORDS)).try_for_each(|page| take(page, log.ring_page(page)))?;
    log.continue_behind(last);
    Ok(words)
}

fn nonsense() -> io::Error {
    let why = "the kill log says what can't be";
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Two segments that count, of which the second is to end with the first, which was not committed again.
    const CUT_SHORT: [Word; 7] = [
        Word::Begin { slot: 0, seq: 10 },
        Word::Place { slot: 0, shard: 0, number: 0 },
        Word::Commit { slot: 0 },
        Word::Begin { slot: 1, seq: 11 },
        Word::Place { slot: 1, shard: 0, number: 1 },
        Word::Commit { slot: 1 },
        Word::Follow { slot: 1, leader: 0 },
    ];

    fn replay(words: &[Word]) -> Replay {
        Replay::of(&(1..).zip(words.iter().copied()).collect::<Vec<_>>())
    }

    #[test]
    fn a_commit_that_did_not_come_takes_nobody_along_later() {
        let found = replay(&CUT_SHORT).segments;
        assert!(found[&0].is_to_be_said_again && !found[&1].is_to_be_said_again);
        let later = [
            Word::Again { slot: 0, seq: 10 },
            Word::Place { slot: 0, shard: 0, number: 0 },
            Word::Commit { slot: 0 },
        ];
        let found = replay(&[&CUT_SHORT[..], &later[..]].concat()).segments;
        assert!(found[&1].is_committed && !found[&0].is_to_be_said_again);
        let found = replay(&[&CUT_SHORT[..], &later[2..]].concat()).segments;
        assert!(!found.contains_key(&1), "where that is what the commit says");
    }

    #[test]
    fn what_another_log_committed_is_to_be_said_in_its_own() {
        let above = [
            &CUT_SHORT[..3],
            &[Word::FollowAbroad { leader: 0, seq: 20 }, Word::Commit { slot: 0 }],
        ];
        let below = [
            Word::Begin { slot: 5, seq: 20 },
            Word::Place { slot: 5, shard: 0, number: 2 },
            Word::Begin { slot: 6, seq: 21 },
            Word::Place { slot: 6, shard: 0, number: 3 },
        ];
        let mut replays = [replay(&above.concat()), replay(&below)];
        commit_abroad(&mut replays);
        let [.., below] = &replays;
        assert!(below.segments[&5].is_committed && below.segments[&5].is_to_be_said_again);
        assert!(!below.segments[&6].is_committed && !below.segments[&6].is_to_be_said_again);
    }
}
