//! The number of blocks of DRAM that outlive the process.
//!
//! It follows from `-m`. A server that was killed for its memory is started with another `-m`, and must find its
//! records: so the state of a crash keeps its number of blocks until a start after a clean stop makes a new state.

use crate::config::Config;
use crate::recovery::mount::Mount;
use crate::shared::geometry::Geometry;
use crate::state::{Identity, Layout, StateFile};
use std::io;

/// Blocks that only background work may take: at least 4 (or fewer in a small memory, since three times as many are
/// kept free), at most 64.
const RESERVE_MIN: u64 = 4;
const RESERVE_MAX: u64 = 64;
/// One more block survives for every 16 that requests may fill.
const FILLED_SHARE: u64 = 16;
/// The part of memory that blocks of an earlier state may take. A new state has little more than half.
const KEPT: (u64, u64) = (5, 8);

/// The layout of a new state.
pub(crate) fn layout(config: &Config, geometry: &Geometry) -> Layout {
    let blocks = (config.memory_bytes / u64::from(geometry.block_bytes())).max(1);
    let surviving = if config.tiers.is_empty() {
        blocks
    } else {
        Division::wanted(geometry, blocks).surviving(geometry)
    };
    let ring_pages = config.tuning.log_ring_pages.max(16);
    let layout = Layout::new(geometry.shards(), config.tiers.len(), ring_pages);
    layout.with_blocks(surviving.min(u32::MAX.into()) as u32, geometry.block_bytes())
}

/// The identity of the state to use: after a crash of a server with another `-m` or other tiers, with the blocks and areas
/// of that one, if the blocks leave memory for the rest.
///
/// # Errors
/// If the file can't be read.
pub(crate) fn identity_of_past(
    config: &Config,
    mount: &Mount,
    file: &StateFile,
    wanted: Identity,
) -> io::Result<Identity> {
    let is_stopped = || mount.holders().all(|(_, page)| page.clean);
    if !mount.has_holders() || is_stopped() {
        return Ok(wanted);
    }
    let most = config.memory_bytes / KEPT.1 * KEPT.0 / u64::from(wanted.layout().block_bytes());
    let kept = file.header_of(&wanted)?.filter(|header| u64::from(header.blocks()) <= most);
    Ok(kept.map_or(wanted, |header| {
        let layout = wanted.layout().with_blocks(header.blocks(), wanted.layout().block_bytes());
        wanted.with_layout(layout.with_tiers(header.tiers()))
    }))
}

/// The uses of the surviving blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    /// Blocks that requests may fill ahead of sealing.
    pub(super) fresh_max: u64,
    /// Blocks that only background work may take, so that it can always make room.
    pub(super) reserve: u64,
}

impl Division {
    /// For `blocks` in all and `surviving_blocks`: if an earlier state has fewer than are wanted, the reserve is that
    /// of the earlier server, or slightly smaller.
    pub(crate) fn of(geometry: &Geometry, blocks: u64, surviving_blocks: u64) -> Self {
        let wanted = Self::wanted(geometry, blocks);
        if geometry.segment_bytes() == 0 || wanted.surviving(geometry) <= surviving_blocks {
            return wanted;
        }
        let reserve = reserve(surviving_blocks);
        let rest = surviving_blocks.saturating_sub(geometry.shards() as u64 + reserve);
        let fresh_max = rest * FILLED_SHARE / (FILLED_SHARE + 1);
        Self { fresh_max: fresh_max.min(wanted.fresh_max).max(1), reserve }
    }

    fn wanted(geometry: &Geometry, blocks: u64) -> Self {
        Self { fresh_max: geometry.fillable_blocks(blocks), reserve: reserve(blocks) }
    }

    /// Blocks that must survive: those that requests may fill, and a 16th more, an open one for each shard, and the
    /// reserve.
    fn surviving(self, geometry: &Geometry) -> u64 {
        let filled = self.fresh_max + self.fresh_max / FILLED_SHARE;
        filled + geometry.shards() as u64 + self.reserve
    }
}

fn reserve(blocks: u64) -> u64 {
    let least = (blocks / 32).clamp(1, RESERVE_MIN);
    (blocks / 128).clamp(least, RESERVE_MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::config::{Tier, Tuning};
    use crate::facade::cache::Cache;
    use std::sync::Arc;
    use terrace_device::sim::SimDevice;

    #[test]
    fn fillable_blocks_fit_into_the_surviving_ones() {
        let mut config = Config::new(64 << 20);
        config.tiers = vec![Tier::new(Arc::new(SimDevice::new(64 << 20, 1)))];
        let geometry = Geometry::derive(&config).expect("memory enough");
        for blocks in [32, 100, 1_000, 10_000, 100_000] {
            let wanted = Division::wanted(&geometry, blocks);
            let survive = wanted.surviving(&geometry);
            assert_eq!(Division::of(&geometry, blocks, survive), wanted);
            assert_eq!(Division::of(&geometry, blocks, 2 * survive), wanted);
            // In a larger memory they have the same uses, up to rounding.
            for more in [2, 8, 100] {
                let division = Division::of(&geometry, blocks * more, survive);
                assert!(division.surviving(&geometry) <= survive, "{blocks}, {more}");
                assert!(division.fresh_max + 1 >= wanted.fresh_max, "{blocks}, {more}");
            }
        }
    }

    #[test]
    fn state_of_a_crash_keeps_its_blocks_until_a_clean_stop() {
        let drive = Arc::new(SimDevice::new(8 << 20, 1));
        let state = Arc::new(StateFile::volatile().expect("memory"));
        let blocks = |mebibytes: u64, is_stopped: bool| {
            let cache = Cache::open(Config {
                tuning: Tuning { segment_bytes: Some(64 << 10), ..Tuning::default() },
                tiers: vec![Tier::new(Arc::clone(&drive) as Arc<_>)],
                state: Some(Arc::clone(&state)),
                ..Config::new(mebibytes << 20)
            })
            .expect("opens");
            assert!(!is_stopped || cache.close(1, &|| true));
            cache.engine().shared().arena().surviving()
        };
        let little = blocks(1, false);
        assert_eq!(blocks(64, true), little);
        let much = blocks(64, false);
        assert!(much > little, "{much} and {little}");
        assert_eq!(blocks(4, false), much);
        assert_eq!(blocks(1, false), little, "what takes most of the memory is given up");
    }
}
