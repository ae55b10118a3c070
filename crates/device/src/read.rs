//! A read of a worker, and how long it waits.

use crate::buffer::AlignedBuf;
use crate::health::READ_DEADLINE;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::time::Duration;

/// How often a queue is told the time while it has reads, see [`crate::ReadQueue::give_up_late`].
pub const TICK: Duration = Duration::from_millis(225);
/// A read is submitted up to a tick before it is first asked for how long it has waited.
const TICKS_MAX: u32 = (READ_DEADLINE.as_millis() / TICK.as_millis()) as u32 - 1;

/// The time in units of [`TICK`], since the machine's start. Costs a few nanoseconds.
#[inline]
pub fn ticks() -> u32 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    let millis = time.tv_sec.unsigned_abs() * 1000 + time.tv_nsec.unsigned_abs() / 1_000_000;
    (millis / TICK.as_millis() as u64) as u32
}

/// One read handed to a [`crate::ReadQueue`].
pub struct Read {
    /// The number of the drive in the queue.
    pub device: usize,
    /// Byte offset on the device, a multiple of its block size.
    pub offset: u64,
    /// Filled wholly; owned by the queue until the completion gives it back.
    pub buf: AlignedBuf,
    /// Comes back in the completion.
    pub token: u64,
}

/// A finished [`Read`].
pub struct Done {
    /// The token of the read.
    pub token: u64,
    /// The buffer of the read; its content is meaningful only if `result` is `Ok`.
    pub buf: AlignedBuf,
    /// A short read (end of device) is an error too.
    pub result: io::Result<()>,
}

/// A read that a drive did not answer in time.
pub struct Late {
    /// The number of the drive in the queue.
    pub device: usize,
    /// A buffer of the read's length.
    pub buf: AlignedBuf,
    /// The token of the read.
    pub token: u64,
}

/// Since when a read has been waited for: since the first time that it was asked. How long before that the clock was
/// told, if at all, does not matter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waited {
    since: Option<u32>,
}

impl Waited {
    /// Whether it will have been [`READ_DEADLINE`] before the next tick, `tick` being now.
    pub fn is_over(&mut self, tick: u32) -> bool {
        let since = *self.since.get_or_insert(tick);
        tick.wrapping_sub(since) >= TICKS_MAX
    }
}
