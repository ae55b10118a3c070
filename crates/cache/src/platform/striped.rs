//! Striped counters: one part per shard for counts that every change of a record moves, one per session for counts that
//! every read of a drive moves. A single counter would go from core to core with every request.

use crate::platform::prefetch;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters in a line, at most.
const COUNTS_MAX: usize = 4;

/// The parts of one shard or session.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; COUNTS_MAX]);

/// One of the counters.
#[derive(Default)]
pub(crate) struct Striped {
    lines: Arc<[Line]>,
    at: usize,
}

impl Striped {
    /// All the counters, with a part for each of `owners` shards or sessions.
    pub(crate) fn over<const COUNTS: usize>(owners: usize) -> [Self; COUNTS] {
        const { assert!(COUNTS <= COUNTS_MAX) };
        let lines: Arc<[Line]> = (0..owners).map(|_| Line::default()).collect();
        std::array::from_fn(|at| Self { lines: Arc::clone(&lines), at })
    }

    /// Must be called by one thread at a time: under the shard's lock, or by the thread that has the session. So no
    /// locked instruction is needed.
    pub(crate) fn add(&self, owner: usize, amount: u64) {
        let count = &self.lines[owner].0[self.at];
        count.store(count.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
    }

    /// As [`Striped::add`].
    pub(crate) fn sub(&self, owner: usize, amount: u64) {
        let count = &self.lines[owner].0[self.at];
        count.store(count.load(Ordering::Relaxed) - amount, Ordering::Relaxed);
    }

    /// Prefetches the parts of one owner, to be changed.
    #[inline]
    pub(crate) fn prefetch(&self, owner: usize) {
        prefetch::to_change::<1, _>(&self.lines[owner]);
    }

    /// The sum over all owners.
    pub(crate) fn load(&self, ordering: Ordering) -> u64 {
        self.lines.iter().map(|line| line.0[self.at].load(ordering)).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn striped_counters_are_independent_and_summed() {
        let [a, b] = Striped::over(3);
        a.add(0, 5);
        a.add(2, 7);
        a.sub(0, 4);
        b.add(2, 1);
        assert_eq!([&a, &b].map(|count| count.load(Ordering::Relaxed)), [8, 1]);
    }
}
