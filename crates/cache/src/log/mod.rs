//! The kill log of a tier: which copies in its sealed segments are not to come back, and which
//! segments count at all.
//!
//! Words are appended to pages in the [`State`], which outlives the process; full pages go to the tier,
//! into slots taken from it one by one. Old pages are cleaned as a log-structured file system cleans
//! its segments (Rosenblum and Ousterhout, SOSP 1991): what still counts is appended again.
//!
//! A word is appended before what it says takes effect outside of DRAM: a kill before the record that
//! replaces the copy is committed, the end of a segment before its place is reused or its entries go.

mod cleaning;
pub(crate) mod find;
pub(crate) mod page;
pub(crate) mod replay;
mod room;
pub(crate) mod word;

use crate::log::page::Page;
use crate::log::word::Word;
use crate::platform::crash::crash_point;
use crate::platform::lock::lock;
use crate::platform::mapped::Mapped;
use crate::platform::prefetch;
use crate::platform::striped::Striped;
use crate::records::key::Name;
use crate::state::{LOG_SLOTS_MAX, LogField, State};
use crate::tiers::slots::Slots;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use terrace_device::AlignedBuf;

/// Words in a page, behind its header.
pub(crate) const PAGE_WORDS: u64 = page::WORDS as u64;
/// Pages that are written at a time, at most.
const PAGES_PER_WRITE: u64 = 16;
/// Pages that are read at a time, at most.
pub(crate) const PAGES_PER_READ: u64 = 256;

/// What the log says of a slot, as far as the running cache needs to know.
#[derive(bytemuck::Zeroable)]
struct Use {
    /// Position of the segment's beginning, plus one; 0 if the slot holds none.
    begin: AtomicU64,
    seq: AtomicU64,
    /// Shard, and segment number in the lower half; [`COMMITTED`] besides.
    place: AtomicU32,
    tombstones: AtomicU32,
}

/// In a [`Use`]'s place, above all shards: the segment is not half written any more.
const COMMITTED: u32 = 1 << 31;

/// One tier's log.
pub(crate) struct TombstoneLog {
    tier: u16,
    set: u64,
    /// What it says is to outlive a power loss.
    is_strict: bool,
    state: Arc<State>,
    /// Pages below this are off the ring: those [`State::ring_pages`] later may be appended to.
    reusable: AtomicU64,
    uses: Mapped<Use>,
    /// Kills that name a segment which still counts.
    tombstones: Striped,
    /// Segments that count.
    segments: AtomicU64,
    /// Words below this are on the tier, and the tier was flushed.
    durable: AtomicU64,
    /// Slots of the tier that the log may lie in at a time.
    slots_max: u64,
    /// What few of them are left is for background work, which makes the log shorter.
    holds_back: AtomicBool,
    writer: Mutex<Writer>,
}

/// Writes pages to the tier; one thread at a time.
struct Writer {
    buffer: AlignedBuf,
    /// Of the directory last written.
    generation: u64,
    /// Whether slots were taken or given since.
    is_listed: bool,
    /// The checksum of the page last written, 0 if there is none.
    link: u32,
    /// That of the page ahead of the first one that is still needed.
    tail_link: u32,
}

/// Runs something while nobody changes the shard of this number.
pub(crate) type Locked<'l> = dyn Fn(usize, &dyn Fn()) + 'l;

/// Where a segment belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) shard: u16,
    pub(crate) number: u16,
    pub(crate) seq: u64,
}

impl TombstoneLog {
    /// The log of a tier of `slots` slots, as the state has it; `is_strict` with [`Durability::Power`].
    ///
    /// [`Durability::Power`]: crate::Durability::Power
    pub(crate) fn new(state: Arc<State>, tier: u16, set: u64, slots: u32, is_strict: bool) -> Self {
        let buffer = AlignedBuf::zeroed(page::PAGE * PAGES_PER_WRITE as usize);
        let [tombstones] = Striped::over(state.layout().shards());
        let log = Self {
            tier,
            set,
            is_strict,
            state,
            reusable: AtomicU64::new(0),
            uses: Mapped::zeroed(slots as usize),
            tombstones,
            segments: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            slots_max: LOG_SLOTS_MAX as u64,
            holds_back: AtomicBool::new(false),
            writer: Mutex::new(Writer {
                buffer,
                generation: 0,
                is_listed: false,
                link: 0,
                tail_link: 0,
            }),
        };
        log.reusable.store(log.field(LogField::Spilled).load(Ordering::Relaxed), Ordering::Relaxed);
        log
    }

    /// As it is, but in no more slots of the tier than these at a time.
    pub(crate) fn within(self, slots: Option<u32>) -> Self {
        let slots_max = slots.map_or(self.slots_max, |slots| self.slots_max.min(slots.into()));
        Self { slots_max, ..self }
    }

    /// Bytes of DRAM that do not lie in the state.
    pub(crate) fn bytes_for(slots: u32) -> u64 {
        u64::from(slots) * size_of::<Use>() as u64 + (page::PAGE as u64 * PAGES_PER_WRITE)
    }

    pub(crate) fn field(&self, field: LogField) -> &AtomicU64 {
        self.state.log_field(usize::from(self.tier), field)
    }

    fn get(&self, field: LogField) -> u64 {
        self.field(field).load(Ordering::Acquire)
    }

    /// The tier takes no more writes: nothing that it holds will be trusted again.
    pub(crate) fn fail(&self) {
        self.field(LogField::Failed).store(1, Ordering::Release);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.get(LogField::Failed) != 0 || self.state.loss().is_any()
    }

    fn append(&self, word: Word) -> u64 {
        crash_point("log: before a word");
        if self.has_failed() {
            return 0;
        }
        let at = self.field(LogField::Head).fetch_add(1, Ordering::Relaxed);
        let (page, word_at) = (at / PAGE_WORDS, (at % PAGE_WORDS) as usize);
        let words = self.state.log_page(self.tier.into(), page);
        words[page::HEADER_WORDS + word_at].store(word.to_bits(), Ordering::Release);
        crash_point("log: after a word");
        at
    }

    /// The record of `name` in the segment at `slot` is no longer its key's.
    pub(crate) fn tombstone(&self, slot: u32, name: Name) {
        self.append(Word::Tombstone { slot, name: name.short() });
        self.count_tombstone(slot);
    }

    /// The entry of a record in the segment at `slot` was dropped without knowing its key; it shared
    /// bucket and fingerprint with `name`.
    pub(crate) fn tombstone_by_prefix(&self, slot: u32, name: Name) {
        self.append(Word::TombstoneByPrefix { slot, name: name.short() });
        self.count_tombstone(slot);
    }

    /// No segment of the shard that began so far holds the newest record of `name`'s key.
    pub(crate) fn tombstone_in_shard(&self, shard: u16, name: Name) {
        self.append(Word::TombstoneInShard { shard, name: name.short() });
    }

    /// A segment was written to `slot`.
    pub(crate) fn begin(&self, slot: u32, seat: Seat) {
        let at = self.append(Word::Begin { slot, seq: seat.seq });
        self.append(Word::Place { slot, shard: seat.shard, number: seat.number });
        self.note_begin(slot, at, seat);
    }

    /// The records of the segment at `slot` are where it says, and no longer in DRAM.
    pub(crate) fn commit(&self, slot: u32) {
        self.append(Word::Commit { slot });
        self.note_commit(slot);
    }

    /// As [`TombstoneLog::commit`], of one that followed another.
    pub(crate) fn note_commit(&self, slot: u32) {
        self.uses[slot as usize].place.fetch_or(COMMITTED, Ordering::Relaxed);
    }

    /// The segment at `slot` is to begin or to end with the commit of the one at `leader`.
    pub(crate) fn follow(&self, slot: u32, leader: u32) {
        self.append(Word::Follow { slot, leader });
    }

    /// The segment of this seal, on another tier, is to begin with the commit of the one at `leader`.
    pub(crate) fn follow_abroad(&self, seq: u64, leader: u32) {
        self.append(Word::FollowAbroad { leader, seq });
    }

    /// What the slot holds does not count any more.
    pub(crate) fn free(&self, slot: u32) {
        self.append(Word::Free { slot });
        self.note_end(slot);
    }

    /// What the slot holds does not count any more, as a commit said that it followed. Under its shard's lock, or before
    /// others know of the log.
    pub(crate) fn note_end(&self, slot: u32) {
        let used = &self.uses[slot as usize];
        if used.begin.swap(0, Ordering::Relaxed) != 0 {
            self.segments.fetch_sub(1, Ordering::Relaxed);
            let tombstones = used.tombstones.swap(0, Ordering::Relaxed);
            self.tombstones.sub(used.seat().shard.into(), tombstones.into());
        }
    }

    /// Notes that a segment counts, and began at position `at` of the log.
    pub(crate) fn seat(&self, slot: u32, at: u64, seat: Seat) {
        self.note_begin(slot, at, seat);
        self.note_commit(slot);
    }

    fn note_begin(&self, slot: u32, at: u64, seat: Seat) {
        let used = &self.uses[slot as usize];
        used.seq.store(seat.seq, Ordering::Relaxed);
        let place = u32::from(seat.shard) << 16 | u32::from(seat.number);
        used.place.store(place, Ordering::Relaxed);
        if used.begin.swap(at + 1, Ordering::Release) == 0 {
            self.segments.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a kill of a segment that counts. Under its shard's lock, or before others know of the log.
    pub(crate) fn count_tombstone(&self, slot: u32) {
        let used = &self.uses[slot as usize];
        if used.begin.load(Ordering::Relaxed) != 0 {
            used.tombstones.store(used.tombstones.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            self.tombstones.add(used.seat().shard.into(), 1);
        }
    }

    /// Asks the processor for what is counted of a slot. One that there is not does no harm.
    pub(crate) fn prefetch(&self, slot: u32) {
        if let Some(used) = self.uses.get(slot as usize) {
            prefetch::line(used);
        }
    }

    /// Kills that count, and the log's length in bytes.
    pub(crate) fn usage(&self) -> (u64, u64) {
        let head = self.field(LogField::Head).load(Ordering::Relaxed);
        let tail = self.field(LogField::Tail).load(Ordering::Relaxed) * PAGE_WORDS;
        (self.tombstones.load(Ordering::Relaxed), head.saturating_sub(tail) * 8)
    }

    fn pages_per_slot(&self, slots: &Slots) -> u64 {
        (slots.segment_bytes() as usize / page::PAGE) as u64
    }

    /// The slot that holds a page of the log.
    pub(crate) fn slot_of(&self, page: u64, slots: &Slots) -> u32 {
        self.state.log_slot(self.tier.into(), page / self.pages_per_slot(slots))
    }

    /// The slots that the log lies in, oldest first.
    pub(crate) fn slots(&self, slots: &Slots) -> Vec<u32> {
        let per_slot = self.pages_per_slot(slots);
        let (tail, end) = (self.get(LogField::Tail), self.get(LogField::Spilled));
        let starts = (tail..end).step_by(per_slot as usize);
        starts.map(|page| self.slot_of(page, slots)).collect()
    }

    /// Byte offset of a page on the tier.
    pub(crate) fn offset_of(&self, page: u64, slots: &Slots) -> u64 {
        let within = page % self.pages_per_slot(slots) * page::PAGE as u64;
        slots.offset(self.slot_of(page, slots)) + within
    }

    /// A failed tier's log goes nowhere.
    fn drop_full_pages(&self) -> bool {
        let mut writer = lock(&self.writer);
        let head = self.get(LogField::Head) / PAGE_WORDS;
        let from = self.get(LogField::Spilled);
        if from >= head {
            return false;
        }
        self.retire_pages(&mut writer, from, head);
        true
    }

    /// Writes full pages to the tier. `false` if there is none, or no slot for them.
    pub(crate) fn spill(&self, slots: &Slots) -> io::Result<bool> {
        let mut writer = lock(&self.writer);
        self.spill_pages(&mut writer, slots)
    }

    fn spill_pages(&self, writer: &mut Writer, slots: &Slots) -> io::Result<bool> {
        let per_slot = self.pages_per_slot(slots);
        let mut worked = false;
        loop {
            let from = self.get(LogField::Spilled);
            let full = self.get(LogField::Head) / PAGE_WORDS;
            let slot_end = (from / per_slot + 1) * per_slot;
            let to = full.min(slot_end).min(from + PAGES_PER_WRITE);
            if from >= to {
                return Ok(worked);
            }
            if from.is_multiple_of(per_slot) && !self.take_slot(writer, from, slots) {
                return Ok(worked);
            }
            writer.buffer.set_len((to - from) as usize * page::PAGE);
            let (mut link, set) = (writer.link, self.set);
            let durable = self.durable.load(Ordering::Acquire) / PAGE_WORDS;
            for (page, bytes) in (from..to).zip(writer.buffer.chunks_exact_mut(page::PAGE)) {
                let words = self.state.log_page(self.tier.into(), page);
                let header = page::Header { set, page, link, durable };
                link = page::encode(words, header, bytes);
            }
            let offset = self.offset_of(from, slots);
            if self.has_failed() {
                // The state was lost: nobody knows what these pages said, nor where they belong.
                return Ok(worked);
            }
            let written = slots.write_log(self.tier, offset, &writer.buffer);
            if let Err(error) = written {
                if from.is_multiple_of(per_slot) {
                    slots.give_back(self.tier, self.slot_of(from, slots));
                }
                if slots.tiers()[usize::from(self.tier)].has_failed() {
                    self.fail();
                }
                return Err(error);
            }
            crash_point("log: pages written");
            writer.link = link;
            self.retire_pages(writer, from, to);
            self.note_slots_left(slots);
            worked = true;
        }
    }

    /// Takes a slot for the pages from `page` on.
    fn take_slot(&self, writer: &mut Writer, page: u64, slots: &Slots) -> bool {
        if self.is_out_of_slots(slots) {
            return false;
        }
        let Some(slot) = slots.take_for_log(self.tier) else { return false };
        let at = page / self.pages_per_slot(slots);
        self.state.set_log_slot(self.tier.into(), at, slots.index(slot));
        writer.is_listed = false;
        true
    }

    /// Pages that are on the tier make room in the ring.
    fn retire_pages(&self, _writer: &mut Writer, from: u64, to: u64) {
        self.field(LogField::Spilled).store(to, Ordering::Release);
        crash_point("log: pages count as written");
        for page in from..to {
            let words = self.state.log_page(self.tier.into(), page);
            words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        self.reusable.store(to, Ordering::Release);
    }

    /// Everything appended so far outlives a power loss.
    ///
    /// # Errors
    /// The tier does not take it; what was not durable before still is not.
    pub(crate) fn make_durable(&self, slots: &Slots) -> io::Result<()> {
        let wanted = self.get(LogField::Head);
        if self.has_failed() {
            return Err(io::Error::other("the tombstone log was lost"));
        }
        let is_durable = || self.durable.load(Ordering::Acquire) >= wanted.max(1);
        if is_durable() {
            return Ok(());
        }
        let mut writer = lock(&self.writer);
        if is_durable() {
            return Ok(());
        }
        let head = self.close_page();
        self.spill_pages(&mut writer, slots)?;
        if self.has_failed() || self.get(LogField::Spilled) * PAGE_WORDS < head {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.flush(slots)?;
        if !writer.is_listed {
            self.write_directory(&mut writer, slots)?;
            self.flush(slots)?;
        }
        // Never 0 again: that stands for a log whose directory nobody keeps.
        self.durable.store(head.max(1), Ordering::Release);
        Ok(())
    }

    /// Fills the page that is being filled up, so that it can be written; says where the next begins.
    fn close_page(&self) -> u64 {
        let head = self.field(LogField::Head);
        let up = |at: u64| at.next_multiple_of(PAGE_WORDS);
        let close = |at: u64| Some(up(at));
        let (Ok(at) | Err(at)) = head.fetch_update(Ordering::AcqRel, Ordering::Acquire, close);
        for at in at..up(at) {
            let words = self.state.log_page(self.tier.into(), at / PAGE_WORDS);
            let at = page::HEADER_WORDS + (at % PAGE_WORDS) as usize;
            words[at].store(Word::Pad.to_bits(), Ordering::Release);
        }
        up(at)
    }

    fn write_directory(&self, writer: &mut Writer, slots: &Slots) -> io::Result<()> {
        writer.generation += 1;
        let directory = page::Directory {
            set: self.set,
            generation: writer.generation,
            tail: self.get(LogField::Tail),
            link: writer.tail_link,
            slots: self.slots(slots),
        };
        let mut image = AlignedBuf::zeroed(page::DIRECTORY_BYTES);
        directory.encode(&mut image);
        if self.has_failed() {
            // The state was lost while it was read for this.
            return Err(io::Error::other("the tombstone log was lost"));
        }
        slots.write_log(self.tier, directory.offset(), &image)?;
        writer.is_listed = true;
        Ok(())
    }

    /// Has the next page that is written follow the one with this checksum.
    pub(crate) fn continue_behind(&self, checksum: u32) {
        lock(&self.writer).link = checksum;
    }

    /// Takes over what the directory on the tier said, so that the next one is newer.
    pub(crate) fn continue_directory(&self, newest: &page::Directory) {
        let mut writer = lock(&self.writer);
        writer.generation = newest.generation;
        writer.tail_link = if newest.tail == self.get(LogField::Tail) { newest.link } else { 0 };
    }

    /// The checksum of the page ahead of the first one that is still needed; 0 if that is not known.
    pub(crate) fn tail_link(&self) -> u32 {
        lock(&self.writer).tail_link
    }

    /// Whether a directory on the tier describes the log while the server runs.
    fn keeps_directory(&self) -> bool {
        self.durable.load(Ordering::Relaxed) > 0
    }

    fn rewrite_directory(&self, slots: &Slots) -> io::Result<()> {
        let mut writer = lock(&self.writer);
        self.write_directory(&mut writer, slots)?;
        self.flush(slots)
    }

    /// Has the tier's drive keep what it was written. One that could not may have dropped it, and tells that
    /// once: in strict mode it is not asked again.
    pub(crate) fn flush(&self, slots: &Slots) -> io::Result<()> {
        let flushed = slots.tiers()[usize::from(self.tier)].device().flush();
        if flushed.is_err() && self.is_strict {
            self.fail();
        }
        flushed
    }

    /// Whether the tier has a slot of this number: what a drive holds may say anything.
    pub(crate) fn has_slot(&self, slot: u32) -> bool {
        (slot as usize) < self.uses.len()
    }

    /// Reads the pages from `page` to the end of its slot, or to `end`.
    pub(crate) fn read_run(&self, page: u64, end: u64, slots: &Slots) -> io::Result<Vec<Page>> {
        let per_slot = self.pages_per_slot(slots);
        let end = end.min((page / per_slot + 1) * per_slot).min(page + PAGES_PER_READ);
        let damaged = || {
            let why = "a page of the tombstone log does not check out";
            io::Error::new(io::ErrorKind::InvalidData, why)
        };
        if !self.has_slot(self.slot_of(page, slots)) {
            return Err(damaged());
        }
        let mut bytes = AlignedBuf::zeroed((end - page) as usize * page::PAGE);
        slots.read_log(self.tier, self.offset_of(page, slots), &mut bytes)?;
        (page..end)
            .zip(bytes.chunks_exact(page::PAGE))
            .map(|(page, bytes)| page::decode(bytes, self.set, page).ok_or_else(damaged))
            .collect()
    }
}

impl Use {
    fn seat(&self) -> Seat {
        let place = self.place.load(Ordering::Relaxed);
        let seq = self.seq.load(Ordering::Relaxed);
        Seat { shard: ((place & !COMMITTED) >> 16) as u16, number: place as u16, seq }
    }

    fn is_committed(&self) -> bool {
        self.place.load(Ordering::Relaxed) & COMMITTED != 0
    }
}
