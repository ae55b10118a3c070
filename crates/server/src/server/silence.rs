//! Says in the log when a drive answers nothing, and when it does again; and when what outlives the process is lost.

use crate::say;
use std::time::Duration;
use terrace_cache::Cache;

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
            say::error(
                "state: a part of its file is gone (another process truncated it, or its file system has no memory \
                 left): records in DRAM are missed, requests go on, and the next start will be cold; give the server \
                 a folder that nothing else writes to (--state DIR)",
            );
        }
        let is_cold = cache.is_next_start_cold() && !has_failed && !has_lost_state;
        if is_cold && !std::mem::replace(&mut self.is_next_start_cold, true) {
            say::error(
                "a drive did not take what was changed, or did not keep it: requests go on, but the next start \
                 will be cold",
            );
        }
        for (tier, (label, now)) in cache.silences().enumerate() {
            if tier == self.seen.len() {
                self.seen.push(Duration::ZERO);
            }
            let before = std::mem::replace(&mut self.seen[tier], now);
            match (before.is_zero(), now.is_zero()) {
                (true, false) => say::error(format_args!(
                    "tier {label} has not answered for {} s: until it does, what it holds is missed, and the \
                     server goes on without it; check the drive, or the way to it",
                    now.as_secs()
                )),
                (false, true) => say::error(format_args!(
                    "tier {label} answers again, after {} s",
                    before.as_secs()
                )),
                _ => {}
            }
        }
    }
}
