//! The one memory cap.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The limit on bytes of DRAM, and the bytes in use.
pub(crate) struct Budget {
    limit: AtomicU64,
    /// Whether the limit was changed since the cache was opened. If not, what a start takes beyond it stays.
    is_changed: AtomicBool,
    used: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        let (limit, used) = (AtomicU64::new(limit), AtomicU64::new(0));
        Self { limit, is_changed: AtomicBool::new(false), used }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. The background releases memory beyond a lower one, see [`Budget::excess`].
    pub(crate) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
        self.is_changed.store(true, Ordering::Relaxed);
    }

    /// Lowers the limit to the bytes in use: the system has no more.
    pub(crate) fn end_growth(&self) {
        self.set_limit(self.used().min(self.limit()));
    }

    /// Bytes to release since the limit was lowered.
    pub(crate) fn excess(&self) -> u64 {
        match self.is_changed.load(Ordering::Relaxed) {
            true => self.used().saturating_sub(self.limit()),
            false => 0,
        }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes `bytes`, or nothing when they would pass the limit.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let limit = self.limit();
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Takes `bytes` that the cache can't do without, even past the limit.
    pub(crate) fn force(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}
