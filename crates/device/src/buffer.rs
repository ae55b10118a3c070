//! Heap memory that direct I/O accepts.

use crate::slab::Slab;
use rustix::mm::{Advice, madvise};
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// Address alignment of every [`AlignedBuf`], in bytes; enough for any drive's direct I/O.
pub const ALIGNMENT: usize = 4096;
/// Of x86-64, and of others with pages of 4 KiB.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A byte buffer whose address is a multiple of [`ALIGNMENT`].
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    /// Of what was allocated. Never empty, so that the allocator is never asked for nothing.
    layout: Layout,
    /// Invariant: at most what was allocated.
    len: usize,
    /// Whose memory it is; its own if nobody's.
    slab: Option<Arc<Slab>>,
}

// SAFETY: the buffer owns its memory exclusively, like a `Box<[u8]>`; a slab takes it back from any
// thread.
unsafe impl Send for AlignedBuf {}
// SAFETY: `&AlignedBuf` only allows reading.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// A zeroed buffer of `len` bytes.
    pub fn zeroed(len: usize) -> Self {
        let layout = Self::layout(len.max(1).next_multiple_of(ALIGNMENT), ALIGNMENT);
        // SAFETY: the layout has a non-zero size.
        let ptr = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(ptr) else { handle_alloc_error(layout) };
        Self { ptr, layout, len, slab: None }
    }

    /// As many zeroed bytes as a huge page has, in one where the system has one to spare.
    pub(crate) fn huge_page() -> Self {
        let layout = Self::layout(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES);
        // SAFETY: the layout has a non-zero size.
        let ptr = unsafe { alloc(layout) };
        let Some(ptr) = NonNull::new(ptr) else { handle_alloc_error(layout) };
        // SAFETY: this memory was just allocated, all pages of it whole; the advice changes no byte.
        // Without it the memory is as good, but slower.
        let _ = unsafe { madvise(ptr.as_ptr().cast(), HUGE_PAGE_BYTES, Advice::LinuxHugepage) };
        // SAFETY: so many bytes were allocated.
        unsafe { ptr.as_ptr().write_bytes(0, HUGE_PAGE_BYTES) };
        Self { ptr, layout, len: HUGE_PAGE_BYTES, slab: None }
    }

    /// A buffer in the memory of a slab, which gets it back when it is dropped.
    ///
    /// # Safety
    /// `capacity` initialised bytes at `ptr`, aligned to [`ALIGNMENT`], belong to this buffer alone
    /// until [`Slab::give`], and live as long as `slab`; `len` is at most `capacity`.
    pub(crate) unsafe fn within(
        ptr: NonNull<u8>,
        capacity: usize,
        len: usize,
        slab: Arc<Slab>,
    ) -> Self {
        Self { ptr, layout: Self::layout(capacity, ALIGNMENT), len, slab: Some(slab) }
    }

    /// Its address, which stays the same wherever the buffer is moved.
    pub(crate) fn as_non_null(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Bytes that [`AlignedBuf::set_len`] can reach.
    pub fn capacity(&self) -> usize {
        self.layout.size()
    }

    /// Changes the length within the capacity; bytes that come into view keep what they held.
    ///
    /// # Panics
    /// If `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "length {len} beyond capacity {}", self.capacity());
        self.len = len;
    }

    fn layout(capacity: usize, alignment: usize) -> Layout {
        Layout::from_size_align(capacity, alignment).expect("capacity below isize::MAX")
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len <= capacity` bytes were allocated and initialised.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        match self.slab.take() {
            Some(slab) => slab.give(self.ptr),
            // SAFETY: allocated with this layout.
            None => unsafe { dealloc(self.ptr.as_ptr(), self.layout) },
        }
    }
}
