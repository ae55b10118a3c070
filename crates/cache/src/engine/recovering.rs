//! The recovery of sealed records in progress.

use crate::dram::budget::Budget;
use crate::engine::census::Census;
use crate::log::replay::Replay;
use crate::platform::getters::getters;
use crate::platform::lock::lock;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use terrace_device::AlignedBuf;

/// The recovery of sealed records in progress.
pub(crate) struct Recovery {
    /// By tier; empty when all shards are done, since they may take much memory.
    replays: Mutex<Arc<[Replay]>>,
    /// The first shard that no thread has begun with.
    next: AtomicUsize,
    /// Shards that are not recovered yet.
    pub(super) waiting: AtomicUsize,
    /// One for each thread that helps.
    buffers: Mutex<Vec<AlignedBuf>>,
    pub(super) census: Census,
}

getters! {
    Recovery {
        waiting: &AtomicUsize,
        census: &Census,
    }
}

impl Recovery {
    /// A recovery with nothing to do.
    pub(crate) fn none() -> Self {
        Self::of(Vec::new(), 0)
    }

    pub(crate) fn of(replays: Vec<Replay>, shards: usize) -> Self {
        Self {
            replays: Mutex::new(replays.into()),
            next: AtomicUsize::new(0),
            waiting: AtomicUsize::new(shards),
            buffers: Mutex::default(),
            census: Census::default(),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// The next of `shards` shards that no thread has begun with, if one is left.
    pub(crate) fn next_shard(&self, shards: usize) -> Option<usize> {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        let is_left = at < shards && !self.is_done();
        if !is_left {
            self.next.fetch_sub(1, Ordering::Relaxed);
        }
        is_left.then_some(at)
    }

    /// The replayed logs, by tier.
    pub(crate) fn replays(&self) -> Arc<[Replay]> {
        Arc::clone(&lock(&self.replays))
    }

    /// A buffer to read footers into; a new one of `bytes` bytes if none was put back.
    pub(crate) fn take_buffer(&self, bytes: usize) -> AlignedBuf {
        lock(&self.buffers).pop().unwrap_or_else(|| AlignedBuf::zeroed(bytes))
    }

    /// Keeps a buffer for the next shard.
    pub(crate) fn put_buffer(&self, buffer: AlignedBuf) {
        lock(&self.buffers).push(buffer);
    }

    /// Counts a shard as recovered. After the last one, frees the replays and returns their bytes to the budget.
    pub(crate) fn finish_one(&self, budget: &Budget) {
        if self.waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
            lock(&self.buffers).clear();
            budget.give(bytes_of(&std::mem::take(&mut *lock(&self.replays))));
        }
    }
}

/// Bytes of DRAM of the replays.
pub(crate) fn bytes_of(replays: &[Replay]) -> u64 {
    replays.iter().map(Replay::bytes).sum()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn replays_are_freed_with_the_last_shard() {
        let recovery = Recovery::of(vec![Replay::of_tombstones(10)], 2);
        let budget = Budget::new(1_000);
        budget.force(100);
        recovery.finish_one(&budget);
        assert_eq!((recovery.replays().len(), budget.used()), (1, 100));
        recovery.finish_one(&budget);
        assert_eq!((recovery.replays().len(), budget.used()), (0, 20));
    }
}
