//! The `-m` that a server asks for at its start: what the code that a start runs says of tiers that are nowhere.

use crate::{Node, PlanError};
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use terrace_cache::{Cache, Config, OpenError, Tier};
use terrace_device::{AlignedBuf, Device, Geometry};

/// The least `-m` for tiers, in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeastMemory {
    /// With less a server does not start: records of [`LeastMemory::STARTS_RECORD_BYTES`] fill the tiers.
    pub starts: u64,
    /// With less it warns: records of [`LeastMemory::FILLS_RECORD_BYTES`] fill the tiers.
    pub fills: u64,
}

/// Threads of background work, each with memory of its own: a server has one for so many cores, within bounds.
const CORES_PER_BACKGROUND: f64 = 4.0;
const BACKGROUND: (f64, f64) = (2.0, 4.0);
/// What a server names where no memory is enough, in MiB.
const NO_MEMORY: u64 = 1 << 30;
/// Drives have blocks of so many bytes.
const BLOCK_BYTES: u32 = 4096;
/// Steps of the search for tiers that are small enough.
const STEP: f64 = 1.01;

impl LeastMemory {
    /// See [`LeastMemory::starts`].
    pub const STARTS_RECORD_BYTES: u64 = 4096;
    /// See [`LeastMemory::fills`].
    pub const FILLS_RECORD_BYTES: u64 = 512;

    /// For tiers of so many bytes, one on each drive of a node.
    ///
    /// # Errors
    /// Tiers that a server refuses whatever its memory is.
    pub fn of(tier_bytes: f64, node: &Node) -> Result<Self, PlanError> {
        let bytes = tier_bytes as u64 / u64::from(BLOCK_BYTES) * u64::from(BLOCK_BYTES);
        let tiers = (0..node.drives as u64).map(|_| Tier::new(Arc::new(Nowhere(bytes)))).collect();
        let (least, most) = BACKGROUND;
        let config = Config {
            tiers,
            full_percent: (node.tier_full * 100.0).round() as u32,
            background_threads: (node.cores / CORES_PER_BACKGROUND).clamp(least, most) as usize,
            // Too little for any tier, so that it says how much is enough.
            ..Config::new(1)
        };
        match Cache::open(config) {
            Err(OpenError::Config(text)) => match Self::told(&text) {
                Some(least) if least.starts < NO_MEMORY => Ok(least),
                Some(_) => Err(PlanError::Input(format!(
                    "tiers of {tier_bytes:.0} bytes are too small or too large for a server"
                ))),
                None => Err(PlanError::Input(text)),
            },
            Err(error) => Err(PlanError::Input(error.to_string())),
            Ok(_) => Err(PlanError::Input("a cache of one byte was opened".into())),
        }
    }

    /// What a start says of tiers that there is too little memory for names both.
    fn told(text: &str) -> Option<Self> {
        let (_, advice) = text.split_once("; give at least ")?;
        let (starts, rest) = advice.split_once(" MiB (-m), and ")?;
        let (fills, rest) = rest.split_once(" MiB ")?;
        rest.contains(&format!(" {} bytes", Self::FILLS_RECORD_BYTES)).then_some(())?;
        Some(Self { starts: starts.parse().ok()?, fills: fills.parse().ok()? })
    }

    /// How much of each drive a server of this node takes for a tier: all of it, or as much as it starts with. All of
    /// it too where no tier is small enough.
    pub(crate) fn usable(node: &Node) -> f64 {
        let drive = node.drive.capacity_bytes;
        let memory = (node.memory_bytes / 1_048_576.0) as u64;
        let steps = std::iter::successors(Some(drive), |bytes| Some(bytes / STEP));
        let mut known = steps.map_while(|bytes| Some((bytes, Self::of(bytes, node).ok()?)));
        known.find(|(_, least)| least.starts <= memory).map_or(drive, |(bytes, _)| bytes)
    }
}

/// A drive of any size with nothing on it.
struct Nowhere(u64);

impl Device for Nowhere {
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

    fn raw_fd(&self) -> Option<RawFd> {
        None
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

    /// Its columns for 4 KiB and 512 B, which the cache's own test holds.
    #[test]
    fn table_of_the_readme_says_the_same() {
        let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
        let readme = std::fs::read_to_string(readme).unwrap();
        let rows = readme.lines().filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            let tier = cells.next()?.strip_suffix(" GiB")?.parse::<f64>().ok()?;
            let sizes: Vec<u64> = cells.filter_map(|cell| cell.parse().ok()).collect();
            (sizes.len() >= 3).then(|| (tier, sizes[0], sizes[2]))
        });
        let mut count = 0;
        for (tier, starts, fills) in rows {
            let least = LeastMemory::of(tier * GIB, &node(GIB, GIB)).unwrap();
            assert_eq!(least, LeastMemory { starts, fills }, "{tier} GiB");
            count += 1;
        }
        assert!(count >= 6, "{count} rows in README.md");
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
