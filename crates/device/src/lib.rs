//! Drives behind one narrow trait.
//!
//! A [`Device`] is a fixed range of bytes that is read and written in whole blocks. Background work
//! (sealing, reclaim, recovery) uses it directly and may block. Workers never block: they read
//! through a [`ReadQueue`] of their own, which hands batches to the kernel and reports completions.
//! **An operation owns its buffer until its completion.**

mod buffer;
mod event;
mod file;
mod pool;
mod queue;
mod uring;

pub use buffer::{ALIGNMENT, AlignedBuf};
pub use file::{FileDevice, OpenError};
pub use queue::{Engine, Opened, open_queue};

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

/// Size and granularity of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Usable bytes; a multiple of `block_bytes`.
    pub bytes: u64,
    /// Offsets and lengths of every transfer are multiples of this; a power of two, at most 4096.
    pub block_bytes: u32,
}

/// A drive: local file, block device, or a simulated one.
pub trait Device: Send + Sync {
    /// Where the device is, as the user wrote it; stands in logs and statistics.
    fn label(&self) -> &str;
    /// Size and granularity; constant while the device is open.
    fn geometry(&self) -> Geometry;
    /// Fills all of `buf` from `offset`. Blocks.
    fn read_at(&self, offset: u64, buf: &mut AlignedBuf) -> io::Result<()>;
    /// Writes all of `buf` at `offset`. Blocks. Not durable before [`Device::flush`].
    fn write_at(&self, offset: u64, buf: &AlignedBuf) -> io::Result<()>;
    /// Makes every completed write durable. Blocks.
    fn flush(&self) -> io::Result<()>;
    /// The descriptor that an io_uring may read from; `None` for devices without one.
    fn raw_fd(&self) -> Option<RawFd>;
}

/// One read handed to a [`ReadQueue`].
pub struct Read {
    /// Index into the devices that the queue was opened with.
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

/// The reads of one worker. Not shared between threads.
pub trait ReadQueue {
    /// Takes a read for the next [`ReadQueue::flush`]; never blocks and never refuses: what exceeds
    /// the queue depth waits inside.
    fn submit(&mut self, read: Read);
    /// Hands everything that was submitted to the kernel (or the pool) in one batch.
    fn flush(&mut self) -> io::Result<()>;
    /// Appends finished reads to `done`; never blocks.
    fn reap(&mut self, done: &mut Vec<Done>);
    /// Readable when completions may wait; [`ReadQueue::reap`] clears it first, so a level-triggered
    /// epoll set neither spins nor sleeps through one.
    fn event_fd(&self) -> BorrowedFd<'_>;
    /// Reads submitted and not yet reaped.
    fn in_flight(&self) -> usize;
}
