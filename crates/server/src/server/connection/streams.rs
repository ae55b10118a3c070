//! Replies that come piece by piece: listings, the values of large items, and what watchers hear.

use super::{Connection, STREAM_BYTES_MAX};
use crate::commands::listing::Next;
use crate::server::chunks::{ChunkRead, Outcome, Part};
use crate::server::context::Context;
use crate::server::pending::{Pending, Work};
use crate::server::replies::SlotId;
use crate::server::stream::{Lost, Piece};
use terrace_cache::CHUNKS_TOGETHER;

/// Bytes of large items that one connection reads ahead, at most.
const AHEAD_BYTES_MAX: usize = 2 << 20;
/// A list goes on while fewer bytes of it wait to be sent, however tight memory is.
const LISTED_BYTES_MIN: usize = 4 << 10;
/// Bytes that are looked up before other connections have their turn: in DRAM, they are copied.
const TURN_BYTES_MAX: usize = 512 << 10;

impl Connection {
    /// Puts what a watcher is to hear into the output; `false` if that is to be tried again. Behind replies that are
    /// not there yet, such as a large value that it does not take, it would gather without end: the watcher keeps it,
    /// and counts what it has no room for.
    pub(super) fn tell_watcher(&mut self) -> bool {
        let Some(watcher) = &self.watcher else { return true };
        if !self.replies.is_settled() {
            return false;
        }
        let has_room = self.replies.sendable() < STREAM_BYTES_MAX;
        if has_room {
            self.replies.append(|out| watcher.take(out));
        }
        has_room
    }

    /// Puts what there is of a listing into the output; `true` if there is more than fits.
    pub(super) fn send_listing(&mut self, cx: &Context) -> bool {
        let most = STREAM_BYTES_MAX.min(cx.owed_max.max(LISTED_BYTES_MIN));
        while let Some((listing, output)) = self.replies.front_listing() {
            if output.len() >= most {
                return true;
            }
            match listing.next() {
                Next::Bytes(mut bytes) => output.append(&mut bytes),
                Next::End => self.replies.finish_front(),
                Next::Wait => {
                    self.awaits_listing = true;
                    return false;
                }
                Next::CutOff => {
                    self.is_broken = true;
                    return false;
                }
            }
        }
        false
    }

    /// Looks chunks of large items up, as far ahead as there is room, and has those read that lie on a
    /// drive.
    pub(super) fn read_ahead(&mut self, cx: &mut Context) {
        let own = AHEAD_BYTES_MAX.saturating_sub(self.replies.stream_bytes());
        let room = cx.room_for_streams().min(own).min(TURN_BYTES_MAX);
        // Those of an item that are read together are too many where memory is short.
        let together = if cx.owed_max < TURN_BYTES_MAX { 1 } else { CHUNKS_TOGETHER };
        let mut begun = std::mem::take(&mut cx.begun);
        self.replies.begin_chunks(room, together, &mut begun);
        let mut read: Option<ChunkRead> = None;
        for (slot, name) in begun.drain(..) {
            let mut scratch = [0; 12];
            let key = name.chunk.key(&cx.session, &mut scratch);
            let piece = match cx.find_chunk(name, key, None) {
                Ok(found) => found.map(|bytes| Piece::Copied(bytes.to_vec())).and_then(|piece| {
                    // Else it was lost while it was copied.
                    cx.session.is_intact().then_some(piece).ok_or(Lost::Gone)
                }),
                Err(search) => {
                    let part = Part::new(name, search);
                    if let Some(full) = read.take_if(|read| !read.reaches(slot, part.plan)) {
                        cx.read_chunks(full);
                    }
                    match &mut read {
                        Some(read) => read.join(part),
                        None => read = Some(ChunkRead::new(self.id, slot, part)),
                    }
                    continue;
                }
            };
            self.put_chunk(slot, (name, piece), cx);
        }
        if let Some(read) = read {
            cx.read_chunks(read);
        }
        cx.begun = begun;
    }

    /// Puts a chunk in its place. An item of which one is gone is removed before the client hears of it, as it is
    /// where that is noticed at the first look: what was missed must not be found again.
    pub(crate) fn put_chunk(&mut self, slot: SlotId, (name, piece): Outcome, cx: &mut Context) {
        let Some(stream) = self.replies.stream(slot) else { return };
        if stream.put(name.number, piece) {
            let work = Work::Forget(stream.manifest().clone());
            let key = (stream.key(&cx.session), false);
            self.conflicts.add(stream.hash());
            let began = cx.moment();
            cx.lost.push(Pending::new(cx.spare.pop(), (self.id, slot), key, work, began));
        }
    }

    /// After large items, or parts of them, were sent: their keys may be changed, and their memory used,
    /// for what comes next if the client takes it. `true` if one was sent to its end.
    pub(super) fn go_on_with_streams(&mut self, takes_more: bool, cx: &mut Context) -> bool {
        let mut has_finished = false;
        for hash in self.replies.take_finished() {
            self.conflicts.remove_stream(hash);
            has_finished = true;
        }
        self.note_streamed(self.replies.stream_bytes(), cx);
        // While memory is tight the next turn looks up what it sends.
        if takes_more && !cx.is_tight() {
            self.read_ahead(cx);
            self.note_streamed(self.replies.stream_bytes(), cx);
        }
        has_finished
    }

    pub(super) fn note_streamed(&mut self, bytes: usize, cx: &mut Context) {
        let before = std::mem::replace(&mut self.streamed, bytes);
        cx.stream_bytes = cx.stream_bytes + bytes - before;
    }
}
