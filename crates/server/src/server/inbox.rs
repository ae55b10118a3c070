//! How new connections, what watchers are to be told, and the order to stop reach a worker.

use super::listener::Arrival;
use super::poll::Waker;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// One worker's inbox.
#[derive(Debug)]
pub(crate) struct Inbox {
    arrivals: Mutex<Vec<Arrival>>,
    waker: Arc<Waker>,
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { arrivals: Mutex::new(Vec::new()), waker: Arc::new(Waker::new()?) })
    }

    pub(crate) fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    /// Hands a connection to the worker.
    pub(crate) fn send(&self, arrival: Arrival) {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).push(arrival);
        self.waker.wake();
    }

    /// Everything that has arrived.
    pub(crate) fn take(&self) -> Vec<Arrival> {
        std::mem::take(&mut *self.arrivals.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
