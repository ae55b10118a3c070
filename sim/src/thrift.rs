//! Whether the drives were written no more than their write budgets allow, over all runs of the cache.

use crate::scenario::Scenario;
use terrace_cache::{Cache, TierStats};

/// Segments that may be written beyond a budget in each run of the cache: those of one slice of background
/// work, which begins while there is enough for one.
const SEGMENTS_BEYOND: u64 = 4;

/// What was written, and since when.
pub(crate) struct Thrift {
    /// Bytes per second, of each tier.
    budgets: Vec<Option<f64>>,
    /// Unix seconds of the first start, by the clock as it goes now.
    first: u32,
    /// Segments' bytes that earlier runs wrote.
    before: Vec<u64>,
    /// Of all of them, what was written whatever the budget said: by stops, which save what there is.
    excused: Vec<u64>,
    runs: u64,
}

impl Thrift {
    /// With `-M` (no `evict`) what overwrites others is written all the same: nothing is asked for then.
    pub(crate) fn new(scenario: &Scenario, first: u32) -> Self {
        let none = vec![0; scenario.budgets.len()];
        let budget = |budget: &Option<f64>| budget.filter(|_| scenario.evict);
        let budgets = scenario.budgets.iter().map(budget).collect();
        Self { budgets, first, before: none.clone(), excused: none, runs: 1 }
    }

    fn is_idle(&self) -> bool {
        self.budgets.iter().all(Option::is_none)
    }

    /// The clock went back by so many seconds, which it will count again.
    pub(crate) fn set_back(&mut self, seconds: u32) {
        self.first = self.first.saturating_sub(seconds);
    }

    /// A run of the cache is over.
    pub(crate) fn end_run(&mut self, cache: &Cache) {
        self.runs += 1;
        if self.is_idle() {
            return;
        }
        for (before, tier) in self.before.iter_mut().zip(cache.stats().tiers) {
            *before += tier.written_bytes;
        }
    }

    /// What `stop` writes is no waste.
    pub(crate) fn excuse<T>(&mut self, cache: &Cache, stop: impl FnOnce() -> T) -> T {
        let before = cache.stats().tiers;
        let stopped = stop();
        let tiers = self.excused.iter_mut().zip(before).zip(cache.stats().tiers);
        for ((excused, before), after) in tiers {
            *excused += after.written_bytes - before.written_bytes;
        }
        stopped
    }

    /// What is wrong, if anything; `latest` is the latest time that there was.
    pub(crate) fn check(&self, cache: &Cache, latest: u32) -> Result<(), String> {
        if self.is_idle() {
            return Ok(());
        }
        let tiers = cache.stats().tiers;
        (0..).zip(&tiers).try_for_each(|(at, tier)| self.check_tier(at, tier, latest))
    }

    fn check_tier(&self, at: usize, tier: &TierStats, latest: u32) -> Result<(), String> {
        let Some(rate) = self.budgets[at] else { return Ok(()) };
        let written = self.before[at] + tier.written_bytes;
        let seconds = latest.saturating_sub(self.first);
        let allowed = (f64::from(seconds) * rate) as u64
            + self.excused[at]
            + self.runs * SEGMENTS_BEYOND * tier.segment_bytes;
        if written <= allowed {
            return Ok(());
        }
        Err(format!("tier {at}: {written} bytes written where {allowed} are allowed: {tier:#?}"))
    }
}
