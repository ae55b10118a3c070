//! How new connections, what watchers are to be told, the wish for memory, and the order to stop reach a worker.

use super::listener::Arrival;
use super::poll::Waker;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// One worker's inbox.
#[derive(Debug)]
pub(crate) struct Inbox {
    arrivals: Mutex<Vec<Arrival>>,
    wants_memory: AtomicBool,
    waker: Arc<Waker>,
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Self> {
        let (arrivals, wants_memory) = Default::default();
        Ok(Self { arrivals, wants_memory, waker: Arc::new(Waker::new()?) })
    }

    pub(crate) fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    /// Hands a connection to the worker.
    pub(crate) fn send(&self, arrival: Arrival) {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).push(arrival);
        self.waker.wake();
    }

    /// Has the worker look around.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Has the worker free what it only keeps for later.
    pub(crate) fn ask_for_memory(&self) {
        self.wants_memory.store(true, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Whether it was, since this was last asked.
    pub(crate) fn is_asked_for_memory(&self) -> bool {
        self.wants_memory.swap(false, Ordering::Relaxed)
    }

    /// Everything that has arrived.
    pub(crate) fn take(&self) -> Vec<Arrival> {
        std::mem::take(&mut *self.arrivals.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
