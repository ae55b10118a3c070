//! The background scheduler: the shards are divided into partitions, and an idle thread takes the next partition that
//! no other thread works on.
//!
//! So a drive that does not answer holds up the shards of one partition only, and threads beyond the partitions find
//! nothing to do. The first partition also does the work that is not divided by shards.

use crate::background::maintenance::Maintenance;
use crate::background::relocate::Item;
use crate::background::{self, merge};
use crate::config::Config;
use crate::dram::lane::Lane;
use crate::engine::drain::{Remove, RemoveError};
use crate::engine::{Engine, drain};
use crate::platform::lock::{lock, try_lock};
use crate::records::key::Name;
use crate::shared::geometry::Geometry;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Partitions, at most: the pages that a tombstone log's ring keeps free are enough for four batches at once.
pub(crate) const PARTS_MAX: usize = 4;
/// With several partitions, their buffers for a segment to read and one to write take at most an eighth of the memory.
const SHARE: u64 = 8;
/// Bytes of a record, as assumed when memory for lists of records is reserved: shorter ones take more.
const LISTED_BYTES: u64 = 100;

/// The background work of a cache.
pub(crate) struct Scheduler {
    parts: Box<[Mutex<Maintenance>]>,
    /// Counts slices: partitions take turns.
    slices: AtomicUsize,
}

/// The number of partitions: no more than have memory to work in.
pub(crate) fn parts(config: &Config, geometry: &Geometry) -> usize {
    let most = if config.tiers.is_empty() { 1 } else { geometry.shards().min(PARTS_MAX) };
    let moves = |parts| relocations_max(config.memory_bytes, parts, geometry) > 0;
    let fits = |&parts: &usize| {
        2 * parts as u64 * u64::from(geometry.segment_bytes()) <= config.memory_bytes / SHARE
            && (moves(parts) || !moves(1))
    };
    (2..=config.background_threads.min(most)).rev().find(fits).unwrap_or(1)
}

/// Bytes of memory of all partitions: for each a segment to read and one to write, and those that it relocates, with
/// lists of their records. Without tiers segments have no bytes.
pub(crate) fn bytes(config: &Config, geometry: &Geometry, levels: usize) -> u64 {
    let parts = parts(config, geometry);
    // One segment at a time can be demoted, however little memory there is.
    let moving = relocations_max(config.memory_bytes, parts, geometry).max(usize::from(levels > 1));
    let segment_bytes = u64::from(geometry.segment_bytes());
    parts as u64
        * (2 * segment_bytes + moving as u64 * (segment_bytes + list_bytes(segment_bytes, levels)))
}

/// Bytes of the lists for a segment that is relocated. A list has up to twice the room that it needs, and demoted
/// records are listed once more when they are dealt out to new segments.
fn list_bytes(segment_bytes: u64, levels: usize) -> u64 {
    let lists = if levels > 1 { 2 } else { 1 };
    let listed = lists * 2 * size_of::<Item<'_>>() + size_of::<Name>();
    segment_bytes / LISTED_BYTES * listed as u64
}

/// Segments that a partition relocates at once, at most.
fn relocations_max(memory_bytes: u64, parts: usize, geometry: &Geometry) -> usize {
    merge::segments_max(memory_bytes / parts as u64, geometry.segment_bytes() as usize)
}

impl Scheduler {
    pub(crate) fn new(config: &Config, engine: &Engine) -> Self {
        let (shards, parts) = (engine.shards().len(), parts(config, engine.geometry()));
        let relocations_max = relocations_max(config.memory_bytes, parts, engine.geometry());
        let part = |at: usize| {
            let reader = engine.shared().quiesce().join()?;
            let shards = shards * at / parts..shards * (at + 1) / parts;
            let segment_bytes = engine.geometry().segment_bytes() as usize;
            Some(Mutex::new(Maintenance::new(reader, shards, relocations_max, segment_bytes)))
        };
        Self { parts: (0..parts).filter_map(part).collect(), slices: AtomicUsize::new(0) }
    }

    /// Threads that find work at the same time, at most.
    pub(crate) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Does a slice of the next partition that is free and has something to do; `false` if there was none.
    pub(crate) fn slice(&self, engine: &Engine, now: u32) -> bool {
        let first = self.slices.fetch_add(1, Ordering::Relaxed);
        (0..self.parts.len()).any(|step| {
            let part = &self.parts[first.wrapping_add(step) % self.parts.len()];
            try_lock(part).is_some_and(|mut part| part.slice(engine, now))
        })
    }

    /// Takes a tier out of the set, see [`drain::remove`].
    pub(crate) fn remove_tier(
        &self,
        engine: &Engine,
        tier: usize,
        remove: Remove,
    ) -> Result<(), RemoveError> {
        // So that no segment is on its way to the tier, or from it.
        let _parts: Vec<_> = self.parts.iter().map(lock).collect();
        let quiesce = engine.shared().quiesce();
        let mut reader = quiesce.join().ok_or(RemoveError::Busy)?;
        let guard = quiesce.guard(&reader);
        let free_all = || background::drain::free_all(engine, guard, tier);
        let removed = drain::remove(engine, tier, remove, free_all);
        quiesce.leave(&mut reader);
        removed
    }

    /// Seals all fresh records, until `goes_on` returns `false`. Returns whether all of them are on the tiers.
    pub(crate) fn seal_all(&self, engine: &Engine, now: u32, goes_on: &dyn Fn() -> bool) -> bool {
        // All partitions at once, so that no other thread works meanwhile.
        let parts: Vec<_> = self.parts.iter().map(lock).collect();
        // As long as there are slots for that.
        engine.shared().spill_logs();
        parts.into_iter().for_each(|mut part| part.seal_all(engine, now, goes_on));
        engine.shared().counters().records(Lane::Fresh).load(Ordering::Relaxed) == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::background::round::round;
    use crate::config::Tier;
    use std::sync::Arc;
    use terrace_device::sim::SimDevice;

    #[test]
    fn partitions_are_as_many_as_have_memory_to_compact_in() {
        let parts = |memory: u64, threads| {
            let mut config = Config::new(memory);
            config.background_threads = threads;
            let geometry = Geometry::derive(&config).expect("memory enough").with(16, 1 << 20);
            config.tiers = vec![Tier::new(Arc::new(SimDevice::new(1 << 20, 1)))];
            super::parts(&config, &geometry)
        };
        assert_eq!([1, 3, 4, 9].map(|threads| parts(1 << 30, threads)), [1, 3, 4, 4]);
        // A partition that compacts segments has room for three of them in a sixteenth of its share.
        assert_eq!([48, 96, 143, 144].map(|mib| parts(mib << 20, 4)), [1, 2, 2, 3]);
        assert_eq!(parts(16 << 20, 4), 1, "segments to read and to write would take half of it");
    }

    #[test]
    fn lists_of_relocated_segments_count_as_memory() {
        let mut config = Config::new(16 << 30);
        config.background_threads = 4;
        let geometry = Geometry::derive(&config).expect("memory enough").with(16, 16 << 20);
        config.tiers = vec![Tier::new(Arc::new(SimDevice::new(1 << 20, 1)))];
        let records = 4 * 8 * u64::from(geometry.segment_bytes()) / 100;
        let segments = 4 * (2 + 8) * u64::from(geometry.segment_bytes());
        let lists = bytes(&config, &geometry, 1) - segments;
        let item = size_of::<Item<'_>>() as u64;
        assert!(lists >= records * 2 * item, "a list that grew has up to twice the room: {lists}");
        assert!(bytes(&config, &geometry, 2) - segments >= records * 4 * item, "and is dealt out");
    }

    #[test]
    fn round_begins_after_the_last_shard_and_ends_with_it() {
        let shards = |last| round(&(4..8), last).collect::<Vec<_>>();
        assert_eq!(shards(4), [5, 6, 7, 4]);
        assert_eq!(shards(7), [4, 5, 6, 7]);
    }
}
