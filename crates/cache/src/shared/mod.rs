//! Shared resources of all shards: memory and its budget, segment slots, logs, counters, policies.

pub(crate) mod geometry;
pub(crate) mod observer;

use crate::config::WriteRate;
use crate::dram::ages::Ages;
use crate::dram::budget::Budget;
use crate::dram::evicted::Evicted;
use crate::dram::lane::Lane;
use crate::dram::memory::{Arena, Place};
use crate::log::TombstoneLog;
use crate::platform::appended::Appended;
use crate::platform::getters::getters;
use crate::platform::lock::lock;
use crate::platform::quiesce::Quiesce;
use crate::records::key::Hasher;
use crate::shared::observer::ObserverSlot;
use crate::state::{State, TIERS_MAX};
use crate::stats::counters::Counters;
use crate::tiers::admission::Admission;
use crate::tiers::slots::{Slots, TierStore};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use terrace_policy::Promotion;

/// The shared resources of a cache.
pub(crate) struct Shared {
    arena: Arena,
    budget: Budget,
    ages: Ages,
    evicted: Evicted,
    quiesce: Quiesce,
    counters: Arc<Counters>,
    observer: ObserverSlot,
    slots: Slots,
    /// One per tier; one that joins has its log first.
    logs: Appended<TombstoneLog>,
    /// The state, which outlives the process, if there is one.
    state: Option<Arc<State>>,
    garbage: Mutex<Vec<Garbage>>,
    /// Blocks that only background work may take, so that it can always make room.
    reserve: u64,
    /// Blocks that requests may fill ahead of sealing; no limit without tiers.
    fresh_max: AtomicU64,
    /// The same as long as a tier takes records.
    fresh_max_with_tiers: u64,
    hasher: Hasher,
    /// Decides which records get a copy in DRAM.
    promotion: Promotion,
    /// Decides which records are written to tiers.
    admission: Admission,
}

/// The places of records, with their counters.
pub(crate) struct Media {
    pub(crate) arena: Arena,
    pub(crate) slots: Slots,
    pub(crate) logs: Vec<TombstoneLog>,
    pub(crate) state: Option<Arc<State>>,
    pub(crate) counters: Arc<Counters>,
}

/// Sizes of the shared resources.
pub(crate) struct Sizes {
    /// Bytes of DRAM for everything that grows with data.
    pub(crate) memory_bytes: u64,
    pub(crate) shards: usize,
    /// Sessions, background threads and threads that recover, at most.
    pub(crate) readers: usize,
    pub(crate) reserve: u64,
    pub(crate) fresh_max: u64,
    /// Bytes of the sketch that counts reads of records on tiers.
    pub(crate) sketch_bytes: usize,
    /// See [`Evicted::new`].
    pub(crate) evicted_memory_bytes: u64,
}

/// An unlinked value that readers may still hold.
pub(crate) struct Garbage {
    epoch: u64,
    /// Bytes to return to the budget when it is dropped.
    bytes: u64,
    _value: Box<dyn Send>,
}

getters! {
    Shared {
        hasher: Hasher,
        ages: &Ages,
        evicted: &Evicted,
        reserve: u64,
        quiesce: &Quiesce,
        promotion: &Promotion,
        state: &Option<Arc<State>>,
        budget: &Budget,
        arena: &Arena,
        fresh_max: &AtomicU64,
        fresh_max_with_tiers: u64,
        admission: &Admission,
        slots: &Slots,
        observer: &ObserverSlot,
        counters: &Arc<Counters>,
    }
}

impl Shared {
    /// Puts the parts together.
    pub(crate) fn new(sizes: Sizes, media: Media, hasher: Hasher, admission: Admission) -> Self {
        let Media { arena, slots, logs, state, counters } = media;
        Self {
            arena,
            budget: Budget::new(sizes.memory_bytes),
            ages: Ages::new(sizes.shards),
            evicted: Evicted::new(sizes.evicted_memory_bytes),
            quiesce: Quiesce::new(sizes.readers),
            counters,
            observer: ObserverSlot::default(),
            garbage: Mutex::default(),
            reserve: sizes.reserve,
            fresh_max: AtomicU64::new(sizes.fresh_max),
            fresh_max_with_tiers: sizes.fresh_max,
            hasher,
            promotion: Promotion::new(sizes.sketch_bytes),
            admission,
            slots,
            logs: Appended::new(logs, TIERS_MAX),
            state,
        }
    }

    /// The logs of all tiers; none without a state.
    pub(crate) fn logs(&self) -> &[TombstoneLog] {
        let logs = &*self.logs;
        &logs[..self.slots.tiers().len().min(logs.len())]
    }

    /// The log of a tier; `None` without a state.
    #[inline]
    pub(crate) fn log(&self, tier: u16) -> Option<&TombstoneLog> {
        self.logs.get(usize::from(tier))
    }

    /// Adds a tier, which gets no segments yet, and returns its number; `None` if there are as many as there can be.
    pub(crate) fn append_tier(
        &self,
        tier: TierStore,
        log: TombstoneLog,
        rate: WriteRate,
    ) -> Option<usize> {
        // The tier comes last: whatever has its number finds everything else of it.
        self.counters.append_tier();
        self.admission.append(rate, tier.capacity_bytes());
        self.logs.append(log).ok()?;
        self.slots.append(tier)
    }

    /// The kind of blocks that a lane takes: records without a sealed original take surviving ones if there are any.
    pub(crate) fn place_for(&self, lane: Lane) -> Place {
        let survives = lane.is_only_in_dram() && self.arena.has_surviving();
        if survives { Place::Surviving } else { Place::Passing }
    }

    /// Blocks that background work keeps free for the next requests.
    pub(crate) fn spare_blocks(&self) -> u64 {
        let blocks = self.budget.limit() / u64::from(self.arena.block_bytes());
        self.reserve * 3 + blocks / 64
    }

    /// Whether records that wait to be written take at least five sixths of the blocks that they may.
    pub(crate) fn is_short_of_buffers(&self) -> bool {
        let blocks = self.counters.blocks(Lane::Fresh).load(Ordering::Relaxed);
        blocks >= self.fresh_max.load(Ordering::Relaxed) / 6 * 5
    }

    /// Whether the logs have room for the words of a request.
    pub(crate) fn logs_have_room(&self) -> bool {
        self.logs().iter().all(TombstoneLog::has_room)
    }

    /// Makes room in each log for some hundred words of background work.
    pub(crate) fn make_log_room(&self) {
        self.logs().iter().for_each(|log| log.ensure_room(&self.slots));
    }

    /// Writes full pages of the logs out, as far as there are slots for them. A failed write is ignored: the same drive
    /// fails again when the pages must be durable.
    pub(crate) fn spill_logs(&self) {
        self.logs().iter().for_each(|log| _ = log.spill(&self.slots));
    }

    /// Keeps `value` until no reader can hold it, then drops it and returns `bytes` to the budget.
    pub(crate) fn discard(&self, value: Box<dyn Send>, bytes: u64) {
        let epoch = self.quiesce.retire();
        lock(&self.garbage).push(Garbage { epoch, bytes, _value: value });
    }

    /// Drops values that no reader can hold any more, and frees retired blocks.
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
