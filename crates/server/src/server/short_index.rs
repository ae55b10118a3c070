//! Says in the log when the index evicts records that the tiers have room for.

use crate::say;
use std::time::{Duration, Instant};
use terrace_cache::Cache;

/// The warning comes this often at most.
const TELL_EVERY: Duration = Duration::from_secs(3600);

#[derive(Default)]
pub(super) struct ShortIndex {
    /// Records that were told, and when.
    told: u64,
    at: Option<Instant>,
}

impl ShortIndex {
    /// Looks whether the index has evicted more records since the last warning.
    pub(super) fn tell(&mut self, cache: &Cache) {
        let (evicted, enough) = cache.evictions_by_index();
        let is_due = self.at.is_none_or(|at| at.elapsed() >= TELL_EVERY);
        if evicted == self.told || !is_due {
            return;
        }
        say::line(format_args!(
            "warning: the index has no room for more records, though the tiers have: {} were evicted \
             for that; records of 512 bytes fill the tiers with -m {enough}",
            evicted - self.told
        ));
        (self.told, self.at) = (evicted, Some(Instant::now()));
    }
}
