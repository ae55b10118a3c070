//! Byte buffers that direct I/O accepts.

use crate::memory::Memory;
use crate::slab::Slab;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// A byte buffer whose address is a multiple of [`crate::ALIGNMENT`].
pub struct AlignedBuf {
    start: NonNull<u8>,
    capacity: usize,
    /// 0 <= len <= capacity
    len: usize,
    /// The slab that gets the memory back; `None` if the buffer owns it.
    slab: Option<Arc<Slab>>,
}

// SAFETY: the buffer owns its memory exclusively, like a `Box<[u8]>`; a slab takes it back from any
// thread.
unsafe impl Send for AlignedBuf {}
// SAFETY: `&AlignedBuf` only allows reading.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Returns a zeroed buffer of `len` bytes.
    pub fn zeroed(len: usize) -> Self {
        let memory = Memory::zeroed(len);
        let capacity = memory.capacity();
        Self { start: memory.into_start(), capacity, len, slab: None }
    }

    /// A buffer of length `len` in the memory of a slab, holding anything; `None` if all pieces are out or `len`
    /// exceeds them. The slab gets it back when it is dropped.
    pub(crate) fn of_slab(slab: &Arc<Slab>, len: usize) -> Option<Self> {
        let capacity = slab.piece_bytes();
        if len > capacity {
            return None;
        }
        let start = slab.take()?;
        Some(Self { start, capacity, len, slab: Some(Arc::clone(slab)) })
    }

    /// Bytes that [`AlignedBuf::set_len`] can reach.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes the length within the capacity; bytes that come into view keep what they held.
    ///
    /// # Panics
    /// If `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "length {len} beyond capacity {}", self.capacity);
        self.len = len;
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len <= capacity` bytes belong to this buffer alone and are initialised.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        match &self.slab {
            Some(slab) => slab.give(self.start),
            // SAFETY: without a slab, start and capacity are those of memory that was zeroed for this buffer.
            None => drop(unsafe { Memory::of_zeroed(self.start, self.capacity) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ALIGNMENT;

    #[test]
    fn buffers_of_a_slab_are_disjoint_and_come_back() {
        let slab = Slab::new(3, 8192);
        let take = |len| AlignedBuf::of_slab(&slab, len);
        let mut taken: Vec<_> = (0..3).filter_map(|_| take(5000)).collect();
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
        assert!(take(1).is_none(), "all are out");
        let address = taken[1].as_ptr();
        taken.remove(1);
        assert_eq!(take(8192).map(|buf| buf.as_ptr()), Some(address));
        assert!(take(8193).is_none(), "too long");
        assert!(!slab.contains(&AlignedBuf::zeroed(8192)));
    }

    #[test]
    fn buffers_outlive_their_slab() {
        let mut buf = AlignedBuf::of_slab(&Slab::new(2, 4096), 4096).expect("one is free");
        buf.fill(7);
        std::thread::spawn(move || assert!(buf.iter().all(|&byte| byte == 7)))
            .join()
            .expect("holds what was written");
    }
}
