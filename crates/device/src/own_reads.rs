//! Reads that a drive carries out itself for each worker, over sockets, and how those wake it.

use crate::event::Event;
use crate::read::{Done, Late, Read};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

/// The reads of one worker from one drive, which the drive carries out itself. Belongs to the thread of the worker.
///
/// Nothing but this writes to the buffers of reads: one that is dropped, or gives a read back, needs no patience.
pub trait OwnReads: Send {
    /// Takes a read for the next [`OwnReads::flush`]; what exceeds the depth of the queue waits inside.
    fn submit(&mut self, read: Read);
    /// Hands the drive what was submitted, as far as it takes it. Never blocks.
    fn flush(&mut self);
    /// Appends finished reads to `done`, and starts what waited for room; never blocks. Returns whether the drive has
    /// answered anything.
    fn reap(&mut self, done: &mut Vec<Done>) -> bool;
    /// Gives up reads that have been waited for too long by this tick, see [`crate::ReadQueue::give_up_late`]; appends
    /// them to `late`.
    fn give_up_late(&mut self, tick: u32, late: &mut Vec<Late>);
    /// Reads that were submitted and neither reaped nor given up.
    fn in_flight(&self) -> usize;
    /// Reads that were given up and that the drive may still answer.
    fn given_up(&self) -> usize;
    /// Gives up the drive and returns the reads that were in flight.
    fn close(&mut self) -> Vec<Read>;
}

/// Opens the reads of workers from a drive that carries them out itself.
pub trait OpenReads: Send + Sync {
    /// The reads of one worker, at most `depth` at once on the drive's side. What they bring, and what they connect to,
    /// is told by `waker`. `None` if the drive has none for another worker: threads read it then.
    fn open_reads(&self, depth: u32, waker: Waker) -> Option<Box<dyn OwnReads>>;
}

/// Wakes a worker: at once, or when sockets become readable. Of any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Wakeup>);

/// What a worker waits for.
#[derive(Debug)]
pub(crate) struct Wakeup {
    pub(crate) event: Arc<Event>,
    /// Over the event and the sockets, from the first socket on.
    sockets: OnceLock<OwnedFd>,
}

impl Wakeup {
    pub(crate) fn new(event: &Arc<Event>) -> Arc<Self> {
        Arc::new(Self { event: Arc::clone(event), sockets: OnceLock::new() })
    }

    /// A waker. From now on [`Wakeup::fd`] is one that tells of sockets, too.
    pub(crate) fn waker(self: &Arc<Self>) -> io::Result<Waker> {
        if self.sockets.get().is_none() {
            let sockets = epoll::create(CreateFlags::CLOEXEC)?;
            epoll::add(&sockets, &*self.event, EventData::new_u64(0), EventFlags::IN)?;
            let _ = self.sockets.set(sockets);
        }
        Ok(Waker(Arc::clone(self)))
    }

    /// The event alone costs the kernel less than one that tells of sockets, too.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.sockets.get().map_or_else(|| self.event.as_fd(), AsFd::as_fd)
    }
}

impl Waker {
    /// Whether both wake the same worker.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Wakes the worker, which then reaps.
    pub fn wake(&self) {
        self.0.event.signal();
    }

    /// Wakes the worker whenever `socket` is readable, or also when it can be written to. Calls for the same socket
    /// change that.
    ///
    /// # Errors
    /// As of epoll_ctl.
    pub fn watch(&self, socket: impl AsFd, also_writable: bool) -> io::Result<()> {
        let Some(sockets) = self.0.sockets.get() else { return Ok(()) };
        let writable = if also_writable { EventFlags::OUT } else { EventFlags::empty() };
        let (data, flags) = (EventData::new_u64(1), EventFlags::IN | writable);
        match epoll::add(sockets, &socket, data, flags) {
            Err(rustix::io::Errno::EXIST) => Ok(epoll::modify(sockets, &socket, data, flags)?),
            added => Ok(added?),
        }
    }

    /// Watches a socket no more. To be called before it is closed: another descriptor may keep it open.
    pub fn forget(&self, socket: impl AsFd) {
        if let Some(sockets) = self.0.sockets.get() {
            // It may not have been watched.
            let _ = epoll::delete(sockets, socket);
        }
    }
}
