//! Replies that come piece by piece: listings, the values of large items, and what watchers hear.

use super::{Connection, STREAM_BYTES_MAX};
use crate::commands::executor::Unfinished;
use crate::commands::listing::Next;
use crate::server::context::Context;
use crate::server::pending::{Answer, Pending, Work, read_chunk};
use crate::server::slab::Id;

impl Connection {
    /// Puts what a watcher is to hear into the output; `false` if that is full.
    pub(super) fn tell_watcher(&mut self) -> bool {
        let Some(watcher) = &self.watcher else { return true };
        let has_room = self.replies.sendable() < STREAM_BYTES_MAX;
        if has_room {
            self.replies.append(|out| watcher.take(out));
        }
        has_room
    }

    /// Puts what there is of a listing into the output; `true` if there is more than fits.
    pub(super) fn send_listing(&mut self) -> bool {
        while let Some((listing, output)) = self.replies.front_listing() {
            if output.len() >= STREAM_BYTES_MAX {
                return true;
            }
            match listing.next() {
                Next::Bytes(mut bytes) => output.append(&mut bytes),
                Next::End => self.replies.finish_front_stream(),
                Next::Wait => {
                    self.awaits_listing = true;
                    return false;
                }
            }
        }
        false
    }

    /// Goes on with the large item that is at the front of the replies. `true` if it could go on
    /// further once the output is sent.
    pub(super) fn send_streams(&mut self, id: Id, cx: &mut Context) -> bool {
        while let Some((slot, stream, output)) = self.replies.front_stream() {
            if stream.advance(output) {
                self.replies.finish_front_stream();
                continue;
            }
            if output.len() >= STREAM_BYTES_MAX {
                return true;
            }
            let Some(chunk) = stream.begin_next() else { return false };
            let mut name = [0; 12];
            let key = cx.session.chunk_key(chunk.item, chunk.index, &mut name);
            let mut bytes = Vec::new();
            match read_chunk(&cx.executor(), key, chunk, None, &mut bytes) {
                Ok(Answer::Chunk(_)) => stream.put(chunk.number, bytes),
                Err(Unfinished::Read(probe)) => {
                    let operation = Pending::new(id, slot, Work::Chunk(chunk), (key.hash(), false));
                    cx.read_for(Box::new(operation), *probe);
                }
                Ok(_) | Err(Unfinished::Wait) => {
                    self.is_broken = true;
                    return false;
                }
            }
        }
        false
    }
}
