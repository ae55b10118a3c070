//! How an event loop is woken: an eventfd, and what other threads have for it.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

    #[cfg(test)]
    pub(crate) fn is_signalled(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What other threads have for an event loop.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    event: Arc<Event>,
    items: Mutex<Vec<T>>,
}

impl<T> Inbox<T> {
    pub(crate) fn new(event: Arc<Event>) -> Self {
        Self { event, items: Mutex::new(Vec::new()) }
    }

    /// Adds an item, and wakes the loop.
    pub(crate) fn push(&self, item: T) {
        let mut items = self.lock();
        items.push(item);
        let is_first = items.len() == 1;
        drop(items);
        if is_first {
            self.event.signal();
        }
    }

    /// Moves all items to `taken`, which must be empty.
    pub(crate) fn take(&self, taken: &mut Vec<T>) {
        std::mem::swap(&mut *self.lock(), taken);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
