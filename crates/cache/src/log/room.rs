//! Room in the ring of the log: requests take it; the background makes it by writing pages to the tier.

use super::word::Word;
use super::{Locked, PAGE_WORDS, TombstoneLog, page};
use crate::state::LogField;
use crate::tiers::slots::Slots;
use std::sync::atomic::Ordering;
use terrace_device::is_unanswered;

/// Pages of the ring that requests leave to appends in progress: every thread may have checked for room and not yet
/// appended, a few dozen words each, or two for each record of a batch in the background.
const RING_RESERVE: u64 = 7;

impl TombstoneLog {
    /// Whether a request may append its words. If not, the background must first write pages out, or reclaim segments.
    pub(crate) fn has_room(&self) -> bool {
        self.has_ring_room() && (!self.holds_back.load(Ordering::Relaxed) || self.has_failed())
    }

    /// Whether the background may append.
    pub(super) fn has_ring_room(&self) -> bool {
        self.pages_left() > RING_RESERVE || self.has_failed()
    }

    /// Free pages of the ring, without the one that is being filled.
    fn pages_left(&self) -> u64 {
        let page = self.field(LogField::Head).load(Ordering::Relaxed) / PAGE_WORDS;
        let end = self.reusable.load(Ordering::Acquire) + self.state.ring_pages();
        end.saturating_sub(page)
    }

    /// Whether half of the ring is used.
    fn is_crowded(&self) -> bool {
        let page = self.field(LogField::Head).load(Ordering::Relaxed) / PAGE_WORDS;
        page > self.reusable.load(Ordering::Relaxed) + self.state.ring_pages() / 2
    }

    /// Background work: writes full pages out when the ring is half full, and cleans if `may_clean`. Returns whether
    /// there was anything to do. `locked` runs a function while no other thread changes a shard.
    pub(crate) fn maintain(&self, slots: &Slots, may_clean: bool, locked: &Locked<'_>) -> bool {
        if self.has_failed() {
            return self.drop_full_pages();
        }
        if !slots.tiers()[usize::from(self.tier)].silence().is_zero() {
            if !self.has_ring_room() {
                self.fail();
            }
            return false;
        }
        let spilled = self.is_crowded() && self.spill(slots).unwrap_or(false);
        (may_clean && self.clean(slots, locked)) || spilled
    }

    /// Makes room for some hundred words of the background: writes pages out until there is some. Not for requests,
    /// which wait instead.
    pub(crate) fn ensure_room(&self, slots: &Slots) {
        while !self.has_ring_room() {
            match self.spill(slots) {
                Ok(true) => {}
                // Slots are short: the reserve must do. If it does not, the next start must be cold.
                Ok(false) if self.pages_left() > RING_RESERVE / 2 => return,
                Ok(false) => self.fail(),
                // Requests would wait for the drive; now they do not, but the next start must be cold.
                Err(error) if is_unanswered(&error) => self.fail(),
                // After 3 errors in a row the tier counts as failed, and so there is room.
                Err(_) => std::thread::yield_now(),
            }
        }
    }

    /// Pages at the log's end that may not be on the tier yet, at most.
    pub(crate) fn ring_pages(&self) -> u64 {
        self.state.ring_pages()
    }

    /// The words of a page in the ring.
    pub(crate) fn ring_page(&self, page: u64) -> Vec<u64> {
        let words = self.state.log_page(self.tier.into(), page);
        words[page::HEADER_WORDS..].iter().map(|word| word.load(Ordering::Acquire)).collect()
    }

    /// Repairs the ring of an earlier process: fills positions that were taken and never written, and zeros pages
    /// beyond the last.
    pub(crate) fn mend_ring(&self, slots: &Slots) {
        let (spilled, head) = (self.get(LogField::Spilled), self.get(LogField::Head));
        for page in spilled..spilled + self.state.ring_pages() {
            let words = self.state.log_page(self.tier.into(), page);
            for (at, word) in (page * PAGE_WORDS..).zip(&words[page::HEADER_WORDS..]) {
                let holds = word.load(Ordering::Relaxed) != 0;
                match at < head {
                    true if !holds => word.store(Word::Pad.to_bits(), Ordering::Relaxed),
                    false if holds => word.store(0, Ordering::Relaxed),
                    _ => {}
                }
            }
        }
        self.reusable.store(spilled, Ordering::Release);
        self.note_slots_left(slots);
    }
}
