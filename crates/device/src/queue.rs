//! The reads of one worker.

use crate::buffer::AlignedBuf;
use crate::drive::Drive;
use crate::read::{Done, Read};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// How long a queue that is dropped waits for the reads that drives have begun: one may never answer.
pub(crate) const DROP_PATIENCE: Duration = Duration::from_secs(1);

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
    /// some left: reads into it cost less CPU. It holds anything and may be used for other
    /// things; dropping it gives it back to the queue.
    fn buffer(&mut self, len: usize) -> AlignedBuf {
        AlignedBuf::zeroed(len)
    }
    /// Hands everything that was submitted to the kernel and to the drives' threads, in one batch.
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
        wait_for_event(self, done, patience)
    }
    /// Becomes readable when [`ReadQueue::reap`] has something to do, and stays so until
    /// [`ReadQueue::clear_event`]. In an epoll set it may stand in two ways:
    ///
    /// * edge-triggered: every new occasion to reap is a new edge, and nothing is ever cleared;
    /// * level-triggered: upon each wake-up first clear, then reap.
    ///
    /// After a drive was attached it may be another one.
    ///
    /// Either way a wake-up may turn out to have been for reads already reaped; none is ever lost.
    fn event_fd(&self) -> BorrowedFd<'_>;
    /// Takes the time in units of [`crate::TICK`], as [`crate::ticks`] has it, and gives up reads that will have waited for
    /// [`crate::READ_DEADLINE`] before it is told the next: the next reap brings them as failed ([`crate::is_unanswered`]). A
    /// drive that may still write to their buffers keeps those, and is unresponsive until it answers something: its
    /// reads fail at once, but for one in a tick. Does nothing unless the tick is another than at the last call.
    fn give_up_late(&mut self, _tick: u32) {}
    /// Takes another drive and returns its number, which is that of [`Read::device`].
    ///
    /// # Errors
    /// The queue can't take one, or lacks what it needs for that; it goes on with the drives that it has.
    fn attach(&mut self, _drive: Arc<dyn Drive>) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Gives up a drive: its reads that were not begun come back as failed, and so does all that is submitted for it
    /// from now on. Never blocks.
    fn detach(&mut self, _number: usize) {}
    /// Whether drives still have reads that were given up: [`ReadQueue::reap`] must be called now and then, although
    /// nothing is in flight.
    fn holds_given_up(&self) -> bool {
        false
    }
    /// Makes [`ReadQueue::event_fd`] unreadable until there is a new occasion to reap. The caller must reap
    /// afterwards: what finished before no longer signals.
    fn clear_event(&mut self);
    /// Reads submitted and not yet reaped, without those that were given up and reaped.
    fn in_flight(&self) -> usize;
}

/// [`ReadQueue::wait`] by way of the event.
pub(crate) fn wait_for_event<Q: ReadQueue + ?Sized>(
    queue: &mut Q,
    done: &mut Vec<Done>,
    patience: Duration,
) -> io::Result<()> {
    queue.flush()?;
    // One that is longer than the kernel counts is for ever.
    let timeout = Timespec::try_from(patience).ok();
    match poll(&mut [PollFd::new(&queue.event_fd(), PollFlags::IN)], timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    queue.clear_event();
    queue.reap(done);
    Ok(())
}

/// What a read of a drive that the queue does not have comes back with.
pub(crate) fn no_such_drive(number: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("the queue has no drive {number}"))
}

/// What a read of a drive that was detached comes back with.
pub(crate) fn detached() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the drive was detached")
}
