//! Large tables in mappings of their own: zeroed and untouched until used, and given back to the system
//! as a whole when dropped, which a heap would not do.

use bytemuck::Zeroable;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::io;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Of x86-64, and of others with pages of 4 KiB.
const HUGE_PAGE_BYTES: usize = 2 << 20;
const NO_ROOM: &str = "address space for a table";

/// The front of a file, mapped shared, as words.
pub(crate) struct SharedMap {
    base: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the words are atomics, and the mapping lives as long as the value.
unsafe impl Send for SharedMap {}
// SAFETY: as for `Send`.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    /// Maps the first `bytes` of a file that is at least as long, and stays so: whoever truncates it
    /// while it is mapped kills the process, as with any mapped file.
    pub(crate) fn new(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping overlaps nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, words: bytes / size_of::<AtomicU64>() })
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, has so many words, and any bits are valid atomics.
        // Other processes that map the file see to it that they change words only by whole stores.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: our mapping, of this length; `&mut self`: nobody borrows from it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.words * size_of::<AtomicU64>()) };
    }
}

/// A slice in a mapping of its own.
pub(crate) struct Mapped<T> {
    base: NonNull<T>,
    len: usize,
}

// SAFETY: the mapping belongs to the value alone, as a `Box<[T]>` owns its memory.
unsafe impl<T: Send> Send for Mapped<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Sync> Sync for Mapped<T> {}

impl<T: Zeroable> Mapped<T> {
    /// `len` zeroed values.
    ///
    /// # Panics
    /// If the system has no address space left, as any allocation would.
    pub(crate) fn zeroed(len: usize) -> Self {
        const { assert!(align_of::<T>() <= 4096 && !std::mem::needs_drop::<T>()) };
        Self { base: reserve(Self::bytes(len)).expect(NO_ROOM).cast(), len }
    }

    /// As [`Mapped::zeroed`], for a table that is soon used all over, and at random: a long one consists of huge pages
    /// as far as it goes, if the system has some to spare, so that fewer translations of addresses are missed.
    ///
    /// # Panics
    /// As [`Mapped::zeroed`].
    #[cfg_attr(loom, expect(dead_code, reason = "its tables are made one by one"))]
    pub(crate) fn dense(len: usize) -> Self {
        let bytes = Self::bytes(len).next_multiple_of(rustix::param::page_size());
        if bytes < HUGE_PAGE_BYTES {
            return Self::zeroed(len);
        }
        let around = reserve(bytes + HUGE_PAGE_BYTES).expect(NO_ROOM);
        let before = around.align_offset(HUGE_PAGE_BYTES);
        // SAFETY: all within a mapping that is ours and that nobody has seen yet, in whole pages; the advice changes
        // nothing of what is in the table. Where any of it is refused, the table is as good.
        let base = unsafe {
            let base = around.add(before);
            let _ = munmap(base.add(bytes).as_ptr().cast(), HUGE_PAGE_BYTES - before);
            let _ = munmap(around.as_ptr().cast(), before);
            let _ = madvise(base.as_ptr().cast(), bytes, Advice::LinuxHugepage);
            base
        };
        Self { base: base.cast(), len }
    }

    fn bytes(len: usize) -> usize {
        (len * size_of::<T>()).max(1)
    }
}

impl<T> Deref for Mapped<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the mapping has room for `len` values, is page-aligned, and zeros are valid values
        // (`Zeroable`).
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        let bytes = (self.len * size_of::<T>()).max(1);
        // SAFETY: our mapping, of this length; `&mut self`: nobody borrows from it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), bytes) };
    }
}

/// A mapping of so many zeroed bytes, none of which takes memory before it is touched.
pub(crate) fn reserve(bytes: usize) -> io::Result<NonNull<u8>> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh anonymous mapping overlaps nothing.
    let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) }?;
    Ok(NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_dense_table_begins_with_a_huge_page_where_it_has_one() {
        for len in [10, 1_000_000] {
            let words: Mapped<AtomicU64> = Mapped::dense(len);
            assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
            words[len - 1].store(7, Ordering::Relaxed);
            assert!(len < 1000 || words.as_ptr().addr().is_multiple_of(HUGE_PAGE_BYTES));
        }
    }

    #[test]
    fn is_zeroed_and_keeps_what_is_written() {
        let words: Mapped<AtomicU64> = Mapped::zeroed(100_000);
        assert_eq!((words.len(), words[99_999].load(Ordering::Relaxed)), (100_000, 0));
        words[5].store(7, Ordering::Relaxed);
        assert_eq!(words[5].load(Ordering::Relaxed), 7);
        assert!(Mapped::<u8>::zeroed(0).is_empty());
    }
}
