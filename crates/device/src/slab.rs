//! Equal pieces cut from one stretch of memory, which a ring can know in advance.

use crate::memory::{ALIGNMENT, HUGE_PAGE_BYTES, Memory};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// The stretch. Lives as long as any piece that is out, since each holds it.
pub(crate) struct Slab {
    memory: Memory,
    piece_bytes: usize,
    /// Byte offsets of the pieces that are not out. Pieces are given back from any thread.
    free: Mutex<Vec<usize>>,
}

impl Slab {
    /// A slab of `pieces` pieces, of [`ALIGNMENT`]-fold size `piece_bytes`.
    pub(crate) fn new(pieces: usize, piece_bytes: usize) -> Arc<Self> {
        Self::cut(Memory::zeroed(pieces * piece_bytes), piece_bytes)
    }

    /// As many pieces as fit into `bytes` bytes, which are a huge page where they are as long as one.
    pub(crate) fn within(bytes: usize, piece_bytes: usize) -> Arc<Self> {
        let memory = match bytes {
            HUGE_PAGE_BYTES => Memory::huge_page(),
            _ => Memory::zeroed(bytes),
        };
        Self::cut(memory, piece_bytes)
    }

    fn cut(memory: Memory, piece_bytes: usize) -> Arc<Self> {
        debug_assert!(piece_bytes.is_multiple_of(ALIGNMENT));
        let pieces = memory.capacity() / piece_bytes;
        let free = (0..pieces).rev().map(|at| at * piece_bytes).collect();
        Arc::new(Self { memory, piece_bytes, free: Mutex::new(free) })
    }

    /// Whether no piece is out.
    pub(crate) fn is_whole(self: &Arc<Self>) -> bool {
        // Every piece that is out holds the slab.
        Arc::strong_count(self) == 1
    }

    /// Takes a piece and returns its address; `None` if all are out. Its bytes are initialised and belong to
    /// the caller alone until [`Slab::give`], as long as the slab lives.
    pub(crate) fn take(&self) -> Option<NonNull<u8>> {
        let offset = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        // SAFETY: `offset` lies inside the memory.
        Some(unsafe { self.memory.start().add(offset) })
    }

    /// Bytes of each piece.
    pub(crate) fn piece_bytes(&self) -> usize {
        self.piece_bytes
    }

    /// Takes back a piece that came from [`Slab::take`], by its address.
    pub(crate) fn give(&self, start: NonNull<u8>) {
        let offset = start.as_ptr() as usize - self.start();
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(offset);
    }

    /// Where it lies, and how many bytes it has.
    pub(crate) fn region(&self) -> (NonNull<u8>, usize) {
        (self.memory.start(), self.memory.capacity())
    }

    /// Whether all of `bytes` lies in it.
    pub(crate) fn contains(&self, bytes: &[u8]) -> bool {
        let at = bytes.as_ptr() as usize;
        at >= self.start() && at + bytes.len() <= self.start() + self.memory.capacity()
    }

    fn start(&self) -> usize {
        self.memory.start().as_ptr() as usize
    }
}
