//! Replies in the order of their requests, whatever order they are found in.
//!
//! While nothing is unfinished a reply is written straight to where `send` takes it from. Behind a
//! request that waits for a drive, replies gather in slots: one for each unfinished request, and one
//! for all the finished replies between two of them.

mod streams;

use super::buffers::{RUN_BYTES_MAX, Runs};
use super::socket::Socket;
use super::stream::Stream;
use crate::commands::listing::Listing;
use arrayvec::ArrayVec;
use std::collections::VecDeque;
use std::io;

/// Memory of emptied slots that is kept for the next ones.
const SPARE_MAX: usize = 4;
/// What a request that waits needs of it: for itself, if others finish before it, and for the run behind it.
const SPARE_MIN: usize = 2;
/// Room for slots that who is owed nothing keeps; a deeper pipeline makes its own.
const SLOTS_KEPT_MAX: usize = 64;

/// Names a slot of one connection; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId(u64);

enum Slot {
    /// Complete replies.
    Done(Vec<u8>),
    /// One reply that is being found out.
    Unfinished(Expected),
    /// The value of a large item, which is sent piece by piece once it is at the front.
    Stream(Box<Stream>),
    /// A list of all keys, sent in the same way.
    Listing(Box<Listing>),
}

/// What a reply takes that is not known yet.
#[derive(Clone, Copy, Default)]
pub(crate) struct Expected {
    /// Bytes of it, and of what has to be read for it, about.
    pub(crate) reply_bytes: usize,
    /// Bytes of the request that is kept for it.
    pub(crate) request_bytes: usize,
}

/// Everything that one connection is owed.
#[derive(Default)]
pub(crate) struct Replies {
    /// To be sent; the first `sent` bytes are.
    output: Vec<u8>,
    sent: usize,
    slots: VecDeque<Slot>,
    /// Memory for slots, while there are any; it is the worker's otherwise.
    spare: ArrayVec<Vec<u8>, SPARE_MAX>,
    /// The id of `slots[0]`.
    front: u64,
    /// Bytes in slots.
    slot_bytes: usize,
    /// Slots that are not `Done`.
    unfinished: usize,
    /// Slots that are streams.
    streams: usize,
    /// Slots that are lists of keys.
    listings: usize,
    /// Key hashes of streams that are through, until someone asks.
    finished: Vec<u64>,
    /// All that unfinished replies take.
    expected: Expected,
    /// Some of what could be sent was found in DRAM, and waited for no drive.
    has_prompt: bool,
}

impl Expected {
    fn add(&mut self, other: Self) {
        self.reply_bytes += other.reply_bytes;
        self.request_bytes += other.request_bytes;
    }

    fn forget(&mut self, other: Self) {
        self.reply_bytes -= other.reply_bytes;
        self.request_bytes -= other.request_bytes;
    }

    fn bytes(self) -> usize {
        self.reply_bytes + self.request_bytes
    }
}

impl Replies {
    /// Appends to the replies by way of `write`.
    #[inline]
    pub(crate) fn append<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let out = self.open();
        let before = out.len();
        let result = write(out);
        let written = out.len() - before;
        self.note_written(written);
        result
    }

    /// Where the next reply is to be appended. How much was is then told to [`Replies::note_written`].
    #[inline]
    pub(crate) fn open(&mut self) -> &mut Vec<u8> {
        if self.slots.is_empty() {
            self.has_prompt = true;
            &mut self.output
        } else {
            self.last_done()
        }
    }

    #[inline]
    pub(crate) fn note_written(&mut self, bytes: usize) {
        if !self.slots.is_empty() {
            self.slot_bytes += bytes;
        }
    }

    /// Takes the last bytes back that were written.
    pub(crate) fn take_back(&mut self, bytes: usize) -> Vec<u8> {
        let out = self.open();
        let taken = out.split_off(out.len().saturating_sub(bytes));
        if !self.slots.is_empty() {
            self.slot_bytes -= taken.len();
        }
        taken
    }

    /// Takes what slots will need of the memory that other connections had.
    pub(crate) fn borrow(&mut self, runs: &mut Runs) {
        while self.spare.len() < SPARE_MIN
            && let Some(memory) = runs.pop()
        {
            self.spare.push(memory);
        }
    }

    /// Keeps a place for a reply that is not known yet.
    pub(crate) fn reserve(&mut self, expected: Expected) -> SlotId {
        self.expected.add(expected);
        self.push(Slot::Unfinished(expected))
    }

    fn push(&mut self, slot: Slot) -> SlotId {
        self.unfinished += 1;
        self.slots.push_back(slot);
        SlotId(self.front + self.slots.len() as u64 - 1)
    }

    /// Where replies behind the last unfinished one go.
    #[inline(never)]
    fn last_done(&mut self) -> &mut Vec<u8> {
        if !matches!(self.slots.back(), Some(Slot::Done(_))) {
            self.slots.push_back(Slot::Done(self.spare.pop().unwrap_or_default()));
        }
        let Some(Slot::Done(bytes)) = self.slots.back_mut() else { unreachable!("just pushed") };
        bytes
    }

    /// Puts the reply in its place. Takes the memory of `reply` only where it is long and must wait there; other memory
    /// comes from `runs`, and goes back to them.
    #[inline]
    pub(crate) fn fulfil(&mut self, id: SlotId, reply: &mut Vec<u8>, runs: &mut Runs) {
        let Some(slot) = self.slots.get_mut((id.0 - self.front) as usize) else { return };
        if let Slot::Unfinished(expected) = *slot {
            self.expected.forget(expected);
        }
        self.unfinished -= 1;
        if id.0 != self.front {
            self.slot_bytes += reply.len();
            *slot = Slot::Done(if reply.len() <= RUN_BYTES_MAX {
                let mut memory = self.spare.pop().or_else(|| runs.pop()).unwrap_or_default();
                memory.append(reply);
                memory
            } else {
                std::mem::take(reply)
            });
            return;
        }
        self.output.append(reply);
        self.slots.pop_front();
        self.front += 1;
        // One too many is freed.
        self.advance(|memory| drop(runs.try_push(memory)));
    }

    /// Takes the end of a line back that was written behind the reply of a key: what the key is answered with ends the line.
    /// Says whether there was one.
    pub(crate) fn take_end_behind(&mut self, id: SlotId, end: &[u8]) -> bool {
        let behind = self.slots.get_mut((id.0 - self.front) as usize + 1);
        let Some(Slot::Done(bytes)) = behind.filter(|slot| matches!(slot, Slot::Done(_))) else {
            return false;
        };
        let is_end = bytes.starts_with(end);
        if is_end {
            bytes.drain(..end.len());
            self.slot_bytes -= end.len();
        }
        is_end
    }

    /// Moves what is finished at the front to the output, and memory that is not needed here for that to where it
    /// `goes`.
    fn advance(&mut self, mut goes: impl FnMut(Vec<u8>)) {
        while let Some(Slot::Done(bytes)) = self.slots.front_mut() {
            self.slot_bytes -= bytes.len();
            self.output.append(bytes);
            let memory = std::mem::take(bytes);
            if (1..=RUN_BYTES_MAX).contains(&memory.capacity())
                && let Err(full) = self.spare.try_push(memory)
            {
                goes(full.element());
            }
            self.slots.pop_front();
            self.front += 1;
        }
    }

    /// Nothing is being waited for; what is owed stands in the output.
    pub(crate) fn is_settled(&self) -> bool {
        self.unfinished == 0
    }

    /// Whether some of them are read from drives.
    pub(crate) fn waits_for_drives(&self) -> bool {
        self.expected.reply_bytes > 0
    }

    /// Replies that are being waited for.
    pub(crate) fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// Bytes that could be sent now.
    pub(crate) fn sendable(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Whether some of that waited for no drive.
    pub(crate) fn has_prompt(&self) -> bool {
        self.has_prompt
    }

    /// The client has all of each reply of which it has a part.
    pub(crate) fn is_all_sent(&self) -> bool {
        self.sendable() == 0 && self.streams == 0
    }

    /// Replies, or runs of them, that are not known or not sent yet.
    pub(crate) fn waiting(&self) -> usize {
        self.slots.len() + usize::from(self.sendable() > 0)
    }

    /// Bytes that are kept until the client takes them, or that soon will be.
    pub(crate) fn owed(&self) -> usize {
        self.sendable() + self.slot_bytes + self.expected.bytes()
    }

    /// Frees what is not used of the memory held, and forgets what can be looked up again.
    pub(crate) fn shrink(&mut self) {
        self.output.drain(..self.sent);
        self.sent = 0;
        self.output.shrink_to_fit();
        self.spare.clear();
        self.let_pieces_go();
    }

    /// Bytes of memory held, or soon to be.
    pub(crate) fn memory(&self) -> usize {
        let spare: usize = self.spare.iter().map(Vec::capacity).sum();
        self.output.capacity() + self.slot_bytes + spare + self.expected.bytes()
    }

    /// Sends once. `Ok(false)` if the socket took less than there was.
    #[inline]
    pub(crate) fn send(&mut self, socket: &mut Socket, sent: &mut u64) -> io::Result<bool> {
        if self.streams > 0 {
            // One that turned out to be lost may have nothing to say.
            self.note_sent(0);
        }
        loop {
            let result = match self.streams {
                0 if self.sendable() == 0 => break,
                0 => socket.send(&self.output[self.sent..]),
                _ => match &self.gather()[..] {
                    [] => break,
                    slices => socket.send_slices(slices),
                },
            };
            match result {
                Ok(bytes) => {
                    self.note_sent(bytes);
                    *sent += bytes as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.forget_sent();
                    return Ok(false);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.sent = 0;
        self.has_prompt = false;
        socket.flush()
    }

    /// Reuses the room of what was sent, once that is worth moving the rest.
    fn forget_sent(&mut self) {
        if self.sent >= self.sendable() {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Takes the memory of an empty output, and gives back what slots needed. Who is owed nothing keeps no memory at
    /// all.
    #[inline]
    pub(crate) fn take_memory(&mut self, runs: &mut Runs) -> Option<Vec<u8>> {
        if self.slots.is_empty() {
            // What is too much is freed.
            self.spare.drain(..).for_each(|memory| drop(runs.try_push(memory)));
            if self.slots.capacity() > SLOTS_KEPT_MAX {
                self.slots = VecDeque::new();
            }
        }
        (self.output.is_empty() && self.output.capacity() > 0)
            .then(|| std::mem::take(&mut self.output))
    }

    /// Gives an empty output memory to work with.
    pub(crate) fn give_memory(&mut self, memory: Vec<u8>) {
        debug_assert!(self.output.is_empty() && memory.is_empty());
        self.output = memory;
    }

    /// Whether the output has memory.
    pub(crate) fn has_memory(&self) -> bool {
        self.output.capacity() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply_of(reply_bytes: usize) -> Expected {
        Expected { reply_bytes, request_bytes: 0 }
    }

    fn text(replies: &Replies) -> &str {
        std::str::from_utf8(&replies.output).unwrap()
    }

    #[test]
    fn knows_whether_the_client_waits_for_the_rest_of_a_reply() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut socket = Socket::Plain(ours.into());
        let mut replies = Replies::default();
        assert!(replies.is_all_sent());
        replies.append(|out| out.extend(b"short"));
        assert!(!replies.is_all_sent());
        assert!(replies.send(&mut socket, &mut 0).unwrap() && replies.is_all_sent());
        replies.append(|out| out.resize(16 << 20, b'x'));
        // More than half of it may be gone, and its room reused.
        assert!(!replies.send(&mut socket, &mut 0).unwrap() && !replies.is_all_sent());
        drop(theirs);
    }

    #[test]
    fn keeps_the_order_of_requests() {
        let mut replies = Replies::default();
        replies.append(|out| out.extend(b"a"));
        let b = replies.reserve(reply_of(10));
        replies.append(|out| out.extend(b"c"));
        replies.append(|out| out.extend(b"d"));
        let e = replies.reserve(reply_of(10));
        let f = replies.reserve(reply_of(10));
        replies.append(|out| out.extend(b"g"));
        assert_eq!((text(&replies), replies.owed(), replies.unfinished()), ("a", 34, 3));
        let mut runs = Runs::new();
        replies.fulfil(e, &mut b"e".to_vec(), &mut runs);
        assert_eq!(text(&replies), "a");
        replies.fulfil(b, &mut b"b".to_vec(), &mut runs);
        assert_eq!((text(&replies), replies.unfinished()), ("abcde", 1));
        replies.fulfil(f, &mut b"f".to_vec(), &mut runs);
        assert_eq!(text(&replies), "abcdefg");
        assert!(replies.is_settled());
        replies.append(|out| out.extend(b"h"));
        assert_eq!((text(&replies), replies.owed()), ("abcdefgh", 8));
    }

    #[test]
    fn the_memory_of_runs_goes_round() {
        let (mut replies, mut runs) = (Replies::default(), Runs::new());
        let mut last_to_first = |runs: &mut Runs| {
            let slots: Vec<_> = (0..20).map(|_| replies.reserve(reply_of(10))).collect();
            for slot in slots.into_iter().rev() {
                replies.fulfil(slot, &mut b"x".to_vec(), runs);
            }
            replies.take_memory(runs);
        };
        last_to_first(&mut runs);
        let mut memory: Vec<_> = runs.iter().map(|run| run.as_ptr()).collect();
        assert_eq!(memory.len(), 19, "all but the first waited");
        last_to_first(&mut runs);
        let mut again: Vec<_> = runs.iter().map(|run| run.as_ptr()).collect();
        memory.sort_unstable();
        again.sort_unstable();
        assert_eq!(memory, again, "none was asked of the allocator");
    }

    #[test]
    fn requests_that_wait_count_as_memory_with_their_replies() {
        let mut replies = Replies::default();
        let get = replies.reserve(reply_of(4096));
        assert_eq!((replies.memory(), replies.owed()), (4096, 4096));
        let append = replies.reserve(Expected { reply_bytes: 4096, request_bytes: 128 << 10 });
        assert_eq!(replies.memory(), (128 << 10) + 2 * 4096);
        assert!(replies.waits_for_drives());
        replies.fulfil(get, &mut Vec::new(), &mut Runs::new());
        replies.fulfil(append, &mut Vec::new(), &mut Runs::new());
        assert_eq!((replies.memory(), replies.owed()), (0, 0));
    }

    #[test]
    fn who_is_owed_nothing_keeps_no_room_for_many() {
        let mut replies = Replies::default();
        let mut capacity_after = |requests: usize| {
            let slots: Vec<_> = (0..requests).map(|_| replies.reserve(reply_of(10))).collect();
            let mut runs = Runs::new();
            for slot in slots {
                replies.fulfil(slot, &mut b"x".to_vec(), &mut runs);
            }
            replies.take_memory(&mut runs);
            replies.slots.capacity()
        };
        assert!(capacity_after(32) >= 32, "a short pipeline makes room once");
        assert!(capacity_after(500) <= SLOTS_KEPT_MAX);
    }
}
