//! What a request does: at once, or when its drive has answered.

use super::{Connection, Stop};
use crate::commands::executor::{Keyed, Unfinished};
use crate::commands::keyed::Executed;
use crate::server::buffers::Runs;
use crate::server::context::Context;
use crate::server::pending::{Answer, Pending, Work};
use crate::server::replies::Expected;
use crate::server::stream::Stream;
use terrace_cache::{Key, Search};
use terrace_protocol::reply;

impl Connection {
    /// Executes an operation now, or begins what it needs first; an unfinished one on the same key must
    /// finish before. `run` executes it; `work` makes an owned copy of it.
    #[inline(always)]
    pub(in crate::server) fn begin(
        &mut self,
        cx: &mut Context,
        (key, is_write): (Key<'_>, bool),
        run: impl FnOnce(&Keyed<'_>, &mut Vec<u8>) -> Result<Executed, Unfinished>,
        work: impl FnOnce() -> Work,
    ) -> Result<(), Stop> {
        if self.conflicts.holds_back(key.hash(), is_write) {
            return Err(Stop::Blocked);
        }
        let is_looked_at = cx.shared.looks_at_commands();
        if is_looked_at {
            self.about.seen = cx.look(key);
        }
        let since = cx.stats.latency.sample();
        let out = self.replies.open();
        let before = out.len();
        let result = run(&Keyed { executor: cx.executor(), key, evidence: None }, out);
        if is_looked_at && result.is_ok() {
            let reply = &out[before..];
            cx.shared.tell_command(self.socket.number(), self.about, key.bytes(), reply);
        }
        let written = out.len() - before;
        self.replies.note_written(written);
        match result {
            Ok(Executed::Replied) => {
                cx.stats.latency.record_sample(self.command, since);
                Ok(())
            }
            Ok(Executed::Streams(large)) => {
                self.conflicts.add_stream(key.hash());
                let head = self.replies.take_back(written);
                let stream = Stream::new((key.bytes(), key.hash()), head, *large);
                self.replies.reserve_stream(Box::new(stream));
                Ok(())
            }
            Err(Unfinished::Wait) => Err(Stop::Wait),
            // One that is finished brings it back here.
            Err(Unfinished::Read(_) | Unfinished::Recovering)
                if cx.is_crowded() && self.replies.unfinished() > 0 =>
            {
                Err(Stop::Blocked)
            }
            Err(Unfinished::Read(search)) => {
                self.wait_for(Some(search), work(), (key, is_write), cx);
                Ok(())
            }
            Err(Unfinished::Recovering) => {
                self.wait_for(None, work(), (key, is_write), cx);
                Ok(())
            }
        }
    }

    /// Keeps a place for the reply of an operation that needs to read something first, or is to be tried again.
    #[inline(never)]
    fn wait_for(
        &mut self,
        search: Option<Box<Search>>,
        work: Work,
        (key, is_write): (Key<'_>, bool),
        cx: &mut Context,
    ) {
        let expected = Expected {
            reply_bytes: search.as_ref().map_or(0, |s| s.plan().bytes as usize + key.bytes().len()),
            request_bytes: work.memory() + size_of::<Pending>() + key.bytes().len(),
        };
        self.replies.borrow(&mut cx.runs);
        let slot = self.replies.reserve(expected);
        self.conflicts.add(key.hash());
        let mut operation =
            Pending::new(cx.spare.pop(), (self.id, slot), (key, is_write), work, cx.moment());
        operation.command = self.command;
        operation.about = self.about;
        match search {
            Some(search) => {
                cx.read_for(operation, search);
            }
            None => cx.retry_later(operation),
        }
    }

    /// An operation that has waited for too long is refused: says whether it is told so. Of the keys of a line the last
    /// one is, in place of the line's end; the others are missed.
    pub(crate) fn is_told_of_refusal(&mut self, operation: &Pending) -> bool {
        !operation.is_of_line() || self.replies.take_end_behind(operation.slot, reply::END)
    }

    /// An operation has its result; what is to be sent stands in `reply`.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        operation: &Pending,
        answer: Answer,
        reply: &mut Vec<u8>,
        runs: &mut Runs,
    ) {
        self.conflicts.remove(operation.hash);
        match answer {
            Answer::Reply => self.replies.fulfil(operation.slot, reply, runs),
            Answer::Forgotten => {
                self.replies.stream(operation.slot).into_iter().for_each(Stream::give_up);
            }
            Answer::Stream(large) => {
                self.conflicts.add_stream(operation.hash);
                let key = (&operation.key[..], operation.hash);
                let stream = Stream::new(key, std::mem::take(reply), *large);
                self.replies.fulfil_with_stream(operation.slot, Box::new(stream));
            }
        }
    }
}
