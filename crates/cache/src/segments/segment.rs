//! The segment table of a shard: where each numbered segment lies, and how much of it is live.
//!
//! Readers take no lock. A row's seal sequence is set last and cleared first: a reader that finds the same one before
//! and after its reads has read a consistent row.

use crate::platform::getters::getters;
use crate::platform::mapped::Mapped;
use crate::platform::prefetch;
use crate::segments::layout::{EXTENT_UNIT, Extent, Footer, PACKED_MAX, PAGE};
use crate::segments::pages::{PageRange, PageTable};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// A place for one segment on one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId {
    pub(crate) tier: u16,
    /// Byte offset on the tier's device.
    pub(crate) offset: u64,
}

impl SlotId {
    fn to_bits(self) -> u64 {
        u64::from(self.tier) << 48 | (self.offset / PAGE as u64)
    }

    fn from_bits(bits: u64) -> Self {
        Self { tier: (bits >> 48) as u16, offset: (bits & ((1 << 48) - 1)) * PAGE as u64 }
    }
}

/// A segment as one seal wrote it; numbers are reused, sequences are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) number: u16,
    pub(crate) seq: u64,
}

/// Where in its segment a record may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In these pages, at most [`crate::segments::pages::RANGE_MAX`].
    Pages(PageRange),
    /// In the extent that begins with unit `unit`, `start` bytes into the bytes read for it.
    Extent { unit: u32, start: u32 },
}

/// Has a cache line of its own: a change of a record touches most of it.
#[derive(bytemuck::Zeroable)]
#[repr(align(64))]
struct Row {
    /// Seal sequence; 0 while the row holds no readable segment.
    seq: AtomicU64,
    slot: AtomicU64,
    /// Pages of small records (16 bits) | shift (8) | any straddle (1) | any manifest (7) | extents (32).
    shape: AtomicU64,
    /// Records at the seal.
    records: AtomicU32,
    /// Bytes of all records at the seal; a segment is at most 64 MiB.
    record_bytes: AtomicU32,
    /// Bytes of their keys and values.
    payload_bytes: AtomicU32,
    live_records: AtomicU32,
    live_bytes: AtomicU32,
    /// Unix seconds of the seal.
    sealed: AtomicU32,
    /// Unix seconds from which on all records have expired; 0 for never.
    expires: AtomicU32,
    /// See [`SegmentTable::items_due`].
    items_due: AtomicU32,
    /// See [`SegmentTable::age`].
    age: AtomicU64,
}

/// What is live in a segment, and what was in it at the seal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(super) live_records: u32,
    pub(super) live_bytes: u32,
    pub(super) records: u32,
    pub(super) record_bytes: u32,
}

getters! {
    Usage {
        record_bytes: u32,
        live_bytes: u32,
        records: u32,
        live_records: u32,
    }
}

impl Usage {
    /// A usage with these live records and bytes, for tests.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn alive(live_records: u32, live_bytes: u32) -> Self {
        Self { live_records, live_bytes, ..Self::default() }
    }
}

/// All rows of a shard, with their page tables and extent directories.
pub(crate) struct SegmentTable {
    rows: Mapped<Row>,
    pages_max: usize,
    extents_max: usize,
    /// Reads of extents are multiples of this many bytes.
    read_unit: usize,
    starts: Mapped<AtomicU16>,
    straddlers: Mapped<AtomicU16>,
    extents: Mapped<AtomicU64>,
}

impl SegmentTable {
    /// Room for `rows` segments; memory is touched only as they come into use.
    /// Reads of extents are multiples of `read_unit` bytes.
    pub(crate) fn new(rows: usize, segment_bytes: u32, read_unit: u32) -> Self {
        let pages_max = segment_bytes as usize / PAGE;
        let extents_max = segment_bytes as usize / PACKED_MAX + 1;
        Self {
            rows: Mapped::zeroed(rows),
            pages_max,
            extents_max,
            read_unit: read_unit as usize,
            starts: Mapped::zeroed(rows * pages_max),
            straddlers: Mapped::zeroed(rows * pages_max),
            extents: Mapped::zeroed(rows * extents_max),
        }
    }

    pub(crate) const ROW_BYTES: u64 = size_of::<Row>() as u64;

    /// The segment that has this number now.
    pub(crate) fn sealed(&self, number: u16) -> Option<Sealed> {
        let seq = self.rows[usize::from(number)].seq.load(Ordering::Acquire);
        (seq != 0).then_some(Sealed { number, seq })
    }

    /// The slot of the segment with a number; may be out of date or of no segment.
    pub(crate) fn likely_slot(&self, number: u16) -> Option<SlotId> {
        let bits = self.rows.get(usize::from(number))?.slot.load(Ordering::Relaxed);
        (bits != 0).then(|| SlotId::from_bits(bits))
    }

    /// Prefetches the row of a segment; does nothing if there is none with this number.
    pub(crate) fn prefetch(&self, number: u16) {
        if let Some(row) = self.rows.get(usize::from(number)) {
            prefetch::line(row);
        }
    }

    /// Prefetches what [`SegmentTable::plan`] of a record at `pos` reads, if the segment has about as many pages as it
    /// may and no extents, as most have. Does nothing if there is none with this number.
    pub(crate) fn prefetch_plan(&self, number: u16, pos: u32) {
        let page = (u64::from(pos) * self.pages_max as u64) >> 32;
        let at = usize::from(number) * self.pages_max + page as usize;
        let (Some(row), Some(start)) = (self.rows.get(usize::from(number)), self.starts.get(at))
        else {
            return;
        };
        prefetch::line(row);
        prefetch::line(start);
        prefetch::line(&self.straddlers[at]);
    }

    pub(crate) fn is_current(&self, sealed: Sealed) -> bool {
        self.sealed(sealed.number) == Some(sealed)
    }

    /// All readable segments.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Sealed> {
        (0..self.rows.len()).filter_map(|number| self.sealed(number as u16))
    }

    /// Makes a written segment readable; `age` is that of its records, see [`SegmentTable::age`]. The caller must hold
    /// the shard's lock, and the row must be unused.
    pub(crate) fn publish(&self, slot: SlotId, footer: &Footer, records: u32, age: u64) {
        let row = &self.rows[usize::from(footer.number)];
        let at = usize::from(footer.number);
        copy(&self.starts[at * self.pages_max..], &footer.starts);
        copy(&self.straddlers[at * self.pages_max..], &footer.straddlers);
        for (to, extent) in self.extents[at * self.extents_max..].iter().zip(&footer.extents) {
            to.store(extent.to_bits(), Ordering::Relaxed);
        }
        let shape = footer.starts.len() as u64
            | u64::from(footer.shift) << 16
            | u64::from(!footer.straddlers.is_empty()) << 24
            | u64::from(footer.has_manifests) << 25
            | (footer.extents.len() as u64) << 32;
        row.shape.store(shape, Ordering::Relaxed);
        row.slot.store(slot.to_bits(), Ordering::Relaxed);
        row.records.store(records, Ordering::Relaxed);
        row.record_bytes.store(footer.record_bytes, Ordering::Relaxed);
        row.payload_bytes.store(footer.payload_bytes, Ordering::Relaxed);
        row.live_records.store(0, Ordering::Relaxed);
        row.live_bytes.store(0, Ordering::Relaxed);
        row.sealed.store(footer.sealed, Ordering::Relaxed);
        row.expires.store(footer.expires, Ordering::Relaxed);
        row.items_due.store(0, Ordering::Relaxed);
        row.age.store(age, Ordering::Relaxed);
        row.seq.store(footer.seq, Ordering::Release);
    }

    /// Makes a segment unreadable and returns its slot. The caller must hold the shard's lock.
    pub(crate) fn retract(&self, number: u16) -> SlotId {
        let row = &self.rows[usize::from(number)];
        // After the note that entries move: a lookup that finds neither the segment nor its successor must see that
        // note.
        row.seq.store(0, Ordering::Release);
        // A reader that sees a later use of the row must see that the sequence has changed.
        fence(Ordering::Release);
        SlotId::from_bits(row.slot.load(Ordering::Relaxed))
    }

    pub(crate) fn slot(&self, number: u16) -> SlotId {
        SlotId::from_bits(self.rows[usize::from(number)].slot.load(Ordering::Relaxed))
    }

    /// The seal sequence of the segment that its newest records were first written to: relocated records keep their
    /// age. A start, which does not know it, takes the segment's own sequence.
    pub(crate) fn age(&self, number: u16) -> u64 {
        self.rows[usize::from(number)].age.load(Ordering::Relaxed)
    }

    /// Sets the sequence that its records count as stored at.
    pub(crate) fn set_age(&self, number: u16, age: u64) {
        self.rows[usize::from(number)].age.store(age, Ordering::Relaxed);
    }

    pub(crate) fn sealed_at(&self, number: u16) -> u32 {
        self.rows[usize::from(number)].sealed.load(Ordering::Relaxed)
    }

    /// Whether every record has expired by `now`.
    pub(crate) fn is_expired(&self, number: u16, now: u32) -> bool {
        let expires = self.rows[usize::from(number)].expires.load(Ordering::Relaxed);
        expires != 0 && expires <= now
    }

    /// Unix seconds from which on the segment should be searched for expired manifests; 0 for never, or where that is
    /// unknown, as after a start.
    pub(crate) fn items_due(&self, number: u16) -> u32 {
        self.rows[usize::from(number)].items_due.load(Ordering::Relaxed)
    }

    pub(crate) fn set_items_due(&self, number: u16, due: u32) {
        self.rows[usize::from(number)].items_due.store(due, Ordering::Relaxed);
    }

    pub(crate) fn usage(&self, number: u16) -> Usage {
        let row = &self.rows[usize::from(number)];
        Usage {
            live_records: row.live_records.load(Ordering::Relaxed),
            live_bytes: row.live_bytes.load(Ordering::Relaxed),
            records: row.records.load(Ordering::Relaxed),
            record_bytes: row.record_bytes.load(Ordering::Relaxed),
        }
    }

    /// Bytes of keys and values of live records, estimated by their share at the seal.
    pub(crate) fn live_payload_bytes(&self, number: u16) -> u64 {
        let row = &self.rows[usize::from(number)];
        let [live, payload, all] = [&row.live_bytes, &row.payload_bytes, &row.record_bytes]
            .map(|bytes| u64::from(bytes.load(Ordering::Relaxed)));
        live * payload / all.max(1)
    }

    /// Sets how much of a segment is live. The caller must hold the shard's lock.
    pub(crate) fn set_live(&self, number: u16, records: u32, bytes: u32) {
        let row = &self.rows[usize::from(number)];
        row.live_records.store(records, Ordering::Relaxed);
        row.live_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Adds a live record. The caller must hold the shard's lock.
    pub(crate) fn add_live(&self, number: u16, bytes: u32) {
        let usage = self.usage(number);
        self.set_live(number, usage.live_records + 1, usage.live_bytes + bytes);
    }

    /// Average bytes of a record at the seal.
    pub(crate) fn average_bytes(&self, number: u16) -> u32 {
        let usage = self.usage(number);
        usage.record_bytes / usage.records.max(1)
    }

    /// Subtracts a live record, with the segment's average if `bytes` is not known. Returns the bytes. The caller must
    /// hold the shard's lock.
    pub(crate) fn sub_live(&self, number: u16, bytes: Option<u32>) -> u32 {
        let row = &self.rows[usize::from(number)];
        let usage = self.usage(number);
        let bytes = bytes.unwrap_or(self.average_bytes(number));
        let bytes = if usage.live_records <= 1 { usage.live_bytes } else { bytes };
        let bytes = bytes.min(usage.live_bytes);
        row.live_records.store(usage.live_records.saturating_sub(1), Ordering::Relaxed);
        row.live_bytes.store(usage.live_bytes - bytes, Ordering::Relaxed);
        bytes
    }

    /// Bytes of DRAM of the page table and directory of a segment.
    pub(crate) fn table_bytes(&self, number: u16) -> u64 {
        let (pages, _, straddling, extents) = self.shape(number);
        (pages * if straddling { 4 } else { 2 } + extents * 8) as u64
    }

    /// Bytes of the footer of a segment.
    pub(crate) fn footer_bytes(&self, number: u16) -> usize {
        let (pages, _, straddling, extents) = self.shape(number);
        Footer::bytes_for(self.usage(number).records as usize, pages, straddling, extents)
    }

    /// Bytes of a segment's pages, extents and footer.
    pub(crate) fn filled_bytes(&self, number: u16) -> u64 {
        let extents = self.extents(number).map(|extent| extent.units as usize * EXTENT_UNIT);
        (self.pages(number) * PAGE + extents.sum::<usize>() + self.footer_bytes(number)) as u64
    }

    /// Whether one of the records is an item with chunks.
    pub(crate) fn has_manifests(&self, number: u16) -> bool {
        self.rows[usize::from(number)].shape.load(Ordering::Relaxed) >> 25 & 1 == 1
    }

    /// Pages of small records.
    pub(crate) fn pages(&self, number: u16) -> usize {
        self.shape(number).0
    }

    /// The extents of a segment. The caller must hold the shard's lock, or check the sequence afterwards.
    pub(crate) fn extents(&self, number: u16) -> impl Iterator<Item = Extent> {
        let at = usize::from(number) * self.extents_max;
        let (_, _, _, extents) = self.shape(number);
        let words = &self.extents[at..at + extents.min(self.extents_max)];
        words.iter().map(|word| Extent::from_bits(word.load(Ordering::Relaxed)))
    }

    fn shape(&self, number: u16) -> (usize, u8, bool, usize) {
        let shape = self.rows[usize::from(number)].shape.load(Ordering::Relaxed);
        let pages = (shape as u16 as usize).min(self.pages_max);
        (pages, (shape >> 16) as u8, shape >> 24 & 1 == 1, (shape >> 32) as usize)
    }

    /// Where the record at `pos` may lie: in extents at exactly this position first, then in pages. The first `skip` of
    /// these places are left out. `None` when there is no further place or the segment is gone.
    pub(crate) fn plan(&self, sealed: Sealed, pos: u32, skip: u16) -> Option<(Place, ReadPlan)> {
        let number = usize::from(sealed.number);
        if !self.is_current(sealed) {
            return None;
        }
        let (pages, shift, straddling, extents) = self.shape(sealed.number);
        let at = number * self.extents_max;
        let extents = &self.extents[at..at + extents.min(self.extents_max)];
        let position = |word: &AtomicU64| word.load(Ordering::Relaxed) as u32;
        let first = extents.partition_point(|word| position(word) < pos) + usize::from(skip);
        let extent = extents.get(first).map(|word| Extent::from_bits(word.load(Ordering::Relaxed)));
        let slot = self.slot(sealed.number);
        let planned = if let Some(extent) = extent.filter(|extent| extent.pos == pos) {
            Some(self.extent_plan(slot, extent))
        } else {
            let equal = extents[..first.min(extents.len())].iter().rev();
            let looked_at = equal.take_while(|word| position(word) == pos).count();
            let table = PageTable {
                shift,
                starts: &self.starts[number * self.pages_max..][..pages],
                straddlers: if straddling {
                    &self.straddlers[number * self.pages_max..][..pages]
                } else {
                    &[]
                },
            };
            let range = table.locate(pos).filter(|_| usize::from(skip) == looked_at);
            range.map(|range| (Place::Pages(range), page_plan(slot, range)))
        };
        fence(Ordering::Acquire);
        planned.filter(|_| self.is_current(sealed))
    }

    /// The read of the device blocks that an extent touches.
    fn extent_plan(&self, slot: SlotId, extent: Extent) -> (Place, ReadPlan) {
        let start = extent.unit as usize * EXTENT_UNIT;
        let end = (start + extent.units as usize * EXTENT_UNIT).next_multiple_of(self.read_unit);
        let before = start % self.read_unit;
        let (offset, bytes) =
            (slot.offset + (start - before) as u64, (end - start + before) as u32);
        let place = Place::Extent { unit: extent.unit, start: before as u32 };
        (place, ReadPlan { tier: slot.tier.into(), offset, bytes })
    }
}

fn copy(to: &[AtomicU16], from: &[u16]) {
    to.iter().zip(from).for_each(|(to, &from)| to.store(from, Ordering::Relaxed));
}

/// The read of a page range.
pub(crate) fn page_plan(slot: SlotId, range: PageRange) -> ReadPlan {
    let offset = slot.offset + u64::from(range.first) * PAGE as u64;
    ReadPlan { tier: slot.tier.into(), offset, bytes: u32::from(range.pages) * PAGE as u32 }
}

/// A read that the worker must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPlan {
    /// Index into `Config::tiers`.
    pub tier: usize,
    /// Byte offset on the device.
    pub offset: u64,
    /// Bytes to read, whole blocks of the device; a multiple of 4096 where records lie in pages.
    pub bytes: u32,
}
