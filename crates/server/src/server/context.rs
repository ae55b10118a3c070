//! What a worker has besides its connections.

use super::buffers::{Buffers, Runs};
use super::connection_memory::Ledger;
use super::pending::{Job, Pending, Waiter, Work};
use super::replies::SlotId;
use super::shared::{Shared, WorkerStats};
use super::slab::{Id, Slab};
use super::stream::ChunkName;
use super::watch::Seen;
use crate::commands::executor::Executor;
use crate::commands::keys::ReadKind;
use crate::stats::latency::Latency;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use terrace_cache::{Key, ReadPlan, Search, Session};
use terrace_runtime::flash_lookup::FlashLookup;
use terrace_runtime::limits::Limits;
use terrace_runtime::reads::Reads;

/// So many finished operations are kept, of which each has 250 bytes of key at most: 128 KiB.
const SPARE_MAX: usize = 256;

/// While so many operations wait, a connection has one of them at most: many times what a drive gets at once, in
/// 6 MiB. Whole requests among them count as their connections' buffers.
const PENDING_MAX: usize = 8192;

/// One per worker.
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    /// The worker's number.
    pub(crate) worker: usize,
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) session: Session,
    pub(crate) reads: Reads<Id, Arc<Latency>>,
    /// Operations that wait for a read or a retry.
    pub(crate) pending: Slab<Job>,
    /// Memory of operations that are finished, for the next ones.
    #[expect(clippy::vec_box, reason = "whoever takes one takes the box")]
    pub(crate) spare: Vec<Box<Pending>>,
    /// The removals of large items of which a chunk turned out to be gone.
    #[expect(clippy::vec_box, reason = "as above")]
    pub(crate) lost: Vec<Box<Pending>>,
    /// Who is to be tried again in a millisecond.
    pub(crate) waiting: Vec<Waiter>,
    /// Connections that hold replies back; those that have sent since are still here.
    pub(crate) held: VecDeque<Held>,
    /// Connections that watch: something may be to be told to them whenever the inbox is woken.
    pub(crate) watching: Vec<Id>,
    pub(crate) buffers: Buffers,
    pub(crate) runs: Runs,
    /// What its connections hold.
    pub(crate) ledger: Ledger,
    /// Bytes that a connection may be owed before its next request waits; 0 while memory is tight.
    pub(crate) owed_max: usize,
    /// The connection whose value was let in although it did not fit below the cap.
    pub(crate) let_in: Option<Id>,
    /// Bytes of large items that all connections have read ahead.
    pub(crate) stream_bytes: usize,
    /// Reused between turns.
    pub(crate) begun: Vec<(SlotId, ChunkName)>,
    pub(crate) limits: Limits,
    /// Unix time in seconds, as of the start of this loop.
    pub(crate) now: u32,
    /// What [`Context::moment`] says until the next look at the clock.
    pub(crate) moment: Option<Instant>,
}

/// A connection that holds replies back.
pub(crate) struct Held {
    pub(crate) id: Id,
    pub(crate) since: Instant,
    /// Some of them were found in DRAM.
    pub(crate) has_prompt: bool,
}

impl Context {
    pub(crate) fn executor(&self) -> Executor<'_> {
        Executor {
            session: &self.session,
            shared: &self.shared,
            worker: self.worker,
            counters: &self.stats.counters,
            now: self.now,
            limits: self.limits,
        }
    }

    /// What there is of `key` before a command on it, for watchers.
    #[inline(never)]
    pub(crate) fn look(&self, key: Key<'_>) -> Seen {
        Seen::of(&self.session, key, self.now, None)
    }

    /// The time, for what is told of operations that wait for drives: to look at the clock for each of them would take
    /// a hundredth of what they take in all, so a few that begin or end together share it.
    pub(crate) fn moment(&mut self) -> Instant {
        *self.moment.get_or_insert_with(Instant::now)
    }

    /// Whether more operations wait than is of any use.
    pub(crate) fn is_crowded(&self) -> bool {
        self.pending.len() >= PENDING_MAX
    }

    /// Bytes of large items that may be read ahead besides those that are.
    pub(crate) fn room_for_streams(&self) -> usize {
        self.reads.buffer_bytes_max().saturating_sub(self.stream_bytes).min(self.owed_max)
    }

    /// A connection holds `now` bytes of memory in place of `before`.
    pub(crate) fn hold(&mut self, before: u64, now: u64) {
        self.ledger.hold(&self.shared.memory, before, now);
        self.owed_max = self.shared.memory.allowance();
    }

    /// Whether connections must do with little memory.
    #[inline]
    pub(crate) fn is_tight(&self) -> bool {
        self.owed_max == 0
    }

    /// Whether the connection `id` may hold `bytes` more for a value. What does not fit below the cap is let in where
    /// no other connection of this worker was.
    pub(crate) fn lets_in(&mut self, id: Id, bytes: usize) -> bool {
        let fits = self.shared.memory.has_room(bytes);
        if !fits && self.let_in.is_none() {
            self.let_in = Some(id);
        }
        fits || self.let_in == Some(id)
    }

    /// Frees what is only kept for later.
    pub(crate) fn give_memory_back(&mut self) {
        self.reads.give_back();
        self.buffers.free();
        self.runs.clear();
        self.spare = Vec::new();
    }

    /// Reads what `search` asks for; `operation` goes on when that is there.
    #[inline]
    pub(crate) fn read_for(&mut self, mut operation: Box<Pending>, search: Box<Search>) -> Id {
        let plan = operation.lookup.begin(search);
        self.read(operation, plan)
    }

    /// Reads `plan` for `operation`.
    #[inline]
    pub(crate) fn read(&mut self, operation: Box<Pending>, plan: ReadPlan) -> Id {
        let id = self.pending.insert(Job::Operation(operation));
        self.reads.submit(plan, id);
        id
    }

    /// Keeps the memory of an operation that is finished, and frees what it had besides: a request can be long.
    pub(crate) fn spare(&mut self, mut operation: Box<Pending>) {
        if self.spare.len() < SPARE_MAX {
            operation.work = Work::Read(ReadKind::MetaValue);
            operation.lookup = FlashLookup::default();
            self.spare.push(operation);
        }
    }

    /// Tries `operation` again in a millisecond.
    pub(crate) fn retry_later(&mut self, operation: Box<Pending>) {
        let id = self.pending.insert(Job::Operation(operation));
        self.waiting.push(Waiter::Operation(id));
    }
}
