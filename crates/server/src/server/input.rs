//! Bytes that a client sent and that were not yet understood.

use super::socket::Socket;
use std::io;

/// Bytes asked of the socket at once, as long as a request doesn't need more.
pub(crate) const BUFFER_BYTES: usize = 16 << 10;
/// With less room than this, what is unread moves to the front before more is received.
const ROOM_MIN: usize = 2 << 10;

/// A receive buffer; holds no memory while it is empty (see [`super::buffers::Buffers`]).
#[derive(Debug, Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    /// Everything before this was consumed.
    start: usize,
}

/// How a receive went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// There may be more to receive.
    More,
    /// The socket is empty for now: the next bytes will show as an event.
    Drained,
    /// The client has sent its last byte.
    End,
}

impl Input {
    /// What was received and not consumed.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        debug_assert!(self.start <= self.bytes.len());
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Receives once. `needed` is how many unread bytes the request at the front takes in all, where
    /// that is known; room is made for it.
    #[inline]
    pub(crate) fn receive(&mut self, socket: &mut Socket, needed: usize) -> io::Result<Received> {
        self.make_room(needed);
        socket.receive(&mut self.bytes)
    }

    fn make_room(&mut self, needed: usize) {
        let unread = self.bytes.len() - self.start;
        let wanted = needed.max(unread + ROOM_MIN);
        if self.start > 0 && self.start + wanted > self.bytes.capacity() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        if wanted > self.bytes.capacity() {
            self.bytes.reserve(wanted.max(BUFFER_BYTES) - unread);
        }
    }

    /// Frees memory that holds nothing unread.
    pub(crate) fn shrink(&mut self) {
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.shrink_to_fit();
    }

    /// Takes the memory out of an empty buffer.
    pub(crate) fn take_memory(&mut self) -> Vec<u8> {
        debug_assert!(self.is_empty());
        std::mem::take(&mut self.bytes)
    }

    /// Gives an empty buffer memory to work with.
    pub(crate) fn give_memory(&mut self, memory: Vec<u8>) {
        debug_assert!(self.is_empty() && memory.is_empty());
        self.bytes = memory;
    }
}
