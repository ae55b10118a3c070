//! Drives behind one narrow trait.
//!
//! A [`Device`] is a fixed range of bytes that is read and written in whole blocks. Background work
//! (sealing, reclaim, recovery) uses it directly and may block. Workers never block: they read
//! through a [`ReadQueue`] of their own, which hands batches to the kernel and reports completions.
//! **An operation owns its buffer until its completion.**

mod buffer;
mod claim;
mod depth;
mod error;
mod event;
mod file;
mod heap;
mod lane;
mod long;
mod pool;
mod queue;
pub mod sim;
mod slab;
mod timed;
mod uring;
mod wear;

pub use buffer::{ALIGNMENT, AlignedBuf};
pub use depth::Depth;
pub use error::OpenError;
pub use file::FileDevice;
pub use heap::give_heap_back;
pub use long::LongBuffers;
pub use queue::{Engine, Opened, open_queue, open_queue_within};
pub use timed::{TimedDevice, is_unanswered};
pub use wear::Wear;

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

/// Size and granularity of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Usable bytes; a multiple of `block_bytes`.
    pub bytes: u64,
    /// Offsets and lengths of every transfer are multiples of this; a power of two, at most 4096.
    pub block_bytes: u32,
}

impl Geometry {
    /// Whether a transfer of `len` bytes at `offset` is made of whole blocks inside the device.
    ///
    /// # Errors
    /// `InvalidInput` if it isn't whole blocks, `UnexpectedEof` if it ends behind the device.
    pub fn check(&self, offset: u64, len: usize) -> io::Result<()> {
        let (len, block) = (len as u64, u64::from(self.block_bytes));
        if !offset.is_multiple_of(block) || !len.is_multiple_of(block) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match offset.checked_add(len) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// A drive: local file, block device, or a simulated one.
pub trait Device: Send + Sync {
    /// Where the device is, as the user wrote it; stands in logs and statistics.
    fn label(&self) -> &str;
    /// Size and granularity; constant while the device is open.
    fn geometry(&self) -> Geometry;
    /// Fills all of `buf` from `offset`. Blocks.
    fn read_at(&self, offset: u64, buf: &mut AlignedBuf) -> io::Result<()>;
    /// Carries out several reads and says in each how it went. Blocks until all are over. A device that can has
    /// them under way at the same time.
    fn read_each(&self, parts: &mut [Part<'_>]) {
        parts.iter_mut().for_each(|part| part.result = self.read_at(part.offset, part.buf));
    }
    /// Writes all of `buf` at `offset`. Blocks. Not durable before [`Device::flush`].
    fn write_at(&self, offset: u64, buf: &AlignedBuf) -> io::Result<()>;
    /// As [`Device::write_at`], of memory that the device may take for as long as it takes. After an error it may have
    /// kept it: `buf` is as long as before, and holds anything.
    fn write_lent(&self, offset: u64, buf: &mut AlignedBuf) -> io::Result<()> {
        self.write_at(offset, buf)
    }
    /// Makes every completed write durable. Blocks.
    fn flush(&self) -> io::Result<()>;
    /// The descriptor that an io_uring may read from; `None` for devices without one.
    fn raw_fd(&self) -> Option<RawFd>;
    /// From here on the caller can bear that a transfer fails which is not answered soon, where the device does
    /// that; see [`TimedDevice`].
    fn begin_timing(&self) {}
    /// For how long it has not answered what it was asked; zero while it is waited for like any other. While it
    /// is silent all that it is asked fails at once, see [`is_unanswered`].
    fn silence(&self) -> Duration {
        Duration::ZERO
    }
}

/// One of the reads of [`Device::read_each`].
pub struct Part<'b> {
    /// Byte offset on the device.
    pub offset: u64,
    /// Filled wholly.
    pub buf: &'b mut AlignedBuf,
    /// How it went.
    pub result: io::Result<()>,
}

impl<'b> Part<'b> {
    /// A read that is still to be made.
    pub fn new(offset: u64, buf: &'b mut AlignedBuf) -> Self {
        Self { offset, buf, result: Ok(()) }
    }
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

/// The reads of one worker. Belongs to the thread that opened it.
///
/// Dropping a queue waits for the reads that the drive has begun, since it writes into their
/// buffers; their completions, and reads that wait inside, are dropped. What a drive has not
/// answered within a second keeps its buffer for ever.
pub trait ReadQueue {
    /// Takes a read for the next [`ReadQueue::flush`]; never blocks and never refuses: what exceeds
    /// the queue depth waits inside. A read that is not whole blocks inside its device comes back
    /// with an error like any other.
    fn submit(&mut self, read: Read);
    /// A buffer of `len` bytes for a read, from memory that the kernel knows already if there is
    /// some left: reads into it cost less CPU. It holds anything and may be used for whatever
    /// else; dropping it gives it back to the queue.
    fn buffer(&mut self, len: usize) -> AlignedBuf {
        AlignedBuf::zeroed(len)
    }
    /// Hands everything that was submitted to the kernel (or the pool) in one batch.
    ///
    /// # Errors
    /// The kernel refuses the queue as a whole; its reads may never come back.
    fn flush(&mut self) -> io::Result<()>;
    /// Whether reads are finished that were not reaped, as far as that shows without a system call.
    fn has_news(&mut self) -> bool {
        false
    }
    /// Appends finished reads to `done`, and starts what waited for room; never blocks. Without
    /// reads in flight it costs no system call.
    fn reap(&mut self, done: &mut Vec<Done>);
    /// Flushes, blocks until a read is finished, and reaps: for a thread that has nothing else to wait
    /// for, which it may cost a single system call. Nothing may be appended to `done`: after
    /// `patience`, upon a signal, or upon a wake-up for reads already reaped.
    ///
    /// # Errors
    /// As of [`ReadQueue::flush`].
    fn wait(&mut self, done: &mut Vec<Done>, patience: Duration) -> io::Result<()> {
        queue::wait_for_event(self, done, patience)
    }
    /// Becomes readable when [`ReadQueue::reap`] has something to do, and stays so until
    /// [`ReadQueue::clear_event`]. In an epoll set it may stand in two ways:
    ///
    /// * edge-triggered: every new occasion to reap is a new edge, and nothing is ever cleared;
    /// * level-triggered: upon each wake-up first clear, then reap.
    ///
    /// Either way a wake-up may turn out to have been for reads already reaped; none is ever lost.
    fn event_fd(&self) -> BorrowedFd<'_>;
    /// Makes [`ReadQueue::event_fd`] unreadable until there is a new occasion to reap. Whoever
    /// calls it must reap afterwards: what finished before no longer signals.
    fn clear_event(&mut self);
    /// Reads submitted and not yet reaped.
    fn in_flight(&self) -> usize;
}
