//! Heap memory that direct I/O accepts.

use rustix::mm::{Advice, madvise};
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// Address alignment of every [`crate::AlignedBuf`], in bytes; enough for any drive's direct I/O.
pub const ALIGNMENT: usize = 4096;
/// Bytes of a huge page of x86-64, and of other processors with pages of 4 KiB.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Memory of the heap, initialised, at a multiple of [`ALIGNMENT`]. It is never empty.
pub(crate) struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns what it points to exclusively, and gives out nothing but the address.
unsafe impl Send for Memory {}
// SAFETY: a shared reference gives out nothing but address and size.
unsafe impl Sync for Memory {}

impl Memory {
    /// At least `bytes` zeros, in whole multiples of [`ALIGNMENT`].
    pub(crate) fn zeroed(bytes: usize) -> Self {
        let layout = layout(bytes.max(1).next_multiple_of(ALIGNMENT), ALIGNMENT);
        // SAFETY: the layout has a non-zero size.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self { start, layout }
    }

    /// Memory that [`Memory::zeroed`] made and [`Memory::into_start`] gave up.
    ///
    /// # Safety
    /// `start` and `capacity` are those of such memory, and nothing else uses or frees it.
    pub(crate) unsafe fn of_zeroed(start: NonNull<u8>, capacity: usize) -> Self {
        Self { start, layout: layout(capacity, ALIGNMENT) }
    }

    /// Gives up the memory, which is not freed, and returns its address.
    pub(crate) fn into_start(self) -> NonNull<u8> {
        ManuallyDrop::new(self).start
    }

    /// [`HUGE_PAGE_BYTES`] zeros, in one huge page where the system has one to spare.
    pub(crate) fn huge_page() -> Self {
        let layout = layout(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES);
        // SAFETY: the layout has a non-zero size.
        let start = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        // SAFETY: this memory was just allocated, all pages of it whole; the advice changes no byte.
        // Without it the memory is as good, but slower.
        let _ = unsafe { madvise(start.as_ptr().cast(), HUGE_PAGE_BYTES, Advice::LinuxHugepage) };
        // SAFETY: that many bytes were allocated.
        unsafe { start.as_ptr().write_bytes(0, HUGE_PAGE_BYTES) };
        Self { start, layout }
    }

    /// Its address, which stays the same wherever the owner is moved.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes from the start on.
    pub(crate) fn capacity(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nothing else frees it.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

fn layout(bytes: usize, alignment: usize) -> Layout {
    Layout::from_size_align(bytes, alignment).expect("capacity below isize::MAX")
}
