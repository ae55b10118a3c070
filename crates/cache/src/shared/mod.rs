//! What all shards share: memory and its budget, places on drives, logs, counters, policy.

pub(crate) mod geometry;
pub(crate) mod observer;

use crate::dram::ages::Ages;
use crate::dram::budget::Budget;
use crate::dram::lane::Lane;
use crate::dram::memory::{Arena, Place};
use crate::log::KillLog;
use crate::platform::lock::lock;
use crate::platform::quiesce::Quiesce;
use crate::records::key::Hasher;
use crate::shared::observer::Told;
use crate::state::State;
use crate::stats::counters::Counters;
use crate::tiers::admission::Admission;
use crate::tiers::slots::Slots;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use terrace_policy::Promotion;

/// One per cache.
pub(crate) struct Pool {
    pub(crate) arena: Arena,
    pub(crate) budget: Budget,
    pub(crate) ages: Ages,
    pub(crate) quiesce: Quiesce,
    pub(crate) counters: Arc<Counters>,
    pub(crate) told: Told,
    pub(crate) slots: Slots,
    /// One per tier.
    pub(crate) logs: Vec<KillLog>,
    /// What outlives the process, if anything does.
    pub(crate) state: Option<Arc<State>>,
    pub(crate) garbage: Mutex<Vec<Garbage>>,
    /// Blocks that only background work may take, so that it can always make room.
    pub(crate) reserve: u64,
    /// Blocks that requests may fill ahead of sealing; no limit where nothing is sealed.
    pub(crate) fresh_max: AtomicU64,
    pub(crate) hasher: Hasher,
    /// Which records deserve a copy in DRAM.
    pub(crate) promotion: Promotion,
    /// Which records are written.
    pub(crate) admission: Admission,
}

/// Something unlinked that readers may still look at.
pub(crate) struct Garbage {
    epoch: u64,
    /// Goes back to the budget when it is dropped.
    bytes: u64,
    _value: Box<dyn Send>,
}

impl Pool {
    /// Which blocks a lane takes: where some survive, records that are nowhere else lie in them.
    pub(crate) fn place_for(&self, lane: Lane) -> Place {
        let survives = lane == Lane::Fresh && self.arena.has_surviving();
        if survives { Place::Surviving } else { Place::Passing }
    }

    /// Blocks that background work keeps free for the next moments.
    pub(crate) fn spare_blocks(&self) -> u64 {
        let blocks = self.budget.limit() / u64::from(self.arena.block_bytes());
        self.reserve * 3 + blocks / 64
    }

    /// Whether records that wait to be written take most of what is set aside for them.
    pub(crate) fn is_short_of_buffers(&self) -> bool {
        let blocks = self.counters.blocks(Lane::Fresh).load(Ordering::Relaxed);
        blocks >= self.fresh_max.load(Ordering::Relaxed) / 6 * 5
    }

    /// Whether a request finds room in the logs for what it may have to say.
    pub(crate) fn logs_have_room(&self) -> bool {
        self.logs.iter().all(KillLog::has_room)
    }

    /// Sees to it that background work may append some hundred words to each log.
    pub(crate) fn make_log_room(&self) {
        self.logs.iter().for_each(|log| log.ensure_room(&self.slots));
    }

    /// Writes full pages of the logs out, as far as there are places for them. Where a drive refuses, so will it when
    /// they have to be durable.
    pub(crate) fn spill_logs(&self) {
        self.logs.iter().for_each(|log| _ = log.spill(&self.slots));
    }

    /// Keeps `value` until no session can see it, then drops it and returns `bytes` to the budget.
    pub(crate) fn discard(&self, value: Box<dyn Send>, bytes: u64) {
        let epoch = self.quiesce.retire();
        lock(&self.garbage).push(Garbage { epoch, bytes, _value: value });
    }

    /// Drops what nobody can see any more, and makes retired blocks free.
    pub(crate) fn collect(&self) -> bool {
        let recycled = self.arena.recycle(&self.quiesce) > 0;
        let mut garbage = lock(&self.garbage);
        if garbage.is_empty() {
            return recycled;
        }
        let reached = self.quiesce.reached();
        garbage.retain(|item| {
            let keep = item.epoch > reached;
            if !keep {
                self.budget.give(item.bytes);
            }
            keep
        });
        recycled
    }
}
