//! Geometry: the sizes that follow from memory and capacity.

use crate::config::Config;
use crate::config::error::OpenError;
use crate::dram::resident::HEADER_BYTES as RESIDENT_HEADER;
use crate::index::bucket::{SEGMENTS_MAX, SLOTS};
use crate::platform::getters::getters;
use crate::records::record::HEADER_BYTES_MAX;
use crate::segments::layout::{EXTENT_HEADER, EXTENT_UNIT, PACKED_MAX, PAGE, SEGMENTS_AT};

/// Longest key, in bytes.
const KEY_BYTES_MAX: u32 = 250;
/// Longest record that is not divided into chunks, whatever the segment size: a read of this size reaches a drive's
/// bandwidth, and its buffers stay small.
const RECORD_BYTES_MAX: u32 = 128 << 10;
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 256 << 10..=64 << 20;
/// Segments of a shard, when their size follows from capacity; leaves numbers for imbalance between shards.
const SEGMENTS_PER_SHARD: u64 = 1024;
/// Segments of a shard at most, when their size follows from capacity: a tenth of the numbers is for imbalance.
const NUMBERED_MAX: u64 = SEGMENTS_MAX as u64 * 9 / 10;
/// Capacity that is worth one more shard.
const BYTES_PER_SHARD: u64 = 64 << 20;
const SHARDS_MAX: u64 = 256;
/// Blocks of DRAM per shard, at least, without tiers. All shards fill a block at the same time, so that the records of
/// one block were stored within a 64th of all blocks' time: eviction, which takes whole blocks, is as exact as that.
const BLOCKS_PER_SHARD: u64 = 64;
/// Longest records that a block without tiers has room for: a record that does not fit leaves a gap at its end.
const RECORDS_PER_BLOCK: u32 = 2;

/// Segments' worth of fresh records per shard, at most: one being filled, one being sealed and one between.
const FILLABLE_SEGMENTS: u64 = 3;
/// Segments that a tier needs at least if there are several tier levels, its log included.
const RUNG_SEGMENTS_MIN: u64 = 16;

/// Sizes that are fixed while the cache is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(super) shards: usize,
    /// Bytes of the longest segment, as [`crate::tiers::slots::TierStore`] has them for each tier; 0 without tiers.
    pub(super) segment_bytes: u32,
    /// Rows of each shard's segment table.
    pub(super) segments_per_shard: usize,
    /// Bytes per DRAM block.
    pub(super) block_bytes: u32,
    /// Reads of extents are multiples of this: the longest block of the tiers' devices.
    pub(super) read_unit: u32,
    /// Bytes of the longest encoded record.
    pub(super) record_bytes_max: u32,
    pub(super) item_bytes_max: u64,
}

getters! {
    Geometry {
        item_bytes_max: u64,
        read_unit: u32,
        record_bytes_max: u32,
        segments_per_shard: usize,
        block_bytes: u32,
        segment_bytes: u32,
        shards: usize,
    }
}

impl Geometry {
    pub(crate) fn derive(config: &Config) -> Result<Self, OpenError> {
        let capacity: u64 = config.tiers.iter().map(|t| t.device.geometry().bytes).sum();
        if capacity == 0 { Self::of_dram(config) } else { Self::of_tiers(config, capacity) }
    }

    fn of_dram(config: &Config) -> Result<Self, OpenError> {
        let memory = config.memory_bytes;
        if memory < 1 << 20 {
            return Err(OpenError::Config(format!(
                "{memory} bytes of memory are too few; give at least 1 MiB (-m 1)"
            )));
        }
        let block_bytes = (memory / 1024).next_power_of_two().clamp(32 << 10, 512 << 10) as u32;
        let wanted = (memory / u64::from(block_bytes) / BLOCKS_PER_SHARD).max(1);
        let shards = power_of_two_below(wanted).min(SHARDS_MAX);
        let shards = config.tuning.shards.map_or(shards, u64::from) as usize;
        Ok(Self {
            shards,
            segment_bytes: 0,
            segments_per_shard: 0,
            block_bytes,
            read_unit: PAGE as u32,
            record_bytes_max: (block_bytes / RECORDS_PER_BLOCK).min(RECORD_BYTES_MAX)
                - RESIDENT_HEADER,
            item_bytes_max: config.item_bytes_max.min(memory / 8),
        })
    }

    fn of_tiers(config: &Config, capacity: u64) -> Result<Self, OpenError> {
        let division = Division::of(config, capacity, config.memory_bytes);
        let division = division.ok_or(OpenError::TooLittleMemory)?;
        let Division { shards, segment_bytes, segments, rows } = division;
        if segments < shards * 4 {
            let labels: Vec<_> = config.tiers.iter().map(|tier| tier.device.label()).collect();
            return Err(OpenError::Config(format!(
                "{}: {} KiB are too small for tiers; give at least {} MiB",
                labels.join(", "),
                capacity >> 10,
                ((shards * segment_bytes * 4 + SEGMENTS_AT) >> 20) + 1,
            )));
        }
        check_rungs(config, capacity, segment_bytes)?;
        let record_bytes_max =
            (segment_bytes as u32 / 8).min(RECORD_BYTES_MAX) - EXTENT_HEADER as u32;
        let block_bytes = (segment_bytes as u32 / 4).clamp(PAGE as u32, 4 * RECORD_BYTES_MAX);
        let device_blocks = config.tiers.iter().map(|tier| tier.device.geometry().block_bytes);
        let read_unit = device_blocks.fold(EXTENT_UNIT as u32, u32::max);
        Ok(Self {
            shards: shards as usize,
            segment_bytes: segment_bytes as u32,
            segments_per_shard: rows as usize,
            block_bytes,
            read_unit,
            record_bytes_max,
            item_bytes_max: config.item_bytes_max.min(capacity / 8),
        })
    }

    pub(crate) fn shard_bits(&self) -> u32 {
        self.shards.trailing_zeros()
    }

    /// Makes room in the segment tables for a segment of this number: with a tier less there would be fewer numbers, and
    /// those of healthy segments must stay.
    pub(crate) fn make_room_for(&mut self, highest: Option<u16>) {
        let needed = highest.map_or(0, |number| usize::from(number) + 1);
        self.segments_per_shard = self.segments_per_shard.max(needed.min(SEGMENTS_MAX as usize));
    }

    /// Segments that all tiers may have together.
    pub(crate) fn segments_max(&self) -> u64 {
        self.shards as u64 * (self.segments_per_shard as u64 * 9 / 10)
    }

    /// The geometry with other shards and segments, for tests.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn with(self, shards: usize, segment_bytes: u32) -> Self {
        Self { shards, segment_bytes, ..self }
    }

    /// Blocks that requests may fill ahead of sealing, out of `blocks` in all.
    pub(crate) fn fillable_blocks(&self, blocks: u64) -> u64 {
        if self.segment_bytes == 0 {
            return u64::MAX;
        }
        let segments = self.shards as u64 * FILLABLE_SEGMENTS;
        (segments * u64::from(self.segment_bytes) / u64::from(self.block_bytes)).min(blocks / 2)
    }

    /// Buckets of a new index: room for a few segments of small records. They differ from shard to shard by up to a
    /// growth step, so that the shards do not all have to grow at the same time.
    pub(crate) fn initial_buckets(&self, shard: usize) -> usize {
        let least = (self.segment_bytes as usize / 64 / SLOTS).max(2);
        least + least * shard / self.shards / 2
    }

    /// The longest value that fits into one record with any key.
    pub(crate) fn inline_bytes_max(&self) -> u32 {
        self.record_bytes_max - HEADER_BYTES_MAX as u32 - KEY_BYTES_MAX
    }

    /// Whether neighbouring chunks of a large item have neighbouring hashes. Records that are so close to each other must
    /// not lie in pages, and the shortest of several chunks is half as long as the longest may be.
    pub(crate) fn keeps_chunks_together(&self) -> bool {
        self.inline_bytes_max() as usize / 2 > PACKED_MAX
    }
}

/// The division of the tiers' capacity.
struct Division {
    shards: u64,
    segment_bytes: u64,
    segments: u64,
    /// Segment numbers per shard.
    rows: u64,
}

impl Division {
    /// `None` if `memory_bytes` are too few for the buffers.
    fn of(config: &Config, capacity: u64, memory_bytes: u64) -> Option<Self> {
        let mut shards = power_of_two_below((capacity / BYTES_PER_SHARD).clamp(1, SHARDS_MAX));
        // Every shard fills a segment's worth of DRAM blocks before it is sealed, and some more; a quarter of the
        // memory is enough for that.
        let segment_for = |shards: u64| {
            let even = (capacity / shards / SEGMENTS_PER_SHARD).max(1).next_power_of_two();
            even.clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end())
        };
        let shards_max = shards;
        let is_roomy = |shards: u64, segment: u64| {
            shards * segment * 2 <= memory_bytes / 4 && capacity / segment / shards <= NUMBERED_MAX
        };
        while shards > 1 && !is_roomy(shards, segment_for(shards)) {
            shards /= 2;
        }
        let chosen = match is_roomy(shards, segment_for(shards)) {
            true => (shards, segment_for(shards)),
            false => tightest(capacity, shards_max),
        };
        let shards = config.tuning.shards.map_or(chosen.0, u64::from);
        let even = if shards == chosen.0 { chosen.1 } else { segment_for(shards) };
        let segment_bytes = config.tuning.segment_bytes.map_or(even, u64::from);
        let segments = (capacity.saturating_sub(SEGMENTS_AT) / segment_bytes).max(1);
        // Twice the even share, so that a shard never runs out of numbers before the tiers are full; and twice that, so
        // that tiers can be added. Rows take memory when they are used.
        let rows = (segments / shards * 4 + 16).min(u64::from(SEGMENTS_MAX));
        let buffers = shards * segment_bytes * 2;
        let fits = buffers <= memory_bytes / 2 && segments / shards <= rows * 9 / 10;
        fits.then_some(Self { shards, segment_bytes, segments, rows })
    }
}

/// Shards and segment bytes with buffers that take the least memory: no more segments than there are numbers for. Of
/// equal ones, the most shards: background work takes memory for segments, too.
fn tightest(capacity: u64, shards_max: u64) -> (u64, u64) {
    let bytes = capacity.div_ceil(NUMBERED_MAX).next_power_of_two();
    let segment = (bytes / shards_max).clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end());
    ((bytes / segment).clamp(1, shards_max), segment)
}

/// Checks the tiers' sizes if there are several levels: tiers of one level replace each other, levels do not.
fn check_rungs(config: &Config, capacity: u64, segment_bytes: u64) -> Result<(), OpenError> {
    let least = RUNG_SEGMENTS_MIN * segment_bytes + SEGMENTS_AT;
    let is_ladder = config.tiers.iter().skip(1).any(|tier| tier.is_below);
    let small = config.tiers.iter().find(|tier| tier.device.geometry().bytes < least);
    let Some(tier) = small.filter(|_| is_ladder) else { return Ok(()) };
    Err(OpenError::Config(format!(
        "{}: too small for a ladder of {} MiB in all; give at least {} MiB",
        tier.device.label(),
        capacity >> 20,
        (least >> 20) + 1,
    )))
}

fn power_of_two_below(n: u64) -> u64 {
    1 << n.max(1).ilog2()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_a_smaller_memory_shrink_and_never_exceed_half_of_it() {
        let config = Config::new(64 << 20);
        for (capacity, memory_mib, shards, segment_kib) in [
            // Roomy: a quarter of the memory.
            (32u64 << 30, 1024u64, 256, 256),
            (20 << 30, 256, 128, 256),
            (512 << 30, 4096, 256, 2048),
            // Otherwise as little as the numbers for segments allow.
            (20 << 30, 128, 64, 256),
            (20 << 30, 64, 64, 256),
            (512 << 30, 2048, 256, 2048),
        ] {
            let division = Division::of(&config, capacity, memory_mib << 20).expect("it fits");
            let found = (division.shards, division.segment_bytes >> 10);
            assert_eq!(found, (shards, segment_kib), "{capacity} bytes in {memory_mib} MiB");
        }
        assert!(Division::of(&config, 20 << 30, 63 << 20).is_none());
        assert!(Division::of(&config, 512 << 30, 2047 << 20).is_none());
    }

    #[test]
    fn chunks_that_may_lie_in_pages_are_not_kept_together() {
        let geometry = Geometry::derive(&Config::new(64 << 20)).expect("it fits");
        let with = |record_bytes_max| Geometry { record_bytes_max, ..geometry };
        let longest_of = |segment_bytes: u32| segment_bytes / 8 - EXTENT_HEADER as u32;
        let together = [16, 32, 64, 128, 256, 1024].map(|kib| with(longest_of(kib << 10)));
        let together = together.map(|geometry| geometry.keeps_chunks_together());
        assert_eq!(together, [false, false, false, true, true, true]);
        for geometry in (1000..20_000).map(with).filter(Geometry::keeps_chunks_together) {
            let longer = geometry.inline_bytes_max() as usize + 1;
            assert!(longer / 2 > PACKED_MAX, "{}: two chunks in pages", geometry.record_bytes_max);
        }
    }
}
