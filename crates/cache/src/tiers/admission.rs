//! What is written to the tiers, and what is dropped instead.
//!
//! A full tier writes and keeps records by its [`WritePolicy`]. A tier with a write budget also has a write policy that
//! follows from the budget (see [`crate::tiers::ledger`]); what the budget does not allow is not written at all: the
//! oldest records are dropped from DRAM instead. Without either, everything is written. Where nothing may be evicted
//! (`-M`) nothing is dropped: while a budget is overdrawn new keys are refused, and overwrites are written all the
//! same.

use crate::config::{Config, WriteRate};
use crate::index::bucket::since_seal;
use crate::platform::appended::Appended;
use crate::platform::getters::getters;
use crate::platform::lock::lock;
use crate::state::TIERS_MAX;
use crate::stats::TierStats;
use crate::stats::counters::count;
use crate::tiers::ledger::Ledger;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_policy::{Ghost, WritePolicy};

/// A 64th of DRAM is for the names of dropped records.
const GHOST_SHARE: u64 = 64;
/// Bytes of the ghost list per name.
const GHOST_NAME_BYTES: u64 = 2;

/// The write policies of all tiers, and the records that they dropped.
pub(crate) struct Admission {
    /// The write policy of full tiers; a budget may ask for a stricter one.
    full_write_policy: WritePolicy,
    pub(super) ledger: Ledger,
    dropped: Appended<Dropped>,
    ghost: Mutex<Ghost>,
    ghost_bytes: u64,
}

/// Dropped records of one tier.
#[derive(Default)]
struct Dropped {
    records: AtomicU64,
    bytes: AtomicU64,
}

getters! {
    Admission {
        ledger: &Ledger,
    }
}

impl Admission {
    pub(crate) fn new(config: &Config, ledger: Ledger) -> Self {
        let is_used = config.full_write_policy > WritePolicy::AllTwice || ledger.has_budgets();
        let names = if is_used { config.memory_bytes / GHOST_SHARE / GHOST_NAME_BYTES } else { 0 };
        let ghost = Ghost::new(names as usize);
        Self {
            full_write_policy: config.full_write_policy,
            ledger,
            dropped: Appended::new(config.tiers.iter().map(|_| Dropped::default()), TIERS_MAX),
            ghost_bytes: ghost.bytes() as u64,
            ghost: Mutex::new(ghost),
        }
    }

    /// Adds a tier with a write budget.
    pub(crate) fn append(&self, rate: WriteRate, capacity_bytes: u64) {
        self.ledger.append(rate, capacity_bytes);
        let _ = self.dropped.append(Dropped::default());
    }

    /// Bytes of DRAM.
    pub(crate) fn bytes(&self) -> u64 {
        self.ghost_bytes
    }

    /// The present write policy of a tier.
    pub(crate) fn write_policy(&self, tier: u16, is_full: bool) -> WritePolicy {
        let of_budget = self.ledger.write_policy(tier);
        if is_full { of_budget.max(self.full_write_policy) } else { of_budget }
    }

    /// Whether reclaim reinserts a record of a full tier; `uses` as in its entry.
    pub(crate) fn keeps(&self, tier: u16, uses: u8, has_copy: impl FnOnce() -> bool) -> bool {
        self.write_policy(tier, true).keeps(since_seal(uses), false) || has_copy()
    }

    /// Counts a record of `bytes` bytes that is not written to a tier, and remembers its name.
    pub(crate) fn note_dropped(&self, tier: u16, hash: u64, bytes: usize) {
        lock(&self.ghost).note(hash);
        let dropped = &self.dropped[usize::from(tier)];
        count(&dropped.records);
        dropped.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Whether a record was dropped recently and came back; forgets its name.
    pub(crate) fn returned(&self, hash: u64) -> bool {
        lock(&self.ghost).recall(hash)
    }

    /// Adds write policies, budgets and dropped records to the statistics of the tiers.
    pub(crate) fn show(&self, tiers: &mut [TierStats], is_full: bool) {
        for ((at, tier), dropped) in (0..).zip(&mut *tiers).zip(&self.dropped) {
            tier.write_policy = self.write_policy(at, is_full);
            tier.dropped_records = dropped.records.load(Ordering::Relaxed);
            tier.dropped_bytes = dropped.bytes.load(Ordering::Relaxed);
        }
        self.ledger.show(tiers);
    }
}
