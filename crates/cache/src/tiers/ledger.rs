//! Bytes written to each tier, and its write budget, over restarts too.
//!
//! The background keeps each balance in the state, and a clean stop writes it to the superblock. Without either it is
//! not known what was written since: then nothing is saved up, so that a server that crashes again and again writes no
//! more than its budget.

use crate::config::note::Note;
use crate::config::{Config, WriteRate};
use crate::platform::appended::Appended;
use crate::platform::lock::lock;
use crate::state::{LogField, State, TIERS_MAX};
use crate::stats::TierStats;
use crate::stats::counters::TierCounters;
use crate::tiers::slots::{Slots, TierStore};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use terrace_policy::{WriteBudget, WritePolicy};

/// Writes that a drive is assumed to bear if it does not report them: its capacity once a day for five years.
const WRITES_OF_LIFE: f64 = 5.0 * 365.25;
const SECONDS_PER_DAY: f64 = 86_400.0;
const SECONDS_PER_YEAR: f64 = 365.25 * SECONDS_PER_DAY;

/// Balances of the budgets from earlier runs.
pub(crate) struct Carried {
    /// Bytes, one per tier; negative when overdrawn.
    pub(super) balances: Vec<i64>,
    /// Unix seconds of these balances; 0 if unknown.
    pub(super) as_of: u32,
}

impl Carried {
    /// `balances`: bytes saved up of each tier's budget, as of unix second `as_of`; 0 if that is unknown.
    pub(crate) fn new(balances: Vec<i64>, as_of: u32) -> Self {
        Self { balances, as_of }
    }
}

/// The accounts of all tiers.
pub(crate) struct Ledger {
    accounts: Appended<Account>,
    clock: Clock,
    /// Unix seconds since when the drives were not written, until [`Ledger::observe`] has counted the time; 0 after
    /// that.
    idle_since: AtomicU32,
    is_overdrawn: AtomicBool,
    state: Option<Arc<State>>,
}

/// The account of one tier.
struct Account {
    budget: Option<Mutex<WriteBudget>>,
    /// The write policy that the budget asks for, as a number.
    write_policy: AtomicU8,
    /// Bytes written to the tier that the budget has counted.
    noted: AtomicU64,
    /// Bytes that the drive writes per byte that it is sent, as it reports it, as bits of a float; 0 if it does not.
    amplification: AtomicU64,
}

/// The clock of the budgets.
enum Clock {
    /// The machine's, counted from the start of the process.
    Machine(Instant),
    /// The time that background work passes in: unix seconds, the first ones and the latest.
    Given { first: AtomicU32, latest: AtomicU32 },
}

impl Clock {
    fn set(&self, now: u32) {
        if let Self::Given { first, latest } = self {
            let _ = first.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
            latest.fetch_max(now, Ordering::Relaxed);
        }
    }

    fn seconds(&self) -> f64 {
        match self {
            Self::Machine(start) => start.elapsed().as_secs_f64(),
            Self::Given { first, latest } => {
                let first = first.load(Ordering::Relaxed);
                latest.load(Ordering::Relaxed).saturating_sub(first).into()
            }
        }
    }
}

impl Account {
    /// Of a budget whose `balance` is as of `seconds` of the ledger's clock.
    fn new(bytes_per_second: Option<f64>, balance: i64, seconds: f64) -> Self {
        let budget = bytes_per_second.map(|rate| {
            let mut budget = WriteBudget::new(rate, seconds);
            budget.carry(balance as f64, 0.0);
            Mutex::new(budget)
        });
        Self {
            budget,
            write_policy: AtomicU8::new(WritePolicy::AllOnce as u8),
            noted: AtomicU64::new(0),
            amplification: AtomicU64::new(0),
        }
    }

    fn balance(&self) -> i64 {
        self.budget.as_ref().map_or(0, |budget| lock(budget).balance() as i64)
    }

    fn amplification(&self) -> Option<f64> {
        let factor = f64::from_bits(self.amplification.load(Ordering::Relaxed));
        (factor > 0.0).then_some(factor)
    }
}

impl Ledger {
    pub(crate) fn new(
        config: &Config,
        slots: &Slots,
        carried: Carried,
        state: Option<Arc<State>>,
    ) -> Self {
        let rates = config.write_rates.iter().copied();
        let rates = rates.chain(std::iter::repeat(WriteRate::Unlimited));
        let balances = carried.balances.into_iter().chain(std::iter::repeat(0));
        let account = |((tier, rate), balance): ((&TierStore, WriteRate), i64)| {
            let capacity = tier.capacity_bytes() as f64;
            Account::new(rate.bytes_per_second(capacity), balance, 0.0)
        };
        let clock = match config.tuning.budgets_by_given_time {
            true => Clock::Given { first: AtomicU32::new(0), latest: AtomicU32::new(0) },
            false => Clock::Machine(Instant::now()),
        };
        let accounts = slots.tiers.iter().zip(rates).zip(balances).map(account);
        let ledger = Self {
            accounts: Appended::new(accounts, TIERS_MAX),
            clock,
            idle_since: AtomicU32::new(carried.as_of),
            is_overdrawn: AtomicBool::new(false),
            state,
        };
        (0..ledger.accounts.len()).for_each(|tier| ledger.keep(tier, ledger.balance(tier)));
        ledger
    }

    /// Opens the account of one more tier, with nothing saved up.
    pub(crate) fn append(&self, rate: WriteRate, capacity_bytes: u64) {
        let rate = rate.bytes_per_second(capacity_bytes as f64);
        let account = Account::new(rate, 0, self.clock.seconds());
        let _ = self.accounts.append(account);
    }

    pub(crate) fn has_budgets(&self) -> bool {
        self.accounts.iter().any(|account| account.budget.is_some())
    }

    /// Charges the budgets with what was written since the last call, and updates their write policies. Background work
    /// must call it regularly; `now` in unix seconds.
    pub(crate) fn observe(&self, slots: &Slots, counters: &[TierCounters], now: u32) {
        self.clock.set(now);
        let idle = match self.idle_since.swap(0, Ordering::Relaxed) {
            0 => 0,
            since => now.saturating_sub(since),
        };
        let all = self.accounts.iter().zip(counters).zip(&slots.tiers).enumerate();
        let mut is_overdrawn = false;
        for (at, ((account, counters), tier)) in all {
            let Some(budget) = &account.budget else { continue };
            // Under one lock, so that nothing counts twice and no older balance is kept.
            let mut budget = lock(budget);
            let seconds = self.clock.seconds();
            let written = written(counters);
            let new = written.saturating_sub(account.noted.swap(written, Ordering::Relaxed));
            budget.carry(0.0, idle.into());
            if new > 0 {
                budget.note(new, seconds);
            }
            account.write_policy.store(budget.write_policy(seconds) as u8, Ordering::Relaxed);
            let is_spent = !budget.allows(tier.segment_bytes().into(), seconds);
            tier.is_spent.store(is_spent, Ordering::Relaxed);
            let balance = budget.balance() as i64;
            is_overdrawn |= balance < 0;
            self.keep(at, balance);
        }
        self.is_overdrawn.store(is_overdrawn, Ordering::Relaxed);
    }

    /// Whether a budget is overdrawn.
    pub(crate) fn is_overdrawn(&self) -> bool {
        self.is_overdrawn.load(Ordering::Relaxed)
    }

    /// Stores a balance in the state, which outlives the process.
    fn keep(&self, tier: usize, balance: i64) {
        if let Some(state) = &self.state {
            let kept = state.log_field(tier, LogField::Balance);
            kept.store(balance.cast_unsigned(), Ordering::Relaxed);
        }
    }

    /// The write policy that the budget of a tier asks for.
    pub(crate) fn write_policy(&self, tier: u16) -> WritePolicy {
        let at = self.accounts[usize::from(tier)].write_policy.load(Ordering::Relaxed);
        WritePolicy::ALL.get(usize::from(at)).copied().unwrap_or_default()
    }

    /// Whether the budget of a tier allows `bytes` more now.
    pub(crate) fn allows(&self, tier: u16, bytes: u64) -> bool {
        let budget = self.accounts[usize::from(tier)].budget.as_ref();
        budget.is_none_or(|budget| lock(budget).allows(bytes, self.clock.seconds()))
    }

    /// Bytes that are saved up; negative when overdrawn.
    pub(crate) fn balance(&self, tier: usize) -> i64 {
        self.accounts[tier].balance()
    }

    /// Records that the drive of a tier writes `factor` bytes per byte that it is sent, at least 1.
    pub(crate) fn set_amplification(&self, tier: usize, factor: f64) {
        let Some(account) = self.accounts.get(tier) else { return };
        let factor = if factor.is_finite() { factor.max(1.0) } else { 1.0 };
        account.amplification.store(factor.to_bits(), Ordering::Relaxed);
        if let Some(budget) = &account.budget {
            lock(budget).set_amplification(factor);
        }
    }

    /// Lines for the log at start: the rate, balance and lifetime that each budget means.
    pub(crate) fn describe(&self, slots: &Slots) -> Vec<Note> {
        let line = |(account, tier): (&Account, &TierStore)| {
            let budget = lock(account.budget.as_ref()?);
            let per_second = budget.bytes_per_second();
            let capacity = tier.capacity_bytes() as f64;
            Some(Note::Info(format!(
                "tier {}: write budget {:.2} MiB/s, {:.0} MiB saved up; if all of it is used the drive lasts {:.1} years",
                tier.device.label(),
                per_second / 1_048_576.0,
                budget.balance() / 1_048_576.0,
                capacity * WRITES_OF_LIFE / (per_second * SECONDS_PER_YEAR),
            )))
        };
        self.accounts.iter().zip(&slots.tiers).filter_map(line).collect()
    }

    /// Adds budgets and lifetimes to the statistics of the tiers.
    pub(crate) fn show(&self, tiers: &mut [TierStats]) {
        let seconds = self.clock.seconds();
        for (tier, account) in tiers.iter_mut().zip(&self.accounts) {
            if let Some(budget) = &account.budget {
                let mut budget = lock(budget);
                budget.pass(seconds);
                tier.budget_bytes_per_second = budget.bytes_per_second() as u64;
                tier.budget_balance_bytes = budget.balance() as i64;
            }
            tier.amplification = account.amplification();
            let sent = (tier.written_bytes + tier.tombstone_log_written_bytes) as f64;
            let written = sent * tier.amplification.unwrap_or(1.0);
            // Less than a day does not show what is written in a year.
            tier.life_years = (seconds >= SECONDS_PER_DAY && written > 0.0).then(|| {
                tier.capacity_bytes as f64 * WRITES_OF_LIFE / (written / seconds * SECONDS_PER_YEAR)
            });
        }
    }
}

/// All bytes written to a tier, including its tombstone log.
fn written(counters: &TierCounters) -> u64 {
    let bytes = [&counters.written_bytes(), &counters.log_written_bytes()];
    bytes.into_iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::config::Tier;
    use crate::stats::counters::Counters;
    use std::collections::HashSet;
    use terrace_device::sim::SimDevice;

    const SEGMENT_BYTES: u32 = 64 << 10;

    #[test]
    fn concurrent_writes_are_charged_once() {
        const THREADS: u64 = 4;
        const WRITES: u64 = 20_000;
        let mut config = Config::new(1 << 20);
        config.tiers = vec![Tier::new(Arc::new(SimDevice::new(8 << 20, 1)))];
        config.write_rates = vec![WriteRate::BytesPerSecond(1.0)];
        config.tuning.budgets_by_given_time = true;
        let counters = Arc::new(Counters::new(1, 1, 1));
        let none = |_| HashSet::new();
        let slots = Slots::new(&config.tiers, SEGMENT_BYTES, Arc::clone(&counters), none);
        let carried = Carried { balances: vec![0], as_of: 0 };
        let ledger = Ledger::new(&config, &slots, carried, None);
        let write = || {
            for _ in 0..WRITES {
                counters.tier(0).written_bytes().fetch_add(100, Ordering::Relaxed);
                ledger.observe(&slots, counters.tiers(), 1);
            }
        };
        std::thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(write))));
        ledger.observe(&slots, counters.tiers(), 1);
        assert_eq!(ledger.balance(0), -((THREADS * WRITES * 100) as i64));
        assert!(ledger.is_overdrawn());
    }
}
