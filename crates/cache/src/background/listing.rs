//! Lists the live records of a segment.

use crate::engine::Engine;
use crate::platform::quiesce::Guard;
use crate::records::listed::Listed;
use crate::records::record::Record;
use crate::segments::segment::Sealed;
use crate::segments::spans::spans;
use std::ops::Range;
use std::sync::atomic::Ordering;
use terrace_device::AlignedBuf;

/// Shows the live records of a segment.
fn list_segment(
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

/// Reads a segment into `buffer` and returns where its records lie; `None` if it is gone or can't be read.
pub(crate) fn read_segment(
    engine: &Engine,
    shard_at: usize,
    sealed: Sealed,
    buffer: &mut AlignedBuf,
) -> Option<Vec<Option<Range<usize>>>> {
    let segments = engine.shards()[shard_at].segments();
    let slot = segments.slot(sealed.number);
    buffer.set_len(engine.shared().slots().segment_bytes_on(slot.tier) as usize);
    engine.shared().slots().read_tail(slot, buffer).ok()?;
    segments.is_current(sealed).then(|| spans(segments, sealed, buffer))
}

/// Shows the live ones of some records of a segment.
pub(crate) fn list_records<'b>(
    engine: &Engine,
    guard: Guard<'_>,
    (shard_at, sealed): (usize, Sealed),
    records: impl Iterator<Item = &'b [u8]>,
    now: u32,
    visit: &mut impl FnMut(Listed<'_>),
) {
    let shard = &engine.shards()[shard_at];
    let sealed_at = shard.segments().sealed_at(sealed.number);
    let records = records.filter_map(Record::decode).map(|(record, _)| record);
    for record in records.filter(|record| is_listed(record, now)) {
        let key = engine.hasher().key(record.key, record.is_chunk());
        let name = engine.hasher().name(key.hash());
        let entry = shard.lock(engine.shared(), guard).entry(name, sealed.number);
        let Some(entry) = entry else { continue };
        let copy = shard.find_resident(engine.shared(), guard, &key, name.pos);
        let accessed = copy
            .map_or(sealed_at, |(resident, ..)| resident.header.accessed().load(Ordering::Relaxed));
        visit(Listed { record, accessed, fetched: entry.uses() > 0, is_sealed: true });
    }
}

pub(crate) fn is_listed(record: &Record<'_>, now: u32) -> bool {
    !record.is_chunk() && !record.is_expired(now)
}

/// Shows the remaining records of a segment that is dropped to the observer of evictions, if there is one.
pub(crate) fn show_evicted(
    engine: &Engine,
    guard: Guard<'_>,
    (shard, sealed): (usize, Sealed),
    buffer: &mut AlignedBuf,
    now: u32,
) {
    if let Some(observer) = engine.shared().observer().of_evictions() {
        let report = &mut |listed: Listed<'_>| observer.evicted(listed);
        list_segment(engine, guard, shard, sealed, buffer, now, report);
    }
}
