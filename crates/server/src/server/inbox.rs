//! How new connections and the order to stop reach a worker.

use super::poll::Waker;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// A connection on its way to its worker.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) socket: OwnedFd,
    /// The listener that it came in by.
    pub(crate) listener: Arc<str>,
}

/// One worker's inbox.
#[derive(Debug)]
pub(crate) struct Inbox {
    arrivals: Mutex<Vec<Arrival>>,
    waker: Waker,
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { arrivals: Mutex::new(Vec::new()), waker: Waker::new()? })
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(crate) fn send(&self, arrival: Arrival) {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).push(arrival);
        self.waker.wake();
    }

    /// Everything that has arrived.
    pub(crate) fn take(&self) -> Vec<Arrival> {
        std::mem::take(&mut *self.arrivals.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
