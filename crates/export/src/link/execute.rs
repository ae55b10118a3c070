//! Executes the commands of a connection: at once, or on the way to a drive.

use super::data::Wait;
use super::{Link, Phase, Turn};
use crate::buffers::Use;
use crate::medium::Way;
use crate::shared::{Exported, Shared};
use crate::writers::{Call, Caller, Job, run};
use std::sync::Arc;
use terrace_device::{Done, Read, ReadQueue};
use terrace_nvme::command::Status;
use terrace_nvme::controller::{CommandTag, Operation, Target};

/// A write of a memory file of at most this length is made by the event loop.
const INLINE_BYTES: usize = 64 << 10;

/// What the token of a read says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// The connection.
    pub(crate) link: usize,
    /// The place of the namespace among those that are exported.
    exported: usize,
    /// The number of the command's tag.
    command: usize,
}

impl Token {
    fn to_number(self) -> u64 {
        (self.link as u64) << 32 | (self.exported as u64) << 16 | self.command as u64
    }

    pub(crate) fn from_number(number: u64) -> Self {
        Self {
            link: (number >> 32) as usize,
            exported: (number >> 16) as usize & 0xffff,
            command: number as usize & 0xffff,
        }
    }
}

impl Link {
    /// Begins the commands of `turn` that have just arrived. `number` is this connection's.
    pub(super) fn begin(&mut self, turn: &mut Turn, number: usize) {
        if turn.operations.is_empty() {
            return;
        }
        let shared = Arc::clone(&turn.shared);
        let mut operations = std::mem::take(&mut turn.operations);
        self.data.grow(self.connection.tags());
        for (tag, operation) in operations.drain(..) {
            if self.phase == Phase::Closed {
                drop(self.data.take(tag));
                turn.over.push((tag, Status::INTERNAL_ERROR));
                continue;
            }
            let nsid = match &operation {
                Operation::Read { nsid, .. }
                | Operation::Write { nsid, .. }
                | Operation::Flush { nsid }
                | Operation::WriteZeroes { nsid, .. }
                | Operation::Deallocate { nsid, .. } => *nsid,
            };
            let found = shared.exported.iter().position(|one| one.medium.namespace.nsid == nsid);
            let Some(exported) = found else {
                turn.over.push((tag, Status::INVALID_NAMESPACE));
                continue;
            };
            let medium = &shared.exported[exported].medium;
            let call = match operation {
                Operation::Read { blocks, bytes, .. } => {
                    let (bytes, offset) = (bytes as usize, medium.offset(blocks));
                    self.data.waiting.push_back(Wait::Read { tag, bytes, exported, offset });
                    continue;
                }
                Operation::Write { blocks, force_unit_access, .. } => {
                    let Some(buffer) = self.data.take(tag) else {
                        turn.over.push((tag, Status::INTERNAL_ERROR));
                        continue;
                    };
                    Call::Write {
                        offset: medium.offset(blocks),
                        buffer,
                        durably: force_unit_access,
                    }
                }
                Operation::Flush { .. } => Call::Flush,
                Operation::WriteZeroes { blocks, .. } => Call::WriteZeroes(blocks),
                Operation::Deallocate { ranges, .. } => Call::Deallocate(ranges),
            };
            self.call(tag, call, &shared.exported[exported], turn, number);
        }
        turn.operations = operations;
    }

    fn call(
        &mut self,
        tag: CommandTag,
        call: Call,
        exported: &Exported,
        turn: &mut Turn,
        number: usize,
    ) {
        let is_short = match &call {
            Call::Write { buffer, .. } => buffer.bytes().len() <= INLINE_BYTES,
            Call::Flush => true,
            Call::WriteZeroes(_) | Call::Deallocate(_) => false,
        };
        if is_short && exported.medium.is_memory {
            turn.over.push((tag, run(&exported.medium, call)));
            return;
        }
        let (caller, inbox) = (Caller { link: number, tag }, Arc::clone(&turn.inbox));
        exported.writers.push(Job { call, caller, inbox });
    }

    /// Serves commands that wait for a buffer, as far as there are buffers.
    pub(super) fn serve(&mut self, turn: &mut Turn, number: usize) {
        while let Some(&wait) = self.data.waiting.front() {
            let what = Use::Other { held: self.data.held() };
            let buffer = turn.shared.pool.take(wait.bytes(), what, turn.number);
            let Some(buffer) = buffer else {
                turn.shared.counters.buffer_waits.add(1);
                break;
            };
            self.data.waiting.pop_front();
            match wait {
                Wait::Write { tag, .. } => {
                    self.data.set(tag, buffer);
                    self.connection.accept(tag);
                }
                Wait::Read { tag, exported, offset, .. } => {
                    self.data.set(tag, buffer);
                    self.read(tag, exported, offset, turn, number);
                }
            }
        }
    }

    fn read(
        &mut self,
        tag: CommandTag,
        exported: usize,
        offset: u64,
        turn: &mut Turn,
        number: usize,
    ) {
        let Exported { medium, queue_number, .. } = &turn.shared.exported[exported];
        let Some(buffer) = self.data.buffer(tag) else { return };
        match (queue_number, &mut turn.reads) {
            (Some(device), Some(reads)) => {
                let Some(buf) = buffer.lend() else { return };
                medium.count_read(buf.len());
                let token = Token { link: number, exported, command: tag.index() }.to_number();
                reads.submit(Read { device: *device, offset, buf, token });
            }
            _ => {
                let status = match buffer.memory() {
                    Some(memory) => medium.read(offset, memory),
                    None => Status::INTERNAL_ERROR,
                };
                turn.over.push((tag, status));
            }
        }
    }

    /// Completes the commands of `turn` whose calls were made at once.
    pub(super) fn complete_all(&mut self, turn: &mut Turn) {
        if turn.over.is_empty() {
            return;
        }
        let shared = Arc::clone(&turn.shared);
        let mut target = shared.target();
        for (tag, status) in turn.over.drain(..) {
            self.complete(tag, status, &mut target);
        }
        drop(target);
        shared.writes_ended();
    }

    /// Completes a command.
    pub(crate) fn complete(&mut self, tag: CommandTag, status: Status, target: &mut Target) {
        self.executing -= 1;
        self.connection.complete(tag, status, target);
    }

    /// Completes a read that the queue of the event loop has made.
    pub(crate) fn complete_read(&mut self, done: Done, shared: &Shared, target: &mut Target) {
        let Token { exported, command, .. } = Token::from_number(done.token);
        let status = shared.exported[exported].medium.status(Way::Read, done.result);
        if let Some(tag) = self.data.put_back(command, done.buf) {
            self.complete(tag, status, target);
            if self.phase == Phase::Closed {
                drop(self.data.take(tag));
            }
        }
    }

    /// Completes commands that waited for writes of other hosts, if these are over. Returns whether any waits still.
    pub(crate) fn complete_awaiting(&mut self, target: &mut Target) -> bool {
        let (over, left): (Vec<_>, Vec<_>) =
            self.awaiting.drain(..).partition(|(_, fence)| target.is_over(fence));
        self.awaiting = left;
        for (tag, _) in over {
            self.complete(tag, Status::SUCCESS, target);
        }
        self.awaits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_read_as_written() {
        let token = Token { link: 511, exported: 3, command: 290 };
        assert_eq!(Token::from_number(token.to_number()), token);
    }
}
