//! Says in the log when the index evicts records that the tiers have room for.

use std::time::{Duration, Instant};
use terrace_cache::{Cache, RECORD_BYTES_WARNED};
use tracing::warn;

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
        let advice = enough.map_or(String::new(), |enough| {
            format!("; restart with -m {enough}, where records of {RECORD_BYTES_WARNED} bytes fill the tiers")
        });
        warn!(
            "index: full while the tiers have room, {} records were evicted for it{advice}",
            evicted - self.told
        );
        (self.told, self.at) = (evicted, Some(Instant::now()));
    }
}
