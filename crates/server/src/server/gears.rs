//! Says in the log when a tier writes and keeps more or less than before.

use std::time::{Duration, Instant};
use terrace_cache::{Cache, Gear};
use tracing::info;

/// Changes are told this often at most: a tier that is just about full changes with every segment.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// What was told last.
pub(super) struct Gears {
    told: Vec<Gear>,
    at: Instant,
}

impl Gears {
    pub(super) fn new(cache: &Cache) -> Self {
        Self { told: cache.gears().collect(), at: Instant::now() }
    }

    /// To be called every so often.
    pub(super) fn tell(&mut self, cache: &Cache) {
        if self.at.elapsed() < TELL_EVERY {
            return;
        }
        self.at = Instant::now();
        if self.told.iter().copied().eq(cache.gears()) {
            return;
        }
        for (at, (told, tier)) in self.told.iter_mut().zip(cache.stats().tiers).enumerate() {
            let gear = tier.gear;
            if *told != gear {
                let way = if gear > *told { "less" } else { "more" };
                let life = tier.life_years.map_or(String::new(), |years| {
                    format!("; written as since the start the drive lasts {years:.1} years")
                });
                info!("tier {at}: gear {gear:?}, writes and keeps {way} than before{life}");
                *told = gear;
            }
        }
    }
}
