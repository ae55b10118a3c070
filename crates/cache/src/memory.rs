//! The one memory cap, and the blocks of DRAM that records live in.
//!
//! All records in DRAM lie in equal blocks of one mapping. A block is filled by one owner in arrival
//! order, its records are immutable once published, and it returns to the pool when none of them is
//! live and every session has passed a quiescent point. This file, [`crate::mapped`] and
//! [`crate::published`] hold all unsafe code of the crate (and [`crate::prefetch`] a hint).

use crate::lock;
use crate::quiesce::Quiesce;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of DRAM that may be taken, and that are.
pub(crate) struct Budget {
    limit: u64,
    used: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, used: AtomicU64::new(0) }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes `bytes`, or nothing when they would pass the limit.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Takes `bytes` that the cache can't go without, even past the limit.
    pub(crate) fn force(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Proof that its holder is between two quiescent points, so that published memory stays.
#[derive(Clone, Copy)]
pub(crate) struct Guard<'s>(PhantomData<&'s ()>);

impl Guard<'_> {
    /// To be made only from a participant of [`Quiesce`] that refreshed and has not parked since,
    /// borrowed for the guard's lifetime.
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

/// Where a record lies in DRAM; fits 40 bits (8 TiB in units of 8 bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addr(NonZeroU64);

impl Addr {
    const UNIT: u64 = 8;
    pub(crate) const BITS: u32 = 40;

    fn from_offset(offset: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(offset / Self::UNIT))
    }

    fn offset(self) -> u64 {
        (self.0.get() - 1) * Self::UNIT
    }

    pub(crate) fn to_bits(self) -> u64 {
        self.0.get()
    }

    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        NonZeroU64::new(bits).map(Self)
    }
}

/// What stands before every record in DRAM.
#[repr(C)]
pub(crate) struct Header {
    /// See [`mark`].
    pub(crate) mark: AtomicU32,
    /// Unix seconds of the last use.
    pub(crate) accessed: AtomicU32,
    /// Length of the encoded record that follows.
    bytes: u32,
    /// The sealed copy of a hot record, see [`crate::hot::Origin`]; else 0.
    pub(crate) origin: u32,
}

const HEADER_BYTES: u32 = size_of::<Header>() as u32;

/// Bits of [`Header::mark`].
pub(crate) mod mark {
    /// No longer the key's record; waits for its block to be reused.
    pub(crate) const VOID: u32 = 1;
    /// Used since it came or since eviction last passed by.
    pub(crate) const USED: u32 = 2;
    /// Was read at least once (meta `h`).
    pub(crate) const FETCHED: u32 = 4;
    /// A copy of a sealed record; dropping it loses nothing.
    pub(crate) const HOT: u32 = 8;
    /// Was on a drive before; reclaim kept it.
    pub(crate) const REINSERTED: u32 = 16;
}

/// A published record.
#[derive(Clone, Copy)]
pub(crate) struct Resident<'a> {
    pub(crate) addr: Addr,
    pub(crate) header: &'a Header,
    pub(crate) bytes: &'a [u8],
}

impl Resident<'_> {
    pub(crate) fn has(&self, bits: u32) -> bool {
        self.header.mark.load(Ordering::Relaxed) & bits != 0
    }

    /// Sets bits; writes only what changes, since readers share the line.
    pub(crate) fn set(&self, bits: u32) {
        if self.header.mark.load(Ordering::Relaxed) & bits != bits {
            self.header.mark.fetch_or(bits, Ordering::Relaxed);
        }
    }

    /// Bytes that the record takes in its block.
    pub(crate) fn footprint(&self) -> u32 {
        footprint(self.bytes.len())
    }
}

/// Bytes of a block that a record of `bytes` encoded bytes takes.
pub(crate) fn footprint(bytes: usize) -> u32 {
    // Encoded records are at most a block long, far below 4 GiB.
    HEADER_BYTES + (bytes as u32).next_multiple_of(Addr::UNIT as u32)
}

/// A block that its holder alone may fill.
pub(crate) struct Block {
    pub(crate) id: u32,
    fill: u32,
}

/// A sealed-off view of a block's records for walking, see [`Arena::records`].
#[derive(Default)]
struct Meta {
    /// Bytes of records that are not void. Changed under the owner's lock only.
    live: AtomicU32,
}

struct Pool {
    /// Free and resident: counted in the budget.
    free: Vec<u32>,
    /// Free and given back to the system, or never touched.
    absent: Vec<u32>,
    /// Unlinked, each with the epoch that makes it reusable; oldest first.
    retired: VecDeque<(u64, u32)>,
}

/// The mapping and its blocks.
pub(crate) struct Arena {
    base: NonNull<u8>,
    block_bytes: u32,
    blocks: u32,
    meta: Box<[Meta]>,
    pool: Mutex<Pool>,
    /// Blocks in `Pool::free`; read without the lock.
    free: AtomicU32,
}

// SAFETY: the mapping belongs to the arena alone; access to it follows the rules of `Block` (one
// writer, unpublished bytes) and `Guard` (immutable bytes), see `Block::append` and `Arena::view`.
unsafe impl Send for Arena {}
// SAFETY: as for `Send`.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves address space for `bytes` of records; takes no memory yet.
    pub(crate) fn new(bytes: u64, block_bytes: u32) -> io::Result<Self> {
        let blocks = (bytes / u64::from(block_bytes)).max(1) as u32;
        let length = blocks as usize * block_bytes as usize;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping overlaps nothing.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, flags)
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let absent = (0..blocks).rev().collect();
        let pool = Pool { free: Vec::new(), absent, retired: VecDeque::new() };
        let meta = (0..blocks).map(|_| Meta::default()).collect();
        Ok(Self {
            base,
            block_bytes,
            blocks,
            meta,
            pool: Mutex::new(pool),
            free: AtomicU32::new(0),
        })
    }

    pub(crate) fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// An empty block, or `None` when the pool and the budget are exhausted.
    pub(crate) fn take(&self, budget: &Budget) -> Option<Block> {
        let mut pool = lock(&self.pool);
        if let Some(id) = pool.free.pop() {
            self.free.fetch_sub(1, Ordering::Relaxed);
            return Some(Block { id, fill: 0 });
        }
        if pool.absent.is_empty() || !budget.take(u64::from(self.block_bytes)) {
            return None;
        }
        pool.absent.pop().map(|id| Block { id, fill: 0 })
    }

    /// How many blocks [`Arena::take`] would still give.
    pub(crate) fn available(&self, budget: &Budget) -> u64 {
        let room = budget.limit().saturating_sub(budget.used()) / u64::from(self.block_bytes);
        u64::from(self.free.load(Ordering::Relaxed)) + room
    }

    /// Blocks that are resident and hold nothing.
    pub(crate) fn idle(&self) -> u64 {
        let pool = lock(&self.pool);
        (pool.free.len() + pool.retired.len()) as u64
    }

    /// Blocks that wait for a quiescent point.
    pub(crate) fn retired(&self) -> usize {
        lock(&self.pool).retired.len()
    }

    /// Takes back a block whose records are all unlinked.
    pub(crate) fn retire(&self, id: u32, quiesce: &Quiesce) {
        self.meta[id as usize].live.store(0, Ordering::Relaxed);
        let mut pool = lock(&self.pool);
        let epoch = quiesce.retire();
        pool.retired.push_back((epoch, id));
    }

    /// Makes retired blocks free once nobody can look at them; says how many.
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
            pool.retired.pop_front();
            pool.free.push(id);
            freed += 1;
        }
        self.free.fetch_add(freed, Ordering::Relaxed);
        freed
    }

    /// Gives free blocks back to the system until `bytes` are returned to the budget or none is
    /// left.
    pub(crate) fn release(&self, bytes: u64, budget: &Budget) {
        let mut pool = lock(&self.pool);
        let mut given = 0;
        while given < bytes {
            let Some(id) = pool.free.pop() else { break };
            self.free.fetch_sub(1, Ordering::Relaxed);
            let start = self.at(u64::from(id) * u64::from(self.block_bytes));
            // SAFETY: the range is one whole block of our mapping, and a free one: nobody looks.
            let _ = unsafe {
                madvise(start.as_ptr().cast(), self.block_bytes as usize, Advice::LinuxDontNeed)
            };
            pool.absent.push(id);
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

    /// Marks a record void, takes it from its block's live bytes, and says whether the block has no
    /// live record left. Under the owner's lock.
    pub(crate) fn void(&self, record: &Resident<'_>) -> bool {
        record.set(mark::VOID);
        let live = &self.meta[self.block_of(record.addr) as usize].live;
        live.fetch_sub(record.footprint(), Ordering::Relaxed) == record.footprint()
    }

    /// The record at `addr`, which must have been read from a table under this guard.
    pub(crate) fn view<'g>(&self, _guard: Guard<'g>, addr: Addr) -> Resident<'g> {
        // SAFETY: `addr` came from a table under the guard, so it was published by
        // `Block::append`'s caller after the bytes were written (release store, acquire load), and
        // its block is not reused before the guard ends. Published bytes do not change; the header's
        // changing fields are atomics. The mapping lives as long as the cache, which outlives its
        // sessions and so the guard.
        unsafe {
            let start = self.at(addr.offset());
            let header: &Header = start.cast().as_ref();
            let record = start.add(HEADER_BYTES as usize);
            let bytes = std::slice::from_raw_parts(record.as_ptr(), header.bytes as usize);
            Resident { addr, header, bytes }
        }
    }

    /// The records of a block in arrival order, void ones too. `fill` is the block's
    /// [`Block::fill`] at a moment when its records were published.
    pub(crate) fn records<'g>(
        &'g self,
        guard: Guard<'g>,
        id: u32,
        fill: u32,
    ) -> impl Iterator<Item = Resident<'g>> {
        let start = u64::from(id) * u64::from(self.block_bytes);
        let mut offset = 0;
        std::iter::from_fn(move || {
            if offset >= fill {
                return None;
            }
            let record = self.view(guard, Addr::from_offset(start + u64::from(offset)));
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
        let length = self.blocks as usize * self.block_bytes as usize;
        // SAFETY: our mapping; dropping the arena means that no session is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), length) };
    }
}

impl Block {
    /// Bytes used so far.
    pub(crate) fn fill(&self) -> u32 {
        self.fill
    }

    /// Appends a record and returns it, to be published; `None` if the block has no room. `write`
    /// fills the encoded bytes.
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
                mark: AtomicU32::new(stamp.mark),
                accessed: AtomicU32::new(stamp.accessed),
                bytes: bytes as u32,
                origin: stamp.origin,
            });
            let record = start.add(HEADER_BYTES as usize);
            write(std::slice::from_raw_parts_mut(record.as_ptr(), bytes));
        }
        self.fill += taken;
        arena.meta[self.id as usize].live.fetch_add(taken, Ordering::Relaxed);
        Some(Addr::from_offset(offset))
    }
}

/// The changing part of a new record's [`Header`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Stamp {
    pub(crate) mark: u32,
    pub(crate) accessed: u32,
    pub(crate) origin: u32,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_after_a_quiescent_point_and_the_budget_holds() {
        let (arena, budget) = (Arena::new(3 * 4096, 4096).unwrap(), Budget::new(2 * 4096));
        let quiesce = Quiesce::new(1);
        let reader = quiesce.join().unwrap();
        quiesce.refresh(&reader);
        let mut block = arena.take(&budget).unwrap();
        let _other = arena.take(&budget).unwrap();
        assert!(arena.take(&budget).is_none(), "the budget is spent");
        let stamp = Stamp { accessed: 7, ..Stamp::default() };
        let addr = block.append(&arena, 5, stamp, |out| out.copy_from_slice(b"hello")).unwrap();
        let record = arena.view(Guard::new(), addr);
        assert_eq!((record.bytes, record.header.origin), (&b"hello"[..], 0));
        assert!(block.append(&arena, 4096, stamp, |_| ()).is_none());
        assert!(arena.void(&record), "it was the only one");
        arena.retire(block.id, &quiesce);
        assert_eq!(arena.recycle(&quiesce), 0, "the reader may still look");
        quiesce.refresh(&reader);
        assert_eq!(arena.recycle(&quiesce), 1);
        arena.release(1, &budget);
        assert_eq!(budget.used(), 4096);
    }

    #[test]
    fn records_are_walked_in_order() {
        let (arena, budget) = (Arena::new(4096, 4096).unwrap(), Budget::new(4096));
        let mut block = arena.take(&budget).unwrap();
        for i in 1..=9u8 {
            let stamp = Stamp::default();
            block.append(&arena, usize::from(i), stamp, |out| out.fill(i)).unwrap();
        }
        let seen: Vec<_> = arena.records(Guard::new(), block.id, block.fill()).collect();
        assert_eq!(seen.len(), 9);
        assert!(seen.iter().zip(1..).all(|(r, i)| r.bytes == vec![i; usize::from(i)]));
    }
}
