//! Replays a tier's tombstone log: which segments count, and which of their records are void.

use crate::log::page::PAGES_MAX;
use crate::log::word::{Word, abroad};
use crate::log::{PAGE_WORDS, Seat, TombstoneLog};
use crate::platform::getters::getters;
use crate::records::key::Name;
use crate::state::LogField;
use crate::tiers::slots::Slots;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::Ordering;

/// A segment according to the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged {
    pub(super) seat: Seat,
    /// Position of its `Begin`; 0 if cleaning dropped that, then a `Relog` follows.
    begin: u64,
    /// Number of tombstones before its `Begin`.
    tombstones_before: usize,
    is_placed: bool,
    pub(super) is_committed: bool,
    /// The log has no commit of its own for it, or has a `Follow` that did not happen: it needs a `Relog`.
    pub(super) is_to_be_relogged: bool,
}

getters! {
    Logged {
        is_to_be_relogged: bool,
        seat: Seat,
        is_committed: bool,
    }
}

/// The contents of a tier's log.
#[derive(Default)]
pub(crate) struct Replay {
    /// By slot.
    pub(super) segments: HashMap<u32, Logged>,
    /// Each `Tombstone` and `TombstoneByPrefix` as the bits of its word, since there may be very many: in the log's
    /// order during the replay, then sorted, which is by kind, slot and short name.
    tombstones: Vec<u64>,
    /// Each `TombstoneInShard` with its position, in the same way.
    shard_tombstones: Vec<(u64, u64)>,
    /// By slot, the slots of the segments that follow its commit.
    followers: HashMap<u32, Vec<u32>>,
    /// By slot, the seal sequences of segments on other tiers that follow its commit.
    followers_abroad: HashMap<u32, Vec<u64>>,
    /// Seal sequences of such segments after that commit came.
    committed_abroad: Vec<u64>,
}

/// Commits segments that a commit in the log of another tier leads.
pub(crate) fn commit_abroad(replays: &mut [Replay]) {
    let committed: HashSet<u64> =
        replays.iter().flat_map(|replay| replay.committed_abroad.iter().copied()).collect();
    for logged in replays.iter_mut().flat_map(|replay| replay.segments.values_mut()) {
        if !logged.is_committed && committed.contains(&abroad(logged.seat.seq)) {
            (logged.is_committed, logged.is_to_be_relogged) = (true, true);
        }
    }
}

getters! {
    Replay {
        segments: &HashMap<u32, Logged>,
    }
}

impl Replay {
    /// A replay with `count` tombstones, for tests.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn of_tombstones(count: usize) -> Self {
        Self { tombstones: vec![0; count], ..Self::default() }
    }

    /// The highest number of a segment that counts.
    pub(crate) fn highest_number(&self) -> Option<u16> {
        self.segments.values().map(|logged| logged.seat.number).max()
    }

    /// Keeps the segments, by slot, for which `keeps` returns `true`.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(u32, &Logged) -> bool) {
        self.segments.retain(|&slot, logged| keeps(slot, logged));
    }

    /// Takes the segments, by slot, out of the replay.
    pub(crate) fn take_segments(&mut self) -> HashMap<u32, Logged> {
        std::mem::take(&mut self.segments)
    }

    /// Applies the next word of the log.
    fn take(&mut self, at: u64, word: Word) {
        self.take_segment(at, word);
        match word {
            Word::Tombstone { .. } | Word::TombstoneByPrefix { .. } => {
                self.tombstones.push(word.to_bits())
            }
            Word::TombstoneInShard { .. } => self.shard_tombstones.push((word.to_bits(), at)),
            _ => {}
        }
    }

    /// Must follow the last word: removes segments and tombstones that do not count.
    fn finish(&mut self) {
        self.segments.retain(|_, logged| logged.seat.seq != 0 && logged.is_placed);
        // A commit that is missing must not come later, for another reason.
        let leaders = self.followers.keys().chain(self.followers_abroad.keys());
        for leader in leaders {
            if let Some(logged) = self.segments.get_mut(leader) {
                logged.is_to_be_relogged = true;
            }
        }
        let (segments, mut before) = (&self.segments, 0..);
        self.tombstones.retain(|&tombstone| {
            let (slot, before) = (slot_of(tombstone), before.next());
            let logged = slot.and_then(|slot| segments.get(&slot));
            logged.is_some_and(|logged| {
                before.is_some_and(|before| before >= logged.tombstones_before)
            })
        });
        self.tombstones.shrink_to_fit();
        self.tombstones.sort_unstable();
        self.shard_tombstones.sort_unstable();
    }

    fn take_segment(&mut self, at: u64, word: Word) {
        let unknown = Logged {
            seat: Seat { shard: 0, number: 0, seq: 0 },
            begin: 0,
            tombstones_before: 0,
            is_placed: false,
            is_committed: false,
            is_to_be_relogged: false,
        };
        match word {
            Word::Begin { slot, seq } => {
                let seat = Seat { seq, ..unknown.seat };
                self.lose_followers(slot);
                let tombstones_before = self.tombstones.len();
                self.segments
                    .insert(slot, Logged { seat, begin: at, tombstones_before, ..unknown });
            }
            Word::Relog { slot, seq } => {
                self.lose_followers(slot);
                let logged = self.segments.entry(slot).or_insert(unknown);
                if logged.seat.seq == 0 {
                    logged.seat.seq = seq;
                }
                // A segment of another sequence was freed and began anew since.
                logged.is_committed |= logged.seat.seq == seq;
            }
            Word::Place { slot, shard, number } => {
                let logged = self.segments.entry(slot).or_insert(unknown);
                (logged.seat.shard, logged.seat.number) = (shard, number);
                logged.is_placed = true;
            }
            Word::Tombstone { slot, .. } | Word::TombstoneByPrefix { slot, .. } => {
                // The segment's `Begin` was in a page that is gone; a `Relog` follows.
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
            Word::TombstoneInShard { .. } | Word::Pad => {}
        }
    }

    fn lose_followers(&mut self, slot: u32) {
        self.followers.remove(&slot);
        self.followers_abroad.remove(&slot);
    }

    /// Applies the commit that a segment followed: the segment begins with it, or it ends.
    fn follow(&mut self, slot: u32) {
        match self.segments.get_mut(&slot) {
            Some(logged) if !logged.is_committed && logged.seat.seq != 0 => {
                logged.is_committed = true
            }
            _ => _ = self.segments.remove(&slot),
        }
    }

    /// Bytes of DRAM of the tombstones.
    pub(crate) fn bytes(&self) -> u64 {
        (size_of_val(self.tombstones.as_slice()) + size_of_val(self.shard_tombstones.as_slice()))
            as u64
    }

    /// The tombstones for the segment in a slot. `width` is the width of a bucket, in positions, when it was sealed.
    pub(crate) fn tombstones(&self, slot: u32, logged: &Logged, width: u32) -> Tombstones<'_> {
        let shard = logged.seat.shard;
        let ends = |tombstone: fn(u32, u64) -> Word| {
            [0, u64::MAX].map(|name| tombstone(slot, name).to_bits())
        };
        let all = [0, u64::MAX].map(|name| Word::TombstoneInShard { shard, name }.to_bits());
        Tombstones {
            slot,
            shard,
            tombstones: between(
                &self.tombstones,
                ends(|slot, name| Word::Tombstone { slot, name }),
                |&tombstone| tombstone,
            ),
            likes: between(
                &self.tombstones,
                ends(|slot, name| Word::TombstoneByPrefix { slot, name }),
                |&tombstone| tombstone,
            ),
            shard_tombstones: between(&self.shard_tombstones, all, |tombstone| tombstone.0),
            begin: logged.begin,
            width: width.into(),
        }
    }

    /// Notes in the running log all segments and tombstones that count.
    pub(crate) fn seat_all(&self, log: &TombstoneLog) {
        for (&slot, logged) in &self.segments {
            log.seat(slot, logged.begin, logged.seat);
        }
        self.tombstones
            .iter()
            .filter_map(|&tombstone| slot_of(tombstone))
            .for_each(|slot| log.count_tombstone(slot));
    }
}

/// The slot that a word names, from its bits.
fn slot_of(bits: u64) -> Option<u32> {
    Word::from_bits(bits)?.slots().next()
}

/// The part of a sorted list from the first of two words to the second.
fn between<T>(sorted: &[T], [first, last]: [u64; 2], bits: impl Fn(&T) -> u64) -> &[T] {
    let from = sorted.partition_point(|item| bits(item) < first);
    let to = sorted.partition_point(|item| bits(item) <= last);
    &sorted[from..to]
}

/// The tombstones that may void records of one segment. Usually there are none, and a restart checks each record.
pub(crate) struct Tombstones<'r> {
    slot: u32,
    shard: u16,
    tombstones: &'r [u64],
    likes: &'r [u64],
    shard_tombstones: &'r [(u64, u64)],
    begin: u64,
    width: u64,
}

impl Tombstones<'_> {
    /// Whether the record of a short name is void.
    pub(crate) fn void(&self, name: u64) -> bool {
        self.void_for_good(name) || self.have_one_for_all(name)
    }

    /// Whether a word that counts as long as the segment voids the record.
    pub(crate) fn void_for_good(&self, name: u64) -> bool {
        self.name(name) || self.have_one_like(name)
    }

    /// Whether a tombstone names exactly this record.
    pub(crate) fn name(&self, name: u64) -> bool {
        self.tombstones.binary_search(&Word::Tombstone { slot: self.slot, name }.to_bits()).is_ok()
    }

    /// Buckets only get narrower, so a name that shared one with a record after the seal is within the width; two
    /// records of a segment that are so close have different fingerprints.
    fn have_one_like(&self, name: u64) -> bool {
        let (position, fingerprint) =
            (name >> Name::SHORT_FINGERPRINT_BITS, name & Name::SHORT_FINGERPRINT);
        let like = |position: u64, rest: u64| {
            let name = position << Name::SHORT_FINGERPRINT_BITS | rest;
            Word::TombstoneByPrefix { slot: self.slot, name }.to_bits()
        };
        let reach = self.width.saturating_sub(1);
        let first = like(position.saturating_sub(reach), 0);
        let last = like((position + reach).min(u32::MAX.into()), Name::SHORT_FINGERPRINT);
        let from = self.likes.partition_point(|&like| like < first);
        let mut near = self.likes[from..].iter().take_while(|&&like| like <= last);
        near.any(|like| like & Name::SHORT_FINGERPRINT == fingerprint)
    }

    fn have_one_for_all(&self, name: u64) -> bool {
        let word = Word::TombstoneInShard { shard: self.shard, name }.to_bits();
        let same = between(self.shard_tombstones, [word, word], |tombstone| tombstone.0);
        same.iter().any(|&(_, at)| at >= self.begin)
    }
}

/// Reads a log, from tier and ring, so that words can be appended after it.
///
/// # Errors
/// A page can't be read, or has impossible contents: then nothing on the tier can be trusted.
pub(crate) fn read_log(log: &TombstoneLog, slots: &Slots) -> io::Result<Replay> {
    let get = |field| log.field(field).load(Ordering::Acquire);
    let (tail, spilled) = (get(LogField::Tail), get(LogField::Spilled));
    let head = get(LogField::Head);
    let ring_end = spilled.saturating_add(log.ring_pages()).saturating_mul(PAGE_WORDS);
    if tail > spilled || spilled > PAGES_MAX || head > ring_end {
        return Err(nonsense());
    }
    let mut replay = Replay::default();
    let mut take = |page: u64, bits: Vec<u64>| {
        for (at, bits) in (page * PAGE_WORDS..head).zip(bits) {
            let Some(word) = Word::from_bits(bits) else { continue };
            if !word.slots().all(|slot| log.has_slot(slot)) {
                return Err(nonsense());
            }
            replay.take(at, word);
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
    replay.finish();
    Ok(replay)
}

fn nonsense() -> io::Error {
    let why = "the tombstone log says what can't be";
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::records::key::Name;
    use crate::segments::packing::{Item, defer_equal_names};

    /// Two segments that count; the second is to end with the first, which was not committed again.
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
        let mut replay = Replay::default();
        (1..).zip(words).for_each(|(at, &word)| replay.take(at, word));
        replay.finish();
        replay
    }

    #[test]
    fn follower_of_a_missing_commit_ignores_a_later_one() {
        let found = replay(&CUT_SHORT).segments;
        assert!(found[&0].is_to_be_relogged && !found[&1].is_to_be_relogged);
        let later = [
            Word::Relog { slot: 0, seq: 10 },
            Word::Place { slot: 0, shard: 0, number: 0 },
            Word::Commit { slot: 0 },
        ];
        let found = replay(&[&CUT_SHORT[..], &later[..]].concat()).segments;
        assert!(found[&1].is_committed && !found[&0].is_to_be_relogged);
        let found = replay(&[&CUT_SHORT[..], &later[2..]].concat()).segments;
        assert!(!found.contains_key(&1), "where that is what the commit says");
    }

    /// Records that share their bits in a word are not sealed together, so that the word of one never voids another.
    #[test]
    fn tombstone_of_a_record_spares_records_with_similar_names() {
        const WIDTH: u32 = 1 << 20;
        let name = |pos, fingerprint| Name { pos, fingerprint };
        // At the same position, in the same bucket, and just beyond it; with the same bits in a word, or the same name.
        let names = [
            name(7, 0x0005),
            name(7, 0x0205),
            name(7, 0x7e05),
            name(7, 0x0006),
            name(WIDTH - 1, 0x0405),
            name(WIDTH - 1, 0x0006),
            name(WIDTH + 7, 0x0605),
        ];
        let mut items: Vec<_> = names.iter().map(|&name| Item::new(name, b"", ())).collect();
        let later = defer_equal_names(&mut items, WIDTH);
        let sealed: Vec<_> = items.iter().map(|item| item.name()).collect();
        assert_eq!(sealed, [names[0], names[3], names[4], names[6]]);
        assert_eq!(later.len(), names.len() - sealed.len());
        let place = Word::Place { slot: 0, shard: 0, number: 0 };
        let segment = [Word::Begin { slot: 0, seq: 1 }, place, Word::Commit { slot: 0 }];
        for &killed in &sealed {
            let name = killed.short();
            for word in
                [Word::Tombstone { slot: 0, name }, Word::TombstoneInShard { shard: 0, name }]
            {
                let found = replay(&[&segment[..], &[word]].concat());
                let tombstones = found.tombstones(0, &found.segments[&0], WIDTH);
                let void: Vec<_> =
                    sealed.iter().filter(|&&name| tombstones.void(name.short())).collect();
                assert_eq!(void, [&killed], "{word:?}");
            }
        }
    }

    #[test]
    fn tombstones_take_a_word_each_only_while_they_count() {
        let tombstone = |name| Word::Tombstone { slot: 0, name };
        let place = Word::Place { slot: 0, shard: 0, number: 0 };
        let segment = |seq| [Word::Begin { slot: 0, seq }, place, Word::Commit { slot: 0 }];
        let gone =
            [&segment(1)[..], &[tombstone(1), tombstone(2)], &[Word::Free { slot: 0 }]].concat();
        let there =
            [&segment(2)[..], &[tombstone(3), Word::TombstoneByPrefix { slot: 0, name: 4 }]]
                .concat();
        let found = replay(&[gone, there].concat());
        assert_eq!(size_of_val(&found.tombstones[..]), 2 * size_of::<u64>());
        assert_eq!(found.tombstones.capacity(), 2);
        let tombstones = found.tombstones(0, &found.segments[&0], 1);
        assert!(
            tombstones.void(3) && tombstones.void(4) && tombstones.name(3) && !tombstones.name(4)
        );
        assert!(!tombstones.void(1) && !tombstones.void(2));
    }

    #[test]
    fn tombstones_void_by_slot_and_by_kind_of_name() {
        let name = |position: u64, fingerprint: u64| {
            position << Name::SHORT_FINGERPRINT_BITS | fingerprint
        };
        let place = |slot| Word::Place { slot, shard: 0, number: 0 };
        let words = [
            Word::Tombstone { slot: 7, name: name(u32::MAX.into(), 5) },
            Word::TombstoneByPrefix { slot: 7, name: name(100, 5) },
            Word::TombstoneInShard { shard: 0, name: name(50, 1) },
            Word::Relog { slot: 7, seq: 1 },
            place(7),
            Word::Relog { slot: 8, seq: 2 },
            place(8),
            Word::Begin { slot: 9, seq: 3 },
            place(9),
        ];
        let found = replay(&words);
        let tombstones = |slot: u32| found.tombstones(slot, &found.segments[&slot], 10);
        assert!(
            tombstones(7).name(name(u32::MAX.into(), 5))
                && !tombstones(8).void(name(u32::MAX.into(), 5))
        );
        assert!(
            tombstones(7).void(name(91, 5)) && tombstones(7).void(name(109, 5)),
            "within the width"
        );
        assert!(!tombstones(7).void(name(90, 5)) && !tombstones(7).void(name(110, 5)), "beyond it");
        assert!(!tombstones(7).void(name(100, 4)) && !tombstones(8).void(name(100, 5)));
        assert!(tombstones(8).void(name(50, 1)), "what began before");
        assert!(!tombstones(9).void(name(50, 1)), "what began since");
    }

    #[test]
    fn segment_committed_by_another_log_is_to_be_relogged() {
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
        assert!(below.segments[&5].is_committed && below.segments[&5].is_to_be_relogged);
        assert!(!below.segments[&6].is_committed && !below.segments[&6].is_to_be_relogged);
    }
}
