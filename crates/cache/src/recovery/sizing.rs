//! The memory that tiers of a size need: for buffers, and for an index of all records that fit on them.

use crate::background::scheduler;
use crate::config::Config;
use crate::config::error::OpenError;
use crate::dram::table::DramTable;
use crate::index::sealed::SealedIndex;
use crate::log::TombstoneLog;
use crate::recovery::surviving::{Division, layout};
use crate::shared::geometry::Geometry;
use crate::tiers::slots::segments_on;

/// A 64th of DRAM is for the sketch that counts reads of records on tiers: about four counters for each copy of 100
/// bytes that could be in DRAM.
pub(crate) const SKETCH_SHARE: u64 = 64;

/// Bytes of the index per record: entries of 28 bits at a load of 88 %.
const INDEX_BYTES_PER_RECORD: u64 = 4;
/// Tiers are refused if the index has no room for records of this size that fill them: they would hardly be used.
pub const RECORD_BYTES_REFUSED: u64 = 4096;
/// The operator is warned if the index has no room for records of this size.
pub const RECORD_BYTES_WARNED: u64 = 512;
/// The least memory has room for an eighth more records: the estimate is exact to 10 %.
const MARGIN: u64 = 8;
/// A power of two: more MiB of memory than any machine has.
const MEMORY_BITS_MAX: u32 = 30;

/// Records of `record_bytes` bytes that fill the tiers.
pub(crate) fn records_on(capacity: u64, full_percent: u32, record_bytes: u64) -> u64 {
    capacity / 100 * u64::from(full_percent) / record_bytes
}

/// Refuses tiers that need more memory; the error has the least memory.
pub(crate) fn check(config: &Config, geometry: &Geometry) -> Result<(), OpenError> {
    let has_tuning = config.tuning.shards.is_some() || config.tuning.segment_bytes.is_some();
    if config.tiers.is_empty()
        || has_tuning
        || room(config, geometry) >= records(config, RECORD_BYTES_REFUSED)
    {
        return Ok(());
    }
    Err(explain(config))
}

/// The error for too little memory.
pub(crate) fn explain(config: &Config) -> OpenError {
    let (memory, tiers) = (config.memory_bytes >> 20, capacity(config) >> 20);
    let least =
        [RECORD_BYTES_REFUSED, RECORD_BYTES_WARNED].map(|bytes| config.least_mebibytes(bytes));
    OpenError::Config(match least {
        [Some(starts), Some(fills)] => format!(
            "{memory} MiB of memory are too few for tiers of {tiers} MiB; give at least {starts} MiB (-m), and {fills} \
             MiB to fill them with records of {RECORD_BYTES_WARNED} bytes"
        ),
        _ => format!(
            "no memory is enough for tiers of {tiers} MiB: they are too small, or too large"
        ),
    })
}

impl Config {
    /// The least memory in MiB (`-m`) with which records fill the tiers up to `full_percent`; each record takes
    /// `record_bytes` of a tier, key and header included. `None` where no memory is enough: the tiers are too small for
    /// their segments, or larger than any index. Ignores `memory_bytes`.
    ///
    /// [`Cache::open`](crate::Cache::open) refuses new tiers with less than for [`RECORD_BYTES_REFUSED`], and warns
    /// with less than for [`RECORD_BYTES_WARNED`].
    ///
    /// # Panics
    /// Where `record_bytes` is 0.
    pub fn least_mebibytes(&self, record_bytes: u64) -> Option<u64> {
        let is_enough = |mib: u64| {
            let config = Self { memory_bytes: mib << 20, ..self.clone() };
            let records = records(&config, record_bytes);
            let room = Geometry::derive(&config).map(|geometry| room(&config, &geometry));
            room.is_ok_and(|room| room >= records + records / MARGIN)
        };
        let mut enough = (0..MEMORY_BITS_MAX).map(|bits| 1 << bits).find(|&mib| is_enough(mib))?;
        let mut little = enough / 2;
        while enough - little > 1 {
            let middle = little.midpoint(enough);
            match is_enough(middle) {
                true => enough = middle,
                false => little = middle,
            }
        }
        Some(enough)
    }
}

/// Records that the index will have room for.
fn room(config: &Config, geometry: &Geometry) -> u64 {
    records_in(index_room(config, geometry), geometry)
}

fn records(config: &Config, record_bytes: u64) -> u64 {
    records_on(capacity(config), config.full_percent, record_bytes)
}

/// Records in an index of `index_bytes`: the index of one shard at a time exists twice, while it grows.
pub(crate) fn records_in(index_bytes: u64, geometry: &Geometry) -> u64 {
    let shards = geometry.shards() as u64;
    index_bytes / (shards + 1) * shards / INDEX_BYTES_PER_RECORD
}

fn capacity(config: &Config) -> u64 {
    config.tiers.iter().map(|tier| tier.device.geometry().bytes).sum()
}

/// The value of [`crate::engine::limit::index_room`] once a cache is opened.
fn index_room(config: &Config, geometry: &Geometry) -> u64 {
    let memory = config.memory_bytes;
    let (shards, block) = (geometry.shards() as u64, u64::from(geometry.block_bytes()));
    let levels = 1 + config.tiers.iter().filter(|tier| tier.is_below).count();
    let segments =
        config.tiers.iter().map(|t| segments_on(t.device.as_ref(), geometry.segment_bytes()));
    let logs = segments.map(TombstoneLog::bytes_for).sum::<u64>();
    let tables = DramTable::bytes_for(DramTable::BUCKET_BITS_MIN) * shards;
    let fixed =
        scheduler::bytes(config, geometry, levels) + layout(config, geometry).bytes() as u64 + logs;
    let blocks = memory / block;
    let spare = Division::of(geometry, blocks, 0).reserve * 3 + blocks / 64;
    let taken = fixed + tables + memory / SKETCH_SHARE + (shards + spare) * block;
    let index =
        (0..geometry.shards()).map(|at| SealedIndex::bytes_for(geometry.initial_buckets(at)));
    let share = memory / 100 * u64::from(config.tuning.index_percent);
    memory.saturating_sub(taken).max(index.sum()).min(share)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::config::Tier;
    use crate::engine::limit;
    use crate::facade::cache::Cache;
    use std::io;
    use std::sync::Arc;
    use terrace_device::{AlignedBuf, Drive, Geometry as DeviceGeometry};

    /// A drive of any size that keeps nothing.
    struct Empty(u64);

    impl Drive for Empty {
        fn label(&self) -> &str {
            "empty"
        }

        fn geometry(&self) -> DeviceGeometry {
            DeviceGeometry { bytes: self.0, block_bytes: 4096 }
        }

        fn read_at(&self, _: u64, buf: &mut AlignedBuf) -> io::Result<()> {
            buf.fill(0);
            Ok(())
        }

        fn write_at(&self, _: u64, _: &AlignedBuf) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn config(memory_mib: u64, tier_mib: u64) -> Config {
        let tiers = vec![Tier::new(Arc::new(Empty(tier_mib << 20)))];
        // The most threads that a server has.
        Config { tiers, background_threads: 4, ..Config::new(memory_mib << 20) }
    }

    #[test]
    fn index_room_is_predicted_for_many_sizes() {
        for (memory, tier) in
            [(64, 2048), (128, 20_480), (256, 20_480), (256, 1024), (1024, 32_768), (100, 8192)]
        {
            let config = config(memory, tier);
            let foretold = index_room(&config, &Geometry::derive(&config).unwrap());
            let found = limit::index_room(Cache::open(config).unwrap().engine());
            let off = foretold.abs_diff(found) * 100 / found.max(1);
            assert!(off <= 10, "-m {memory}, {tier} MiB: {foretold} foretold, {found}");
        }
    }

    #[test]
    fn least_memory_is_enough_and_less_is_refused() {
        for tier in [1024, 20_480] {
            let error = Cache::open(config(2, tier)).err().expect("too little").to_string();
            let numbers = error.split(|c: char| !c.is_ascii_digit());
            let numbers: Vec<u64> = numbers.filter_map(|word| word.parse().ok()).collect();
            let [_, _, least, fills, 512] = numbers[..] else { panic!("{error}") };
            assert!(least < fills, "{error}");
            assert!(Cache::open(config(least * 3 / 4, tier)).is_err(), "{error}");
            let warned = |memory| {
                let cache = Cache::open(config(memory, tier)).expect("it is enough");
                cache.describe().iter().any(|note| matches!(note, crate::Note::Warning(_)))
            };
            assert!(warned(least), "{error}");
            assert!(!warned(fills) && !warned(fills * 9 / 8), "{error}");
        }
    }

    #[test]
    fn least_memory_of_impossible_tiers_is_unknown() {
        assert_eq!(config(64, 1).least_mebibytes(RECORD_BYTES_REFUSED), None);
        let error = explain(&config(64, 1)).to_string();
        assert!(error.contains("no memory is enough for tiers of 1 MiB"), "{error}");
        // The given memory does not change the result.
        let least = [1, 1 << 20].map(|memory| config(memory, 2048).least_mebibytes(1024));
        assert_eq!(least, [Some(21); 2]);
    }

    /// The table of docs/guide/size.md must have the same values.
    #[test]
    fn table_of_the_guide_has_the_least_memory() {
        let row = |tier_gib: u64| {
            let config = config(64, tier_gib << 10);
            let least = |record_bytes| config.least_mebibytes(record_bytes).unwrap();
            let cells = [RECORD_BYTES_REFUSED, 1024, RECORD_BYTES_WARNED, 100].map(least);
            let cells: Vec<_> = cells.iter().map(u64::to_string).collect();
            format!("| {tier_gib} GiB | {} |", cells.join(" | "))
        };
        let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/size.md");
        let readme = std::fs::read_to_string(readme).unwrap();
        let rows = [2, 20, 100, 512, 1024, 4096].map(row);
        let is_distinct = rows.iter().all(|row| readme.contains(row.as_str()));
        assert!(is_distinct, "docs/guide/size.md:\n{}", rows.join("\n"));
    }
}
