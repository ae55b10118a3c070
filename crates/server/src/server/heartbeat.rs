//! Whether the background threads still come round: a drive that answers nothing, not even an error, holds them up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_device::DEADLINE;

/// Told at each turn of a background thread.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    start: Instant,
    /// For each thread, milliseconds since the start.
    last: Box<[AtomicU64]>,
}

impl Heartbeat {
    /// Of so many threads.
    pub(crate) fn new(threads: usize) -> Self {
        let last = (0..threads).map(|_| AtomicU64::new(0)).collect();
        Self { start: Instant::now(), last }
    }

    /// The thread of this number begins another turn.
    pub(crate) fn beat(&self, number: usize) {
        self.last[number].store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// One has not for longer than a drive is waited for.
    pub(crate) fn is_missing(&self) -> bool {
        let now = self.start.elapsed();
        let since = |last: &AtomicU64| {
            now.saturating_sub(Duration::from_millis(last.load(Ordering::Relaxed)))
        };
        self.last.iter().any(|last| since(last) > DEADLINE)
    }
}
