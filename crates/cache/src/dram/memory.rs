//! The blocks of DRAM that records live in.
//!
//! All records in DRAM lie in equal blocks of one mapping. One shard fills a block in arrival order. Its records are
//! immutable once published. It returns to the pool when none of them is live and every session has passed a quiescent
//! point. Unsafe code of the crate is in this file, in [`crate::platform`], and where [`crate::background`] takes
//! guards that are not bound to a borrow.
//!
//! The first blocks lie in the [`State`], so that records without a sealed original outlive the process. Recovery reads
//! two words of the state for each:
//!
//! ```text
//! arrival order u64 | shard + 1 u32, committed bytes u32   (second word 0: the block is free)
//! ```
//!
//! A record counts once "committed bytes" include it, until its void mark is set.

use crate::dram::budget::Budget;
use crate::dram::resident::{Addr, HEADER_BYTES, Header, Resident, footprint, mark};
use crate::platform::getters::getters;
use crate::platform::lock::lock;
use crate::platform::mapped::{Loss, Watch};
pub(crate) use crate::platform::quiesce::Guard;
use crate::platform::quiesce::Quiesce;
use crate::platform::{mapped, prefetch};
use crate::state::{Field, State};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::collections::VecDeque;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Cache lines that a record of 100 bytes with its headers lies on.
const RECORD_LINES: usize = 3;
/// A walk through a block prefetches this many bytes ahead: the next record's address is only known from this one.
const WALK_AHEAD: usize = 1024;

/// Where the memory of a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the state: committed records outlive the process.
    Surviving,
    /// In memory of the process.
    Passing,
}

/// A block that its holder alone may fill.
pub(crate) struct Block {
    pub(super) id: u32,
    fill: u32,
    shard: u32,
    order: u64,
}

/// What the arena keeps of a block.
#[derive(Default)]
struct Meta {
    /// Bytes of records that are not void. Changed under the owner's lock only.
    live: AtomicU32,
}

struct Pool {
    /// Free and resident, by [`Place`]; they count as used in the budget.
    free: [Vec<u32>; 2],
    /// Free and returned to the system, or never touched.
    absent: [Vec<u32>; 2],
    /// As `absent`, in the state: their space on its file system was returned too, and must be reserved again.
    punched: Vec<u32>,
    /// Blocks of unlinked records, each with the epoch that makes it reusable; oldest first.
    retired: VecDeque<(u64, u32)>,
}

/// The mapping and its blocks.
pub(crate) struct Arena {
    base: NonNull<u8>,
    block_bytes: u32,
    blocks: u32,
    meta: Box<[Meta]>,
    pool: Mutex<Pool>,
    /// Lengths of `Pool::free`; read without the lock.
    free: [AtomicU32; 2],
    /// The state; its blocks are the first ones.
    state: Option<Arc<State>>,
    surviving: u32,
    /// The surviving blocks are reserved from the start, in addition to the budget.
    prepaid: bool,
    /// All blocks count as passing, see [`Arena::unite`].
    is_united: AtomicBool,
    /// Blocks that lie in the state must not be used again before [`Arena::detach_block`].
    is_detached: AtomicBool,
    /// Whether pages of the state were lost.
    pub(super) loss: Loss,
    watch: Watch,
    /// Blocks taken so far. The state has a copy, which may be lost.
    orders: AtomicU64,
}

// SAFETY: the mapping belongs to the arena alone; access to it follows the rules of `Block` (one
// writer, unpublished bytes) and `Guard` (immutable bytes), see `Block::append` and `Arena::view`.
unsafe impl Send for Arena {}
// SAFETY: as for `Send`.
unsafe impl Sync for Arena {}

getters! {
    Arena {
        loss: Loss,
    }
}

impl Arena {
    /// Reserves address space for `bytes` of records, including the blocks of `state`, and for `bytes_max` if the
    /// system allows it; takes no memory yet. With `prepaid`, the caller has the surviving blocks already and they
    /// count as resident; else they are taken from the budget one by one, as all blocks are.
    pub(crate) fn new(
        (bytes, bytes_max): (u64, u64),
        block_bytes: u32,
        state: Option<Arc<State>>,
        prepaid: bool,
    ) -> io::Result<Self> {
        let surviving = state.as_ref().map_or(0, |state| state.blocks().2);
        let blocks_for = |bytes: u64| {
            let addressable = Addr::UNIT << Addr::BITS;
            let blocks = bytes.min(addressable) / u64::from(block_bytes);
            (blocks.max(1) as u32).max(surviving)
        };
        let reserve = |blocks: u32| {
            let length = blocks as usize * block_bytes as usize;
            io::Result::Ok((mapped::reserve(length)?, blocks))
        };
        // A system without overcommit, or with a limit on address space, may refuse the larger size.
        let (base, blocks) =
            reserve(blocks_for(bytes.max(bytes_max))).or_else(|_| reserve(blocks_for(bytes)))?;
        let ids = [(0..surviving).rev().collect(), (surviving..blocks).rev().collect()];
        let [in_state, others]: [Vec<u32>; 2] = ids;
        let (paid, unpaid) = if prepaid { (in_state, Vec::new()) } else { (Vec::new(), in_state) };
        let free = [AtomicU32::new(paid.len() as u32), AtomicU32::new(0)];
        let pool = Pool {
            free: [paid, Vec::new()],
            absent: [unpaid, others],
            punched: Vec::new(),
            retired: VecDeque::new(),
        };
        let meta = (0..blocks).map(|_| Meta::default()).collect();
        // From here on a failure unmaps the range.
        let loss = state.as_ref().map_or_else(Loss::none, |state| state.loss());
        let orders =
            state.as_ref().map_or(0, |state| state.field(Field::NextOrder).load(Ordering::Relaxed));
        let mut arena = Self {
            base,
            block_bytes,
            blocks,
            meta,
            pool: Mutex::new(pool),
            free,
            state,
            surviving,
            prepaid,
            is_united: AtomicBool::new(false),
            is_detached: AtomicBool::new(false),
            loss,
            watch: Watch::none(),
            orders: AtomicU64::new(orders),
        };
        arena.map_surviving()?;
        Ok(arena)
    }

    /// Maps the state's blocks over the first ones.
    fn map_surviving(&mut self) -> io::Result<()> {
        let Some(state) = self.state.as_ref().filter(|_| self.surviving > 0) else { return Ok(()) };
        let (file, at, blocks) = state.blocks();
        let length = blocks as usize * self.block_bytes as usize;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the range is the front of our own mapping, which is at least as long, and nothing in it was handed
        // out yet.
        unsafe { mmap(self.base.as_ptr().cast(), length, access, flags, file, at) }?;
        self.watch = Watch::over(self.base, length, self.loss);
        Ok(())
    }

    /// Asks for huge pages under the blocks of the process: fewer page table walks per record, and fewer faults while
    /// memory fills for the first time.
    pub(crate) fn ask_for_huge_pages(&self) {
        let from = u64::from(self.surviving) * u64::from(self.block_bytes);
        let bytes = self.reserved_bytes() - from;
        if bytes > 0 {
            // SAFETY: the range lies in our mapping; the advice does not change its contents. The system refuses it
            // only where there are no huge pages.
            let _ = unsafe {
                madvise(self.at(from).as_ptr().cast(), bytes as usize, Advice::LinuxHugepage)
            };
        }
    }

    pub(crate) fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Bytes of all blocks within the reserved address space.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.block_bytes)
    }

    fn place_of(&self, id: u32) -> Place {
        let survives = id < self.surviving && !self.is_united.load(Ordering::Relaxed);
        if survives { Place::Surviving } else { Place::Passing }
    }

    /// Whether fresh records have blocks that survive.
    pub(crate) fn has_surviving(&self) -> bool {
        self.surviving > 0 && !self.is_united.load(Ordering::Relaxed)
    }

    /// Uses surviving blocks as all the rest from here on, and for good: once no tier takes their records, records need
    /// all blocks.
    pub(crate) fn unite(&self) {
        let mut pool = lock(&self.pool);
        if self.is_united.swap(true, Ordering::Relaxed) {
            return;
        }
        let [from, to] = [Place::Surviving, Place::Passing].map(|place| place as usize);
        let freed = self.free[from].swap(0, Ordering::Relaxed);
        self.free[to].fetch_add(freed, Ordering::Relaxed);
        let Pool { free, absent, .. } = &mut *pool;
        for lists in [free, absent] {
            let surviving = std::mem::take(&mut lists[from]);
            lists[to].extend(surviving);
        }
    }

    /// After the state was lost: its blocks become memory of the process, each once it is empty. The caller must then
    /// drop the records in them.
    pub(crate) fn detach(&self) {
        self.unite();
        let mut pool = lock(&self.pool);
        self.is_detached.store(true, Ordering::Relaxed);
        let Pool { free, absent, punched, .. } = &mut *pool;
        let passing = Place::Passing as usize;
        absent[passing].append(punched);
        for list in [&mut free[passing], &mut absent[passing]] {
            list.retain(|&id| id >= self.surviving || self.detach_block(id));
        }
        self.free[passing].store(free[passing].len() as u32, Ordering::Relaxed);
    }

    /// Puts memory of the system in the place of a block of the state; `false` if it has none: the block is never used
    /// again.
    fn detach_block(&self, id: u32) -> bool {
        let start = self.at(u64::from(id) * u64::from(self.block_bytes));
        // SAFETY: whole pages of our mapping, of a block that is empty and that no reader can reach.
        unsafe { mapped::zeros_at(start.as_ptr(), self.block_bytes as usize) }.is_ok()
    }

    /// Writes to the state what a surviving block holds; see the module's head.
    fn note(&self, id: u32, shard_and_fill: u64) {
        if let Some(state) = self.state.as_ref().filter(|_| id < self.surviving) {
            state.block_table()[id as usize * 2 + 1].store(shard_and_fill, Ordering::Release);
        }
    }

    /// An empty block for a shard, or `None` when the pool and the budget are exhausted.
    pub(crate) fn take(&self, budget: &Budget, place: Place, shard: usize) -> Option<Block> {
        let mut pool = lock(&self.pool);
        let at = place as usize;
        let id = if let Some(id) = pool.free[at].pop() {
            self.free[at].fetch_sub(1, Ordering::Relaxed);
            id
        } else if !budget.take(u64::from(self.block_bytes)) {
            return None;
        } else if let Some(id) = pool.absent[at].pop().or_else(|| self.ask_for_room(&mut pool)) {
            id
        } else {
            budget.give(u64::from(self.block_bytes));
            // Other files took the space that was returned to the file system: memory stays at its present size.
            if !pool.punched.is_empty() {
                budget.end_growth();
            }
            return None;
        };
        drop(pool);
        let order = self.orders.fetch_add(1, Ordering::Relaxed);
        if let Some(state) = &self.state {
            state.field(Field::NextOrder).fetch_max(order + 1, Ordering::Relaxed);
            if id < self.surviving {
                state.block_table()[id as usize * 2].store(order, Ordering::Relaxed);
            }
        }
        let block = Block { id, fill: 0, shard: shard as u32, order };
        block.commit(self);
        Some(block)
    }

    /// A block that had returned its space in the state, after reserving it again; `None` if the file system is full.
    fn ask_for_room(&self, pool: &mut Pool) -> Option<u32> {
        let id = *pool.punched.last()?;
        self.state.as_ref()?.reserve_block(id).ok()?;
        pool.punched.pop()
    }

    /// Reserves space in the state again that was returned, for `bytes`; `false` if the file system is full.
    pub(crate) fn reserve(&self, bytes: u64) -> bool {
        let mut pool = lock(&self.pool);
        let blocks = bytes.div_ceil(self.block_bytes.into()) as usize;
        while pool.absent[Place::Surviving as usize].len() < blocks && !pool.punched.is_empty() {
            let Some(id) = self.ask_for_room(&mut pool) else { return false };
            pool.absent[Place::Surviving as usize].push(id);
        }
        true
    }

    /// The order of the next block: the number of blocks taken before it.
    pub(crate) fn next_order(&self) -> u64 {
        self.orders.load(Ordering::Relaxed)
    }

    /// The number of blocks that [`Arena::take`] would still return.
    pub(crate) fn available(&self, budget: &Budget, place: Place) -> u64 {
        let free = u64::from(self.free[place as usize].load(Ordering::Relaxed));
        if place == Place::Surviving && self.prepaid {
            return free;
        }
        free + budget.limit().saturating_sub(budget.used()) / u64::from(self.block_bytes)
    }

    /// The kind of blocks that can be returned to the system.
    fn released_place(&self) -> Place {
        match self.prepaid || !self.has_surviving() {
            true => Place::Passing,
            false => Place::Surviving,
        }
    }

    /// Free blocks that can be returned to the system.
    pub(crate) fn releasable(&self) -> u64 {
        let pool = lock(&self.pool);
        let free = &pool.free[self.released_place() as usize];
        free.iter().filter(|&&id| self.is_releasable(id)).count() as u64
    }

    /// Prepaid blocks stay: there might be no space for them later.
    fn is_releasable(&self, id: u32) -> bool {
        !self.prepaid || id >= self.surviving
    }

    /// Blocks that are resident and empty.
    pub(crate) fn idle(&self) -> u64 {
        let pool = lock(&self.pool);
        let free: usize = pool.free.iter().map(Vec::len).sum();
        (free + pool.retired.len()) as u64
    }

    /// Blocks that are reserved from the start.
    pub(crate) fn prepaid_blocks(&self) -> u64 {
        if self.prepaid { self.surviving.into() } else { 0 }
    }

    /// Blocks that wait for a quiescent point.
    pub(crate) fn retired(&self) -> usize {
        lock(&self.pool).retired.len()
    }

    /// Retires a block after all its records were unlinked.
    pub(crate) fn retire(&self, id: u32, quiesce: &Quiesce) {
        self.note(id, 0);
        self.meta[id as usize].live.store(0, Ordering::Relaxed);
        let mut pool = lock(&self.pool);
        let epoch = quiesce.retire();
        pool.retired.push_back((epoch, id));
    }

    /// Frees retired blocks that no reader can reach any more, and returns their number.
    pub(crate) fn recycle(&self, quiesce: &Quiesce) -> u32 {
        let mut pool = lock(&self.pool);
        if pool.retired.is_empty() {
            return 0;
        }
        let reached = quiesce.reached();
        let mut freed = 0;
        while let Some(&(epoch, id)) = pool.retired.front() {
            if epoch > reached {
                break;
            }
            let place = self.place_of(id) as usize;
            pool.retired.pop_front();
            let is_detached = self.is_detached.load(Ordering::Relaxed) && id < self.surviving;
            if is_detached && !self.detach_block(id) {
                continue;
            }
            pool.free[place].push(id);
            self.free[place].fetch_add(1, Ordering::Relaxed);
            freed += 1;
        }
        freed
    }

    /// Returns free blocks to the system until the budget has `bytes` back or none is left.
    pub(crate) fn release(&self, bytes: u64, budget: &Budget) {
        let mut pool = lock(&self.pool);
        let mut given = 0;
        let place = self.released_place();
        while given < bytes {
            let free = &mut pool.free[place as usize];
            let Some(at) = free.iter().rposition(|&id| self.is_releasable(id)) else { break };
            let id = free.swap_remove(at);
            self.free[place as usize].fetch_sub(1, Ordering::Relaxed);
            let start = self.at(u64::from(id) * u64::from(self.block_bytes));
            let is_in_state = id < self.surviving && !self.is_detached.load(Ordering::Relaxed);
            let advice = match is_in_state {
                true => Advice::LinuxRemove,
                false => Advice::LinuxDontNeed,
            };
            // SAFETY: the range is one whole block of our mapping, and a free one: no reader can reach it.
            let given_back =
                unsafe { madvise(start.as_ptr().cast(), self.block_bytes as usize, advice) };
            match given_back.is_ok() && is_in_state {
                true => pool.punched.push(id),
                false => pool.absent[place as usize].push(id),
            }
            given += u64::from(self.block_bytes);
        }
        budget.give(given);
    }

    /// Bytes of records in block `id` that are not void.
    pub(crate) fn live(&self, id: u32) -> u32 {
        self.meta[id as usize].live.load(Ordering::Relaxed)
    }

    /// The block that a record lies in.
    pub(crate) fn block_of(&self, addr: Addr) -> u32 {
        (addr.offset() / u64::from(self.block_bytes)) as u32
    }

    /// Marks a record void and subtracts it from its block's live bytes; `true` if the block has no live record left.
    /// The caller must hold the owner's lock.
    pub(crate) fn void(&self, record: &Resident<'_>) -> bool {
        record.header.mark.fetch_or(mark::VOID, Ordering::Release);
        let live = &self.meta[self.block_of(record.addr) as usize].live;
        let left = live.load(Ordering::Relaxed).saturating_sub(record.footprint());
        live.store(left, Ordering::Relaxed);
        left == 0
    }

    /// The record at `addr`, which must have been read from a table under this guard.
    pub(crate) fn view<'g>(&self, _guard: Guard<'g>, addr: Addr) -> Resident<'g> {
        // `addr` came from a table under the guard, so it was published by `Block::append`'s caller after the bytes
        // were written (release store, acquire load).
        // SAFETY: its block is not reused before the guard ends. Published bytes do not change; the header's changing
        // fields are atomics. The mapping lives as long as the cache, which outlives its sessions and so the guard.
        unsafe {
            let start = self.at(addr.offset());
            let header: &Header = start.cast().as_ref();
            let record = start.add(HEADER_BYTES as usize);
            let bytes = std::slice::from_raw_parts(record.as_ptr(), header.bytes as usize);
            Resident { addr, header, bytes }
        }
    }

    /// Prefetches the record at `addr`, as far as most records reach.
    pub(crate) fn prefetch(&self, addr: Addr) {
        prefetch::lines::<RECORD_LINES>(self.at(addr.offset()).as_ptr());
    }

    /// The records of a block in arrival order, void ones too. `fill` is the block's
    /// [`Block::fill`] at a moment when its records were published.
    pub(crate) fn records<'g>(
        &'g self,
        guard: Guard<'g>,
        id: u32,
        fill: u32,
    ) -> impl Iterator<Item = Resident<'g>> {
        self.records_from(guard, id, 0, fill)
    }

    /// As [`Arena::records`], from `offset` on, which must have been the block's fill at some time.
    pub(crate) fn records_from<'g>(
        &'g self,
        guard: Guard<'g>,
        id: u32,
        mut offset: u32,
        fill: u32,
    ) -> impl Iterator<Item = Resident<'g>> {
        let start = u64::from(id) * u64::from(self.block_bytes);
        std::iter::from_fn(move || {
            if offset >= fill {
                return None;
            }
            let at = start + u64::from(offset);
            prefetch::lines::<RECORD_LINES>(self.at(at).as_ptr().wrapping_add(WALK_AHEAD));
            let record = self.view(guard, Addr::from_offset(at));
            // Zeros are no record: the rest of the block was lost, up to records appended since.
            if record.bytes.is_empty() {
                return None;
            }
            offset += record.footprint();
            Some(record)
        })
    }

    fn at(&self, offset: u64) -> NonNull<u8> {
        debug_assert!(offset < u64::from(self.blocks) * u64::from(self.block_bytes));
        // SAFETY: within the mapping, by the assertion's condition, which `Addr` and block numbers
        // uphold.
        unsafe { self.base.add(offset as usize) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.watch = Watch::none();
        let length = self.blocks as usize * self.block_bytes as usize;
        // SAFETY: our mapping; dropping the arena means that no session is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), length) };
    }
}

getters! {
    Block {
        id: u32,
    }
}

impl Block {
    /// Bytes used so far.
    pub(crate) fn fill(&self) -> u32 {
        self.fill
    }

    /// The number of blocks taken from the arena before this one.
    pub(crate) fn order(&self) -> u64 {
        self.order
    }

    /// Makes all records appended so far outlive the process, if the block does.
    pub(crate) fn commit(&self, arena: &Arena) {
        arena.note(self.id, u64::from(self.shard + 1) << 32 | u64::from(self.fill));
    }

    /// Appends a record for the caller to commit and publish; `None` if the block has no room. `write` fills the
    /// encoded bytes.
    pub(crate) fn append(
        &mut self,
        arena: &Arena,
        bytes: usize,
        stamp: Stamp,
        write: impl FnOnce(&mut [u8]),
    ) -> Option<Addr> {
        let taken = footprint(bytes);
        if taken > arena.block_bytes - self.fill {
            return None;
        }
        let block = u64::from(self.id) * u64::from(arena.block_bytes);
        let offset = block + u64::from(self.fill);
        let start = arena.at(offset);
        // SAFETY: the range lies in this block beyond `fill`: nothing there is published, `&mut self`
        // is its only writer, and the block was quiescent before it was taken. `start` is aligned to
        // 8 bytes since fills and block sizes are multiples of 8.
        unsafe {
            start.cast::<Header>().write(Header {
                mark: AtomicU16::new(stamp.mark),
                warmth: AtomicU16::new(0),
                accessed: AtomicU32::new(stamp.accessed),
                bytes: bytes as u32,
                origin: AtomicU32::new(stamp.origin),
            });
            let record = start.add(HEADER_BYTES as usize);
            write(std::slice::from_raw_parts_mut(record.as_ptr(), bytes));
        }
        self.fill += taken;
        // Under the owner's lock, so a plain store will do; an atomic addition would wait for the record's cache lines.
        let live = &arena.meta[self.id as usize].live;
        live.store(live.load(Ordering::Relaxed) + taken, Ordering::Relaxed);
        // Where the next record will lie: else its writer would wait for memory.
        prefetch::lines::<RECORD_LINES>(start.as_ptr().wrapping_add(taken as usize));
        Some(Addr::from_offset(offset))
    }
}

/// The changing part of a new record's [`Header`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Stamp {
    pub(crate) mark: u16,
    pub(crate) accessed: u32,
    pub(crate) origin: u32,
}

mod surviving;
#[cfg(all(test, not(loom)))]
mod tests;
