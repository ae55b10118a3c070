//! The `-m` that a server asks for at its start: what the code that a start runs says of tiers that are nowhere.

use crate::{Node, PlanError};
use std::io;
use std::sync::Arc;
use terrace_cache::{Config, RECORD_BYTES_REFUSED, RECORD_BYTES_WARNED, Tier};
use terrace_device::{AlignedBuf, Drive, Geometry};

/// The least `-m` for tiers, in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeastMemory {
    /// With less a server does not start: records of [`RECORD_BYTES_REFUSED`] fill the tiers.
    pub starts: u64,
    /// With less it warns: records of [`RECORD_BYTES_WARNED`] fill the tiers.
    pub fills: u64,
}

/// Threads of background work, each with memory of its own: a server has one for so many cores, within bounds.
const CORES_PER_BACKGROUND: f64 = 4.0;
const BACKGROUND: (f64, f64) = (2.0, 4.0);
/// Drives have blocks of so many bytes.
const BLOCK_BYTES: u32 = 4096;
/// Steps of the search for tiers that are small enough.
const STEP: f64 = 1.01;

impl LeastMemory {
    /// For tiers of so many bytes, one on each drive of a node.
    ///
    /// # Errors
    /// Tiers that a server refuses whatever its memory is.
    pub fn of(tier_bytes: f64, node: &Node) -> Result<Self, PlanError> {
        let [starts, fills] = [RECORD_BYTES_REFUSED, RECORD_BYTES_WARNED]
            .map(|record_bytes| Self::full_of(record_bytes, tier_bytes, node));
        Ok(Self { starts: starts?, fills: fills? })
    }

    /// With which records that take `record_bytes` of a tier fill such tiers, whether a server starts with it or not.
    ///
    /// # Errors
    /// As [`LeastMemory::of`].
    pub fn full_of(record_bytes: u64, tier_bytes: f64, node: &Node) -> Result<u64, PlanError> {
        let bytes = tier_bytes as u64 / u64::from(BLOCK_BYTES) * u64::from(BLOCK_BYTES);
        let tiers = (0..node.drives as u64).map(|_| Tier::new(Arc::new(Nowhere(bytes)))).collect();
        let (least, most) = BACKGROUND;
        let config = Config {
            tiers,
            full_percent: (node.tier_full * 100.0).round() as u32,
            background_threads: (node.cores / CORES_PER_BACKGROUND).clamp(least, most) as usize,
            ..Config::new(0)
        };
        config.least_mebibytes(record_bytes).ok_or_else(|| {
            PlanError::Input(format!(
                "tiers of {tier_bytes:.0} bytes are too small or too large for a server"
            ))
        })
    }

    /// How much of each drive a server of this node takes for a tier: all of it, or as much as it starts with. All of
    /// it too where no tier is small enough.
    pub(crate) fn usable(node: &Node) -> f64 {
        let drive = node.drive.capacity_bytes;
        let memory = (node.memory_bytes / 1_048_576.0) as u64;
        let steps = std::iter::successors(Some(drive), |bytes| Some(bytes / STEP));
        let starts = |bytes| Self::full_of(RECORD_BYTES_REFUSED, bytes, node).ok();
        let mut known = steps.map_while(|bytes| Some((bytes, starts(bytes)?)));
        known.find(|(_, starts)| *starts <= memory).map_or(drive, |(bytes, _)| bytes)
    }
}

/// A drive of any size with nothing on it.
struct Nowhere(u64);

impl Drive for Nowhere {
    fn label(&self) -> &str {
        "tier"
    }

    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.0, block_bytes: BLOCK_BYTES }
    }

    fn read_at(&self, _: u64, buf: &mut AlignedBuf) -> io::Result<()> {
        buf.fill(0);
        Ok(())
    }

    fn write_at(&self, _: u64, _: &AlignedBuf) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn flush(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Drive, TIER_FULL, TierSize};

    const GIB: f64 = (1_u64 << 30) as f64;

    /// One drive, and as many threads as a server has at most.
    fn node(memory_bytes: f64, capacity_bytes: f64) -> Node {
        let drive = Drive { capacity_bytes, ..Drive::class("nvme-read-3.84t").unwrap() };
        let (tier, tier_full) = (TierSize::Whole, TIER_FULL);
        Node { memory_bytes, drive, drives: 1.0, tier, network_bits: 1e9, cores: 16.0, tier_full }
    }

    /// The cache's own test holds the table to what the cache says.
    #[test]
    fn table_of_the_guide_says_the_same() {
        let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/size.md");
        let readme = std::fs::read_to_string(readme).unwrap();
        let mut count = 0;
        for line in readme.lines() {
            let told = || {
                let (tier, cells) = line.strip_prefix("| ")?.split_once(" GiB | ")?;
                let cells = cells.strip_suffix(" |")?.split(" | ").map(|cell| cell.parse().ok());
                Some((tier.parse::<f64>().ok()?, cells.collect::<Option<Vec<u64>>>()?))
            };
            let Some((tier, cells)) = told() else { continue };
            let node = node(GIB, GIB);
            let least = |bytes| LeastMemory::full_of(bytes, tier * GIB, &node).unwrap();
            assert_eq!(
                [RECORD_BYTES_REFUSED, 1024, RECORD_BYTES_WARNED, 100].map(least),
                cells[..]
            );
            let LeastMemory { starts, fills } = LeastMemory::of(tier * GIB, &node).unwrap();
            assert_eq!([starts, fills], [cells[0], cells[2]]);
            count += 1;
        }
        assert!(count >= 6, "{count} rows in docs/guide/size.md");
    }

    #[test]
    fn tiers_that_no_server_takes_are_refused() {
        let error = LeastMemory::of(65_536.0, &node(GIB, GIB)).unwrap_err().to_string();
        assert!(error.contains("tiers of 65536 bytes are too small"), "{error}");
    }

    #[test]
    fn of_large_drives_so_much_is_used_as_the_memory_starts_with() {
        let usable =
            |drive: f64, memory: f64| LeastMemory::usable(&node(memory * GIB, drive * GIB)) / GIB;
        let part = usable(2980.0, 4.0);
        assert!((1024.0..1900.0).contains(&part), "{part}");
        let least = |part: f64| LeastMemory::of(part * GIB, &node(GIB, GIB)).unwrap().starts;
        assert!(least(part) <= 4096 && least(part * STEP) > 4096, "{part}");
        assert_eq!(usable(900.0, 4.0), 900.0);
        // No tier is small enough.
        assert_eq!(usable(2980.0, 1e-6), 2980.0);
    }
}
