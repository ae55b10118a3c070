//! The tiers' devices and their free places for segments.

use crate::config::Tier;
use crate::platform::appended::Appended;
use crate::platform::getters::getters;
use crate::platform::lock::lock;
use crate::segments::layout::SEGMENTS_AT;
use crate::segments::segment::SlotId;
use crate::state::TIERS_MAX;
use crate::stats::DriveFailure;
use crate::stats::counters::{Counters, TierCounters, count};
use crate::tiers::drain::Drain;
use crate::tiers::roster::MEMBERS_MAX;
use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use terrace_device::{AlignedBuf, Drive, ErrorClass, Part, is_unanswered};

/// Failed writes in a row after which a device is given up.
const WRITE_ERRORS_MAX: u32 = 3;
/// A tier with fewer places is of no use: some are kept free, and some are its log's.
pub(crate) const PLACES_MIN: u32 = 16;
/// Places of a tier that segments leave to its tombstone log, so that pages of it can always be written.
const LOG_RESERVE: u32 = 1;

const _: () = assert!(TIERS_MAX <= MEMBERS_MAX);

/// One tier's device.
pub(crate) struct TierStore {
    pub(crate) device: Arc<dyn Drive>,
    pub(crate) segments: u32,
    segment_bytes: u32,
    /// Which level of the ladder it is on; 0 is the fastest.
    pub(super) level: u16,
    /// Byte offsets of free segments, the longest free first: circular reuse.
    free: Mutex<VecDeque<u64>>,
    free_count: AtomicU32,
    /// Places that are set aside, since the drive has no space for them.
    set_aside: AtomicU32,
    /// Bit by bit, which places a segment was written to: a drive without space takes no more in others.
    written: Box<[AtomicU64]>,
    write_errors_in_a_row: AtomicU32,
    /// The write error after which it was given up.
    failed: OnceLock<DriveFailure>,
    /// Its write budget is spent.
    pub(super) is_spent: AtomicBool,
    drain: Drain,
}

getters! {
    TierStore {
        segments: u32,
        segment_bytes: u32,
        level: u16,
        device: &Arc<dyn Drive>,
        drain: &Drain,
    }
}

impl TierStore {
    /// A tier of `segments` places for segments of `segment_bytes`, of which `free` are free.
    fn new(
        device: &Arc<dyn Drive>,
        level: u16,
        (segments, segment_bytes): (u32, u32),
        free: impl Iterator<Item = u32>,
    ) -> Self {
        let free: VecDeque<_> = free.map(|slot| offset(slot, segment_bytes)).collect();
        let store = Self {
            device: Arc::clone(device),
            segments,
            segment_bytes,
            level,
            free_count: AtomicU32::new(free.len() as u32),
            free: Mutex::new(free),
            set_aside: AtomicU32::new(0),
            written: (0..segments.div_ceil(u64::BITS)).map(|_| AtomicU64::new(u64::MAX)).collect(),
            write_errors_in_a_row: AtomicU32::new(0),
            failed: OnceLock::new(),
            is_spent: AtomicBool::new(false),
            drain: Drain::default(),
        };
        let free = lock(&store.free);
        free.iter().for_each(|&offset| store.note_unwritten(place_at(offset, segment_bytes)));
        drop(free);
        store
    }

    fn note_written(&self, slot: u32) {
        let bit = 1 << (slot % u64::BITS);
        self.written[(slot / u64::BITS) as usize].fetch_or(bit, Ordering::Relaxed);
    }

    fn note_unwritten(&self, slot: u32) {
        let bit = 1 << (slot % u64::BITS);
        self.written[(slot / u64::BITS) as usize].fetch_and(!bit, Ordering::Relaxed);
    }

    /// Whether a write failed for want of space at a place that has none yet: it is set aside until the next start, and
    /// the drive goes on with the others.
    fn lacks_space(&self, slot: u32, error: &io::Error) -> bool {
        let word = self.written[(slot / u64::BITS) as usize].load(Ordering::Relaxed);
        ErrorClass::of(error) == ErrorClass::NoSpace && word >> (slot % u64::BITS) & 1 == 0
    }

    /// A tier of which all places are free, and which gets no segments before its drain's [`Drain::end_joining`].
    pub(crate) fn joining(device: &Arc<dyn Drive>, level: u16, segment_bytes: u32) -> Self {
        let segments = segments_on(device.as_ref(), segment_bytes);
        let store = Self::new(device, level, (segments, segment_bytes), 0..segments);
        Self { drain: Drain::joining(), ..store }
    }

    /// Places for segments that the drive has space for, as far as is known.
    pub(crate) fn places(&self) -> u32 {
        self.segments.saturating_sub(self.set_aside.load(Ordering::Relaxed))
    }

    /// Bytes of these.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        u64::from(self.places()) * u64::from(self.segment_bytes)
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.get().is_some()
    }

    /// Gives it up after an error.
    pub(crate) fn give_up(&self, error: &io::Error) {
        let class = ErrorClass::of(error);
        self.failed.get_or_init(|| DriveFailure { class, message: error.to_string() });
    }

    /// Why it was given up, if it was.
    pub(crate) fn failure(&self) -> Option<&DriveFailure> {
        self.failed.get()
    }

    /// For how long the device has not answered what it was asked; zero while it answers.
    pub(crate) fn silence(&self) -> Duration {
        self.device.unresponsive_for()
    }

    /// Whether there is any use in asking it for something.
    pub(crate) fn works(&self) -> bool {
        !self.has_failed() && !self.drain.is_removed() && self.silence().is_zero()
    }

    /// Whether its records are to be moved to other tiers, and can be.
    pub(crate) fn is_drained(&self) -> bool {
        self.drain.mode().is_some() && self.works()
    }

    /// Whether new segments are written to it, once its drive answers.
    pub(crate) fn is_in_use(&self) -> bool {
        !self.has_failed() && !self.drain.is_any()
    }

    /// Whether new segments are written to it at present.
    pub(crate) fn takes_segments(&self) -> bool {
        self.works() && !self.drain.is_any()
    }

    pub(crate) fn free(&self) -> u32 {
        self.free_count.load(Ordering::Relaxed).saturating_sub(LOG_RESERVE)
    }

    /// Whether its log has taken the place that is kept for it.
    pub(crate) fn has_used_log_reserve(&self) -> bool {
        self.free_count.load(Ordering::Relaxed) < LOG_RESERVE
    }

    /// One that is free, if more than `left` are.
    fn take(&self, left: u32, end: End) -> Option<u64> {
        let mut free = lock(&self.free);
        if free.len() <= left as usize {
            return None;
        }
        let offset = match end {
            End::LongestFree => free.pop_front(),
            End::LastFreed => free.pop_back(),
        }?;
        self.free_count.fetch_sub(1, Ordering::Relaxed);
        Some(offset)
    }

    /// Notes how a write went, that began at the place `first`; a device that refuses several in a row is given up. One
    /// that does not answer may yet, and one without space has some at other places.
    fn note_write(&self, first: Option<u32>, written: &io::Result<()>, counters: &TierCounters) {
        let Err(error) = written else {
            self.write_errors_in_a_row.store(0, Ordering::Relaxed);
            return;
        };
        if is_unanswered(error) {
            return;
        }
        count(counters.write_errors());
        if first.is_some_and(|slot| self.lacks_space(slot, error)) {
            self.set_aside.fetch_add(1, Ordering::Relaxed);
            if self.places() < PLACES_MIN {
                self.give_up(error);
            }
            return;
        }
        if self.write_errors_in_a_row.fetch_add(1, Ordering::Relaxed) + 1 >= WRITE_ERRORS_MAX {
            self.give_up(error);
        }
    }
}

/// Which of the free places is taken.
#[derive(Clone, Copy)]
enum End {
    /// The one that has been free for longest.
    LongestFree,
    /// The last that was freed: it was written before, so that a drive without space takes it.
    LastFreed,
}

/// All tiers.
pub(crate) struct Slots {
    pub(super) tiers: Appended<TierStore>,
    /// Counts segments: tiers take turns, see [`Slots::next`].
    pub(super) turn: AtomicU32,
    counters: Arc<Counters>,
}

/// Places that were taken for segments which are still to be written. Those that are left go back.
pub(crate) struct Places<'s> {
    slots: &'s Slots,
    left: Vec<SlotId>,
}

impl Places<'_> {
    /// One on this tier.
    pub(crate) fn take(&mut self, tier: u16) -> Option<SlotId> {
        let at = self.left.iter().position(|slot| slot.tier == tier)?;
        Some(self.left.swap_remove(at))
    }
}

impl Drop for Places<'_> {
    fn drop(&mut self) {
        self.left.iter().for_each(|&slot| self.slots.give(slot));
    }
}

/// How many segments fit on a device of so many bytes.
pub(crate) fn segments_on(device: &dyn Drive, segment_bytes: u32) -> u32 {
    let bytes = device.geometry().bytes.saturating_sub(SEGMENTS_AT);
    (bytes / u64::from(segment_bytes)) as u32
}

getters! {
    Slots {
        tiers: &[TierStore],
    }
}

impl Slots {
    /// Every place that `used` does not name is free.
    pub(crate) fn new(
        tiers: &[Tier],
        segment_bytes: u32,
        counters: Arc<Counters>,
        used: impl Fn(usize) -> HashSet<u32>,
    ) -> Self {
        let mut level = 0;
        let tiers = tiers.iter().enumerate().map(|(at, tier)| {
            level += u16::from(tier.is_below && at > 0);
            let segments = segments_on(tier.device.as_ref(), segment_bytes);
            let used = used(at);
            let free = (0..segments).filter(|slot| !used.contains(slot));
            TierStore::new(&tier.device, level, (segments, segment_bytes), free)
        });
        Self { tiers: Appended::new(tiers, TIERS_MAX), turn: AtomicU32::new(0), counters }
    }

    /// Adds a tier and returns its number; `None` if there are as many as there can be.
    pub(crate) fn append(&self, tier: TierStore) -> Option<usize> {
        self.tiers.append(tier).ok()
    }

    /// Bytes of each segment of a tier.
    pub(crate) fn segment_bytes_on(&self, tier: u16) -> u32 {
        self.tiers[usize::from(tier)].segment_bytes
    }

    /// The number of a place on its tier.
    pub(crate) fn index(&self, slot: SlotId) -> u32 {
        place_at(slot.offset, self.segment_bytes_on(slot.tier))
    }

    /// The number of a segment's place among those of all tiers, one tier after the other.
    pub(crate) fn place_number(&self, slot: SlotId) -> u64 {
        let before = &self.tiers[..usize::from(slot.tier)];
        let before: u64 = before.iter().map(|tier| u64::from(tier.segments)).sum();
        before + u64::from(self.index(slot))
    }

    /// Where a place begins on its tier.
    pub(crate) fn offset(&self, tier: u16, slot: u32) -> u64 {
        offset(slot, self.segment_bytes_on(tier))
    }

    /// Takes a place for a segment on this tier, unless it is drained.
    pub(crate) fn take_on(&self, tier: u16) -> Option<SlotId> {
        let store = &self.tiers[usize::from(tier)];
        let offset = match store.drain.is_any() {
            true => None,
            false => store.take(LOG_RESERVE, End::LongestFree),
        }?;
        self.turn.fetch_add(1, Ordering::Relaxed);
        Some(SlotId { tier, offset })
    }

    /// Takes a place on each of these tiers, or none at all.
    pub(crate) fn reserve(&self, tiers: impl Iterator<Item = u16>) -> Option<Places<'_>> {
        let mut places = Places { slots: self, left: Vec::new() };
        for tier in tiers {
            places.left.push(self.take_on(tier)?);
        }
        Some(places)
    }

    /// Takes a place for the tier's log, the last one too.
    pub(crate) fn take_for_log(&self, tier: u16) -> Option<SlotId> {
        let offset = self.tiers[usize::from(tier)].take(0, End::LastFreed)?;
        Some(SlotId { tier, offset })
    }

    pub(crate) fn give(&self, slot: SlotId) {
        let tier = &self.tiers[usize::from(slot.tier)];
        lock(&tier.free).push_back(slot.offset);
        tier.free_count.fetch_add(1, Ordering::Relaxed);
    }

    /// As [`Slots::give`], by number.
    pub(crate) fn give_back(&self, tier: u16, slot: u32) {
        self.give(SlotId { tier, offset: self.offset(tier, slot) });
    }

    /// Gives back a place that the log could not write to, unless there is no space for it.
    pub(crate) fn give_back_after(&self, tier: u16, slot: u32, error: &io::Error) {
        if !self.tiers[usize::from(tier)].lacks_space(slot, error) {
            self.give_back(tier, slot);
        }
    }

    /// Places on tiers that new segments are written to.
    pub(crate) fn total(&self) -> u32 {
        self.tiers.iter().filter(|tier| tier.is_in_use()).map(TierStore::places).sum()
    }

    /// Whether a working drive is not answering at present.
    pub(crate) fn is_any_silent(&self) -> bool {
        let may_work = |tier: &&TierStore| !tier.has_failed() && !tier.drain.is_removed();
        self.tiers.iter().filter(may_work).any(|tier| !tier.silence().is_zero())
    }

    /// Whether all that new segments may be written to are not answering at present.
    pub(crate) fn are_all_silent(&self) -> bool {
        self.is_any_silent() && !self.tiers.iter().any(TierStore::takes_segments)
    }

    /// Writes a segment. A place where that fails is not used again, unless the device only did not answer: it
    /// lets no other write there before this one is over. After an error the memory may hold anything.
    pub(crate) fn write(&self, slot: SlotId, segment: &mut AlignedBuf) -> io::Result<()> {
        let counters = self.counters.tier(slot.tier);
        let tier = &self.tiers[usize::from(slot.tier)];
        let written = tier.device.write_lent(slot.offset, segment);
        tier.note_write(Some(self.index(slot)), &written, counters);
        if written.is_ok() {
            tier.note_written(self.index(slot));
            count(counters.segment_writes());
            counters.written_bytes().fetch_add(segment.len() as u64, Ordering::Relaxed);
        }
        if written.as_ref().is_err_and(is_unanswered) {
            self.give(slot);
        }
        written
    }

    /// Writes pages of the tombstone log, the first ones of the place `first` where it is given, or its directory.
    pub(crate) fn write_log(
        &self,
        tier: u16,
        (first, offset): (Option<u32>, u64),
        pages: &AlignedBuf,
    ) -> io::Result<()> {
        let counters = self.counters.tier(tier);
        let tier = &self.tiers[usize::from(tier)];
        let written = tier.device.write_at(offset, pages);
        tier.note_write(first, &written, counters);
        if written.is_ok() {
            counters.log_written_bytes().fetch_add(pages.len() as u64, Ordering::Relaxed);
        }
        written
    }

    pub(crate) fn read_log(&self, tier: u16, offset: u64, page: &mut AlignedBuf) -> io::Result<()> {
        self.tiers[usize::from(tier)].device.read_at(offset, page)
    }

    /// Reads the last `buf.len()` bytes of a segment.
    pub(crate) fn read_tail(&self, slot: SlotId, buf: &mut AlignedBuf) -> io::Result<()> {
        let at = self.tail(slot, buf.len());
        let read = self.tiers[usize::from(slot.tier)].device.read_at(at, buf);
        self.note_read(slot, buf.len(), &read);
        read
    }

    /// The same of several segments of a tier, at the same time where its device can, and says how each went.
    pub(crate) fn read_tails<'b>(
        &self,
        tier: u16,
        tails: impl Iterator<Item = (SlotId, &'b mut AlignedBuf)>,
    ) -> Vec<io::Result<()>> {
        let part = |(slot, buf): (SlotId, &'b mut AlignedBuf)| {
            (slot, Part::new(self.tail(slot, buf.len()), buf))
        };
        let (slots, mut parts): (Vec<_>, Vec<_>) = tails.map(part).unzip();
        self.tiers[usize::from(tier)].device.read_each(&mut parts);
        let note = |(slot, part): (SlotId, Part<'_>)| {
            self.note_read(slot, part.buf.len(), &part.result);
            part.result
        };
        slots.into_iter().zip(parts).map(note).collect()
    }

    /// Where so many bytes at the end of a segment begin.
    fn tail(&self, slot: SlotId, bytes: usize) -> u64 {
        slot.offset + u64::from(self.segment_bytes_on(slot.tier)) - bytes as u64
    }

    fn note_read(&self, slot: SlotId, bytes: usize, read: &io::Result<()>) {
        let counters = self.counters.tier(slot.tier);
        count(counters.background_reads());
        counters.background_read_bytes().fetch_add(bytes as u64, Ordering::Relaxed);
        if read.as_ref().is_err_and(|error| !is_unanswered(error)) {
            count(counters.read_errors());
        }
    }
}

fn place_at(offset: u64, segment_bytes: u32) -> u32 {
    ((offset - SEGMENTS_AT) / u64::from(segment_bytes)) as u32
}

fn offset(slot: u32, segment_bytes: u32) -> u64 {
    SEGMENTS_AT + u64::from(slot) * u64::from(segment_bytes)
}
