//! One measurement.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Longest latency told apart, in nanoseconds.
const NANOS_MAX: u64 = 60_000_000_000;

/// In which order a medium is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// One block after the other.
    Sequential,
    /// Any block.
    Random,
}

/// What is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Blocks are read.
    Read,
    /// Blocks are written.
    Write,
}

/// What came of one kind of use.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    /// Bytes per transfer.
    pub block_bytes: usize,
    /// Transfers under way at the same time.
    pub concurrency: u32,
    /// Transfers per second.
    pub per_second: f64,
    /// Median of a transfer's time, in microseconds.
    pub p50_us: f64,
    /// Its 99th percentile.
    pub p99_us: f64,
}

impl Point {
    /// Bytes per second.
    pub fn bandwidth(&self) -> f64 {
        self.per_second * self.block_bytes as f64
    }

    pub(crate) fn of(
        block_bytes: usize,
        concurrency: u32,
        times: &Histogram<u64>,
        elapsed: Duration,
    ) -> Self {
        let per_second = times.len() as f64 / elapsed.as_secs_f64();
        Self::at_rate(block_bytes, concurrency, times, per_second)
    }

    pub(crate) fn at_rate(
        block_bytes: usize,
        concurrency: u32,
        times: &Histogram<u64>,
        per_second: f64,
    ) -> Self {
        let at = |share| times.value_at_quantile(share) as f64 / 1000.0;
        Self { block_bytes, concurrency, per_second, p50_us: at(0.5), p99_us: at(0.99) }
    }
}

/// Room for the times of a point's transfers, in nanoseconds.
pub(crate) fn times() -> Histogram<u64> {
    Histogram::new_with_max(NANOS_MAX, 2).expect("the bounds are within the histogram's own")
}

/// Where the next transfer goes.
pub(crate) struct Walk {
    access: Access,
    blocks: u64,
    next: u64,
    random: rand::rngs::SmallRng,
}

impl Walk {
    /// Over `bytes` in blocks of `block_bytes`; sequential walks of other `seed`s begin elsewhere. No
    /// two random ones are alike: blocks that a walk before has read may lie in some cache.
    pub(crate) fn new(access: Access, bytes: u64, block_bytes: usize, seed: u64) -> Option<Self> {
        use rand::SeedableRng;
        let blocks = bytes / block_bytes as u64;
        // The hasher's keys are random, and others each time.
        let random =
            rand::rngs::SmallRng::seed_from_u64(RandomState::new().build_hasher().finish());
        let next = blocks.checked_div(32).unwrap_or(0) * seed;
        (blocks > 0).then_some(Self { access, blocks, next, random })
    }

    /// The number of a block.
    pub(crate) fn next(&mut self) -> u64 {
        use rand::RngExt;
        match self.access {
            Access::Random => self.random.random_range(0..self.blocks),
            Access::Sequential => {
                self.next = self.next.wrapping_add(1);
                self.next % self.blocks
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(access: Access, seed: u64) -> Vec<u64> {
        let mut walk = Walk::new(access, 1 << 30, 4096, seed).unwrap();
        (0..100).map(|_| walk.next()).collect()
    }

    #[test]
    fn no_random_walk_reads_what_another_has_read() {
        let [one, other] = [0, 1].map(|_| blocks(Access::Random, 1));
        let again = one.iter().filter(|block| other.contains(block)).count();
        // One pair in 26 has any by chance.
        assert!(again < 10, "{again} of 100 of 262144 blocks");
        assert!(one.iter().all(|&block| block < 1 << 18));
        assert_eq!(blocks(Access::Sequential, 1), blocks(Access::Sequential, 1));
    }
}
