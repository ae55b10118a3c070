//! What all parts of a running simulation share.

use crate::crash::CrashPlan;
use crate::oracle::{Missed, Oracle};
use crate::random::Random;
use crate::scenario::Scenario;
use crate::trace::{Event, NO_KEY, Trace};
use crate::value::Values;
use crate::{Failure, Tally};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use terrace_cache::Cache;
use terrace_device::sim::SimDevice;

pub(crate) struct Context {
    pub(crate) scenario: Scenario,
    pub(crate) random: Random,
    pub(crate) oracle: Oracle,
    pub(crate) values: Values,
    pub(crate) trace: Trace,
    pub(crate) tally: Tally,
    /// The first thing that was wrong.
    pub(crate) failure: Option<Failure>,
    /// Unix time.
    pub(crate) now: u32,
    /// The latest time that there was, here or in an earlier run of the cache.
    pub(crate) latest: u32,
    pub(crate) step: u64,
    /// The running one.
    pub(crate) cache: Weak<Cache>,
    /// Of the running cache.
    pub(crate) inline_bytes_max: usize,
    pub(crate) item_bytes_max: usize,
    /// Some shards still miss their sealed records.
    pub(crate) is_recovering: bool,
    /// A drive failed or lied, now or earlier.
    pub(crate) was_broken: bool,
    /// Or it did not answer.
    pub(crate) was_hurt: bool,
    /// A power loss came, at which drives lost what was not flushed.
    pub(crate) lost_power: bool,
    /// A record may be gone that nobody asked to go, in an earlier run of the cache.
    pub(crate) has_lost: bool,
    pub(crate) devices: Vec<Arc<SimDevice>>,
    pub(crate) crash: Rc<CrashPlan>,
}

impl Context {
    pub(crate) fn note(&mut self, what: &'static str, a: u64, b: u64) {
        self.trace.note(Event { step: self.step, key: NO_KEY, what, a, b });
    }

    pub(crate) fn note_key(&mut self, key: u32, what: &'static str, a: u64, b: u64) {
        self.trace.note(Event { step: self.step, key, what, a, b });
    }

    /// Something is wrong; only the first such thing counts.
    pub(crate) fn fail(&mut self, key: u32, what: String) {
        if self.failure.is_none() {
            let events = self.trace.of_key(key, 24);
            self.failure = Some(Failure { step: self.step, what, events });
        }
    }

    /// Whether a drive failed, lied, or did not answer so far.
    pub(crate) fn is_hurt(&mut self) -> bool {
        let counts = || self.devices.iter().map(|device| device.counts());
        self.was_broken |= counts().any(|counts| counts.faults > 0);
        self.was_hurt |= self.was_broken || counts().any(|counts| counts.unanswered > 0);
        self.was_hurt
    }

    /// Whether the cache may have let go of a record so far.
    pub(crate) fn has_let_go(&mut self) -> bool {
        let Some(cache) = self.cache.upgrade() else { return true };
        let stats = cache.stats();
        let has_dropped = stats.tiers.iter().any(|tier| tier.dropped_records > 0);
        let has_evicted = stats.evictions + stats.removed_unread > 0 || has_dropped;
        let has_crashed = self.tally.crashes > 0 || self.is_recovering;
        let has_removed = self.tally.removals > 0;
        has_evicted || has_removed || has_crashed || self.is_hurt()
    }

    /// Whether the cache, or one before it, may have let go of a record, or lost one to another of its name.
    pub(crate) fn has_lost_some(&self) -> bool {
        let Some(cache) = self.cache.upgrade() else { return true };
        let stats = cache.stats();
        let let_go: u64 = stats.tiers.iter().map(|tier| tier.dropped_records).sum();
        self.has_lost
            || stats.evictions + stats.lost_to_collisions + stats.removed_unread + let_go > 0
    }

    /// Whether a record may be missing at the moment.
    pub(crate) fn may_lose(&mut self) -> bool {
        !self.scenario.ample || self.is_recovering || self.is_hurt()
    }

    /// Nothing was found for `key` by `what`.
    pub(crate) fn miss(&mut self, key: u32, what: &str) {
        let is_final = !self.is_recovering && !self.is_hurt();
        let missed = self.oracle.miss(key, self.latest, is_final);
        self.note_key(key, "finds nothing", self.now.into(), is_final.into());
        match missed {
            Missed::Rightly => self.tally.misses += 1,
            Missed::Lost if self.may_lose() => self.tally.lost += 1,
            Missed::Lost => {
                let expected = self.oracle.describe(key);
                self.fail(key, format!("{what}: key {key} is lost at {}\n{expected}", self.now));
            }
        }
    }
}
