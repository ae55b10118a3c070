//! Ages of the blocks of each shard, so that eviction and sealing begin with the oldest of the whole cache.
//!
//! A block's order counts the blocks that were taken from the arena before it. Each shard fills its blocks one after
//! the other, so its oldest full block is the first of its list; here is a copy of that order for every shard. It
//! changes under the shard's lock and is read without one: a reader may see the order of a block that has just gone,
//! and must check under the lock.

use crate::dram::lane::Lane;
use std::sync::atomic::{AtomicU64, Ordering};

/// The order of a block that is not there.
const NONE: u64 = u64::MAX;

/// Orders of the blocks of each shard.
pub(crate) struct Ages {
    /// Order of the oldest full block of each shard, by [`Lane`].
    oldest: [Box<[AtomicU64]>; 3],
    /// Order of the open block of each shard, by [`Lane`].
    open: [Box<[AtomicU64]>; 3],
}

impl Ages {
    pub(crate) fn new(shards: usize) -> Self {
        let orders = || (0..shards).map(|_| AtomicU64::new(NONE)).collect();
        let lanes = || std::array::from_fn(|_| orders());
        Self { oldest: lanes(), open: lanes() }
    }

    /// Must be called, under the lock of the shard, whenever the first of its full blocks of a lane changes.
    pub(crate) fn set_oldest(&self, lane: Lane, shard: usize, order: Option<u64>) {
        self.oldest[lane as usize][shard].store(order.unwrap_or(NONE), Ordering::Relaxed);
    }

    /// Must be called, under the lock of the shard, whenever another of its blocks of a lane is open.
    pub(crate) fn set_open(&self, lane: Lane, shard: usize, order: Option<u64>) {
        self.open[lane as usize][shard].store(order.unwrap_or(NONE), Ordering::Relaxed);
    }

    /// The shard that has the oldest full block of a lane, if any has one.
    pub(crate) fn oldest(&self, lane: Lane) -> Option<usize> {
        let (shard, order) = self.orders(lane).enumerate().min_by_key(|&(_, order)| order)?;
        (order != NONE).then_some(shard)
    }

    /// The order of the oldest full block of a lane, if there is one.
    pub(crate) fn oldest_order(&self, lane: Lane) -> Option<u64> {
        self.orders(lane).min().filter(|&order| order != NONE)
    }

    /// By shard, the order of its oldest full block of a lane.
    fn orders(&self, lane: Lane) -> impl Iterator<Item = u64> {
        self.oldest[lane as usize].iter().map(|order| order.load(Ordering::Relaxed))
    }

    /// A shard with an open block of a lane that was opened before `order`, if there is one.
    pub(crate) fn opened_before(&self, lane: Lane, order: u64) -> Option<usize> {
        self.open[lane as usize].iter().position(|open| open.load(Ordering::Relaxed) < order)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn oldest_block_is_of_the_given_lane() {
        let ages = Ages::new(3);
        assert_eq!(ages.oldest(Lane::Fresh), None);
        ages.set_oldest(Lane::Fresh, 0, Some(7));
        ages.set_oldest(Lane::Fresh, 2, Some(5));
        ages.set_oldest(Lane::Hot, 1, Some(1));
        assert_eq!((ages.oldest(Lane::Fresh), ages.oldest(Lane::Hot)), (Some(2), Some(1)));
        let orders = [Lane::Fresh, Lane::Hot, Lane::Protected].map(|lane| ages.oldest_order(lane));
        assert_eq!(orders, [Some(5), Some(1), None]);
        ages.set_oldest(Lane::Fresh, 2, None);
        assert_eq!(ages.oldest(Lane::Fresh), Some(0));
    }

    #[test]
    fn open_blocks_are_found_by_order() {
        let ages = Ages::new(2);
        ages.set_open(Lane::Fresh, 1, Some(9));
        let before = |lane, order| ages.opened_before(lane, order);
        assert_eq!((before(Lane::Fresh, 9), before(Lane::Fresh, 10)), (None, Some(1)));
        assert_eq!(before(Lane::Protected, 10), None);
    }
}
