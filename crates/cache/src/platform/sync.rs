//! The atomics of the lock-free parts: the standard library's, or those of the model checker loom
//! (`make test` runs the models with `--cfg loom`).

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Lets another thread run while this one waits for it.
pub(crate) fn spin() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}

/// A table of zeroed atomics (or structs of them).
#[cfg(not(loom))]
pub(crate) type Table<T> = crate::platform::mapped::Mapped<T>;
/// A table of atomics; loom must make them one by one.
#[cfg(loom)]
pub(crate) type Table<T> = Box<[T]>;

/// A table of `len` values, each as `empty` makes it: zeros.
pub(crate) fn table<T: Zeros>(len: usize) -> Table<T> {
    #[cfg(not(loom))]
    return crate::platform::mapped::Mapped::dense(len);
    #[cfg(loom)]
    return (0..len).map(|_| T::empty()).collect();
}

/// Types that a table can hold.
#[cfg(not(loom))]
pub(crate) trait Zeros: bytemuck::Zeroable {}
#[cfg(not(loom))]
impl<T: bytemuck::Zeroable> Zeros for T {}

/// Types that a table can hold.
#[cfg(loom)]
pub(crate) trait Zeros {
    /// All zeros.
    fn empty() -> Self;
}
#[cfg(loom)]
impl Zeros for AtomicU32 {
    fn empty() -> Self {
        Self::new(0)
    }
}
