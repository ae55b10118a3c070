//! What a request does: at once, or when its drive has answered.

use super::{Connection, Stop};
use crate::commands::executor::{Executor, Unfinished};
use crate::commands::keyed::Executed;
use crate::server::context::Context;
use crate::server::pending::{Answer, Pending, Work};
use crate::server::slab::Id;
use crate::server::stream::Stream;
use terrace_cache::Key;

impl Connection {
    /// Executes an operation now, or begins what it needs first; an unfinished one on the same key must
    /// finish before. `run` executes it; `work` makes an owned copy of it.
    pub(in crate::server) fn begin(
        &mut self,
        cx: &mut Context,
        id: Id,
        (key, is_write): (Key<'_>, bool),
        run: impl FnOnce(&Executor<'_>, &mut Vec<u8>) -> Result<Executed, Unfinished>,
        work: impl FnOnce() -> Work,
    ) -> Result<(), Stop> {
        if self.conflicts.holds_back(key.hash(), is_write) {
            return Err(Stop::Blocked);
        }
        let since = cx.stats.latency.sample();
        let (number, about) = (self.number(), self.about);
        let result = self.replies.append(|out| {
            let before = out.len();
            let result = run(&cx.executor(), out);
            if cx.shared.looks_at_commands() && result.is_ok() {
                let reply = &out[before..];
                cx.shared.tell_command(number, about, key.bytes(), reply);
            }
            result
        });
        match result {
            Ok(Executed::Replied) => {
                cx.stats.latency.record_sample(self.command, since);
                Ok(())
            }
            Ok(Executed::Streams { manifest, terminator }) => {
                let stream = Stream::new(Vec::new(), manifest, terminator);
                self.replies.reserve_stream(Box::new(stream));
                Ok(())
            }
            Err(Unfinished::Wait) => Err(Stop::Wait),
            Err(Unfinished::Read(probe)) => {
                let (hash, work) = (key.hash(), work());
                let slot = self.replies.reserve(probe.plan().bytes as usize + work.memory());
                self.conflicts.add(hash, is_write);
                let mut operation = Pending::new(id, slot, work, (hash, is_write));
                operation.command = self.command;
                operation.about = self.about;
                cx.read_for(Box::new(operation), probe);
                Ok(())
            }
        }
    }

    /// An operation has its result; what is to be sent stands in `reply`.
    pub(crate) fn complete(&mut self, operation: &Pending, answer: Answer, reply: &mut Vec<u8>) {
        if !matches!(operation.work, Work::Chunk(_)) {
            self.conflicts.remove(operation.hash, operation.is_write);
        }
        match answer {
            Answer::Reply => self.replies.fulfil(operation.slot, reply),
            Answer::Stream(manifest, terminator) => {
                let stream = Stream::new(std::mem::take(reply), manifest, terminator);
                self.replies.fulfil_with_stream(operation.slot, Box::new(stream));
            }
            Answer::Chunk(chunk) => {
                if let Some(stream) = self.replies.stream(operation.slot) {
                    stream.put(chunk.number, std::mem::take(reply));
                }
            }
            Answer::Broken => self.is_broken = true,
        }
    }
}
