//! Says in the log when a tier writes and keeps more or less than before.

use std::time::{Duration, Instant};
use terrace_cache::{Cache, WritePolicy};
use tracing::info;

/// Changes are told this often at most: a tier that is just about full changes with every segment.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// What was told last.
pub(super) struct WritePolicies {
    told: Vec<WritePolicy>,
    at: Instant,
}

impl WritePolicies {
    pub(super) fn new(cache: &Cache) -> Self {
        Self { told: cache.write_policies().collect(), at: Instant::now() }
    }

    /// To be called every so often.
    pub(super) fn tell(&mut self, cache: &Cache) {
        if self.at.elapsed() < TELL_EVERY {
            return;
        }
        self.at = Instant::now();
        if self.told.iter().copied().eq(cache.write_policies()) {
            return;
        }
        // Those of tiers that were added meanwhile.
        self.told.extend(cache.write_policies().skip(self.told.len()));
        for (at, (told, tier)) in self.told.iter_mut().zip(cache.stats().tiers).enumerate() {
            let write_policy = tier.write_policy;
            if *told != write_policy {
                let way = if write_policy > *told { "less" } else { "more" };
                let life = tier.life_years.map_or(String::new(), |years| {
                    format!("; written as since the start the drive lasts {years:.1} years")
                });
                info!("tier {at}: write policy {write_policy}, writes {way} than before{life}");
                *told = write_policy;
            }
        }
    }
}
