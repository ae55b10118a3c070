//! Whether the background thread still comes round: a drive that answers nothing, not even an error, holds it up.

use super::reads::PATIENCE;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Told at each turn of the background thread.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    start: Instant,
    /// Milliseconds since the start.
    last: AtomicU64,
}

impl Heartbeat {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(0) }
    }

    /// The thread begins another turn.
    pub(crate) fn beat(&self) {
        self.last.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// It has not for longer than a drive is waited for.
    pub(crate) fn is_missing(&self) -> bool {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(last) > PATIENCE
    }
}
