//! Takes over the blocks of a state that hold records of an earlier process.

use crate::dram::budget::Budget;
use crate::dram::memory::Arena;
use crate::platform::lock::lock;
use std::sync::atomic::Ordering;

impl Arena {
    /// The number of blocks in the state; they have the lowest numbers.
    pub(crate) fn surviving(&self) -> u32 {
        self.surviving
    }

    /// Arrival order, shard and committed bytes of a surviving block, from the state; `None` if it is free.
    pub(crate) fn recovered(&self, id: u32) -> Option<(u64, usize, u32)> {
        let table = self.state.as_ref()?.block_table();
        let [order, owner] = [0, 1].map(|n| table[id as usize * 2 + n].load(Ordering::Acquire));
        let shard = ((owner >> 32) as usize).checked_sub(1)?;
        Some((order, shard, owner as u32))
    }

    /// Removes a surviving block with records of an earlier process from the free ones. `live` bytes of it are not
    /// void.
    pub(crate) fn adopt(&self, id: u32, live: u32, budget: &Budget) {
        let mut pool = lock(&self.pool);
        let place = self.place_of(id) as usize;
        if let Some(at) = pool.free[place].iter().position(|&free| free == id) {
            pool.free[place].swap_remove(at);
            self.free[place].fetch_sub(1, Ordering::Relaxed);
        } else if let Some(at) = pool.absent[place].iter().position(|&absent| absent == id) {
            pool.absent[place].swap_remove(at);
            budget.force(self.block_bytes.into());
        }
        self.meta[id as usize].live.store(live, Ordering::Relaxed);
    }
}
