//! Memory that connections use while they are busy.
//!
//! Idle connections hold none. What was used last is handed out first, so that a worker's few busy
//! buffers stay in the processor's caches however many connections there are.

use super::input::BUFFER_BYTES;
use arrayvec::ArrayVec;

/// Buffers that a worker keeps for later, and that all workers do.
const KEPT_MAX: usize = 64;
const KEPT_BY_ALL_MAX: usize = 4 * KEPT_MAX;
/// Buffers that grew beyond this are freed.
const KEPT_BYTES_MAX: usize = 4 * BUFFER_BYTES;

/// Memory of runs of replies that is kept for others: so much, of so many bytes each at most.
const RUNS_MAX: usize = 128;
pub(crate) const RUN_BYTES_MAX: usize = 8 << 10;

/// Memory for the replies behind those that a drive is asked for. To have each run of them grow from nothing takes
/// longer than to write it.
pub(crate) type Runs = ArrayVec<Vec<u8>, RUNS_MAX>;

/// One worker's empty buffers.
#[derive(Debug)]
pub(crate) struct Buffers {
    kept: ArrayVec<Vec<u8>, KEPT_MAX>,
    kept_max: usize,
}

impl Buffers {
    /// Those of one of so many workers.
    pub(crate) fn of(workers: u32) -> Self {
        let kept_max = (KEPT_BY_ALL_MAX / workers.max(1) as usize).clamp(1, KEPT_MAX);
        Self { kept: ArrayVec::new(), kept_max }
    }

    /// An empty buffer with some room.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.kept.pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    /// Takes a buffer back.
    pub(crate) fn put(&mut self, mut buffer: Vec<u8>) {
        let is_usable = (BUFFER_BYTES..=KEPT_BYTES_MAX).contains(&buffer.capacity());
        // One too many is freed.
        if is_usable && self.kept.len() < self.kept_max {
            buffer.clear();
            self.kept.push(buffer);
        }
    }

    /// Keeps none.
    pub(crate) fn free(&mut self) {
        self.kept.clear();
    }
}
