//! A shard: all records whose hash begins with its number, and the lock under which they change.

use crate::dram::hot::Origin;
pub(crate) use crate::dram::lane::{FullBlock, Lane, LaneBlocks};
use crate::dram::memory::{Block, Guard, Stamp};
use crate::dram::resident::{Addr, Resident, mark};
use crate::dram::table::{DramTable, SlotAt};
use crate::index::sealed::{NoRoom, SealedIndex};
use crate::index::suspended::{Suspended, Whereabouts};
use crate::log::KillLog;
use crate::platform::crash::crash_point;
use crate::platform::lock::{lock, try_lock};
use crate::platform::prefetch;
use crate::platform::published::Published;
use crate::records::access::Access;
use crate::records::key::{Key, Name};
use crate::records::manifest::NextExpiry;
use crate::records::record::{Encoder, Record};
use crate::recovery::recover::Awaited;
use crate::segments::segment::{Sealed, SegmentTable};
use crate::shared::Pool;
use crate::shared::geometry::Geometry;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

/// What changes only under the shard's lock. In this order what every SET changes lies in [`CHANGED_LINES`].
#[repr(C)]
pub(crate) struct ShardState {
    pub(crate) fresh: LaneBlocks,
    /// Encoded bytes of live fresh records: what sealing them takes on flash, without page headers.
    pub(crate) fresh_bytes: u64,
    next_cas: u64,
    pub(crate) hot: LaneBlocks,
    /// Free segment numbers, lowest last.
    pub(crate) numbers: Vec<u16>,
    /// Counts `flush_all`; background work that began before one must not finish.
    pub(crate) generation: u64,
    /// What is still to be recovered of the shard; it seals nothing before that is done.
    pub(crate) awaited: Option<Box<Awaited>>,
    /// The index being built while the shard's index grows; changes go to both.
    pub(crate) growing: Option<Box<SealedIndex>>,
    /// Entries that only the growing index has.
    pub(crate) carried: Vec<(Name, u16)>,
    /// Entries that are out of the index until their segment's footer is looked at.
    pub(crate) suspended: Suspended,
    /// Unix seconds when records were last chosen for a segment; 0 for never.
    pub(crate) gathered: u32,
    /// The segments that are being taken back: their entries are not suspended.
    pub(crate) leaving: Vec<Sealed>,
    /// Those that their records are moving to, before their commit; see [`crate::background::merge`].
    pub(crate) arriving: Vec<Sealed>,
    /// The one that a seal hands records over to.
    pub(crate) sealing: Option<Sealed>,
}

/// Segments that may hold the record of a name: most often one.
pub(crate) type Candidates = SmallVec<[Sealed; 4]>;

/// A shard.
pub(crate) struct Shard {
    pub(crate) table: Published<DramTable>,
    pub(crate) index: Published<SealedIndex>,
    pub(crate) segments: SegmentTable,
    /// Counts moves of records from the sealed index into the DRAM table. A reader that found a
    /// record in neither, while this changed, looks again.
    pub(crate) moves: AtomicU32,
    /// How many entries are suspended, for readers that hold no lock.
    pub(crate) suspended: AtomicU32,
    pub(crate) suspended_at: Whereabouts,
    /// When the next large item of those in DRAM expires.
    pub(crate) items_due: NextExpiry,
    state: Apart,
    /// Its number.
    pub(crate) at: usize,
    cas_step: u64,
}

/// Cache lines of the lock, and of what every SET changes under it.
const CHANGED_LINES: usize = 2;
const _: () =
    assert!(std::mem::offset_of!(ShardState, hot) + 16 <= CHANGED_LINES * prefetch::LINE_BYTES);

/// On cache lines of its own: whoever takes the lock must not take the line of the tables from readers,
/// who need none.
#[repr(align(64))]
struct Apart(Mutex<ShardState>);

/// No block to be had at the moment.
#[derive(Debug)]
pub(crate) struct NoBlock;

/// Who asks for a block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    Request,
    Background,
}

impl ShardState {
    /// Whether records are still being handed over to a segment that can be read already.
    pub(crate) fn is_filling(&self, sealed: &Sealed) -> bool {
        self.sealing.as_ref() == Some(sealed) || self.arriving.contains(sealed)
    }
}

impl Shard {
    pub(crate) fn new(at: usize, geometry: &Geometry, buckets: usize, first_cas: u64) -> Self {
        let rows = geometry.segments_per_shard;
        let state = ShardState {
            fresh: LaneBlocks::default(),
            hot: LaneBlocks::default(),
            fresh_bytes: 0,
            numbers: (0..rows as u16).rev().collect(),
            generation: 0,
            // Every shard counts through its own residue class, so that CAS numbers are unique
            // without a shared counter.
            next_cas: first_cas * geometry.shards as u64 + at as u64 + 1,
            awaited: None,
            growing: None,
            carried: Vec::new(),
            suspended: Suspended::new(rows),
            gathered: 0,
            leaving: Vec::new(),
            arriving: Vec::new(),
            sealing: None,
        };
        Self {
            table: Published::new(DramTable::new(DramTable::BUCKET_BITS_MIN)),
            index: Published::new(SealedIndex::new(buckets)),
            segments: SegmentTable::new(rows, geometry.segment_bytes, geometry.read_unit),
            moves: AtomicU32::new(0),
            suspended: AtomicU32::new(0),
            suspended_at: Whereabouts::default(),
            items_due: NextExpiry::default(),
            state: Apart(Mutex::new(state)),
            at,
            cas_step: geometry.shards as u64,
        }
    }

    /// Asks the processor for what a change of a record begins with.
    #[inline]
    pub(crate) fn prefetch_change(&self, pool: &Pool, pos: u32) {
        prefetch::to_change::<CHANGED_LINES, _>(&self.state);
        pool.counters.stored.prefetch(self.at);
        self.suspended_at.prefetch(pos);
    }

    pub(crate) fn initial_index_bytes(&mut self) -> u64 {
        self.index.get_mut().bytes()
    }

    /// The next CAS number, which stays the next one.
    pub(crate) fn next_cas_peek(&self) -> u64 {
        lock(&self.state.0).next_cas
    }

    pub(crate) fn lock<'s>(&'s self, pool: &'s Pool, guard: Guard<'s>) -> Locked<'s> {
        Locked { shard: self, pool, guard, state: lock(&self.state.0) }
    }

    /// As [`Shard::lock`], or `None` when somebody else has it.
    pub(crate) fn try_lock<'s>(&'s self, pool: &'s Pool, guard: Guard<'s>) -> Option<Locked<'s>> {
        try_lock(&self.state.0).map(|state| Locked { shard: self, pool, guard, state })
    }

    /// The key's record in DRAM.
    #[inline(always)]
    pub(crate) fn find_resident<'g>(
        &'g self,
        pool: &Pool,
        guard: Guard<'g>,
        key: &Key<'_>,
        pos: u32,
    ) -> Option<(Resident<'g>, Record<'g>, SlotAt)> {
        let is_it = |addr| Record::is_at(pool.arena.view(guard, addr).bytes, key);
        let (addr, at) = self.table.load(guard).find(pos, is_it)?;
        let resident = pool.arena.view(guard, addr);
        let (record, _) = Record::decode(resident.bytes)?;
        Some((resident, record, at))
    }

    /// Whether the index points to this segment for a name, and if so, what `Entry::uses` was before this
    /// use.
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

/// A shard with its lock held. Every change of what keys mean goes through here.
pub(crate) struct Locked<'s> {
    pub(crate) shard: &'s Shard,
    pub(crate) pool: &'s Pool,
    pub(crate) guard: Guard<'s>,
    pub(crate) state: MutexGuard<'s, ShardState>,
}

impl<'s> Locked<'s> {
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

    /// The next CAS number, here and after a restart.
    pub(crate) fn set_next_cas(&mut self, next: u64) {
        self.state.next_cas = next;
        if let Some(state) = &self.pool.state {
            state.next_cas(self.shard.at).store(next, Ordering::Relaxed);
        }
    }

    pub(crate) fn lane(&mut self, lane: Lane) -> &mut LaneBlocks {
        match lane {
            Lane::Fresh => &mut self.state.fresh,
            Lane::Hot => &mut self.state.hot,
        }
    }

    /// Writes a record into a lane's open block. It is not visible before it is in the table, and a
    /// fresh one does not outlive the process before [`Locked::commit`].
    pub(crate) fn append(
        &mut self,
        lane: Lane,
        asker: Asker,
        bytes: usize,
        stamp: Stamp,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<Addr, NoBlock> {
        let pool = self.pool;
        let has_room = |block: &Block| {
            crate::dram::resident::footprint(bytes) <= pool.arena.block_bytes() - block.fill()
        };
        if !self.lane(lane).open.as_ref().is_some_and(has_room) {
            self.open_block(lane, asker)?;
        }
        let block = self.lane(lane).open.as_mut().ok_or(NoBlock)?;
        let addr = block.append(&pool.arena, bytes, stamp, write).ok_or(NoBlock)?;
        if lane == Lane::Fresh {
            self.state.fresh_bytes += bytes as u64;
            pool.counters.fresh_bytes.add(self.shard.at, bytes as u64);
        }
        Ok(addr)
    }

    fn open_block(&mut self, lane: Lane, asker: Asker) -> Result<(), NoBlock> {
        let pool = self.pool;
        // Copies of hot records leave the last blocks to records that are nowhere else.
        let reserve = match (asker, lane) {
            (Asker::Background, _) => 0,
            (Asker::Request, Lane::Fresh) => pool.reserve,
            (Asker::Request, Lane::Hot) => pool.reserve * 2,
        };
        let fresh = pool.counters.blocks(Lane::Fresh).load(Ordering::Relaxed);
        let is_ahead = (asker, lane) == (Asker::Request, Lane::Fresh)
            && fresh >= pool.fresh_max.load(Ordering::Relaxed);
        let place = pool.place_for(lane);
        if is_ahead || pool.arena.available(&pool.budget, place) <= reserve {
            return Err(NoBlock);
        }
        let block = pool.arena.take(&pool.budget, place, self.shard.at).ok_or(NoBlock)?;
        pool.counters.blocks(lane).fetch_add(1, Ordering::Relaxed);
        if let Some(old) = self.lane(lane).open.replace(block) {
            self.shelve(lane, old);
        }
        self.note_ages(lane);
        Ok(())
    }

    fn shelve(&mut self, lane: Lane, block: Block) {
        if self.pool.arena.live(block.id) == 0 {
            self.retire(lane, block.id);
        } else {
            let full = FullBlock { id: block.id, fill: block.fill(), order: block.order() };
            self.lane(lane).full.push_back(full);
        }
    }

    /// Tells [`crate::dram::ages::Ages`] which blocks the lane has now.
    pub(crate) fn note_ages(&mut self, lane: Lane) {
        let blocks = self.lane(lane);
        let oldest = blocks.full.front().map(|block| block.order);
        let open = blocks.open.as_ref().map(Block::order);
        self.pool.ages.set_oldest(lane, self.shard.at, oldest);
        if lane == Lane::Fresh {
            self.pool.ages.set_open(self.shard.at, open);
        }
    }

    /// What was appended to the fresh lane outlives the process from here on. To be called when the log
    /// says of everything that it replaces that it is not to come back.
    pub(crate) fn commit(&mut self) {
        crash_point("a record: before its commit");
        if let Some(block) = &self.state.fresh.open {
            block.commit(&self.pool.arena);
        }
        crash_point("a record: after its commit");
    }

    /// Encoded bytes of fresh records in blocks that are full, at least.
    pub(crate) fn sealable_bytes(&self) -> u64 {
        let open = self.state.fresh.open.as_ref().map_or(0, |block| block.fill().into());
        self.state.fresh_bytes.saturating_sub(open)
    }

    /// Nothing is appended to the open fresh block any more.
    pub(crate) fn shelve_open(&mut self) {
        if let Some(block) = self.state.fresh.open.take() {
            self.shelve(Lane::Fresh, block);
            self.note_ages(Lane::Fresh);
        }
    }

    /// Takes back a full block that holds nothing alive.
    pub(crate) fn retire_full(&mut self, lane: Lane, id: u32) {
        self.lane(lane).full.retain(|block| block.id != id);
        self.note_ages(lane);
        self.retire(lane, id);
    }

    /// Voids a record that no table points to.
    pub(crate) fn void_unlisted(&mut self, old: &Resident<'_>) {
        if self.pool.arena.void(old) {
            let lane = if old.has(mark::HOT) { Lane::Hot } else { Lane::Fresh };
            let id = self.pool.arena.block_of(old.addr);
            if self.lane(lane).full.iter().any(|block| block.id == id) {
                self.retire_full(lane, id);
            }
        }
    }

    /// Drops every record and every block of a lane; the table no longer points to any of them.
    pub(crate) fn clear_lane(&mut self, lane: Lane) {
        let blocks = std::mem::take(self.lane(lane));
        self.pool.counters.records(lane).sub(self.shard.at, blocks.records);
        let full = blocks.full.iter().map(|block| block.id);
        full.chain(blocks.open.map(|block| block.id)).for_each(|id| self.retire(lane, id));
        self.note_ages(lane);
    }

    fn retire(&mut self, lane: Lane, id: u32) {
        self.pool.counters.blocks(lane).fetch_sub(1, Ordering::Relaxed);
        self.pool.arena.retire(id, &self.pool.quiesce);
    }

    /// Points the table to a record of a key that has none there.
    pub(crate) fn enter(&mut self, pos: u32, addr: Addr, lane: Lane) {
        self.grow_table();
        self.table().insert(pos, addr);
        self.lane(lane).records += 1;
        self.pool.counters.records(lane).add(self.shard.at, 1);
    }

    /// Counts a record that was stored.
    pub(crate) fn note_stored(&self) {
        self.pool.counters.stored.add(self.shard.at, 1);
    }

    /// Points the table to a newer record of the same key and voids the older one.
    pub(crate) fn supersede(
        &mut self,
        pos: u32,
        old: &Resident<'_>,
        at: SlotAt,
        addr: Addr,
        lane: Lane,
    ) {
        crate::dram::hot::hand_on(self.pool, old, &self.pool.arena.view(self.guard, addr));
        self.table().replace(pos, at, addr);
        self.lane(lane).records += 1;
        self.pool.counters.records(lane).add(self.shard.at, 1);
        self.void(old);
    }

    /// Takes a record out of the table and voids it.
    pub(crate) fn forget(&mut self, pos: u32, old: &Resident<'_>, at: SlotAt) {
        self.table().remove(pos, at);
        self.void(old);
    }

    fn void(&mut self, old: &Resident<'_>) {
        self.unlist(old);
        self.void_unlisted(old);
    }

    /// The table does not point to the record any more.
    #[inline]
    fn unlist(&mut self, old: &Resident<'_>) {
        let lane = if old.has(mark::HOT) { Lane::Hot } else { Lane::Fresh };
        self.lane(lane).records -= 1;
        self.pool.counters.records(lane).sub(self.shard.at, 1);
        if lane == Lane::Fresh {
            self.state.fresh_bytes -= old.bytes.len() as u64;
            self.pool.counters.fresh_bytes.sub(self.shard.at, old.bytes.len() as u64);
        }
    }

    /// A record that went into a segment leaves the table, and stays in its block until the seal is
    /// committed and [`Locked::void_unlisted`] takes it out.
    pub(crate) fn unlist_sealed(
        &mut self,
        pos: u32,
        old: &Resident<'_>,
        at: SlotAt,
        copy: Option<Addr>,
    ) {
        match copy {
            Some(addr) => {
                self.table().replace(pos, at, addr);
                self.lane(Lane::Hot).records += 1;
                self.pool.counters.records(Lane::Hot).add(self.shard.at, 1);
            }
            None => self.table().remove(pos, at),
        }
        self.unlist(old);
    }

    fn grow_table(&mut self) {
        let table = self.table();
        if !table.is_crowded() {
            return;
        }
        let bits = table.bucket_bits() + 1;
        let bytes = DramTable::bytes_for(bits);
        if !self.pool.budget.take(bytes) {
            if !table.is_full() {
                return;
            }
            // Without a larger table the record can't be found; background work pays it back.
            self.pool.budget.force(bytes);
        }
        self.swap_table(table.resized(bits));
    }

    /// Puts a table in place whose bytes are already taken from the budget.
    pub(crate) fn swap_table(&mut self, table: DramTable) {
        let bytes = self.table().bytes();
        self.pool.counters.table_bytes.fetch_add(table.bytes(), Ordering::Relaxed);
        self.pool.counters.table_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.pool.discard(self.shard.table.replace(table), bytes);
    }

    /// Adds the entry (name, segment) to the index, and its record to what lives in the segment.
    pub(crate) fn link(
        &mut self,
        name: Name,
        number: u16,
        uses: u8,
        bytes: u32,
    ) -> Result<(), NoRoom> {
        self.index().insert(name, number, uses)?;
        if let Some(growing) = &self.state.growing
            && let Err(no_room) = growing.insert(name, number, uses)
        {
            self.index().remove(name, number);
            return Err(no_room);
        }
        self.add_live(number, bytes);
        Ok(())
    }

    /// One more record lives in a segment.
    pub(crate) fn add_live(&self, number: u16, bytes: u32) {
        self.shard.segments.add_live(number, bytes);
        let tier = self.shard.segments.slot(number).tier;
        self.pool.counters.tier(tier).add_live(self.shard.at, bytes);
    }

    /// Takes the entry (name, segment) out of the index, and the record from what lives in the
    /// segment; `bytes` is its encoded size where known. Says whether there was an entry.
    pub(crate) fn unlink(&mut self, name: Name, number: u16, bytes: Option<u32>) -> bool {
        if let Some(growing) = &self.state.growing {
            growing.remove(name, number);
        }
        let removed = self.take_entry(name, number, bytes);
        if !removed {
            self.forget_suspended(name, number);
        }
        removed
    }

    pub(crate) fn take_entry(&mut self, name: Name, number: u16, bytes: Option<u32>) -> bool {
        // While the entry is still there: who finds neither it nor what is in the table instead looks again.
        self.note_move();
        let removed = self.index().remove(name, number);
        if removed {
            let bytes = self.shard.segments.sub_live(number, bytes);
            let tier = self.shard.segments.slot(number).tier;
            self.pool.counters.tier(tier).sub_live(self.shard.at, bytes);
        }
        removed
    }

    /// The segment that holds a copy of the resident record which no kill names yet.
    pub(crate) fn origin(&self, resident: &Resident<'_>) -> Option<u16> {
        let bits = resident.header.origin.load(Ordering::Relaxed);
        if bits == Origin::NONE {
            return None;
        }
        let origin = Origin::from_bits(bits);
        let sealed = self.shard.segments.sealed(origin.number());
        sealed.is_some_and(|sealed| origin.is_of(sealed)).then(|| origin.number())
    }

    /// The sealed copy of a hot record is no longer the key's: takes it out of the index, if it is
    /// still there.
    pub(crate) fn unlink_origin(&mut self, name: Name, hot: &Resident<'_>) {
        if let Some(number) = self.origin(hot).filter(|_| hot.has(mark::HOT)) {
            self.unlink(name, number, Some(hot.bytes.len() as u32));
        }
    }

    /// Notes in the log that the copy of a name in a segment is not to come back.
    pub(crate) fn log_kill(&self, name: Name, number: u16) {
        self.log_of_copies(number, |log, slot| log.kill(slot, name));
    }

    /// Notes in the log that a record which shares bucket and fingerprint with a name loses its entry
    /// unread, and so is not to come back.
    pub(crate) fn log_kill_like(&self, name: Name, number: u16) {
        self.log_of_copies(number, |log, slot| log.kill_like(slot, name));
    }

    /// Says something of the record in a segment, and of the copy that it has in one of those that it
    /// moves away from: before the commit that one is what a restart brings back.
    fn log_of_copies(&self, number: u16, say: impl Fn(&KillLog, u32)) {
        let say = |number: u16| {
            let slot = self.shard.segments.slot(number);
            say(&self.pool.logs[usize::from(slot.tier)], self.pool.slots.index(slot));
        };
        say(number);
        if self.state.arriving.iter().any(|sealed| sealed.number == number) {
            self.state.leaving.iter().for_each(|sealed| say(sealed.number));
        }
    }

    /// As [`Locked::log_kill`], of the copy that a resident record was made from.
    pub(crate) fn log_kill_origin(&self, name: Name, resident: &Resident<'_>) {
        if let Some(number) = self.origin(resident) {
            self.log_kill(name, number);
        }
    }

    /// While the shard's segments are not recovered, a change of a name is noted for all of them.
    pub(crate) fn log_change(&mut self, name: Name) {
        if let Some(awaited) = &mut self.state.awaited
            && awaited.note(name)
        {
            self.pool.logs.iter().for_each(|log| log.kill_all(self.shard.at as u16, name));
        }
    }

    /// A sealed record is about to be found elsewhere only; readers that see it nowhere look again.
    pub(crate) fn note_move(&self) {
        let moves = &self.shard.moves;
        moves.store(moves.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Writes a record into the fresh lane.
    #[inline]
    pub(crate) fn append_fresh(
        &mut self,
        asker: Asker,
        encoder: &Encoder<'_>,
        now: u32,
    ) -> Result<Addr, NoBlock> {
        let stamp = Stamp { accessed: now, ..Stamp::default() };
        self.append(Lane::Fresh, asker, encoder.bytes(), stamp, |out| encoder.write(out))
    }
}
