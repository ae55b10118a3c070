//! Says in the log when a tier is given up.

use terrace_cache::Cache;
use tracing::error;

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
            error!(
                "tier {label}: writing failed, the tier is given up: {why}; serving continues without it; repair or \
                 replace the drive, and restart"
            );
        }
    }
}
