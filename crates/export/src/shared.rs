//! What all threads of an export share.
//!
//! Lock order: the target, the pool of buffers. No other lock is taken while one of these is held, and none of them
//! during a call of a file or socket.

use crate::buffers::Pool;
use crate::counters::LinkCounters;
use crate::medium::Medium;
use crate::note::Log;
use crate::wake::Inbox;
use crate::writers::{Finished, Writers};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_device::Event;
use terrace_nvme::controller::Target;
use terrace_nvme::pdu::FatalStatus;

/// What an event loop gets from other threads.
pub(crate) enum Item {
    /// A new connection, and the host's address.
    Link(TcpStream, SocketAddr),
    /// A command whose call of the drive is over.
    Finished(Finished),
}

impl From<Finished> for Item {
    fn from(finished: Finished) -> Self {
        Self::Finished(finished)
    }
}

/// A namespace, as it is served.
pub(crate) struct Exported {
    pub(crate) medium: Arc<Medium>,
    pub(crate) writers: Writers<Item>,
    /// The number of its drive among those that event loops read through their queues.
    pub(crate) queue_number: Option<usize>,
}

/// Limits of the whole export.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connections: usize,
    /// Of each event loop.
    pub(crate) half_open: usize,
}

pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) exported: Vec<Exported>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) counters: LinkCounters,
    pub(crate) log: Log,
    /// Of the event loops, as the next three.
    pub(crate) inboxes: Vec<Arc<Inbox<Item>>>,
    pub(crate) events: Vec<Arc<Event>>,
    /// Loops with a command that waits for writes of other hosts, one bit each.
    awaiting: AtomicU64,
    /// Loops that must look at all their connections, one bit each.
    sweeping: AtomicU64,
    target: Mutex<Target>,
    is_stopping: AtomicBool,
    /// Kinds of protocol errors that were logged, one bit each.
    faults_logged: AtomicU64,
}

/// What a [`Shared`] is made of.
pub(crate) struct Parts {
    pub(crate) limits: Limits,
    pub(crate) exported: Vec<Exported>,
    pub(crate) target: Target,
    pub(crate) pool: Arc<Pool>,
    pub(crate) log: Log,
    pub(crate) events: Vec<Arc<Event>>,
}

impl Shared {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { limits, exported, target, pool, log, events } = parts;
        let inboxes = events.iter().map(|event| Arc::new(Inbox::new(Arc::clone(event)))).collect();
        let (counters, awaiting, sweeping, is_stopping, faults_logged) = Default::default();
        let target = Mutex::new(target);
        Self {
            limits,
            exported,
            pool,
            counters,
            log,
            inboxes,
            events,
            awaiting,
            sweeping,
            target,
            is_stopping,
            faults_logged,
        }
    }

    pub(crate) fn target(&self) -> MutexGuard<'_, Target> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn exported(&self, nsid: u32) -> Option<&Exported> {
        self.exported.iter().find(|one| one.medium.namespace.nsid == nsid)
    }

    /// Has every event loop look at all its connections: whether their controllers are still there, and whether hosts
    /// want to be told something.
    pub(crate) fn sweep(&self) {
        self.sweeping.store(u64::MAX, SeqCst);
        self.events.iter().for_each(|event| event.signal());
    }

    /// Whether event loop `number` must do that now.
    pub(crate) fn must_sweep(&self, number: usize) -> bool {
        self.sweeping.load(SeqCst) >> number & 1 == 1
            && self.sweeping.fetch_and(!(1 << number), SeqCst) >> number & 1 == 1
    }

    /// Says whether event loop `number` has a command that waits for writes of other hosts. Must be called by that loop,
    /// and while it holds the target.
    pub(crate) fn set_awaiting(&self, number: usize, awaits: bool) {
        match awaits {
            true => self.awaiting.fetch_or(1 << number, SeqCst),
            false => self.awaiting.fetch_and(!(1 << number), SeqCst),
        };
    }

    /// Wakes loops whose commands may have waited for a write that is over now.
    pub(crate) fn writes_ended(&self) {
        let awaiting = self.awaiting.load(SeqCst);
        if awaiting != 0 {
            let woken =
                self.events.iter().enumerate().filter(|(number, _)| awaiting >> number & 1 == 1);
            woken.for_each(|(_, event)| event.signal());
        }
    }

    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, SeqCst);
        self.events.iter().for_each(|event| event.signal());
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(SeqCst)
    }

    /// Whether a protocol error of this kind is to be logged: the first of each.
    pub(crate) fn is_first(&self, status: FatalStatus) -> bool {
        let bit = 1 << status as u16;
        self.faults_logged.fetch_or(bit, SeqCst) & bit == 0
    }
}
