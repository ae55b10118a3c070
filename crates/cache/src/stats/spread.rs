//! Counts that every change of a record moves, kept shard by shard: one count for all would be handed
//! from core to core with every SET.

use crate::platform::prefetch;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many counts there are.
const COUNTS: usize = 4;

/// What one shard has of each.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; COUNTS]);

/// One of the counts.
#[derive(Default)]
pub(crate) struct Spread {
    lines: Arc<[Line]>,
    at: usize,
}

impl Spread {
    /// All the counts, of so many shards.
    pub(crate) fn over(shards: usize) -> [Self; COUNTS] {
        let lines: Arc<[Line]> = (0..shards).map(|_| Line::default()).collect();
        std::array::from_fn(|at| Self { lines: Arc::clone(&lines), at })
    }

    /// To be called under the shard's lock, which is why no locked instruction is needed.
    pub(crate) fn add(&self, shard: usize, amount: u64) {
        let count = &self.lines[shard].0[self.at];
        count.store(count.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
    }

    /// As [`Spread::add`].
    pub(crate) fn sub(&self, shard: usize, amount: u64) {
        let count = &self.lines[shard].0[self.at];
        count.store(count.load(Ordering::Relaxed) - amount, Ordering::Relaxed);
    }

    /// Asks for what the shard has of all counts, to be changed.
    #[inline]
    pub(crate) fn prefetch(&self, shard: usize) {
        prefetch::to_change::<1, _>(&self.lines[shard]);
    }

    /// Of all shards.
    pub(crate) fn load(&self, ordering: Ordering) -> u64 {
        self.lines.iter().map(|line| line.0[self.at].load(ordering)).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn counts_are_apart_and_added_up() {
        let [a, b, ..] = Spread::over(3);
        a.add(0, 5);
        a.add(2, 7);
        a.sub(0, 4);
        b.add(2, 1);
        assert_eq!([&a, &b].map(|count| count.load(Ordering::Relaxed)), [8, 1]);
    }
}
