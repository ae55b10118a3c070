//! Who is connected: what `stats conns` shows of all workers' connections.

use super::listener::{Entry, Kind};
use rustix::net::{SocketAddrAny, getpeername};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// All clients, by descriptor; changed when one comes or goes.
#[derive(Default)]
pub(crate) struct Clients(Mutex<BTreeMap<i32, Arc<Client>>>);

/// One client, as others than its worker see it.
pub(crate) struct Client {
    /// Its address, as `tcp:127.0.0.1:50000` or `unix:/path`.
    pub(crate) address: String,
    /// The listener that it came in by.
    pub(crate) entry: Arc<Entry>,
    /// Unix time of the last turn.
    last_active: AtomicU32,
    state: AtomicU8,
    /// Replies that are not known yet or not sent.
    waiting: AtomicU32,
}

/// What a connection is waiting for, in memcached's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// For requests.
    Read,
    /// For the rest of a value.
    Value,
    /// For the end of what nobody wants.
    Swallow,
    /// For the client to take replies, or for a drive.
    Write,
    /// For events to tell.
    Watch,
}

impl State {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Read, "conn_read"),
        (Self::Value, "conn_nread"),
        (Self::Swallow, "conn_swallow"),
        (Self::Write, "conn_mwrite"),
        (Self::Watch, "conn_watch"),
    ];
}

impl Client {
    /// One that [`Clients`] does not list.
    pub(crate) fn new(socket: BorrowedFd<'_>, entry: Arc<Entry>, now: u32) -> Self {
        Self {
            address: address(socket, &entry),
            entry,
            last_active: AtomicU32::new(now),
            state: AtomicU8::new(State::Read as u8),
            waiting: AtomicU32::new(0),
        }
    }

    /// What happened in the last turn; `waiting` replies are left to be sent.
    pub(crate) fn note(&self, state: State, waiting: usize, now: u32) {
        self.waiting.store(waiting as u32, Ordering::Relaxed);
        self.last_active.store(now, Ordering::Relaxed);
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// Unix time of the last turn.
    pub(crate) fn last_active(&self) -> u32 {
        self.last_active.load(Ordering::Relaxed)
    }

    /// Replies that were not known or not sent yet at the end of the last turn.
    pub(crate) fn replies_waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// In memcached's words.
    pub(crate) fn state(&self) -> &'static str {
        State::ALL[usize::from(self.state.load(Ordering::Relaxed))].1
    }
}

impl Clients {
    /// Takes a new one in.
    pub(crate) fn add(&self, socket: BorrowedFd<'_>, entry: Arc<Entry>, now: u32) -> Arc<Client> {
        let client = Arc::new(Client::new(socket, entry, now));
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(socket.as_raw_fd(), Arc::clone(&client));
        client
    }

    /// One is gone; its descriptor is still open.
    pub(crate) fn remove(&self, descriptor: i32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&descriptor);
    }

    /// All of them, with their descriptors.
    pub(crate) fn all(&self) -> Vec<(i32, Arc<Client>)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(descriptor, client)| (*descriptor, Arc::clone(client))).collect()
    }
}

fn address(socket: BorrowedFd<'_>, entry: &Entry) -> String {
    match (entry.kind, network_address(socket)) {
        (Kind::Unix, _) => entry.name.clone(),
        (kind, Some(address)) => format!("{}:{address}", kind.name()),
        // Gone already.
        (kind, None) => format!("{}:", kind.name()),
    }
}

fn network_address(socket: BorrowedFd<'_>) -> Option<std::net::SocketAddr> {
    let address: SocketAddrAny = getpeername(socket).ok()??;
    address.try_into().ok()
}
