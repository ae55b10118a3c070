//! The memory of all connections together, and its cap.
//!
//! Everything that grows with connections counts: buffers of requests and replies, values that are read ahead,
//! sessions of TLS, the connections themselves. Kernel socket buffers do not count.
//!
//! 1. The less of the cap is free, the less one connection may be owed before its next request waits.
//! 2. Once a sixteenth of the cap is left, memory is *tight*: a connection executes one request at a time, only while
//!    it is owed nothing and its client has taken all that was sent before, and keeps nothing that it can look up
//!    again. So one whose client reads always goes on.
//! 3. A value that does not fit below the cap is refused, but one per worker.
//! 4. Each second that it stays tight, connections shrink their buffers. Those whose clients have neither sent nor
//!    taken anything for [`IDLE_MIN_S`] seconds are closed, the longest idle first, until it is tight no more.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The part of the cap that is left when memory is tight.
const TIGHT_PART: u64 = 16;
/// The part of what is free that one connection may be owed.
const PART_OF_FREE: u64 = 32;
/// What one connection may be owed where enough is free: no further request is begun while so many bytes wait for
/// the client to take them, or are being read from drives.
const OWED_BYTES_MAX: u64 = 2 << 20;
/// Workers report what their connections hold in steps of this.
const STEP_BYTES: u64 = 64 << 10;
/// Memory of a connection besides its buffers: what is known of it, here and in the table of clients.
pub(crate) const CONNECTION_BYTES: usize = 1 << 10;
/// A connection that holds less is not worth closing.
pub(crate) const WORTH_CLOSING_BYTES: u64 = 4 << 10;
/// A connection that moved bytes within so many seconds is never closed for memory.
pub(crate) const IDLE_MIN_S: u32 = 10;

/// What all workers' connections hold.
#[derive(Debug)]
pub(crate) struct ConnectionMemory {
    /// As far as workers have reported it.
    held: AtomicU64,
    cap: u64,
    /// What follows from these. Written by whoever reports, so that it may be out of date until the next report.
    allowance: AtomicUsize,
}

/// One worker's part.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Bytes that its connections hold.
    held: u64,
    /// As last reported to [`ConnectionMemory`].
    reported: u64,
}

impl ConnectionMemory {
    pub(crate) fn new(cap: u64) -> Self {
        let memory = Self { held: AtomicU64::new(0), cap, allowance: AtomicUsize::new(0) };
        memory.judge();
        memory
    }

    /// Bytes that may be held.
    pub(crate) fn cap(&self) -> u64 {
        self.cap
    }

    /// Bytes that are held, about.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Bytes that one connection may be owed before its next request waits; 0 while memory is tight.
    #[inline]
    pub(crate) fn allowance(&self) -> usize {
        self.allowance.load(Ordering::Relaxed)
    }

    /// As [`ConnectionMemory::allowance`], of what is held now.
    pub(crate) fn judge(&self) -> usize {
        let free = self.cap.saturating_sub(self.held());
        let is_tight = free < self.cap / TIGHT_PART;
        let allowance =
            if is_tight { 0 } else { (free / PART_OF_FREE).min(OWED_BYTES_MAX) as usize };
        self.allowance.store(allowance, Ordering::Relaxed);
        allowance
    }

    /// Whether connections must do with little.
    pub(crate) fn is_tight(&self) -> bool {
        self.allowance() == 0
    }

    /// Whether `bytes` more fit below the cap.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.held() + bytes as u64 <= self.cap
    }
}

impl Ledger {
    /// A connection holds `now` bytes in place of `before`.
    pub(crate) fn hold(&mut self, memory: &ConnectionMemory, before: u64, now: u64) {
        self.held = self.held + now - before;
        if self.held.abs_diff(self.reported) >= STEP_BYTES || self.held == 0 {
            let change = self.held.wrapping_sub(self.reported);
            memory.held.fetch_add(change, Ordering::Relaxed);
            memory.judge();
            self.reported = self.held;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn allowance_shrinks_with_what_is_free_and_ends_before_the_cap() {
        let (memory, mut ledger) = (ConnectionMemory::new(64 * MIB), Ledger::default());
        let mut hold = |before: u64, now: u64| {
            ledger.hold(&memory, before * MIB, now * MIB);
            (memory.allowance() as u64, memory.is_tight())
        };
        assert_eq!(hold(0, 0), (2 * MIB, false));
        assert_eq!(hold(0, 32), (MIB, false));
        assert_eq!(hold(32, 60), (MIB / 8, false));
        assert_eq!(hold(60, 61), (0, true));
        assert_eq!(hold(61, 100), (0, true), "beyond the cap");
        assert!(!memory.has_room(1));
        assert_eq!(memory.held(), 100 * MIB);
    }

    #[test]
    fn connections_that_each_take_their_allowance_never_exceed_the_cap() {
        let (memory, mut ledger) = (ConnectionMemory::new(64 * MIB), Ledger::default());
        for _ in 0..10_000 {
            ledger.hold(&memory, 0, memory.allowance() as u64);
        }
        assert!(memory.held() <= memory.cap() - memory.cap() / 32, "{}", memory.held());
        assert!(memory.is_tight());
    }

    #[test]
    fn workers_report_in_steps_and_nothing_is_left_of_none() {
        let memory = ConnectionMemory::new(64 * MIB);
        let (mut one, mut other) = (Ledger::default(), Ledger::default());
        one.hold(&memory, 0, STEP_BYTES - 1);
        assert_eq!(memory.held(), 0);
        one.hold(&memory, 0, 1);
        other.hold(&memory, 0, 2 * STEP_BYTES);
        assert_eq!(memory.held(), 3 * STEP_BYTES);
        one.hold(&memory, STEP_BYTES, 10);
        one.hold(&memory, 10, 0);
        assert_eq!(memory.held(), 2 * STEP_BYTES);
        other.hold(&memory, 2 * STEP_BYTES, 1);
        other.hold(&memory, 1, 0);
        assert_eq!(memory.held(), 0);
    }
}
