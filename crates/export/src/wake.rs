//! What other threads have for an event loop.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_device::Event;

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
