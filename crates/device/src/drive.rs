//! What a drive is.

use crate::buffer::AlignedBuf;
use crate::failure::ErrorCounts;
use crate::health::{Health, Monitor};
use crate::own_reads::OpenReads;
use std::io;
use std::os::fd::BorrowedFd;
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

/// A drive: local file, block device, a remote or a simulated one.
pub trait Drive: Send + Sync {
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
    /// Writes all of `buf` at `offset`. Blocks. Not durable before [`Drive::flush`].
    fn write_at(&self, offset: u64, buf: &AlignedBuf) -> io::Result<()>;
    /// As [`Drive::write_at`], of memory that the device may take for as long as it takes. After an error it may have
    /// kept it: `buf` is as long as before, and holds anything.
    fn write_lent(&self, offset: u64, buf: &mut AlignedBuf) -> io::Result<()> {
        self.write_at(offset, buf)
    }
    /// Makes every completed write durable. Blocks.
    fn flush(&self) -> io::Result<()>;
    /// Waits until no write whose call has returned, with whatever result, can land any more. Where writes are given up
    /// after a deadline, this waits as long again; elsewhere there is nothing to wait for.
    ///
    /// # Errors
    /// [`crate::is_unanswered`]: a write that was given up is still under way. Its blocks must not be used by anything
    /// but this device, which carries out no other transfer before it is over.
    fn fence(&self) -> io::Result<()> {
        Ok(())
    }
    /// Gives back what it has open, so that its file system can be unmounted and another process may take it. Transfers
    /// that begin later fail. Queues that it is attached to must detach it, too.
    fn close(&self) {}
    /// How workers read it. The same as long as the drive is open.
    fn reads(&self) -> Reads<'_> {
        Reads::Threads
    }
    /// From here on the caller can bear that a transfer fails which is not answered soon, where the device does
    /// that; see [`crate::DeadlineDrive`].
    fn begin_timing(&self) {}
    /// For how long this device has not answered a transfer that it was asked for by its methods; zero while it
    /// answers. Until it does, its methods fail at once, see [`crate::is_unanswered`].
    fn unresponsive_for(&self) -> Duration {
        Duration::ZERO
    }
    /// The error of a transfer, in other words if the device knows more: one that has left the machine answers as if it
    /// were full and had nothing on it.
    fn explain(&self, error: io::Error) -> io::Error {
        error
    }
    /// The time that a large write takes per MiB, smoothed over the last ones; `None` where it was not measured yet.
    fn write_pace(&self) -> Option<Duration> {
        self.monitor().and_then(Monitor::write_pace)
    }
    /// Where transfers record errors, those of workers too; `None` where nothing is recorded.
    fn monitor(&self) -> Option<&Monitor> {
        None
    }
    /// How the drive is at present, as far as transfers have shown, those of workers too.
    fn health(&self) -> Health {
        match self.unresponsive_for() {
            Duration::ZERO => self.monitor().map_or(Health::Working, Monitor::health),
            lasts => Health::Unresponsive(lasts),
        }
    }
    /// Errors of transfers since the drive was opened, those of workers too.
    fn errors(&self) -> ErrorCounts {
        self.monitor().map_or_else(ErrorCounts::default, Monitor::errors)
    }
}

/// How workers, which never wait, read a drive.
#[derive(Clone, Copy)]
pub enum Reads<'d> {
    /// An io_uring may read from this descriptor; where there is none, threads do.
    Ring(BorrowedFd<'d>),
    /// [`Drive::read_at`] takes a few microseconds, such as on persistent memory: the worker calls it.
    Synchronous,
    /// [`Drive::read_at`] may block: threads call it.
    Threads,
    /// The drive carries them out itself, over sockets that wake the worker.
    Own(&'d dyn OpenReads),
}

/// One of the reads of [`Drive::read_each`].
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
