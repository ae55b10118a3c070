//! An eventfd: how completions wake a worker.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Readable after [`Event::signal`] until [`Event::clear`].
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn signal(&self) {
        #[expect(clippy::host_endian_bytes, reason = "the kernel's counter is of this host")]
        let one = 1u64.to_ne_bytes();
        // It can only fail when the counter is about to overflow, and then it is readable anyway.
        let _ = rustix::io::write(&self.0, &one);
    }

    pub(crate) fn clear(&self) {
        // It can only fail when there is nothing to clear.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
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
