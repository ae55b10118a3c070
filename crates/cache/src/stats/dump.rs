//! Walking over all records, for listings: shard by shard, a block or a segment at a time, beside the
//! requests. A record that moves meanwhile may be seen twice; one that is stored, changed or removed
//! meanwhile, or not.

use crate::cache::{Cache, Engine};
use crate::dram::memory::Guard;
use crate::dram::resident::mark;
use crate::platform::quiesce::Participant;
use crate::reclaim::spans;
use crate::records::record::Record;
use crate::segments::segment::Sealed;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::vec;
use terrace_device::AlignedBuf;

/// Records of a segment that a step shows at most: who lists them keeps what it writes until the client takes it.
const SHOWN_MAX: usize = 512;

/// A record as a listing shows it.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// The record; the value of a large item is its manifest.
    pub record: Record<'a>,
    /// Unix time in seconds of the last use; of a record on flash, when it was sealed.
    pub accessed: u32,
    /// It was read at least once.
    pub fetched: bool,
    /// It lies on a tier.
    pub is_sealed: bool,
}

/// A segment that was read.
struct Opened {
    sealed: Sealed,
    /// Where in the buffer those of its records lie that are left; `None` where there is a damaged page.
    records: vec::IntoIter<Option<Range<usize>>>,
}

/// A walk over all records.
pub struct Dump {
    cache: Arc<Cache>,
    participant: Participant,
    buffer: AlignedBuf,
    shard: usize,
    /// What is left of that shard; `None` before its DRAM was looked at.
    left: Option<Vec<Sealed>>,
    /// The segment in the buffer.
    opened: Option<Opened>,
    /// One of so many segments is shown.
    one_in: u64,
    /// Segments so far, and those of them that were shown.
    segments: u64,
    shown: u64,
}

impl Dump {
    /// Begins a walk; `None` when as many as can be are under way.
    pub fn begin(cache: &Arc<Cache>) -> Option<Self> {
        let participant = cache.engine.pool.quiesce.join()?;
        let bytes = cache.engine.geometry.segment_bytes as usize;
        let buffer = AlignedBuf::zeroed(bytes);
        Some(Self {
            cache: Arc::clone(cache),
            participant,
            buffer,
            shard: 0,
            left: None,
            opened: None,
            one_in: 1,
            segments: 0,
            shown: 0,
        })
    }

    /// Shows every `one_in`-th segment only, spread over all shards; DRAM as ever.
    pub fn sample(&mut self, one_in: u64) {
        self.one_in = one_in.max(1);
    }

    /// How many segments there were so far, for each that was shown.
    pub fn segments_per_shown(&self) -> f64 {
        self.segments as f64 / self.shown.max(1) as f64
    }

    /// Shows some records of one segment, or those of a shard's DRAM, without the expired ones; `false` when
    /// there are no more. Holds no lock while it reads a segment from its drive.
    pub fn step(&mut self, now: u32, mut visit: impl FnMut(Listed<'_>)) -> bool {
        let Self { cache, participant, buffer, shard: at, left, opened, .. } = self;
        let (one_in, segments, shown) = (self.one_in, &mut self.segments, &mut self.shown);
        let engine = &cache.engine;
        if *at >= engine.shards.len() {
            return false;
        }
        let guard = engine.pool.quiesce.guard(participant);
        match left {
            // The one that was begun comes first.
            _ if opened.is_some() => list_part(engine, guard, *at, opened, buffer, now, &mut visit),
            None => {
                let mut all = list_dram(engine, guard, *at, now, &mut visit);
                all.retain(|_| {
                    let is_shown = *segments % one_in == 0;
                    *segments += 1;
                    *shown += u64::from(is_shown);
                    is_shown
                });
                *left = Some(all);
            }
            Some(waiting) => match waiting.pop() {
                Some(sealed) => {
                    let spans = read_segment(engine, *at, sealed, buffer);
                    *opened = spans.map(|spans| Opened { sealed, records: spans.into_iter() });
                }
                None => (*at, *left) = (*at + 1, None),
            },
        }
        engine.pool.quiesce.park(participant);
        true
    }
}

impl Drop for Dump {
    fn drop(&mut self) {
        self.cache.engine.pool.quiesce.leave(&mut self.participant);
    }
}

/// Shows the unsealed records of a shard, and says which segments it has. Blocks stay what they are
/// under the guard.
fn list_dram(
    engine: &Engine,
    guard: Guard<'_>,
    at: usize,
    now: u32,
    visit: &mut impl FnMut(Listed<'_>),
) -> Vec<Sealed> {
    let shard = &engine.shards[at];
    let (blocks, segments) = {
        let locked = shard.lock(&engine.pool, guard);
        let fresh = &locked.state.fresh;
        let full = fresh.full.iter().map(|block| (block.id, block.fill));
        let open = fresh.open.as_ref().map(|block| (block.id, block.fill()));
        (full.chain(open).collect::<Vec<_>>(), shard.segments.iter().collect())
    };
    let residents =
        blocks.into_iter().flat_map(|(id, fill)| engine.pool.arena.records(guard, id, fill));
    for resident in residents.filter(|resident| !resident.has(mark::VOID | mark::SEALED)) {
        let Some((record, _)) = Record::decode(resident.bytes) else { continue };
        if is_listed(&record, now) {
            let accessed = resident.header.accessed.load(Ordering::Relaxed);
            let fetched = resident.has(mark::FETCHED);
            visit(Listed { record, accessed, fetched, is_sealed: false });
        }
    }
    segments
}

/// Shows the live records of a segment.
pub(crate) fn list_segment(
    engine: &Engine,
    guard: Guard<'_>,
    shard_at: usize,
    sealed: Sealed,
    buffer: &mut AlignedBuf,
    now: u32,
    visit: &mut impl FnMut(Listed<'_>),
) {
    if let Some(spans) = read_segment(engine, shard_at, sealed, buffer) {
        let records = spans.into_iter().flatten().map(|span| &buffer[span]);
        list_records(engine, guard, (shard_at, sealed), records, now, visit);
    }
}

/// Shows the next records of the segment that is in `buffer`, and closes it behind the last.
fn list_part(
    engine: &Engine,
    guard: Guard<'_>,
    shard_at: usize,
    opened: &mut Option<Opened>,
    buffer: &AlignedBuf,
    now: u32,
    visit: &mut impl FnMut(Listed<'_>),
) {
    let Some(Opened { sealed, records }) = opened else { return };
    // Its number may be another's by now.
    let is_current = engine.shards[shard_at].segments.is_current(*sealed);
    if is_current {
        let part = records.by_ref().take(SHOWN_MAX).flatten().map(|span| &buffer[span]);
        list_records(engine, guard, (shard_at, *sealed), part, now, visit);
    }
    if !is_current || records.as_slice().is_empty() {
        *opened = None;
    }
}

/// Where the records of a segment lie, which is in `buffer` then; `None` if it is gone or can't be read.
fn read_segment(
    engine: &Engine,
    shard_at: usize,
    sealed: Sealed,
    buffer: &mut AlignedBuf,
) -> Option<Vec<Option<Range<usize>>>> {
    let segments = &engine.shards[shard_at].segments;
    buffer.set_len(engine.geometry.segment_bytes as usize);
    engine.pool.slots.read_tail(segments.slot(sealed.number), buffer).ok()?;
    segments.is_current(sealed).then(|| spans(segments, sealed, buffer))
}

/// Shows those records of a segment that are alive.
fn list_records<'b>(
    engine: &Engine,
    guard: Guard<'_>,
    (shard_at, sealed): (usize, Sealed),
    records: impl Iterator<Item = &'b [u8]>,
    now: u32,
    visit: &mut impl FnMut(Listed<'_>),
) {
    let shard = &engine.shards[shard_at];
    let sealed_at = shard.segments.sealed_at(sealed.number);
    let records = records.filter_map(Record::decode).map(|(record, _)| record);
    for record in records.filter(|record| is_listed(record, now)) {
        let key = engine.hasher.key(record.key, record.is_chunk);
        let name = engine.hasher.name(key.hash);
        let entry = shard.lock(&engine.pool, guard).entry(name, sealed.number);
        let Some(entry) = entry else { continue };
        let copy = shard.find_resident(&engine.pool, guard, &key, name.pos);
        let accessed = copy
            .map_or(sealed_at, |(resident, ..)| resident.header.accessed.load(Ordering::Relaxed));
        visit(Listed { record, accessed, fetched: entry.uses > 0, is_sealed: true });
    }
}

fn is_listed(record: &Record<'_>, now: u32) -> bool {
    !record.is_chunk && !record.is_expired(now)
}
