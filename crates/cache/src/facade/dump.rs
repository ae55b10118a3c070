//! Dumps: a walk over all records, for listings, while requests are served: shard by shard, first the segments, then
//! DRAM.
//!
//! A key that exists from the beginning of a walk to its end is shown at least once, however often it is overwritten or
//! relocated meanwhile. A record moves only to a new segment or to the end of the blocks in DRAM. So a shard is walked
//! until, under its lock, each segment was walked and at most [`LAST_BYTES`] in DRAM were not; these are shown before
//! the lock is released. Wherever a key is at that moment, it was shown there. A segment that records are still being
//! moved to waits until it has all of them. A record that moves may be shown twice; one that is stored, changed or
//! removed meanwhile may be missed.

use crate::background::listing::{is_listed, list_records, read_segment};
use crate::dram::lane::{FullBlock, LaneBlocks};
use crate::dram::resident::mark;
use crate::engine::Engine;
use crate::facade::cache::Cache;
use crate::platform::quiesce::{Guard, Reader};
use crate::records::listed::Listed;
use crate::records::record::Record;
use crate::segments::segment::Sealed;
use crate::shard::{Shard, ShardState};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{thread, vec};
use terrace_device::AlignedBuf;

/// Records of a segment that a step shows, at most: the caller keeps its listing of them until the client takes it.
const SHOWN_MAX: usize = 512;
/// Bytes of blocks in DRAM that a step walks, about.
const STEP_BYTES: u64 = 1 << 20;
/// Bytes of blocks in DRAM walked under a shard's lock, at most: requests wait for less than a millisecond.
const LAST_BYTES: u64 = 64 << 10;
/// After three times the first bytes of a shard were walked, and more came, its walk goes on to the end in one step, so
/// that a slow client does not make it endless: walking is faster than writing.
const TURNS_MAX: u64 = 3;
/// Moving the records of a segment takes about this long.
const HANDED_OVER_NAP: Duration = Duration::from_millis(1);

/// A segment that was read.
struct Opened {
    sealed: Sealed,
    /// The bytes of its remaining records in the buffer; `None` for each damaged page.
    records: vec::IntoIter<Option<Range<usize>>>,
}

/// The progress of the walk over one shard.
#[derive(Default)]
struct Progress {
    /// Segments to walk next; they count as walked already.
    left: Vec<Sealed>,
    /// Seal sequences of the segments that were walked and still exist.
    segments: HashSet<u64>,
    /// Blocks in DRAM that were walked, by their order, with the bytes walked.
    blocks: HashMap<u64, u32>,
    /// Bytes of the shard when its walk began; `None` before.
    first_bytes: Option<u64>,
    walked_bytes: u64,
}

/// The next part of a shard, as found under its lock.
enum Look {
    /// Segments that were not walked yet are in [`Progress::left`].
    Segments,
    /// Parts of blocks in DRAM.
    Blocks(Vec<Unwalked>),
    /// Only segments are left that records are still being moved to.
    Wait,
    /// Everything was shown.
    Done,
}

/// Part of a block that was not walked yet.
#[derive(Clone, Copy)]
struct Unwalked {
    id: u32,
    from: u32,
    fill: u32,
}

/// A walk over all records.
pub struct Dump {
    engine: Arc<Engine>,
    reader: Reader,
    walk: Walk,
}

struct Walk {
    buffer: AlignedBuf,
    shard: usize,
    /// The progress in that shard.
    progress: Progress,
    /// The segment in the buffer.
    opened: Option<Opened>,
    sample: Sample,
}

/// The choice of segments that are shown.
struct Sample {
    one_in: u64,
    /// Segments so far; `shown` of them were shown.
    segments: u64,
    shown: u64,
}

impl Dump {
    /// Begins a walk; `None` when too many are in progress.
    pub fn begin(cache: &Cache) -> Option<Self> {
        let reader = cache.engine.shared().quiesce().join()?;
        let bytes = cache.engine.geometry().segment_bytes() as usize;
        let buffer = AlignedBuf::zeroed(bytes);
        let walk = Walk {
            buffer,
            shard: 0,
            progress: Progress::default(),
            opened: None,
            sample: Sample { one_in: 1, segments: 0, shown: 0 },
        };
        Some(Self { engine: Arc::clone(&cache.engine), reader, walk })
    }

    /// Shows only every `one_in`-th segment, counted over all shards; DRAM is shown in full.
    pub fn sample(&mut self, one_in: u64) {
        self.walk.sample.one_in = one_in.max(1);
    }

    /// Segments so far, per shown one.
    pub fn segments_per_shown(&self) -> f64 {
        self.walk.sample.segments as f64 / self.walk.sample.shown.max(1) as f64
    }

    /// Shows some records of one segment, or of a shard's DRAM, without the expired ones; `false` when there are no
    /// more. Holds no lock while it reads a segment from its drive. Sleeps while records are being moved to a segment.
    pub fn step(&mut self, now: u32, mut visit: impl FnMut(Listed<'_>)) -> bool {
        let Self { engine, reader, walk } = self;
        let shard = walk.shard;
        while walk.shard < engine.shards().len() {
            let is_over =
                walk.step(engine, engine.shared().quiesce().guard(reader), now, &mut visit);
            engine.shared().quiesce().park(reader);
            match is_over {
                Some(true) => (walk.shard, walk.progress) = (walk.shard + 1, Progress::default()),
                Some(false) => {}
                None => thread::sleep(HANDED_OVER_NAP),
            }
            if walk.shard != shard || !walk.progress.is_late() {
                return true;
            }
        }
        false
    }
}

impl Walk {
    /// Walks one part of the shard; `true` after the last one, `None` if it must wait.
    fn step(
        &mut self,
        engine: &Engine,
        guard: Guard<'_>,
        now: u32,
        visit: &mut impl FnMut(Listed<'_>),
    ) -> Option<bool> {
        let Self { shard: at, progress, opened, buffer, sample } = self;
        if opened.is_some() {
            list_part(engine, guard, *at, opened, buffer, now, visit);
        } else if let Some(sealed) = progress.left.pop() {
            progress.walked_bytes += segment_bytes(engine, &engine.shards()[*at], sealed);
            if sample.takes() {
                let spans = read_segment(engine, *at, sealed, buffer);
                *opened = spans.map(|spans| Opened { sealed, records: spans.into_iter() });
            }
        } else {
            match progress.look(engine, guard, *at, now, visit) {
                Look::Segments => {}
                Look::Blocks(blocks) => list_blocks(engine, guard, &blocks, now, visit),
                Look::Wait => return None,
                Look::Done => return Some(true),
            }
        }
        Some(false)
    }
}

/// Bytes of a segment.
fn segment_bytes(engine: &Engine, shard: &Shard, sealed: Sealed) -> u64 {
    let tier = shard.segments().slot(sealed.number).tier;
    engine.shared().slots().segment_bytes_on(tier).into()
}

impl Drop for Dump {
    fn drop(&mut self) {
        self.engine.shared().quiesce().leave(&mut self.reader);
    }
}

impl Sample {
    fn takes(&mut self) -> bool {
        let is_shown = self.segments.is_multiple_of(self.one_in);
        self.segments += 1;
        self.shown += u64::from(is_shown);
        is_shown
    }
}

impl Progress {
    /// Whether writes to the shard keep the walk from its end.
    fn is_late(&self) -> bool {
        let first_bytes = self.first_bytes.unwrap_or(0).max(STEP_BYTES);
        self.walked_bytes > TURNS_MAX * first_bytes
    }

    /// Finds the parts that were not walked yet, and counts them as walked. Shows the last ones itself.
    fn look(
        &mut self,
        engine: &Engine,
        guard: Guard<'_>,
        at: usize,
        now: u32,
        visit: &mut impl FnMut(Listed<'_>),
    ) -> Look {
        let shard = &engine.shards()[at];
        let locked = shard.lock(engine.shared(), guard);
        let waits = self.look_for_segments(shard, locked.state());
        let blocks = blocks_only_in_dram(locked.state());
        let bytes: u64 = blocks.iter().map(|block| u64::from(self.unwalked(block))).sum();
        let left = self.left.iter().map(|&sealed| segment_bytes(engine, shard, sealed));
        self.first_bytes.get_or_insert(bytes + left.sum::<u64>());
        let is_last = bytes <= LAST_BYTES;
        match (self.left.is_empty(), is_last && waits) {
            (false, _) => return Look::Segments,
            (true, true) => return Look::Wait,
            (true, false) => {}
        }
        let blocks = self.take_blocks(&blocks);
        if !is_last {
            return Look::Blocks(blocks);
        }
        list_blocks(engine, guard, &blocks, now, visit);
        drop(locked);
        Look::Done
    }

    /// Lists the segments to walk next in `left`; `true` if there are segments that must wait.
    fn look_for_segments(&mut self, shard: &Shard, state: &ShardState) -> bool {
        let (filling, all): (Vec<_>, Vec<_>) =
            shard.segments().iter().partition(|sealed| state.is_filling(sealed));
        let all_there = all.iter().map(|sealed| sealed.seq).collect();
        let before = std::mem::replace(&mut self.segments, all_there);
        self.left = all.into_iter().filter(|sealed| !before.contains(&sealed.seq)).collect();
        !filling.is_empty()
    }

    fn unwalked(&self, block: &FullBlock) -> u32 {
        block.fill - self.blocks.get(&block.order).copied().unwrap_or(0)
    }

    /// The parts of `blocks`, which must be all of the shard, for the next step.
    fn take_blocks(&mut self, blocks: &[FullBlock]) -> Vec<Unwalked> {
        let (mut taken, mut walked, mut left_bytes) = (Vec::new(), HashMap::new(), STEP_BYTES);
        for block in blocks {
            let bytes = self.unwalked(block);
            let from = block.fill - bytes;
            let takes = bytes > 0 && left_bytes > 0;
            walked.insert(block.order, if takes { block.fill } else { from });
            if takes {
                taken.push(Unwalked { id: block.id, from, fill: block.fill });
                left_bytes = left_bytes.saturating_sub(bytes.into());
                self.walked_bytes += u64::from(bytes);
            }
        }
        self.blocks = walked;
        taken
    }
}

/// The blocks of a shard's records without a sealed original, the oldest of each lane first.
fn blocks_only_in_dram(state: &ShardState) -> Vec<FullBlock> {
    [state.fresh(), state.protected()].into_iter().flat_map(LaneBlocks::all).collect()
}

/// Shows the fresh records in parts of blocks, which do not change under the guard.
fn list_blocks(
    engine: &Engine,
    guard: Guard<'_>,
    blocks: &[Unwalked],
    now: u32,
    visit: &mut impl FnMut(Listed<'_>),
) {
    let arena = engine.shared().arena();
    let residents =
        blocks.iter().flat_map(|block| arena.records_from(guard, block.id, block.from, block.fill));
    for resident in residents.filter(|resident| !resident.has(mark::VOID | mark::SEALED)) {
        let Some((record, _)) = Record::decode(resident.bytes) else { continue };
        if is_listed(&record, now) {
            let accessed = resident.header.accessed().load(Ordering::Relaxed);
            let fetched = resident.has(mark::FETCHED);
            visit(Listed { record, accessed, fetched, is_sealed: false });
        }
    }
}

/// Shows the next records of the segment in `buffer`, and closes it after the last.
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
    // The number may have another segment by now.
    let is_current = engine.shards()[shard_at].segments().is_current(*sealed);
    if is_current {
        let part = records.by_ref().take(SHOWN_MAX).flatten().map(|span| &buffer[span]);
        list_records(engine, guard, (shard_at, *sealed), part, now, visit);
    }
    if !is_current || records.as_slice().is_empty() {
        *opened = None;
    }
}
