//! `stats sizes`: how many records there are of which size.

use super::{Listing, Pieces};
use crate::commands::executor::Executor;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use terrace_cache::Dump;

/// Sizes are told in steps of so many bytes, as memcached does.
const STEP_BYTES: u64 = 32;
/// Segments that are read for one answer; of more, so many are taken from all over the tiers and
/// stand for the others.
const SEGMENTS_READ: u64 = 256;

/// Begins to count; `None` where that is not asked for, or while another walk over all records is under
/// way. `put` writes a line of
/// the answer from its name and value, `end` is what follows the last.
pub(crate) fn begin(
    executor: &Executor<'_>,
    put: impl Fn(&mut Vec<u8>, u64, u64) + Send + 'static,
    end: Vec<u8>,
) -> Option<Listing> {
    let shared = executor.shared;
    if !shared.track_sizes.load(Ordering::Relaxed) {
        return None;
    }
    let segments: u64 = shared.cache.stats().tiers.iter().map(|tier| tier.segments_used).sum();
    let now = executor.now;
    Listing::walk(&shared.cache, &shared.walks, end, move |mut dump, pieces| {
        dump.sample(segments.div_ceil(SEGMENTS_READ));
        let mut answer = Vec::new();
        for (size, count) in count(&mut dump, pieces, now) {
            put(&mut answer, size, count);
        }
        pieces.send(&answer)
    })
}

/// Records by size: of keys and values, rounded up.
fn count(dump: &mut Dump, pieces: &Pieces, now: u32) -> BTreeMap<u64, u64> {
    let (mut sealed, mut others) = (BTreeMap::new(), BTreeMap::new());
    let mut note = |listed: terrace_cache::Listed<'_>| {
        pieces.note_record();
        let record = &listed.record;
        let bytes = record.key.len() as u64 + record.value_bytes();
        let counts = if listed.is_sealed { &mut sealed } else { &mut others };
        *counts.entry(bytes.next_multiple_of(STEP_BYTES)).or_insert(0) += 1;
    };
    while dump.step(now, &mut note) {}
    let share = dump.segments_per_shown();
    for (size, count) in sealed {
        *others.entry(size).or_insert(0) += (count as f64 * share).round() as u64;
    }
    others
}
