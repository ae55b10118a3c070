//! Bringing sealed records back after a start, while requests are served.

use super::shared::Shared;
use crate::stats::tier_state;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_cache::display_count;
use tracing::info;

/// Progress is told this often.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// What each recovery thread does: one shard after the other.
pub(super) fn run(shared: &Arc<Shared>) {
    let start = Instant::now();
    let mut told = start;
    while !shared.is_stopping() && shared.cache.recover() {
        if told.elapsed() > TELL_EVERY {
            told = Instant::now();
            let stats = shared.cache.stats();
            let done = stats.shards - stats.recovering_shards;
            let (shards, records) = (stats.shards, stats.records);
            info!("recovery: {done} of {shards} shards, {} records so far", display_count(records));
        }
    }
    // The last of the threads is the one that finds nothing waiting.
    if shared.cache.recovering() == 0 && shared.tell_once() {
        let stats = shared.cache.stats();
        let seconds = start.elapsed().as_secs_f32();
        info!("warm: {} records in {seconds:.2} s", display_count(stats.records));
        for tier in stats.tiers.iter().filter(|_| stats.tiers.len() > 1) {
            let held = tier_state::held(tier.records, tier.live_bytes);
            info!("tier {}: {}, {held}", tier.label, tier_state::name(tier));
        }
    }
}
