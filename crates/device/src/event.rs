//! An eventfd: how completions wake a worker, and threads each other.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Readable after [`Event::signal`] until [`Event::clear`].
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// One that is not signalled.
    ///
    /// # Errors
    /// As of eventfd.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes it readable.
    pub fn signal(&self) {
        #[expect(clippy::host_endian_bytes, reason = "the kernel's counter is of this host")]
        let one = 1u64.to_ne_bytes();
        // It can only fail when the counter is about to overflow, and then it is readable anyway.
        let _ = rustix::io::write(&self.0, &one);
    }

    /// Makes it unreadable. Returns whether it was readable.
    pub fn clear(&self) -> bool {
        // It can only fail when there is nothing to clear.
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
