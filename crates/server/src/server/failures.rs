//! Says in the log when a tier is given up.

use super::drive_errors::action;
use crate::stats::tier_state::is_absent;
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
        let tiers = cache.stats().tiers;
        for (label, why) in cache.failures() {
            if tiers.iter().any(|tier| tier.label == label && is_absent(tier)) {
                error!(
                    "tier {label}: absent: {}; serving continues without it, its records are misses; {}: the tier is \
                     empty then",
                    why.message,
                    action(why.class)
                );
                continue;
            }
            error!(
                "tier {label}: {}: writing failed, the tier is given up: {}; serving continues without it; {}; then \
                 restart",
                why.class,
                why.message,
                action(why.class)
            );
        }
    }
}
