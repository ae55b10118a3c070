//! What an export counts. All counters grow from 0 at the start; reading them stops nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_device::{ErrorClass, ErrorCounts};

/// A counter that any thread adds to.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    pub(crate) fn remove(&self, count: u64) {
        self.0.fetch_sub(count, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What became of the commands of a namespace.
#[derive(Debug, Default)]
pub(crate) struct MediumCounters {
    pub(crate) reads: Counter,
    pub(crate) read_bytes: Counter,
    pub(crate) writes: Counter,
    pub(crate) written_bytes: Counter,
    pub(crate) flushes: Counter,
    pub(crate) zeroed_bytes: Counter,
    /// By [`ErrorClass`].
    pub(crate) errors: [Counter; ErrorClass::COUNT],
}

/// Of all connections.
#[derive(Debug, Default)]
pub(crate) struct LinkCounters {
    pub(crate) open: Counter,
    pub(crate) half_open: Counter,
    pub(crate) accepted: Counter,
    /// Turned away, since there were as many as may be.
    pub(crate) rejected: Counter,
    /// Closed before a Connect succeeded: too slow, or the oldest of too many.
    pub(crate) never_connected: Counter,
    pub(crate) protocol_errors: Counter,
    pub(crate) keep_alive_timeouts: Counter,
    /// Closed since they held buffers that other connections waited for, and moved nothing.
    pub(crate) stalled: Counter,
    /// Times that data waited for a buffer.
    pub(crate) buffer_waits: Counter,
}

/// What a namespace has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceStatus {
    /// Identifier.
    pub nsid: u32,
    /// The path, or what else its drive is called.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Reads that were begun.
    pub reads: u64,
    /// Bytes of these.
    pub read_bytes: u64,
    /// Writes that were begun.
    pub writes: u64,
    /// Bytes of these.
    pub written_bytes: u64,
    /// Flushes that were begun, those of writes that must be on the medium included.
    pub flushes: u64,
    /// Bytes that Write Zeroes asked for.
    pub zeroed_bytes: u64,
    /// Commands that the file or device failed.
    pub errors: ErrorCounts,
}

/// What an export has done, and has at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Namespaces, in the order of their identifiers.
    pub namespaces: Vec<NamespaceStatus>,
    /// Controllers that hosts have, those of the discovery service included.
    pub controllers: u64,
    /// Open connections.
    pub connections: u64,
    /// Connections on which no Connect has succeeded.
    pub half_open: u64,
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections that were turned away, since as many were open as may be.
    pub rejected: u64,
    /// Connections that were closed before a Connect succeeded.
    pub never_connected: u64,
    /// Connections that ended since the host broke the protocol.
    pub protocol_errors: u64,
    /// Associations that ended since the host did not keep them alive.
    pub keep_alive_timeouts: u64,
    /// Connections that were closed since they held buffers that other ones waited for, and moved nothing.
    pub stalled: u64,
    /// Times that data waited for a buffer.
    pub buffer_waits: u64,
    /// Bytes of buffers that commands have.
    pub buffer_bytes_used: u64,
    /// Bytes of all buffers.
    pub buffer_bytes: u64,
    /// Most bytes of all buffers.
    pub buffer_bytes_max: u64,
}
