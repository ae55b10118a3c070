//! Says in the log when a tier is given up.

use crate::say;
use terrace_cache::Cache;

/// What was told.
#[derive(Default)]
pub(super) struct Failures {
    tiers: usize,
}

impl Failures {
    /// To be called every so often.
    pub(super) fn tell(&mut self, cache: &Cache) {
        if cache.failures().count() == self.tiers {
            return;
        }
        self.tiers = cache.failures().count();
        for (label, why) in cache.failures() {
            say::error(format_args!(
                "tier {label} takes no writes and is given up: {why}; the server goes on without it: \
                 mend or replace the drive, and start again"
            ));
        }
    }
}
