//! Hints to the processor's caches.

pub(crate) const LINE_BYTES: usize = 64;

/// Prefetches the cache line at `value`.
#[inline]
pub(crate) fn line<T>(value: &T) {
    lines::<1>(std::ptr::from_ref(value).cast());
}

/// Prefetches `COUNT` cache lines from that of `value` on, to be changed: another core may have changed them last.
#[inline]
pub(crate) fn to_change<const COUNT: usize, T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    for at in 0..COUNT {
        let line = std::ptr::from_ref(value).cast::<u8>().wrapping_add(at * LINE_BYTES);
        // SAFETY: a prefetch of any address is harmless, and nothing where the processor has none for changes.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
        };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// Prefetches `COUNT` cache lines from that at `start` on.
#[inline]
pub(crate) fn lines<const COUNT: usize>(start: *const u8) {
    #[cfg(target_arch = "x86_64")]
    for at in 0..COUNT {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(at * LINE_BYTES).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, LINE_BYTES);
}
