//! Mappings of memory and of files: tables that are zeroed and take no memory before use, and the state's file; its
//! lost pages are replaced by zeros.

use bytemuck::Zeroable;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// On x86-64, and on other processors with pages of 4 KiB.
const HUGE_PAGE_BYTES: usize = 2 << 20;
const NO_ROOM: &str = "address space for a table";

/// Whether pages of a mapped file were lost: another process may truncate it, or its file system may be full. All
/// copies are of the same file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss(&'static AtomicU32);

/// Stages of a [`Loss`].
pub(crate) mod stage {
    /// Every page that was accessed was there.
    pub(crate) const WHOLE: u32 = 0;
    /// A page was not there, and zeros are in its place.
    pub(crate) const FOUND: u32 = 1;
    /// The cache no longer reads what was stored in the file before.
    pub(crate) const HANDLED: u32 = 2;
}

impl Loss {
    /// For a file that is about to be mapped. It is never freed, since a signal handler reads it: 4 bytes for each
    /// state that a process opens.
    pub(crate) fn new() -> Self {
        Self(Box::leak(Box::new(AtomicU32::new(stage::WHOLE))))
    }

    /// For memory that belongs to no file.
    pub(crate) fn none() -> Self {
        static NONE: AtomicU32 = AtomicU32::new(stage::WHOLE);
        Self(&NONE)
    }

    #[inline]
    pub(crate) fn stage(self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// The stage after everything that the caller has read so far. If any of that was a zero in place of a lost page,
    /// the stage shows it.
    #[inline]
    pub(crate) fn stage_after_reads(self) -> u32 {
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed)
    }

    /// Whether a page was lost before now.
    pub(crate) fn is_any(self) -> bool {
        self.stage_after_reads() != stage::WHOLE
    }

    pub(crate) fn mark_handled(self) {
        self.0.store(stage::HANDLED, Ordering::Release);
    }
}

/// At most 64 mappings are watched. A page that another one loses ends the process, as it would without a handler.
const WATCHED_MAX: usize = 64;
static WATCHED: [Watched; WATCHED_MAX] = [const { Watched::vacant() }; WATCHED_MAX];
/// Page size of the system; 0 before anything is watched.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// A mapped part of a file. A signal handler reads it, so there is no lock: `bytes` is written last and cleared first.
struct Watched {
    /// 0 if the entry is vacant.
    start: AtomicUsize,
    bytes: AtomicUsize,
    loss: AtomicPtr<AtomicU32>,
}

impl Watched {
    const fn vacant() -> Self {
        let loss = AtomicPtr::new(std::ptr::null_mut());
        Self { start: AtomicUsize::new(0), bytes: AtomicUsize::new(0), loss }
    }

    /// Does the work of [`replace_lost`] if the address lies in this mapping.
    fn replace(&self, address: usize) -> bool {
        let start = self.start.load(Ordering::Acquire);
        let (loss, bytes) = (self.loss.load(Ordering::Acquire), self.bytes.load(Ordering::Acquire));
        let is_here = start != 0 && address >= start && address - start < bytes;
        if !is_here || loss.is_null() || self.start.load(Ordering::Acquire) != start {
            return false;
        }
        // Before any thread can read a zero.
        let (from, to) = (stage::WHOLE, stage::FOUND);
        // SAFETY: it came from a `Loss`, which is never freed.
        let loss = unsafe { &*loss };
        let _ = loss.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
        // Everything behind the page is replaced, too: a truncation took all of it, one mapping keeps clear of the
        // system's limit on mappings, and a walk through records meets nothing but zeros after the first.
        let page =
            address / PAGE_BYTES.load(Ordering::Relaxed) * PAGE_BYTES.load(Ordering::Relaxed);
        let base = std::ptr::with_exposed_provenance_mut(page);
        // SAFETY: whole pages of a mapping that is watched, and so exists. They read as zeros from here on, which
        // readers of a file that other processes can change must expect.
        unsafe { zeros_at(base, start + bytes - page) }.is_ok()
    }
}

/// Keeps a mapping in [`WATCHED`] for as long as it lives.
pub(crate) struct Watch(Option<&'static Watched>);

impl Watch {
    /// Watches no mapping.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Must be dropped before the mapping is.
    pub(crate) fn over(base: NonNull<u8>, bytes: usize, loss: Loss) -> Self {
        PAGE_BYTES.store(rustix::param::page_size(), Ordering::Relaxed);
        let start = base.as_ptr().expose_provenance();
        let take = |place: &&Watched| {
            let (vacant, order) = (0, Ordering::AcqRel);
            place.start.compare_exchange(vacant, start, order, Ordering::Relaxed).is_ok()
        };
        let place = WATCHED.iter().find(take);
        if let Some(place) = place {
            place.loss.store(std::ptr::from_ref(loss.0).cast_mut(), Ordering::Release);
            place.bytes.store(bytes, Ordering::Release);
        }
        Self(place)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.bytes.store(0, Ordering::Release);
            place.start.store(0, Ordering::Release);
        }
    }
}

/// For a handler of SIGBUS: if `address` lies in a state that this process has mapped, replaces the missing page and
/// all behind it by zeros, records the loss, and returns `true`: the instruction can then be repeated. Takes no lock
/// and no memory. The cache checks for a loss before it acts on anything that it read.
pub fn replace_lost(address: usize) -> bool {
    WATCHED.iter().any(|watched| watched.replace(address))
}

/// Replaces whole pages by zeroed memory of the process.
///
/// # Safety
/// The pages must belong to a mapping of the caller, and their contents are lost.
pub(crate) unsafe fn zeros_at(base: *mut u8, bytes: usize) -> io::Result<()> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: what the caller promises.
    unsafe { mmap_anonymous(base.cast(), bytes, access, flags) }?;
    Ok(())
}

/// A part of a file, mapped shared, as words.
pub(crate) struct SharedMap {
    base: NonNull<AtomicU64>,
    words: usize,
    watch: Watch,
}

// SAFETY: the words are atomics, and the mapping lives as long as the value.
unsafe impl Send for SharedMap {}
// SAFETY: as for `Send`.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    /// Maps this part of a file that is at least as long; it begins with a page. If another process truncates the
    /// file, words become zeros and `loss` shows it, see [`replace_lost`].
    pub(crate) fn new(file: BorrowedFd<'_>, part: Range<usize>, loss: Loss) -> io::Result<Self> {
        let (access, bytes, at) =
            (ProtFlags::READ | ProtFlags::WRITE, part.len(), part.start as u64);
        // SAFETY: a fresh mapping overlaps nothing.
        let base =
            unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, at) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let watch = Watch::over(base.cast(), bytes, loss);
        Ok(Self { base, words: bytes / size_of::<AtomicU64>(), watch })
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, has `words` words, and any bits are valid atomics. Other processes that
        // map the file must change words by whole stores only.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        self.watch = Watch::none();
        // SAFETY: our mapping, of this length; `&mut self`: no borrow is left.
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

    /// As [`Mapped::zeroed`], for a table that is accessed at random: a long one gets huge pages where the system has
    /// some, which saves misses of the TLB.
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
        // SAFETY: all within a mapping that is ours and not shared yet, in whole pages; the advice does not change the
        // contents. If the system refuses any of it, the table works as well.
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
        // SAFETY: our mapping, of this length; `&mut self`: no borrow is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), bytes) };
    }
}

/// A mapping of `bytes` zeroed bytes; they take memory only once touched.
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
    fn dense_table_is_aligned_to_huge_pages() {
        for len in [10, 1_000_000] {
            let words: Mapped<AtomicU64> = Mapped::dense(len);
            assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
            words[len - 1].store(7, Ordering::Relaxed);
            assert!(len < 1000 || words.as_ptr().addr().is_multiple_of(HUGE_PAGE_BYTES));
        }
    }

    /// As the handler does it, which tests of the server run.
    #[test]
    fn lost_pages_are_replaced_only_in_watched_files() {
        let name = rustix::fs::MemfdFlags::CLOEXEC;
        let file = rustix::fs::memfd_create("lost", name).unwrap();
        let page = rustix::param::page_size();
        rustix::fs::ftruncate(&file, 3 * page as u64).unwrap();
        let loss = Loss::new();
        let map = SharedMap::new(std::os::fd::AsFd::as_fd(&file), 0..3 * page, loss).unwrap();
        let words = map.words();
        words.iter().for_each(|word| word.store(7, Ordering::Relaxed));
        let start = words.as_ptr().addr();
        // Another test may watch a mapping beside it.
        let is_own = |watched: &&Watched| {
            std::ptr::eq(watched.loss.load(Ordering::Acquire), std::ptr::from_ref(loss.0))
        };
        let own = WATCHED.iter().find(is_own).expect("it is watched");
        assert!(!own.replace(start - 1) && !own.replace(start + 3 * page) && !replace_lost(0));
        assert!(!loss.is_any());
        rustix::fs::ftruncate(&file, page as u64).unwrap();
        assert!(replace_lost(start + page + 9));
        assert_eq!(loss.stage(), stage::FOUND);
        let (whole, lost) = words.split_at(page / 8);
        assert!(whole.iter().all(|word| word.load(Ordering::Relaxed) == 7));
        assert!(lost.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        drop(map);
        let is_left =
            |watched: &Watched| is_own(&watched) && watched.bytes.load(Ordering::Acquire) > 0;
        assert!(!WATCHED.iter().any(is_left), "it is not mapped any more");
    }

    #[test]
    fn mapping_is_zeroed_and_keeps_values() {
        let words: Mapped<AtomicU64> = Mapped::zeroed(100_000);
        assert_eq!((words.len(), words[99_999].load(Ordering::Relaxed)), (100_000, 0));
        words[5].store(7, Ordering::Relaxed);
        assert_eq!(words[5].load(Ordering::Relaxed), 7);
        assert!(Mapped::<u8>::zeroed(0).is_empty());
    }
}
