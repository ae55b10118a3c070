//! A session: lookups of one worker thread.

use crate::dram::heat;
use crate::dram::resident::{Resident, mark};
use crate::engine::{Engine, chunks, durability, lost};
use crate::platform::mapped::Loss;
use crate::platform::prefetch;
use crate::platform::quiesce::{Guard, Reader};
use crate::records::access::Access;
use crate::records::key::{Key, Name};
use crate::records::manifest::{ItemId, Manifest, Run};
use crate::records::record::Record;
use crate::request::chunks::Pin;
use crate::request::search::{Evidence, Search, next_search};
use crate::segments::segment::Sealed;
use crate::shard::{Shard, promotion};
use crate::stats::counters::count;
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_policy::{Heat, Untold};

/// Hits in DRAM are reported to the policy 64 at a time, so that sessions seldom share a line.
const HITS_TOLD: u32 = 64;

/// Lines of a page that are prefetched; the processor's own prefetcher recognizes the rest.
const PAGE_LINES: usize = 4;
/// Lines behind these that are prefetched while the read before is checked; the processor's own prefetcher takes over
/// then.
const AHEAD_LINES: usize = 28;

/// A record that was found, with its past uses.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a> {
    /// The record.
    pub record: Record<'a>,
    /// It was read before this request (meta `h`).
    pub fetched: bool,
    /// Seconds since its last use (meta `l`); on a tier, since it was sealed.
    pub idle_seconds: u32,
    /// It was found in DRAM.
    pub from_dram: bool,
}

/// Answer of [`Session::get`].
#[derive(Debug)]
pub enum Lookup<'a> {
    /// The record.
    Hit(Hit<'a>),
    /// No record, or an expired one.
    Miss,
    /// A page must be read first: read [`Search::plan`], then [`Search::take`].
    Read(Box<Search>),
}

/// Answer of [`Session::look_for_chunks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunks {
    /// All chunks are there.
    There,
    /// A chunk is gone, and so the item is incomplete.
    Gone,
    /// A chunk may be in a segment that is not recovered yet, see [`crate::Cache::recover`].
    Recovering,
}

/// One worker's access to the cache. `Send`, but used by one thread at a time.
///
/// Records borrowed from a session stay valid until the next `&mut` call on it. The borrow checker enforces that; the
/// cache reuses memory only after every session has passed such a call.
pub struct Session {
    engine: Arc<Engine>,
    reader: Reader,
    /// A record was changed since the last [`Session::make_durable`].
    changed: Cell<bool>,
    /// Whether the state is lost; `stage` is its stage when the last request began.
    loss: Loss,
    stage: Cell<u32>,
    /// Hits in DRAM that were not reported to the policy yet.
    hits: Cell<u32>,
    /// Hits on tiers that were not reported either.
    untold: Cell<Untold>,
}

impl Session {
    pub(crate) fn new(engine: Arc<Engine>, reader: Reader) -> Self {
        let loss = engine.shared().arena().loss();
        Self {
            engine,
            reader,
            loss,
            stage: Cell::new(loss.stage()),
            changed: Cell::new(false),
            hits: Cell::new(0),
            untold: Cell::default(),
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What striped counters count the session's reads under.
    pub(super) fn reader_number(&self) -> usize {
        self.reader.number()
    }

    /// Begins or goes on reading. Wakes the session if it was parked.
    #[inline]
    pub(crate) fn guard(&self) -> Guard<'_> {
        self.engine().shared().quiesce().guard(&self.reader)
    }

    /// Begins a request. If [`Session::is_intact`] holds after it, all that it read of DRAM was whole.
    #[inline(always)]
    pub(crate) fn begin_reading(&self) {
        if self.loss.stage() != self.stage.get() {
            self.meet_loss();
        }
    }

    #[cold]
    fn meet_loss(&self) {
        lost::handle(self.engine(), self.guard());
        self.stage.set(self.loss.stage());
    }

    /// Whether records that were read since the last [`Session::get`] or [`Session::update`] are intact. If not, a part
    /// of the state was lost meanwhile (see [`crate::replace_lost`]), and the records with it: a caller that copied
    /// bytes of one must treat it as a miss.
    #[inline(always)]
    pub fn is_intact(&self) -> bool {
        self.loss.stage_after_reads() == self.stage.get()
    }

    pub(crate) fn shard(&self, key: &Key<'_>) -> (&Shard, Name) {
        self.shard_of(key.hash())
    }

    /// As [`Session::shard`], from the key's hash.
    fn shard_of(&self, hash: u64) -> (&Shard, Name) {
        let engine = self.engine();
        (&engine.shards()[engine.hasher().shard(hash)], engine.hasher().name(hash))
    }

    pub(crate) fn note_change(&self) {
        self.changed.set(true);
    }

    /// With [`crate::Durability::Power`]: makes all changes made through this session outlive a power loss. Must be
    /// called before they are acknowledged. Blocks for a flush of the drives; all waiting threads share one. Without
    /// it: nothing.
    ///
    /// # Errors
    /// A drive refuses the write or flush; the changes must not be acknowledged.
    pub fn make_durable(&self) -> io::Result<()> {
        let engine = self.engine();
        if engine.is_strict() && self.changed.get() {
            durability::make_durable(engine)?;
        }
        self.changed.set(false);
        Ok(())
    }

    /// Hashes a client's key.
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        self.engine().hasher().key(bytes, false)
    }

    /// A client's key with its hash, which the caller must have from [`Session::key`].
    pub fn key_of_hash<'k>(&self, bytes: &'k [u8], hash: u64) -> Key<'k> {
        debug_assert_eq!(self.key(bytes).hash(), hash);
        Key::new(bytes, hash)
    }

    /// Prefetches the lines that [`Search::take`] of this read, and the lookup after it, begin with. Should be called
    /// for all reads that came back before the first of them is checked.
    pub fn prefetch_check(&self, search: &Search, hash: u64, bytes: &[u8]) {
        let (shard, name) = self.shard_of(hash);
        let guard = self.guard();
        prefetch::lines::<PAGE_LINES>(bytes.as_ptr());
        shard.segments().prefetch(search.sealed.number);
        shard.table().load(guard).prefetch(name.pos);
        shard.index().load(guard).prefetch(name.pos);
        prefetch::lines::<1>(self.engine().shared().promotion().line_of(hash));
    }

    /// Prefetches the first half of the bytes that were read, behind those of [`Session::prefetch_check`]. Should be
    /// called for the read that is checked after the next one: drives write to memory, from where the bytes must come
    /// for the walk to the record and its checksum. More lines at once would delay each other.
    pub fn prefetch_read(&self, bytes: &[u8]) {
        if let Some(rest) = bytes.get(PAGE_LINES * prefetch::LINE_BYTES..) {
            prefetch::lines::<AHEAD_LINES>(rest.as_ptr());
        }
    }

    /// Looks `key` up at time `now` (unix seconds). Expired records are misses.
    ///
    /// `evidence` is `None` at first. After `Lookup::Read`, and a `check` that returned `Match` or `Absent`, call again
    /// with it; the hit then borrows the evidence's bytes. The result can be `Read` again when the record was relocated
    /// meanwhile.
    #[inline(always)]
    pub fn get<'a>(
        &'a self,
        key: Key<'_>,
        now: u32,
        access: Access,
        evidence: Option<Evidence<'a>>,
    ) -> Lookup<'a> {
        self.begin_reading();
        let (shard, name) = self.shard(&key);
        // Must be read before the lookup in DRAM, see there.
        let moves = shard.moves().load(Ordering::Acquire);
        match self.get_in_dram(&key, (shard, name), now, access) {
            Some(lookup) => lookup,
            None if !self.engine().has_tiers() => Lookup::Miss,
            None => self.get_on_flash(&key, (shard, name), now, access, evidence, moves),
        }
    }

    /// `None` if DRAM has no record of the key.
    #[inline(always)]
    fn get_in_dram<'a>(
        &'a self,
        key: &Key<'_>,
        (shard, name): (&'a Shard, Name),
        now: u32,
        access: Access,
    ) -> Option<Lookup<'a>> {
        let shared = self.engine().shared();
        let (resident, record, _) = shard.find_resident(shared, self.guard(), key, name.pos)?;
        if record.is_expired(now) {
            return Some(self.missed_expired());
        }
        if access == Access::Use && self.engine().has_tiers() {
            self.note_hit(&resident);
        }
        Some(Lookup::Hit(hit_in_dram(&resident, record, now, access)))
    }

    /// Looks up a key that is not in DRAM; `moves` is the shard's count from before that lookup.
    #[inline(never)]
    fn get_on_flash<'a>(
        &'a self,
        key: &Key<'_>,
        (shard, name): (&'a Shard, Name),
        now: u32,
        access: Access,
        evidence: Option<Evidence<'a>>,
        mut moves: u32,
    ) -> Lookup<'a> {
        let guard = self.guard();
        let shared = self.engine().shared();
        let known = evidence.and_then(|evidence| Some((evidence, matched(&evidence)?)));
        // Usually the record is still where it was read.
        if let Some((evidence, (sealed, record))) = known
            && let place = (name, sealed)
            && let Some(uses) = shard.note_use(guard, place, access)
        {
            return self.hit_on_flash(key, place, evidence, (record, uses), now, access);
        }
        let mut all = false;
        loop {
            let mut candidates = match all {
                true => shard.lock(shared, guard).candidates(name),
                false => shard.candidates(guard, name),
            };
            if let Some((evidence, (sealed, record))) = known
                && candidates.contains(&sealed)
            {
                let place = (name, sealed);
                let uses = shard.note_use(guard, place, access).unwrap_or(0);
                return self.hit_on_flash(key, place, evidence, (record, uses), now, access);
            }
            let before = evidence.map(|evidence| evidence.search);
            let search = next_search(shard, &mut candidates, name, before);
            if !all && (search.is_none() || known.is_some()) && shard.has_deferred() {
                all = true;
            } else if let Some(search) = search {
                return Lookup::Read(search);
            } else if shard.moves().load(Ordering::Acquire) == moves {
                return Lookup::Miss;
            }
            moves = shard.moves().load(Ordering::Acquire);
            if let Some(lookup) = self.get_in_dram(key, (shard, name), now, access) {
                return lookup;
            }
        }
    }

    #[cold]
    fn missed_expired(&self) -> Lookup<'_> {
        count(self.engine().shared().counters().met_expired());
        Lookup::Miss
    }

    /// Counts a hit in DRAM, for the policy, which compares these with reads of tiers.
    fn note_hit(&self, resident: &Resident<'_>) {
        let promotion = self.engine().shared().promotion();
        heat::warm(resident, promotion);
        self.hits.set(self.hits.get() + 1);
        if self.hits.get() == HITS_TOLD {
            promotion.note_hits(self.hits.take().into());
        }
    }

    /// Counts a hit on a tier, for the policy; returns the record's frequency.
    fn note_read(&self, key: &Key<'_>) -> Heat {
        let mut untold = self.untold.get();
        let heat = self.engine().shared().promotion().note_read(key.hash(), &mut untold);
        self.untold.set(untold);
        heat
    }

    fn hit_on_flash<'a>(
        &'a self,
        key: &Key<'_>,
        (name, sealed): (Name, Sealed),
        evidence: Evidence<'a>,
        (record, uses): (Record<'a>, u8),
        now: u32,
        access: Access,
    ) -> Lookup<'a> {
        if record.is_expired(now) {
            return self.missed_expired();
        }
        let guard = self.guard();
        let (shard, _) = self.shard(key);
        let shared = self.engine().shared();
        if access == Access::Use {
            let tier = shard.segments().slot(sealed.number).tier;
            shared.counters().tier(tier).hits().add(self.reader.number(), 1);
            if promotion::deserves_copy(shared, self.note_read(key), uses, &record) {
                let bytes = evidence.record_bytes();
                promotion::promote(shard, shared, guard, key, (name, sealed), bytes, now);
            }
        }
        let idle_seconds = now.saturating_sub(shard.segments().sealed_at(sealed.number));
        Lookup::Hit(Hit { record, fetched: uses > 0, idle_seconds, from_dram: false })
    }

    /// A new number for the chunks of a large item.
    pub fn begin_item(&self) -> ItemId {
        chunks::begin_item(self.engine())
    }

    /// The key of a chunk, for [`Session::get`] and [`Search::take`]; `name` is scratch space that the key borrows.
    pub fn chunk_key<'k>(&self, item: ItemId, index: u32, name: &'k mut [u8; 12]) -> Key<'k> {
        self.engine().hasher().chunk_key(item, index, name)
    }

    /// Keeps the chunks of a large item, if they are there, as long as the [`Pin`] lives, even if the item goes. Must
    /// be called while the record with its manifest is borrowed.
    pub fn pin(&self, manifest: &Manifest) -> Pin {
        Pin::new(&self.engine, manifest)
    }

    /// Whether every chunk of the item is there (without I/O, so up to equal fingerprints) and kept by `pin`, which
    /// must be of its manifest. Must be called before the reply's header is sent.
    pub fn look_for_chunks(&self, manifest: &Manifest, pin: &Pin) -> Chunks {
        if !pin.is_in_time() {
            return Chunks::Gone;
        }
        let mut name = [0; 12];
        let look = |(item, index)| self.look_for_chunk(&self.chunk_key(item, index, &mut name));
        manifest.chunks().map(look).find(|found| *found != Chunks::There).unwrap_or(Chunks::There)
    }

    fn look_for_chunk(&self, key: &Key<'_>) -> Chunks {
        let (guard, shared) = (self.guard(), self.engine().shared());
        let (shard, name) = self.shard(key);
        let is_resident = || shard.find_resident(shared, guard, key, name.pos).is_some();
        if is_resident() || !shard.candidates(guard, name).is_empty() {
            return Chunks::There;
        }
        // It may have been relocated between these lookups, be deferred, or not be recovered yet. After `Gone` the
        // caller removes the item, so that must be certain.
        let locked = shard.lock(shared, guard);
        match is_resident() || !locked.candidates(name).is_empty() {
            true => Chunks::There,
            false if locked.state().recovering().is_some() => Chunks::Recovering,
            false => Chunks::Gone,
        }
    }

    /// Counts a use of all chunks of an item: a request that changes one uses all of it, and reads none. Only without
    /// tiers, where unused records are soon evicted.
    pub fn use_chunks(&self, manifest: &Manifest, now: u32) {
        if self.engine().has_tiers() {
            return;
        }
        let mut name = [0; 12];
        for (item, index) in manifest.chunks() {
            let key = self.chunk_key(item, index, &mut name);
            self.get_in_dram(&key, self.shard(&key), now, Access::Use);
        }
    }

    /// Counts a use of all chunks of a large item that replaces another, or was stored again soon after it was evicted:
    /// eviction comes to them before it comes to the manifest, which has the marks and the name that it goes by.
    pub(crate) fn use_chunks_of_known(
        &self,
        key: &Key<'_>,
        is_rewritten: bool,
        manifest: &Manifest,
        now: u32,
    ) {
        let evicted = self.engine().shared().evicted();
        if self.engine().has_tiers() {
            return;
        }
        let was_evicted = evicted.recall(key.hash());
        if was_evicted {
            evicted.note(key.hash());
        }
        if was_evicted || is_rewritten {
            self.use_chunks(manifest, now);
        }
    }

    /// Counts a large item as evicted that lost a chunk, and is removed for that.
    pub fn note_chunk_lost(&self, key: &Key<'_>) {
        if !self.engine().has_tiers() {
            self.engine().shared().evicted().note(key.hash());
        }
    }

    /// Frees the chunks of an upload that was not published.
    pub fn discard_chunks(&self, item: ItemId, chunks: u32) {
        let run = Run { item, chunks, chunk_bytes: 0, last_bytes: 0 };
        chunks::end_uploads(self.engine(), &[run]);
        chunks::discard_runs(self.engine(), [run].into_iter());
    }

    /// Declares that no record borrowed from this session is in use any more; must be called once per loop.
    pub fn quiesce(&mut self) {
        self.engine.shared().quiesce().refresh(&mut self.reader);
    }

    /// As [`Session::quiesce`], and lets memory be freed while its thread sleeps; the next call on the session wakes
    /// it.
    pub fn park(&mut self) {
        self.engine.shared().quiesce().park(&mut self.reader);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.engine.shared().quiesce().leave(&mut self.reader);
    }
}

#[inline]
pub(crate) fn hit_in_dram<'a>(
    resident: &Resident<'a>,
    record: Record<'a>,
    now: u32,
    access: Access,
) -> Hit<'a> {
    let accessed = resident.header.accessed().load(Ordering::Relaxed);
    let hit = Hit {
        record,
        fetched: resident.has(mark::FETCHED),
        idle_seconds: now.saturating_sub(accessed),
        from_dram: true,
    };
    if access == Access::Use {
        resident.set(mark::USED | mark::FETCHED);
        if accessed != now {
            resident.header.accessed().store(now, Ordering::Relaxed);
        }
    }
    hit
}

/// The record in the evidence.
pub(crate) fn matched<'a>(evidence: &Evidence<'a>) -> Option<(Sealed, Record<'a>)> {
    let (record, _) = Record::decode(evidence.record_bytes())?;
    Some((evidence.search.sealed, record))
}
