//! Cleaning: appends the words of the log's oldest slot that still count once more, and then frees the slot.
//!
//! Other threads seal and relocate segments meanwhile. So a word is checked again when it is appended, under the lock
//! of its shard: a tombstone behind the next segment in its slot would void records of that one.

use super::word::Word;
use super::{Locked, PAGE_WORDS, Seat, TombstoneLog};
use crate::platform::crash::crash_point;
use crate::state::LogField;
use crate::tiers::slots::Slots;
use std::cmp::Reverse;
use std::io;
use std::sync::atomic::Ordering;
use terrace_device::is_unanswered;

/// The log is cleaned when it is longer than this many times the words in it that count.
const GARBAGE_FACTOR: u64 = 2;
/// With fewer free slots than this the log is cleaned, however much of it counts.
const SLOTS_LEFT: u64 = 8;
/// With fewer free slots than this requests leave them to the background.
const SLOTS_HELD_BACK: u64 = 4;
/// Pages read at once.
const PAGES_AT_ONCE: u64 = 64;
/// The log is long when the words that count take more than three quarters of its slots.
const LONG: (u64, u64) = (3, 4);
/// While requests must leave slots to the background, the log fails if cleaning a slot would free less than a sixteenth
/// of it.
const GAIN_PARTS: u64 = 16;

impl TombstoneLog {
    /// Words for the tombstones and segments that count.
    fn live_words(&self) -> u64 {
        self.tombstones.load(Ordering::Relaxed) + 3 * self.segments.load(Ordering::Relaxed)
    }

    /// Slots that the log may still take.
    pub(super) fn slots_left(&self, slots: &Slots) -> u64 {
        let pages = self.get(LogField::Spilled).saturating_sub(self.get(LogField::Tail));
        self.slots_max.saturating_sub(pages.div_ceil(self.pages_per_slot(slots)))
    }

    /// Whether cleaning may soon have no slot to append to.
    pub(crate) fn is_short_of_slots(&self, slots: &Slots) -> bool {
        self.slots_left(slots) < SLOTS_LEFT
    }

    /// Whether the last slot that it may take is full: nothing more is written before cleaning frees one.
    pub(super) fn is_out_of_slots(&self, slots: &Slots) -> bool {
        let is_full = self.get(LogField::Spilled).is_multiple_of(self.pages_per_slot(slots));
        is_full && self.slots_left(slots) <= 1
    }

    /// Whether the words that count take nearly all slots. A tombstone counts until its segment is reclaimed, so that
    /// only reclaim makes them fewer.
    pub(crate) fn is_long(&self, slots: &Slots) -> bool {
        let slots_max = self.slots_max.saturating_sub(SLOTS_LEFT);
        let words_max = slots_max * self.pages_per_slot(slots) * PAGE_WORDS;
        self.live_words() * LONG.1 > words_max * LONG.0 && !self.has_failed()
    }

    /// Updates whether requests must leave the last slots to the background. The thread that takes or frees slots must
    /// call it after each change, so that the last call is right: requests take slots, too, to make their words
    /// durable.
    pub(super) fn note_slots_left(&self, slots: &Slots) {
        let holds_back = self.slots_left(slots) < SLOTS_HELD_BACK;
        self.holds_back.store(holds_back, Ordering::Relaxed);
    }

    /// Frees the oldest slot, when too little of the log counts or it is nearly as long as it may be.
    pub(super) fn clean(&self, slots: &Slots, locked: &Locked<'_>) -> bool {
        let per_slot = self.pages_per_slot(slots);
        let (tail, spilled) = (self.get(LogField::Tail), self.get(LogField::Spilled));
        let limit = GARBAGE_FACTOR * self.live_words() / PAGE_WORDS + per_slot;
        let is_short_of_slots = self.is_short_of_slots(slots);
        if spilled < tail + per_slot || (spilled - tail < limit && !is_short_of_slots) {
            return false;
        }
        let (mut page, mut last, mut said) = (tail, 0, 0);
        while page < tail + per_slot {
            let end = (page + PAGES_AT_ONCE).min(tail + per_slot);
            let run = match self.read_run(page, end, slots) {
                Ok(run) => run,
                Err(error) if is_unanswered(&error) => return false,
                Err(error) if error.kind() == io::ErrorKind::InvalidData || is_short_of_slots => {
                    // Its words are unknown now: the next start must be cold.
                    self.fail();
                    return true;
                }
                Err(_) => return false,
            };
            let mut words = Vec::new();
            for read in run {
                let bits = (page * PAGE_WORDS..).zip(read.words);
                words.extend(bits.filter_map(|(at, bits)| Some((at, Word::from_bits(bits)?))));
                (page, last) = (page + 1, read.checksum);
            }
            if words.iter().any(|&(at, word)| self.is_half_done(at, word)) {
                return false;
            }
            match self.say_what_counts(&words, slots, locked) {
                Some(more) => said += more,
                // The oldest slot stays; words that are there twice do no harm.
                None => return self.put_off(slots),
            }
        }
        let words = per_slot * PAGE_WORDS;
        if self.holds_back.load(Ordering::Relaxed) && (words - said.min(words)) * GAIN_PARTS < words
        {
            // Requests would wait for ever; now they do not, but the next start must be cold.
            self.fail();
            return true;
        }
        self.drop_oldest_slot(tail, last, slots)
    }

    /// Handles a lack of room for words that count, or a failed write. Returns whether that changed anything: where
    /// only cleaning would make room, requests would wait for ever, so the log fails and the next start must be cold.
    fn put_off(&self, slots: &Slots) -> bool {
        let is_stuck = self.is_out_of_slots(slots);
        if is_stuck {
            self.fail();
        }
        is_stuck
    }

    /// Appends those of some words that still count; returns their number. `None` if the ring has no room.
    fn say_what_counts(
        &self,
        words: &[(u64, Word)],
        slots: &Slots,
        locked: &Locked<'_>,
    ) -> Option<u64> {
        let counts = |&(at, word): &(u64, Word)| {
            self.still_counts(at, word)?;
            Some((self.shard_of(word)?, at, word))
        };
        let mut words: Vec<_> = words.iter().filter_map(counts).collect();
        // Their order does not matter: all are of segments that exist. A word that is there several times counts once
        // and is appended once: else copies would circulate while the log is short of slots.
        words.sort_unstable_by_key(|&(shard, at, word)| (shard, word.to_bits(), Reverse(at)));
        words.dedup_by_key(|&mut (shard, _, word)| (shard, word.to_bits()));
        for of_shard in words.chunk_by(|a, b| a.0 == b.0) {
            for some in of_shard.chunks(PAGE_WORDS as usize) {
                let has_room =
                    self.has_ring_room() || self.spill(slots).is_ok_and(|_| self.has_ring_room());
                if !has_room {
                    return None;
                }
                let say = || {
                    some.iter()
                        .for_each(|&(shard, at, word)| self.say_if_it_counts(shard, at, word))
                };
                locked(some[0].0.into(), &say);
            }
        }
        Some(words.len() as u64)
    }

    /// The caller must hold the shard's lock. The slot may have a segment of another shard by now.
    fn say_if_it_counts(&self, shard: u16, at: u64, word: Word) {
        match self.still_counts(at, word).filter(|_| self.shard_of(word) == Some(shard)) {
            Some(Word::Relog { slot, .. }) => self.relog(slot),
            Some(word) => _ = self.append(word),
            None => {}
        }
    }

    /// Frees the oldest slot, after its words that count were appended again.
    fn drop_oldest_slot(&self, tail: u64, last: u32, slots: &Slots) -> bool {
        if self.keeps_directory() && self.make_durable(slots).is_err() {
            return self.put_off(slots);
        }
        crash_point("log: said again");
        let slot = self.slot_of(tail, slots);
        if self.has_failed() {
            // The state was lost: the number may be that of another slot.
            return false;
        }
        {
            // A directory has both, or neither.
            let mut writer = crate::platform::lock::lock(&self.writer);
            self.field(LogField::Tail).store(tail + self.pages_per_slot(slots), Ordering::Release);
            (writer.is_listed, writer.tail_link) = (false, last);
            self.note_slots_left(slots);
        }
        crash_point("log: tail moved");
        if self.keeps_directory() && self.rewrite_directory(slots).is_err() {
            // A directory on the tier still leads to the slot: it must not be reused.
            return true;
        }
        slots.give_back(self.tier, slot);
        true
    }

    /// Appends again that a segment exists and counts.
    pub(crate) fn relog(&self, slot: u32) {
        let Seat { shard, number, seq } = self.uses[slot as usize].seat();
        self.append(Word::Relog { slot, seq });
        self.append(Word::Place { slot, shard, number });
    }

    /// The shard of the segment that is in the slot of a word.
    fn shard_of(&self, word: Word) -> Option<u16> {
        let slot = word.slots().next()?;
        Some(self.uses.get(slot as usize)?.seat().shard)
    }

    /// Whether the word begins a segment that was not committed yet: a `Relog` for it would commit it.
    fn is_half_done(&self, at: u64, word: Word) -> bool {
        let used = word.slots().next().and_then(|slot| self.uses.get(slot as usize));
        let is_begin = matches!(word, Word::Begin { .. });
        is_begin
            && self.still_counts(at, word).is_some()
            && used.is_some_and(|used| !used.is_committed())
    }

    /// The word to append again, if this one still counts.
    fn still_counts(&self, at: u64, word: Word) -> Option<Word> {
        match word {
            Word::Tombstone { slot, .. } | Word::TombstoneByPrefix { slot, .. } => {
                let begin = self.uses.get(slot as usize)?.begin.load(Ordering::Acquire);
                (begin != 0 && at >= begin - 1).then_some(word)
            }
            Word::Begin { slot, seq } | Word::Relog { slot, seq } => {
                let used = self.uses.get(slot as usize)?;
                let is_current = used.begin.load(Ordering::Acquire) != 0
                    && used.seq.load(Ordering::Relaxed) == seq;
                is_current.then_some(Word::Relog { slot, seq })
            }
            // Recovered shards have appended a `Tombstone` for each of these; `Place` goes with its segment.
            Word::TombstoneInShard { .. } | Word::Place { .. } | Word::Commit { .. } => None,
            Word::Free { .. } | Word::Follow { .. } | Word::FollowAbroad { .. } => None,
            Word::Pad => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::config::Tier;
    use crate::log::replay::{Replay, read_log};
    use crate::records::key::Name;
    use crate::state::standing::RosterId;
    use crate::state::{Identity, Layout, State, StateFile};
    use crate::stats::counters::Counters;
    use std::collections::HashSet;
    use std::sync::Arc;
    use terrace_device::sim::SimDevice;

    const NAME: Name = Name { pos: 11, fingerprint: 12 };
    /// The slot of the segment under test.
    const SLOT: u32 = 40;
    const SEGMENT_BYTES: u32 = 64 << 10;

    fn a_log() -> (TombstoneLog, Slots) {
        let layout = Layout::new(4, 1, 16).with_blocks(1, 4096);
        let identity = Identity::new(7, [1, 2], layout);
        let file = Arc::new(StateFile::volatile().expect("memory"));
        let state = State::anew(file, &identity, RosterId::default()).expect("memory");
        let tier = Tier::new(Arc::new(SimDevice::new(8 << 20, 1)));
        let counters = Arc::new(Counters::new(1, 4, 1));
        let slots = Slots::new(&[tier], SEGMENT_BYTES, counters, |_| HashSet::from([SLOT]));
        (TombstoneLog::new(Arc::new(state), 0, 7, slots.total(), false), slots)
    }

    fn seat(seq: u64) -> Seat {
        Seat { shard: 1, number: 2, seq }
    }

    /// Appends words that do not count, until the words so far are in a slot that can be cleaned.
    fn say_more(log: &TombstoneLog, slots: &Slots) {
        for _ in 0..=log.pages_per_slot(slots) * PAGE_WORDS {
            log.ensure_room(slots);
            log.append(Word::Pad);
        }
        log.spill(slots).expect("no faults");
    }

    fn replay(log: &TombstoneLog, slots: &Slots) -> Replay {
        read_log(log, slots).expect("no faults")
    }

    fn tombstones(replay: &Replay) -> bool {
        replay.tombstones(SLOT, &replay.segments[&SLOT], 1).name(NAME.short())
    }

    /// A segment that counts, with a tombstone for one record.
    fn log_with_a_tombstone() -> (TombstoneLog, Slots) {
        let (log, slots) = a_log();
        log.begin(SLOT, seat(1));
        log.commit(SLOT);
        log.tombstone(SLOT, NAME);
        say_more(&log, &slots);
        (log, slots)
    }

    #[test]
    fn cleaning_appends_words_that_count_again() {
        let (log, slots) = log_with_a_tombstone();
        assert!(log.clean(&slots, &|_, act| act()));
        let replay = replay(&log, &slots);
        assert!(replay.segments[&SLOT].is_committed && tombstones(&replay));
    }

    /// Between the check of a word and its shard's lock another thread reclaims the segment, and writes the next one to
    /// the same slot.
    #[test]
    fn cleaning_after_a_slot_is_reused_appends_no_tombstone() {
        let (log, slots) = log_with_a_tombstone();
        let reuse_first = |_, act: &dyn Fn()| {
            log.free(SLOT);
            log.begin(SLOT, seat(2));
            log.commit(SLOT);
            act();
        };
        assert!(log.clean(&slots, &reuse_first));
        let replay = replay(&log, &slots);
        assert_eq!(replay.segments[&SLOT].seat, seat(2));
        assert!(!tombstones(&replay));
    }

    #[test]
    fn cleaning_of_an_uncommitted_segment_appends_no_relog() {
        let (log, slots) = a_log();
        log.begin(SLOT, seat(1));
        say_more(&log, &slots);
        assert!(!log.clean(&slots, &|_, act| act()), "its slot stays");
        assert!(!replay(&log, &slots).segments[&SLOT].is_committed);
        log.commit(SLOT);
        assert!(log.clean(&slots, &|_, act| act()));
        assert!(replay(&log, &slots).segments[&SLOT].is_committed);
    }

    /// Makes tombstones durable, each with a page of its own, until `ends` returns `true` or it fails.
    fn kill_durably(log: &TombstoneLog, slots: &Slots, ends: impl Fn() -> bool) -> bool {
        while !ends() {
            log.tombstone(SLOT, NAME);
            if log.make_durable(slots).is_err() {
                return false;
            }
        }
        true
    }

    #[test]
    fn requests_without_background_work_leave_slots_to_cleaning() {
        let (log, slots) = log_with_a_tombstone();
        let log = log.within(Some(10));
        assert!(kill_durably(&log, &slots, || !log.has_room()), "they wait before it fails");
        assert!(log.maintain(&slots, true, &|_, act| act()));
        assert!(log.has_room() && !log.has_failed());
    }

    #[test]
    fn cleaning_appends_repeated_words_once() {
        let (log, slots) = a_log();
        log.begin(SLOT, seat(1));
        log.commit(SLOT);
        (0..100).for_each(|_| log.tombstone(SLOT, NAME));
        say_more(&log, &slots);
        let head = log.get(LogField::Head);
        assert!(log.clean(&slots, &|_, act| act()));
        // The segment's `Relog` and `Place`, and the tombstone.
        assert_eq!(log.get(LogField::Head) - head, 3);
        assert!(tombstones(&replay(&log, &slots)));
    }

    #[test]
    fn log_without_a_slot_for_cleaning_fails() {
        let (log, slots) = log_with_a_tombstone();
        let log = log.within(Some(10));
        assert!(!kill_durably(&log, &slots, || false));
        assert!(!log.has_room());
        while log.maintain(&slots, true, &|_, act| act()) {}
        assert!(log.has_room() && log.has_failed());
    }

    /// A `Free` for it follows only later.
    #[test]
    fn cleaning_of_a_segment_that_ended_with_a_commit_appends_no_relog() {
        let (log, slots) = a_log();
        log.begin(SLOT, seat(1));
        log.commit(SLOT);
        log.follow(SLOT, SLOT);
        log.commit(SLOT);
        log.note_end(SLOT);
        say_more(&log, &slots);
        assert!(log.clean(&slots, &|_, act| act()));
        assert!(!replay(&log, &slots).segments.contains_key(&SLOT));
    }
}
