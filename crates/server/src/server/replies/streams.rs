//! Large items among the replies: their chunks are read ahead, and sent from where they were read to.

use super::{Expected, Replies, Slot, SlotId};
use crate::commands::listing::Listing;
use crate::server::stream::{ChunkName, Slices, Stream};
use std::io::IoSlice;

/// What is kept of a large item besides its chunks.
const STREAM: Expected = Expected { reply_bytes: 0, request_bytes: size_of::<Stream>() + 256 };

impl Replies {
    /// Keeps a place for a reply of any length.
    pub(crate) fn reserve_stream(&mut self, stream: Box<Stream>) {
        self.streams += 1;
        self.expected.add(STREAM);
        self.push(Slot::Stream(stream));
    }

    /// Keeps a place for a list of all keys.
    pub(crate) fn reserve_listing(&mut self, listing: Box<Listing>) {
        self.listings += 1;
        self.push(Slot::Listing(listing));
    }

    /// Puts a stream into a place that was kept for a reply.
    pub(crate) fn fulfil_with_stream(&mut self, id: SlotId, stream: Box<Stream>) {
        if let Some(slot) = self.slots.get_mut((id.0 - self.front) as usize) {
            if let Slot::Unfinished(expected) = *slot {
                self.expected.forget(expected);
            }
            self.streams += 1;
            self.expected.add(STREAM);
            *slot = Slot::Stream(stream);
        }
    }

    /// Large items among what is owed.
    pub(crate) fn streams(&self) -> usize {
        self.streams
    }

    /// Whether a list of all keys is among what is owed.
    pub(crate) fn has_listing(&self) -> bool {
        self.listings > 0
    }

    /// Bytes of large items that are kept or being read.
    pub(crate) fn stream_bytes(&self) -> usize {
        if self.streams == 0 {
            return 0;
        }
        let bytes = |slot: &Slot| match slot {
            Slot::Stream(stream) => stream.bytes(),
            _ => 0,
        };
        self.slots.iter().map(bytes).sum()
    }

    /// Chunks to be looked up now, so many bytes of them, in the order in which they will be sent, `together` of an
    /// item at once.
    pub(crate) fn begin_chunks(
        &mut self,
        mut room: usize,
        together: u32,
        begun: &mut Vec<(SlotId, ChunkName)>,
    ) {
        for (at, slot) in self.slots.iter_mut().enumerate() {
            let Slot::Stream(stream) = slot else { continue };
            // Or it would never come to its end.
            let must = at == 0;
            while let Some(name) = stream.begin_next(must, room, together) {
                room = room.saturating_sub(name.chunk.bytes as usize);
                begun.push((SlotId(self.front + at as u64), name));
            }
            if !stream.has_begun_all() {
                if must && !stream.is_reading() {
                    stream.stop_holding();
                }
                return;
            }
        }
    }

    /// Forgets what large items have looked up and not sent: they look it up again.
    pub(crate) fn let_pieces_go(&mut self) {
        for slot in &mut self.slots {
            if let Slot::Stream(stream) = slot {
                stream.let_pieces_go();
            }
        }
    }

    /// The stream in a certain place.
    pub(crate) fn stream(&mut self, id: SlotId) -> Option<&mut Stream> {
        match self.slots.get_mut(id.0.checked_sub(self.front)? as usize) {
            Some(Slot::Stream(stream)) => Some(stream),
            _ => None,
        }
    }

    /// The list at the front, and where its bytes go.
    pub(crate) fn front_listing(&mut self) -> Option<(&mut Listing, &mut Vec<u8>)> {
        match self.slots.front_mut() {
            Some(Slot::Listing(listing)) => Some((listing, &mut self.output)),
            _ => None,
        }
    }

    /// The stream or list at the front is through.
    pub(crate) fn finish_front(&mut self) {
        match self.slots.front() {
            Some(Slot::Stream(stream)) => {
                self.streams -= 1;
                self.expected.forget(STREAM);
                self.finished.push(stream.hash());
            }
            Some(Slot::Listing(_)) => self.listings -= 1,
            _ => return,
        }
        self.slots.pop_front();
        self.front += 1;
        self.unfinished -= 1;
        self.advance(drop);
    }

    /// Whether the large item at the front can be gone on with.
    pub(crate) fn has_ready_stream(&self) -> bool {
        matches!(self.slots.front(), Some(Slot::Stream(stream)) if stream.can_go_on())
    }

    /// Whether what was promised to the client can't be kept.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self.slots.front(), Some(Slot::Stream(stream)) if stream.is_broken())
    }

    /// Key hashes of large items that were sent since the last call.
    pub(crate) fn take_finished(&mut self) -> impl Iterator<Item = u64> {
        self.finished.drain(..)
    }

    /// What can be sent, where large items are a part of it.
    pub(super) fn gather(&self) -> Slices<'_> {
        let mut slices = Slices::new();
        if self.sendable() > 0 {
            slices.push(IoSlice::new(&self.output[self.sent..]));
        }
        for slot in &self.slots {
            let goes_on = match slot {
                Slot::Done(bytes) => slices.try_push(IoSlice::new(bytes)).is_ok(),
                Slot::Stream(stream) => stream.gather(&mut slices),
                Slot::Unfinished(_) | Slot::Listing(_) => false,
            };
            if !goes_on {
                break;
            }
        }
        slices
    }

    /// Notes that so many bytes of what [`Replies::gather`] found were sent.
    pub(super) fn note_sent(&mut self, mut bytes: usize) {
        loop {
            let here = bytes.min(self.sendable());
            self.sent += here;
            bytes -= here;
            if self.streams == 0 || self.sendable() > 0 {
                return;
            }
            self.output.clear();
            self.sent = 0;
            let Some(Slot::Stream(stream)) = self.slots.front_mut() else { return };
            bytes -= stream.take(bytes);
            if !stream.is_through() {
                return;
            }
            self.finish_front();
        }
    }
}
