//! Says in the log when a drive answers nothing, and when it does again; and when what outlives the process is lost.

use std::time::Duration;
use terrace_cache::Cache;
use tracing::{error, info};

/// What was told.
#[derive(Default)]
pub(super) struct Silence {
    /// By tier, for how long it had not answered when that was seen last.
    seen: Vec<Duration>,
    is_next_start_cold: bool,
    has_lost_state: bool,
}

impl Silence {
    /// To be called every so often.
    pub(super) fn tell(&mut self, cache: &Cache) {
        let has_failed = cache.failures().next().is_some();
        let has_lost_state = cache.has_lost_state();
        if has_lost_state && !std::mem::replace(&mut self.has_lost_state, true) {
            error!(
                "state: a part of its file is gone (another process truncated it, or its file system has no memory \
                 left): records in DRAM are misses, serving continues, the next start will be cold; give the server \
                 a folder that nothing else writes to (--state DIR)"
            );
        }
        let is_cold = cache.is_next_start_cold() && !has_failed && !has_lost_state;
        if is_cold && !std::mem::replace(&mut self.is_next_start_cold, true) {
            error!(
                "tombstone log: writing it failed; serving continues, the next start will be cold; check the \
                 drives of the tiers"
            );
        }
        for (tier, (label, now)) in cache.silences().enumerate() {
            if tier == self.seen.len() {
                self.seen.push(Duration::ZERO);
            }
            let before = std::mem::replace(&mut self.seen[tier], now);
            match (before.is_zero(), now.is_zero()) {
                (true, false) => error!(
                    "tier {label}: no answer for {} s; serving continues, its records are misses until it answers; \
                     check the drive and the path to it",
                    now.as_secs()
                ),
                (false, true) => {
                    info!("tier {label}: answers again after {} s", before.as_secs());
                }
                _ => {}
            }
        }
    }
}
