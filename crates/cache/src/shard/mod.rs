//! A shard: all records with hashes that begin with its number, and the lock under which they change.

mod blocks;
mod deferred;
mod entries;
pub(crate) mod promotion;
pub(crate) mod recovering;
mod residents;
mod work;

pub(crate) use crate::dram::lane::LaneBlocks;
use crate::dram::resident::Resident;
use crate::dram::table::{DramTable, SlotAt};
use crate::index::deferred::{Deferred, DeferredFilter};
use crate::index::sealed::SealedIndex;
use crate::platform::getters::getters;
use crate::platform::lock::{lock, try_lock};
use crate::platform::prefetch;
use crate::platform::quiesce::Guard;
use crate::platform::rcu::Rcu;
use crate::records::access::Access;
use crate::records::key::{Key, Name};
use crate::records::manifest::NextExpiry;
use crate::records::record::Record;
use crate::segments::segment::{Sealed, SegmentTable};
use crate::shard::recovering::Recovering;
use crate::shared::Shared;
use crate::shared::geometry::Geometry;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

/// State that changes only under the shard's lock. In this order, the fields that every SET changes lie in
/// [`CHANGED_LINES`].
#[repr(C)]
pub(crate) struct ShardState {
    fresh: LaneBlocks,
    /// Encoded bytes of live fresh records: their size on a tier, without page headers.
    fresh_bytes: u64,
    next_cas: u64,
    hot: LaneBlocks,
    /// Free segment numbers, lowest last.
    numbers: Vec<u16>,
    /// Counts `flush_all`: background work that began before one must not finish.
    generation: u64,
    /// What remains to be recovered of the shard; it must not seal before that is done.
    recovering: Option<Box<Recovering>>,
    /// The index being built while the shard's index grows; changes go to both.
    growing: Option<Box<SealedIndex>>,
    /// Entries that only the growing index has.
    carried: Vec<(Name, u16)>,
    /// Entries that are not in the index until the footer of their segment is read.
    deferred: Deferred,
    /// Unix seconds when records were last chosen for a segment; 0 for never.
    gathered: u32,
    /// Segments that are being reclaimed: their entries must not be deferred.
    leaving: Vec<Sealed>,
    /// Segments that their records are relocated to, before the commit; see [`crate::background::merge`].
    arriving: Vec<Sealed>,
    /// The segment that a seal is moving records to.
    sealing: Option<Sealed>,
    /// Of a cache without tiers; no SET looks at it.
    protected: LaneBlocks,
}

/// Segments that may hold the record of a name: usually one.
pub(crate) type Candidates = SmallVec<[Sealed; 4]>;

/// A shard.
pub(crate) struct Shard {
    table: Rcu<DramTable>,
    index: Rcu<SealedIndex>,
    segments: SegmentTable,
    /// Counts changes after which a sealed record is found elsewhere only, see [`Locked::note_move`]. A reader that
    /// found a record nowhere while this changed must look again.
    moves: AtomicU32,
    /// Number of deferred entries, for readers without the lock.
    deferred: AtomicU32,
    deferred_at: DeferredFilter,
    /// Unix seconds at which the next large item in DRAM expires.
    items_due: NextExpiry,
    state: CachePadded,
    /// The shard's number.
    at: usize,
    cas_step: u64,
}

/// Cache lines of the lock, and of what every SET changes under it.
const CHANGED_LINES: usize = 2;
const _: () =
    assert!(std::mem::offset_of!(ShardState, hot) + 16 <= CHANGED_LINES * prefetch::LINE_BYTES);

/// On cache lines of its own: a thread that takes the lock must not take the line of the tables away from readers,
/// which need no lock.
#[repr(align(64))]
struct CachePadded(Mutex<ShardState>);

/// No block is available at the moment.
#[derive(Debug)]
pub(crate) struct NoBlock;

/// The side that asks for a block: a request must leave the last ones to the background.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    Request,
    Background,
}

getters! {
    ShardState {
        recovering: &Option<Box<Recovering>>,
        numbers: &[u16],
        generation: u64,
        growing: &Option<Box<SealedIndex>>,
        deferred: &Deferred,
        hot: &LaneBlocks,
        protected: &LaneBlocks,
        fresh_bytes: u64,
        fresh: &LaneBlocks,
    }
}

impl ShardState {
    /// Whether records are still being moved to a segment that can be read already.
    pub(crate) fn is_filling(&self, sealed: &Sealed) -> bool {
        self.sealing.as_ref() == Some(sealed) || self.arriving.contains(sealed)
    }
}

getters! {
    Shard {
        at: usize,
        moves: &AtomicU32,
        deferred_at: &DeferredFilter,
        table: &Rcu<DramTable>,
        items_due: &NextExpiry,
        index: &Rcu<SealedIndex>,
        segments: &SegmentTable,
    }
}

impl Shard {
    pub(crate) fn new(at: usize, geometry: &Geometry, buckets: usize, first_cas: u64) -> Self {
        let rows = geometry.segments_per_shard();
        let state = ShardState {
            fresh: LaneBlocks::default(),
            hot: LaneBlocks::default(),
            fresh_bytes: 0,
            numbers: (0..rows as u16).rev().collect(),
            generation: 0,
            // Every shard counts through its own residue class, so that CAS numbers are unique
            // without a shared counter.
            next_cas: first_cas * geometry.shards() as u64 + at as u64 + 1,
            recovering: None,
            growing: None,
            carried: Vec::new(),
            deferred: Deferred::new(rows),
            gathered: 0,
            leaving: Vec::new(),
            arriving: Vec::new(),
            sealing: None,
            protected: LaneBlocks::default(),
        };
        Self {
            table: Rcu::new(DramTable::new(DramTable::BUCKET_BITS_MIN)),
            index: Rcu::new(SealedIndex::new(buckets)),
            segments: SegmentTable::new(rows, geometry.segment_bytes(), geometry.read_unit()),
            moves: AtomicU32::new(0),
            deferred: AtomicU32::new(0),
            deferred_at: DeferredFilter::default(),
            items_due: NextExpiry::default(),
            state: CachePadded(Mutex::new(state)),
            at,
            cas_step: geometry.shards() as u64,
        }
    }

    /// Prefetches the lines that a change of a record begins with.
    #[inline]
    pub(crate) fn prefetch_change(&self, shared: &Shared, pos: u32) {
        prefetch::to_change::<CHANGED_LINES, _>(&self.state);
        shared.counters().stored().prefetch(self.at);
        self.deferred_at.prefetch(pos);
    }

    pub(crate) fn initial_index_bytes(&mut self) -> u64 {
        self.index.get_mut().bytes()
    }

    /// The next CAS number, without taking it.
    pub(crate) fn next_cas_peek(&self) -> u64 {
        lock(&self.state.0).next_cas
    }

    pub(crate) fn lock<'s>(&'s self, shared: &'s Shared, guard: Guard<'s>) -> Locked<'s> {
        Locked { shard: self, shared, guard, state: lock(&self.state.0) }
    }

    /// As [`Shard::lock`], or `None` when another thread holds the lock.
    pub(crate) fn try_lock<'s>(
        &'s self,
        shared: &'s Shared,
        guard: Guard<'s>,
    ) -> Option<Locked<'s>> {
        try_lock(&self.state.0).map(|state| Locked { shard: self, shared, guard, state })
    }

    /// The key's record in DRAM.
    #[inline(always)]
    pub(crate) fn find_resident<'g>(
        &'g self,
        shared: &Shared,
        guard: Guard<'g>,
        key: &Key<'_>,
        pos: u32,
    ) -> Option<(Resident<'g>, Record<'g>, SlotAt)> {
        let is_it = |addr| Record::is_at(shared.arena().view(guard, addr).bytes, key);
        let (addr, at) = self.table.load(guard).find(pos, is_it)?;
        let resident = shared.arena().view(guard, addr);
        let (record, _) = Record::decode(resident.bytes)?;
        Some((resident, record, at))
    }

    /// [`Entry::uses`](crate::index::bucket::Entry::uses) before this use, if the index has the entry (name, segment).
    pub(crate) fn note_use(
        &self,
        guard: Guard<'_>,
        (name, sealed): (Name, Sealed),
        access: Access,
    ) -> Option<u8> {
        let index = self.index.load(guard);
        let at = index.locate(name, sealed.number)?;
        self.segments.is_current(sealed).then(|| match access {
            Access::Use => index.note_use(at),
            Access::Peek => index.uses(at),
        })
    }

    /// The sealed segments that the index has for a name.
    pub(crate) fn candidates(&self, guard: Guard<'_>, name: Name) -> Candidates {
        let segments = self.index.load(guard).find(name);
        segments.into_iter().filter_map(|number| self.segments.sealed(number)).collect()
    }
}

/// A shard with its lock held. Every change of a key's record goes through it.
pub(crate) struct Locked<'s> {
    shard: &'s Shard,
    shared: &'s Shared,
    guard: Guard<'s>,
    state: MutexGuard<'s, ShardState>,
}

impl<'s> Locked<'s> {
    #[inline]
    pub(crate) fn guard(&self) -> Guard<'s> {
        self.guard
    }

    #[inline]
    pub(crate) fn shard(&self) -> &'s Shard {
        self.shard
    }

    #[inline]
    pub(crate) fn shared(&self) -> &'s Shared {
        self.shared
    }

    #[inline]
    pub(crate) fn state(&self) -> &MutexGuard<'s, ShardState> {
        &self.state
    }

    pub(crate) fn table(&self) -> &'s DramTable {
        self.shard.table.load(self.guard)
    }

    pub(crate) fn index(&self) -> &'s SealedIndex {
        self.shard.index.load(self.guard)
    }

    pub(crate) fn next_cas(&mut self) -> u64 {
        let cas = self.state.next_cas;
        self.set_next_cas(cas + self.shard.cas_step);
        cas
    }

    /// Sets the next CAS number, here and for a restart.
    pub(crate) fn set_next_cas(&mut self, next: u64) {
        self.state.next_cas = next;
        if let Some(state) = self.shared.state() {
            state.next_cas(self.shard.at).store(next, Ordering::Relaxed);
        }
    }
}
