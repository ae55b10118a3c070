//! The tombstone log of a tier: which records in its sealed segments are void, and which segments count at all.
//!
//! Words are appended to pages in the [`State`], which outlives the process. Full pages are written to the tier, into
//! segment slots that the log takes one by one. Old pages are cleaned as a log-structured file system cleans its
//! segments (Rosenblum and Ousterhout, SOSP 1991): words that still count are appended again.
//!
//! A word must be appended before its change takes effect outside of DRAM: a tombstone before the record that replaces
//! the sealed one is committed, the end of a segment before its slot is reused or its entries are removed.

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
/// Pages per write, at most.
const PAGES_PER_WRITE: u64 = 16;
/// Pages per read, at most.
pub(crate) const PAGES_PER_READ: u64 = 256;

/// What the running cache needs of the log about a slot.
#[derive(bytemuck::Zeroable)]
struct Use {
    /// Position of the segment's `Begin`, plus one; 0 if the slot holds none.
    begin: AtomicU64,
    seq: AtomicU64,
    /// Shard in the upper half, segment number in the lower; and [`COMMITTED`].
    place: AtomicU32,
    tombstones: AtomicU32,
}

/// In a [`Use`]'s place, above all shards: the segment was committed.
const COMMITTED: u32 = 1 << 31;

/// One tier's log.
pub(crate) struct TombstoneLog {
    tier: u16,
    /// What its pages and directories are marked with: those of other members say nothing here.
    key: u64,
    /// Its words must outlive a power loss.
    is_strict: bool,
    state: Arc<State>,
    /// Pages below this are no longer in the ring: those [`State::ring_pages`] later may be appended to.
    reusable: AtomicU64,
    uses: Mapped<Use>,
    /// Tombstones in segments that still count.
    tombstones: Striped,
    /// Segments that count.
    segments: AtomicU64,
    /// Words below this are on the tier, and the tier was flushed.
    durable: AtomicU64,
    /// Slots of the tier that the log may take at a time.
    slots_max: u64,
    /// The few slots left are for the background, which makes the log shorter.
    holds_back: AtomicBool,
    writer: Mutex<Writer>,
}

/// Writes pages to the tier, one thread at a time.
struct Writer {
    buffer: AlignedBuf,
    /// Generation of the directory last written.
    generation: u64,
    /// Whether that directory lists all slots: none was taken or freed since.
    is_listed: bool,
    /// The checksum of the page last written, 0 if there is none.
    link: u32,
    /// The checksum of the page ahead of the first one that is still needed; 0 if unknown.
    tail_link: u32,
}

/// Runs a function while no other thread changes the shard of this number.
pub(crate) type Locked<'l> = dyn Fn(usize, &dyn Fn()) + 'l;

/// Where a segment belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) shard: u16,
    pub(crate) number: u16,
    pub(crate) seq: u64,
}

impl TombstoneLog {
    /// The log of a tier of `slots` slots, as the state has it. Its pages are marked with `key`; `is_strict` with
    /// [`Durability::Power`].
    ///
    /// [`Durability::Power`]: crate::Durability::Power
    pub(crate) fn new(state: Arc<State>, tier: u16, key: u64, slots: u32, is_strict: bool) -> Self {
        let buffer = AlignedBuf::zeroed(page::PAGE * PAGES_PER_WRITE as usize);
        let [tombstones] = Striped::over(state.layout().shards());
        let log = Self {
            tier,
            key,
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

    /// The log, in at most this many slots of the tier at a time.
    pub(crate) fn within(self, slots: Option<u32>) -> Self {
        let slots_max = slots.map_or(self.slots_max, |slots| self.slots_max.min(slots.into()));
        Self { slots_max, ..self }
    }

    /// Bytes of DRAM outside of the state.
    pub(crate) fn bytes_for(slots: u32) -> u64 {
        u64::from(slots) * size_of::<Use>() as u64 + (page::PAGE as u64 * PAGES_PER_WRITE)
    }

    pub(crate) fn field(&self, field: LogField) -> &AtomicU64 {
        self.state.log_field(usize::from(self.tier), field)
    }

    fn get(&self, field: LogField) -> u64 {
        self.field(field).load(Ordering::Acquire)
    }

    /// Gives the log up: the next start must not trust anything on the tier.
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

    /// Appends that the record of `name` in the segment at `slot` is void.
    pub(crate) fn tombstone(&self, slot: u32, name: Name) {
        self.append(Word::Tombstone { slot, name: name.short() });
        self.count_tombstone(slot);
    }

    /// Appends that a record in the segment at `slot` is void. Its entry was dropped without knowing its key; it shared
    /// bucket and fingerprint with `name`.
    pub(crate) fn tombstone_by_prefix(&self, slot: u32, name: Name) {
        self.append(Word::TombstoneByPrefix { slot, name: name.short() });
        self.count_tombstone(slot);
    }

    /// Appends that no segment of the shard that began before holds the newest record of `name`'s key.
    pub(crate) fn tombstone_in_shard(&self, shard: u16, name: Name) {
        self.append(Word::TombstoneInShard { shard, name: name.short() });
    }

    /// Appends that a segment was written to `slot`.
    pub(crate) fn begin(&self, slot: u32, seat: Seat) {
        let at = self.append(Word::Begin { slot, seq: seat.seq });
        self.append(Word::Place { slot, shard: seat.shard, number: seat.number });
        self.note_begin(slot, at, seat);
    }

    /// Appends that the records of the segment at `slot` are there, and no longer in DRAM.
    pub(crate) fn commit(&self, slot: u32) {
        self.append(Word::Commit { slot });
        self.note_commit(slot);
    }

    /// Notes a commit of a segment that followed another, without a word.
    pub(crate) fn note_commit(&self, slot: u32) {
        self.uses[slot as usize].place.fetch_or(COMMITTED, Ordering::Relaxed);
    }

    /// Appends that the segment at `slot` begins or ends with the commit of the one at `leader`.
    pub(crate) fn follow(&self, slot: u32, leader: u32) {
        self.append(Word::Follow { slot, leader });
    }

    /// Appends that the segment with this seal sequence, on another tier, begins with the commit of the one at
    /// `leader`.
    pub(crate) fn follow_abroad(&self, seq: u64, leader: u32) {
        self.append(Word::FollowAbroad { leader, seq });
    }

    /// Appends that the segment at the slot no longer counts.
    pub(crate) fn free(&self, slot: u32) {
        self.append(Word::Free { slot });
        self.note_end(slot);
    }

    /// Notes that the segment at the slot no longer counts, which a commit that it followed has shown. The caller must
    /// hold the shard's lock, or no other thread may have the log yet.
    pub(crate) fn note_end(&self, slot: u32) {
        let used = &self.uses[slot as usize];
        if used.begin.swap(0, Ordering::Relaxed) != 0 {
            self.segments.fetch_sub(1, Ordering::Relaxed);
            let tombstones = used.tombstones.swap(0, Ordering::Relaxed);
            self.tombstones.sub(used.seat().shard.into(), tombstones.into());
        }
    }

    /// Notes that a segment counts, with its `Begin` at position `at` of the log.
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

    /// Counts a tombstone if its segment counts. The caller must hold the shard's lock, or no other thread may have the
    /// log yet.
    pub(crate) fn count_tombstone(&self, slot: u32) {
        let used = &self.uses[slot as usize];
        if used.begin.load(Ordering::Relaxed) != 0 {
            used.tombstones.store(used.tombstones.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            self.tombstones.add(used.seat().shard.into(), 1);
        }
    }

    /// Prefetches the counts of a slot; does nothing if there is none of this number.
    pub(crate) fn prefetch(&self, slot: u32) {
        if let Some(used) = self.uses.get(slot as usize) {
            prefetch::line(used);
        }
    }

    /// Tombstones that count, and the log's length in bytes.
    pub(crate) fn usage(&self) -> (u64, u64) {
        let head = self.field(LogField::Head).load(Ordering::Relaxed);
        let tail = self.field(LogField::Tail).load(Ordering::Relaxed) * PAGE_WORDS;
        (self.tombstones.load(Ordering::Relaxed), head.saturating_sub(tail) * 8)
    }

    fn pages_per_slot(&self, slots: &Slots) -> u64 {
        (slots.segment_bytes_on(self.tier) as usize / page::PAGE) as u64
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
        slots.offset(self.tier, self.slot_of(page, slots)) + within
    }

    /// Drops full pages of a failed tier's log.
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

    /// Writes full pages to the tier; `false` if there is none, or no slot for them.
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
            let (mut link, key) = (writer.link, self.key);
            let durable = self.durable.load(Ordering::Acquire) / PAGE_WORDS;
            for (page, bytes) in (from..to).zip(writer.buffer.chunks_exact_mut(page::PAGE)) {
                let words = self.state.log_page(self.tier.into(), page);
                let header = page::Header { key, page, link, durable };
                link = page::encode(words, header, bytes);
            }
            let offset = self.offset_of(from, slots);
            if self.has_failed() {
                // The state was lost: contents and place of these pages are unknown.
                return Ok(worked);
            }
            let first = from.is_multiple_of(per_slot).then(|| self.slot_of(from, slots));
            let written = slots.write_log(self.tier, (first, offset), &writer.buffer);
            if let Err(error) = written {
                if let Some(slot) = first {
                    slots.give_back_after(self.tier, slot, &error);
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

    /// Frees pages of the ring that are on the tier.
    fn retire_pages(&self, _writer: &mut Writer, from: u64, to: u64) {
        self.field(LogField::Spilled).store(to, Ordering::Release);
        crash_point("log: pages count as written");
        for page in from..to {
            let words = self.state.log_page(self.tier.into(), page);
            words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        self.reusable.store(to, Ordering::Release);
    }

    /// Makes all words appended so far outlive a power loss.
    ///
    /// # Errors
    /// The tier refuses the write; words that were not durable before still are not.
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
        // Never 0 again: that means that the directory is not kept up to date.
        self.durable.store(head.max(1), Ordering::Release);
        Ok(())
    }

    /// Pads the page that is being filled, so that it can be written; returns the position behind it.
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
            key: self.key,
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
        slots.write_log(self.tier, (None, directory.offset()), &image)?;
        writer.is_listed = true;
        Ok(())
    }

    /// Makes the next page that is written follow the one with this checksum.
    pub(crate) fn continue_behind(&self, checksum: u32) {
        lock(&self.writer).link = checksum;
    }

    /// Takes over generation and link of the directory on the tier, so that the next one is newer.
    pub(crate) fn continue_directory(&self, newest: &page::Directory) {
        let mut writer = lock(&self.writer);
        writer.generation = newest.generation;
        writer.tail_link = if newest.tail == self.get(LogField::Tail) { newest.link } else { 0 };
    }

    /// The checksum of the page ahead of the first one that is still needed; 0 if unknown.
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

    /// Flushes the tier's drive. After a failed flush the drive may have dropped data, and reports it only once: in
    /// strict mode the log fails.
    pub(crate) fn flush(&self, slots: &Slots) -> io::Result<()> {
        let flushed = slots.tiers()[usize::from(self.tier)].device().flush();
        if flushed.is_err() && self.is_strict {
            self.fail();
        }
        flushed
    }

    /// Whether the tier has a slot of this number: the bytes of a drive can be anything.
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
            .map(|(page, bytes)| page::decode(bytes, self.key, page).ok_or_else(damaged))
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
