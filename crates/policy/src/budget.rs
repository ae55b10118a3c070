//! Bytes per day that a drive may be written, and what they leave room for.

use crate::WritePolicy;

/// Seconds over which a drive's unspent budget is carried.
const CARRY_SECONDS: f64 = 7.0 * 86_400.0;
/// The balance is meant to last this many seconds at the present rate of writing, or the write policy goes up.
const HORIZON_SECONDS: f64 = 60.0;
/// Seconds between changes of write policy, so that each shows its effect first.
const SETTLE_SECONDS: f64 = 10.0;
/// Seconds over which the rate of writing is averaged.
const RATE_SECONDS: f64 = 10.0;

/// A token bucket (Turner, 1986) of bytes that the drive may write, and a write policy that makes it last.
/// Time comes from the caller, in seconds from any beginning.
#[derive(Clone, Debug)]
pub struct WriteBudget {
    /// Bytes per second as the drive counts them.
    per_second: f64,
    /// Bytes that the drive writes per byte that it is sent.
    amplification: f64,
    balance: f64,
    rate: f64,
    write_policy: WritePolicy,
    seen: f64,
    changed: f64,
}

impl WriteBudget {
    /// A drive that may be written at this many bytes per second on average.
    pub fn new(bytes_per_second: f64, now: f64) -> Self {
        Self {
            per_second: bytes_per_second,
            amplification: 1.0,
            balance: 0.0,
            rate: 0.0,
            write_policy: WritePolicy::AllOnce,
            seen: now,
            changed: now,
        }
    }

    /// Of a number of whole drives per day.
    pub fn of_drive_writes(per_day: f64, capacity_bytes: f64, now: f64) -> Self {
        Self::new(per_day * capacity_bytes / 86_400.0, now)
    }

    /// Goes on with the balance that an earlier run left (in bytes, negative when overdrawn), and saves up
    /// what the drive was not written in the seconds since then.
    pub fn carry(&mut self, balance: f64, idle_seconds: f64) {
        self.balance += balance + idle_seconds.max(0.0) * self.per_second;
        self.balance = self.balance.min(self.per_second * CARRY_SECONDS);
    }

    /// The drive writes so many bytes per byte that it is sent; at least 1.
    pub fn set_amplification(&mut self, factor: f64) {
        self.amplification = if factor.is_finite() { factor.max(1.0) } else { 1.0 };
    }

    /// Whether `bytes` may be sent to the drive at this time. What may not must be let go.
    pub fn allows(&mut self, bytes: u64, now: f64) -> bool {
        self.pass(now);
        self.balance >= bytes as f64 * self.amplification
    }

    /// `bytes` were sent to the drive. Writes that could not be put off may overdraw the budget; later
    /// ones wait for it.
    pub fn note(&mut self, bytes: u64, now: f64) {
        self.pass(now);
        let written = bytes as f64 * self.amplification;
        self.balance -= written;
        self.rate += written / RATE_SECONDS;
    }

    /// The write policy to write in at this time.
    pub fn write_policy(&mut self, now: f64) -> WritePolicy {
        self.pass(now);
        if now - self.changed < SETTLE_SECONDS {
            return self.write_policy;
        }
        let affordable = self.per_second + self.balance.max(0.0) / HORIZON_SECONDS;
        let next = if self.rate > affordable * 0.95 {
            self.write_policy.up()
        } else if self.rate < affordable * 0.5 {
            self.write_policy.down()
        } else {
            None
        };
        if let Some(write_policy) = next {
            (self.write_policy, self.changed) = (write_policy, now);
        }
        self.write_policy
    }

    /// Bytes per second that may be written on average.
    pub fn bytes_per_second(&self) -> f64 {
        self.per_second
    }

    /// Bytes that may be written now.
    pub fn balance(&self) -> f64 {
        self.balance
    }

    /// Lets time pass, and the balance grow.
    pub fn pass(&mut self, now: f64) {
        let seconds = (now - self.seen).max(0.0);
        self.seen = self.seen.max(now);
        self.rate *= (-seconds / RATE_SECONDS).exp();
        let carried = self.per_second * CARRY_SECONDS;
        self.balance = (self.balance + seconds * self.per_second).min(carried);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache that would write `demand` bytes per second in write policy A, and less in higher ones.
    fn run(demand: f64, seconds: u32, budget: &mut WriteBudget) -> (f64, WritePolicy) {
        const SEGMENT: f64 = 1e6;
        let (mut written, mut due) = (0.0, 0.0);
        for tick in 0..seconds * 100 {
            let now = 1000.0 + f64::from(tick) / 100.0;
            let share = [1.0, 0.85, 0.35, 0.25][budget.write_policy(now) as usize];
            due += demand * share / 100.0;
            while due >= SEGMENT {
                due -= SEGMENT;
                if budget.allows(SEGMENT as u64, now) {
                    budget.note(SEGMENT as u64, now);
                    written += SEGMENT;
                }
            }
        }
        (written / f64::from(seconds), budget.write_policy(1000.0 + f64::from(seconds)))
    }

    #[test]
    fn any_overload_stays_inside() {
        for overload in [1.5, 5.0, 10.0] {
            let mut budget = WriteBudget::new(40e6, 1000.0);
            let (rate, write_policy) = run(40e6 * overload, 600, &mut budget);
            assert!((36e6..=40e6).contains(&rate) || overload < 2.0 && rate > 20e6, "{rate}");
            assert!(write_policy > WritePolicy::AllOnce, "{overload}: {write_policy:?}");
        }
    }

    #[test]
    fn a_light_load_is_not_held_back() {
        let mut budget = WriteBudget::of_drive_writes(1.0, 4e12, 1000.0);
        let (rate, write_policy) = run(15e6, 300, &mut budget);
        assert!(rate > 14e6 && write_policy == WritePolicy::AllOnce, "{rate} {write_policy:?}");
    }

    #[test]
    fn what_was_not_written_may_be_written_later_but_not_for_ever() {
        let mut budget = WriteBudget::new(1e6, 0.0);
        budget.write_policy(30.0 * 86_400.0);
        assert_eq!(budget.balance(), 7.0 * 86_400.0 * 1e6);
        budget.set_amplification(2.0);
        budget.note(1_000_000, 30.0 * 86_400.0);
        assert_eq!(budget.balance(), 7.0 * 86_400.0 * 1e6 - 2e6);
    }

    #[test]
    fn goes_on_with_debts_and_with_no_more_than_a_week_of_savings() {
        let mut budget = WriteBudget::new(1e6, 0.0);
        budget.carry(-5e6, 2.0);
        assert_eq!(budget.balance(), -3e6);
        assert!(!budget.allows(1, 2.0), "a million a second pays it back in three");
        assert!(budget.allows(1, 4.0));
        budget.carry(1e18, -9.0);
        assert_eq!(budget.balance(), 7.0 * 86_400.0 * 1e6);
    }
}
