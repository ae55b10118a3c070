//! Equal buffers cut from one stretch of memory, which a ring can know in advance.

use crate::AlignedBuf;
use crate::buffer::{ALIGNMENT, HUGE_PAGE_BYTES};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// The stretch. Lives as long as any of its buffers.
pub(crate) struct Slab {
    /// Its bytes belong to the buffers: nothing but address and capacity is asked of this owner,
    /// since a reference to the whole would overlap theirs.
    memory: AlignedBuf,
    buffer_bytes: usize,
    /// Byte offsets of the buffers that nobody has. Buffers are given back from any thread.
    free: Mutex<Vec<usize>>,
}

impl Slab {
    /// A slab of `buffers` buffers, of [`ALIGNMENT`]-fold size `buffer_bytes`.
    pub(crate) fn new(buffers: usize, buffer_bytes: usize) -> Arc<Self> {
        Self::cut(AlignedBuf::zeroed(buffers * buffer_bytes), buffer_bytes)
    }

    /// As many buffers as fit into so many bytes, which are a huge page where they are as long as one.
    pub(crate) fn within(bytes: usize, buffer_bytes: usize) -> Arc<Self> {
        let memory = match bytes {
            HUGE_PAGE_BYTES => AlignedBuf::huge_page(),
            _ => AlignedBuf::zeroed(bytes),
        };
        Self::cut(memory, buffer_bytes)
    }

    fn cut(memory: AlignedBuf, buffer_bytes: usize) -> Arc<Self> {
        debug_assert!(buffer_bytes.is_multiple_of(ALIGNMENT));
        let buffers = memory.capacity() / buffer_bytes;
        let free = (0..buffers).rev().map(|at| at * buffer_bytes).collect();
        Arc::new(Self { memory, buffer_bytes, free: Mutex::new(free) })
    }

    /// Whether nobody has a buffer of it.
    pub(crate) fn is_whole(self: &Arc<Self>) -> bool {
        // Every buffer holds the slab.
        Arc::strong_count(self) == 1
    }

    /// A buffer with the length `len`, holding anything; none if all are out or `len` exceeds them.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> Option<AlignedBuf> {
        if len > self.buffer_bytes {
            return None;
        }
        let offset = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        // SAFETY: `offset` lies inside the memory.
        let ptr = unsafe { self.memory.as_non_null().add(offset) };
        // SAFETY: the bytes were initialised with the memory; that `offset` was taken from `free`
        // makes this buffer their only owner until it comes back; the slab that it holds keeps the
        // memory.
        Some(unsafe { AlignedBuf::within(ptr, self.buffer_bytes, len, Arc::clone(self)) })
    }

    /// Bytes of each buffer.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Takes back a buffer that came from [`Slab::take`], by its address.
    pub(crate) fn give(&self, ptr: NonNull<u8>) {
        let offset = ptr.as_ptr() as usize - self.start();
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(offset);
    }

    /// Where it lies, and how many bytes it has.
    pub(crate) fn region(&self) -> (NonNull<u8>, usize) {
        (self.memory.as_non_null(), self.memory.capacity())
    }

    /// Whether all of `buf` lies in it.
    pub(crate) fn contains(&self, buf: &AlignedBuf) -> bool {
        let at = buf.as_non_null().as_ptr() as usize;
        at >= self.start() && at + buf.len() <= self.start() + self.memory.capacity()
    }

    fn start(&self) -> usize {
        self.memory.as_non_null().as_ptr() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_disjoint_and_come_back() {
        let slab = Slab::new(3, 8192);
        let mut taken: Vec<_> = (0..3).filter_map(|_| slab.take(5000)).collect();
        assert_eq!(taken.len(), 3);
        for (at, buf) in taken.iter_mut().enumerate() {
            assert!(slab.contains(buf) && buf.as_ptr().addr().is_multiple_of(ALIGNMENT));
            assert_eq!((buf.len(), buf.capacity()), (5000, 8192));
            buf.set_len(8192);
            buf.fill(at as u8);
        }
        for (at, buf) in taken.iter().enumerate() {
            assert!(buf.iter().all(|&byte| byte == at as u8));
        }
        assert!(slab.take(1).is_none(), "all are out");
        let address = taken[1].as_ptr();
        taken.remove(1);
        assert_eq!(slab.take(8192).map(|buf| buf.as_ptr()), Some(address));
        assert!(slab.take(8193).is_none(), "too long");
        assert!(!slab.contains(&AlignedBuf::zeroed(8192)));
    }

    #[test]
    fn buffers_outlive_the_slab() {
        let mut buf = Slab::new(2, 4096).take(4096).expect("one is free");
        buf.fill(7);
        std::thread::spawn(move || assert!(buf.iter().all(|&byte| byte == 7)))
            .join()
            .expect("holds what was written");
    }
}
