//! What a connection does while memory is tight (see [`crate::server::connection_memory`]).

use super::{Connection, Mode, Stop};
use crate::commands::keyed;
use crate::server::clients::Client;
use crate::server::connection_memory::{CONNECTION_BYTES, IDLE_MIN_S, WORTH_CLOSING_BYTES};
use crate::server::context::Context;
use crate::server::input::BUFFER_BYTES;
use crate::server::pending::Work;
use crate::stats::latency::Command;
use terrace_cache::Key;
use terrace_protocol::{Parse, Request};

const _: () = assert!(size_of::<Connection>() + size_of::<Client>() + 128 <= CONNECTION_BYTES);

impl Connection {
    /// Whether its socket takes nothing at present. An event tells when it does again, or has failed.
    #[cold]
    pub(super) fn must_wait_for_client(&mut self) -> bool {
        self.socket.takes_nothing()
    }

    /// Keeps no memory that it can do without.
    #[cold]
    pub(crate) fn do_with_little(&mut self, cx: &mut Context) {
        self.input.shrink();
        self.replies.shrink();
        self.note_streamed(self.replies.stream_bytes(), cx);
        self.account(cx);
        if cx.let_in == Some(self.id) && !self.is_within_value() {
            cx.let_in = None;
        }
    }

    /// Since when its client has neither sent nor taken anything, if that is so long ago and frees so much that the
    /// connection may be closed for memory. One that waits for a drive is not.
    pub(crate) fn idle_since(&self, now: u32) -> Option<u32> {
        let since = self.client.last_active();
        let may_be_closed = self.held >= CONNECTION_BYTES as u64 + WORTH_CLOSING_BYTES
            && since.saturating_add(IDLE_MIN_S) <= now
            && !self.replies.waits_for_drives();
        may_be_closed.then_some(since)
    }

    /// Whether the value at the front of the input needs memory that there is not. What fits into a buffer of the usual
    /// length has it.
    pub(super) fn lacks_memory(&self, cx: &mut Context) -> bool {
        let more = self.needed.saturating_sub(self.input.capacity());
        cx.is_tight() && self.needed > BUFFER_BYTES && more > 0 && !cx.lets_in(self.id, more)
    }

    /// Refuses the value at the front of the input, of which a part is still to come: that is skipped.
    #[cold]
    pub(super) fn refuse_value(&mut self, cx: &mut Context) -> Result<(), Stop> {
        if matches!(self.mode, Mode::Upload(_)) {
            return self.refuse_upload(cx);
        }
        let mut parser = self.parser;
        let input = std::mem::take(&mut self.input);
        let refused = match parser.parse(input.unread()) {
            Parse::Request { request, consumed } => {
                self.command = Command::of(&request);
                request.data_block().zip(keyed::key_of(&request)).map(|(block, key)| {
                    let key = cx.session.key(key);
                    self.refuse_for_memory(&request, key, cx).map(|()| (consumed, block.bytes()))
                })
            }
            Parse::NeedMore | Parse::Reject(_) => None,
        };
        self.input = input;
        // What is no value may have the memory: it is short.
        let Some(refused) = refused else { return Err(Stop::Yield) };
        let (consumed, swallow) = refused?;
        self.parser = parser;
        self.input.consume(consumed);
        self.needed = 0;
        self.mode = Mode::Swallow(swallow);
        Ok(())
    }

    /// Answers that there is no memory for the value of `request`.
    pub(in crate::server) fn refuse_for_memory(
        &mut self,
        request: &Request<'_>,
        key: Key<'_>,
        cx: &mut Context,
    ) -> Result<(), Stop> {
        self.begin(
            cx,
            (key, true),
            |on, out| keyed::refuse_for_memory(on, request, out),
            || Work::refusal(request),
        )
    }
}
