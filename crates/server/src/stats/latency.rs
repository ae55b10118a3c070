//! How long reads from drives take: a log-linear histogram that its worker fills without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Steps between a power of two and the next: a value is known to 1/16, about 6 %.
const STEPS_BITS: u32 = 4;
const STEPS: usize = 1 << STEPS_BITS;
/// Up to 2^26 microseconds, about a minute; what takes longer counts as that.
const POWERS: usize = 26;
const BUCKETS: usize = (POWERS + 1) * STEPS;

/// One worker's latencies, by tier.
#[derive(Debug)]
pub(crate) struct Latency {
    tiers: Vec<Box<[AtomicU64]>>,
}

impl Latency {
    pub(crate) fn new(tiers: usize) -> Self {
        let tier = || (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        Self { tiers: (0..tiers).map(|_| tier()).collect() }
    }

    /// Counts one read. Only its own worker calls this.
    pub(crate) fn record(&self, tier: usize, took: Duration) {
        if let Some(buckets) = self.tiers.get(tier) {
            let bucket = &buckets[bucket(took)];
            bucket.store(bucket.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    pub(crate) fn reset(&self) {
        self.tiers.iter().flatten().for_each(|bucket| bucket.store(0, Ordering::Relaxed));
    }
}

/// The latencies of all workers at one tier.
#[derive(Debug)]
pub(crate) struct Percentiles {
    buckets: Vec<u64>,
}

impl Percentiles {
    pub(crate) fn of<'a>(all: impl Iterator<Item = &'a Latency>, tier: usize) -> Self {
        let mut buckets = vec![0; BUCKETS];
        for counts in all.filter_map(|latency| latency.tiers.get(tier)) {
            for (sum, count) in buckets.iter_mut().zip(counts) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        Self { buckets }
    }

    /// The time, in microseconds, that `share` (0 to 1) of the reads took at most; 0 without reads.
    pub(crate) fn micros(&self, share: f64) -> u64 {
        let total: u64 = self.buckets.iter().sum();
        let wanted = (total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_micros(bucket);
            }
        }
        0
    }
}

fn bucket(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    if micros < STEPS as u64 {
        return micros as usize;
    }
    let power = micros.ilog2() - STEPS_BITS;
    let step = (micros >> power) as usize - STEPS;
    ((power as usize + 1) * STEPS + step).min(BUCKETS - 1)
}

/// The largest value that falls into a bucket.
fn upper_micros(bucket: usize) -> u64 {
    match (bucket / STEPS, (bucket % STEPS) as u64) {
        (0, step) => step,
        (power, step) => ((step + STEPS as u64 + 1) << (power - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_below_the_end_of_its_bucket_and_close_to_it() {
        for micros in (0..5000).chain([1 << 20, (1 << 26) - 1]) {
            let end = upper_micros(bucket(Duration::from_micros(micros)));
            assert!(end >= micros && end <= micros + micros / 16, "{micros} in a bucket to {end}");
        }
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_over_workers() {
        let workers = [Latency::new(2), Latency::new(2)];
        assert_eq!(Percentiles::of(workers.iter(), 1).micros(0.5), 0);
        (0..98).for_each(|_| workers[0].record(1, Duration::from_micros(10)));
        (0..2).for_each(|_| workers[1].record(1, Duration::from_micros(1000)));
        workers[1].record(7, Duration::ZERO);
        let all = Percentiles::of(workers.iter(), 1);
        assert_eq!((all.micros(0.5), all.micros(0.98)), (10, 10));
        assert!((1000..1064).contains(&all.micros(0.99)));
        workers.iter().for_each(Latency::reset);
        assert_eq!(Percentiles::of(workers.iter(), 1).micros(0.99), 0);
    }
}
