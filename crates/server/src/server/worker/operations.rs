//! Operations that wait for a drive, or for the cache to have buffers again.

use super::{READS, RETRY_AFTER, Worker};
use crate::commands::executor::{RECOVERY_PATIENCE, Unfinished};
use crate::server::chunks::ChunkRead;
use crate::server::connection::Connection;
use crate::server::context::Context;
use crate::server::pending::{Answer, Job, Pending, Waiter};
use crate::server::slab::{Id, Slab};
use std::io;
use std::time::Instant;
use terrace_runtime::flash_lookup::Next;
use terrace_runtime::reads::{Finished, TIMED_TOGETHER};
use tracing::warn;

impl Worker {
    /// The system refuses io_uring after all: threads take over.
    pub(super) fn read_with_threads(&mut self, error: io::Error) -> io::Result<()> {
        self.cx.reads.fall_back(error)?;
        self.poll.add_event(self.cx.reads.event_fd(), READS)?;
        let (worker, reason) = (self.index, self.cx.reads.fallback().unwrap_or_default());
        warn!("worker {worker}: reading with threads, since io_uring fails: {reason}");
        self.cx.reads.flush(false, |_| false)
    }

    /// Goes on with the operations whose reads came back.
    pub(super) fn finish_reads(&mut self) -> io::Result<()> {
        self.take_brought()?;
        // What is brought meanwhile has to wait for who sends requests.
        for at in 0..self.finished.len() {
            if at.is_multiple_of(TIMED_TOGETHER) {
                self.cx.moment = None;
            }
            let Some(read) = self.finished.pop_front() else { break };
            self.refill()?;
            if let Some(next) = self.finished.front() {
                self.cx.session.prefetch_read(&next.buffer);
            }
            self.finish_read(read);
        }
        Ok(())
    }

    /// Takes what drives have brought, if reads wait for that: a drive that brings many at once has nothing to do from
    /// then on, and to look at them takes long.
    pub(super) fn refill(&mut self) -> io::Result<()> {
        if self.cx.reads.has_news() { self.take_brought() } else { Ok(()) }
    }

    /// Takes what drives have brought, and hands them what waited for it.
    fn take_brought(&mut self) -> io::Result<()> {
        if self.cx.reads.has_news() {
            // It takes a while to take it.
            self.hand_over(true)?;
        }
        let before = self.finished.len();
        self.cx.reads.reap(&mut self.finished);
        if self.cx.reads.has_waiting() {
            self.hand_over_reads()?;
        }
        self.look_ahead_at(before);
        Ok(())
    }

    /// Asks for what finishing the reads from there on will need, so that it comes from memory while others are
    /// finished.
    fn look_ahead_at(&mut self, from: usize) {
        for read in self.finished.range(from..) {
            if let Some(Job::Operation(operation)) = self.cx.pending.get_mut(read.token) {
                operation.lookup.prefetch(&self.cx.session, operation.hash, &read.buffer);
            }
        }
    }

    /// Hands what was submitted to the drives.
    pub(super) fn hand_over_reads(&mut self) -> io::Result<()> {
        self.hand_over(false)
    }

    fn hand_over(&mut self, is_ahead: bool) -> io::Result<()> {
        let Self { cx: Context { reads, pending, .. }, connections, .. } = self;
        let flushed =
            reads.flush(is_ahead, |operation| forget_abandoned(pending, connections, operation));
        flushed.or_else(|error| self.read_with_threads(error))
    }

    fn finish_read(&mut self, read: Finished<Id>) {
        let cx = &mut self.cx;
        let mut operation = match cx.pending.remove(read.token) {
            Some(Job::Operation(operation)) => operation,
            Some(Job::Chunks(chunks)) => return self.finish_chunks(*chunks, read),
            None => return cx.reads.release(read.buffer),
        };
        let key = cx.session.key_of_hash(&operation.key, operation.hash);
        match operation.lookup.take(&cx.session, key, (read.buffer, read.result)) {
            Next::Call(spare) => {
                spare.into_iter().for_each(|buffer| cx.reads.release(buffer));
                self.resume(operation);
            }
            Next::Read(plan, spare) => {
                cx.reads.release(spare);
                cx.read(operation, plan);
            }
        }
    }

    fn finish_chunks(&mut self, chunks: ChunkRead, read: Finished<Id>) {
        let (id, slot) = (chunks.connection, chunks.slot);
        let mut outcomes = std::mem::take(&mut self.outcomes);
        self.cx.take_chunks(chunks, read.buffer, read.result, &mut outcomes);
        if let Some(connection) = self.connections.get_mut(id) {
            for outcome in outcomes.drain(..) {
                connection.put_chunk(slot, outcome, &mut self.cx);
            }
            self.ready.add(connection);
        }
        outcomes.clear();
        self.outcomes = outcomes;
    }

    /// Removes the large items of which a chunk turned out to be gone.
    pub(super) fn forget_lost(&mut self) {
        while let Some(operation) = self.cx.lost.pop() {
            self.resume(operation);
        }
    }

    /// Executes an operation again; with what was read for it, if that can be used.
    fn resume(&mut self, mut operation: Box<Pending>) {
        self.reply.clear();
        if self.cx.shared.looks_at_commands() {
            operation.look(&self.cx.executor());
        }
        let result = operation.execute(self.cx.executor(), &mut self.reply);
        let is_late = operation.began.elapsed() >= RECOVERY_PATIENCE;
        if matches!(result, Err(Unfinished::Recovering)) && is_late {
            self.release_read(&mut operation);
            return self.refuse(operation);
        }
        if let Err(Unfinished::Wait | Unfinished::Recovering) = result {
            self.wait_for_buffers();
            self.cx.retry_later(operation);
            return;
        }
        self.release_read(&mut operation);
        match result {
            Ok(answer) => {
                self.deliver(&operation, answer);
                self.cx.spare(operation);
            }
            Err(Unfinished::Read(search)) => {
                self.cx.read_for(operation, search);
            }
            Err(Unfinished::Wait | Unfinished::Recovering) => {}
        }
    }

    /// Gives back the buffer of what was read for an operation.
    fn release_read(&mut self, operation: &mut Pending) {
        operation.lookup.end().into_iter().for_each(|buffer| self.cx.reads.release(buffer));
    }

    /// What it depends on may not be back yet, and it has waited for long enough.
    fn refuse(&mut self, operation: Box<Pending>) {
        self.cx.stats.counters.recovery_refused.add(1);
        self.reply.clear();
        let connection = self.connections.get_mut(operation.connection);
        if connection.is_none_or(|connection| connection.is_told_of_refusal(&operation)) {
            operation.refuse(&self.cx.session, &mut self.reply);
        }
        self.deliver(&operation, Answer::Reply);
        self.cx.spare(operation);
    }

    /// Hands a result to the connection that asked, if it is still there.
    fn deliver(&mut self, operation: &Pending, answer: Answer) {
        let is_request = !matches!(answer, Answer::Forgotten);
        if is_request && let Some(read) = operation.lookup.plan() {
            let took = self.cx.moment() - operation.began;
            self.cx.stats.latency.record_command(operation.command, read.tier, took);
        }
        if let Some(connection) = self.connections.get_mut(operation.connection) {
            if is_request && self.cx.shared.looks_at_commands() {
                let (number, about) = (connection.number(), operation.about);
                self.cx.shared.tell_command(number, about, &operation.key, &self.reply);
            }
            connection.complete(operation, answer, &mut self.reply, &mut self.cx.runs);
            self.ready.add(connection);
        }
    }

    pub(super) fn wait_for_buffers(&mut self) {
        if self.waiting_since.is_none() {
            self.waiting_since = Some(Instant::now());
            // So that buffers are written out without delay.
            self.cx.shared.naps.end();
        }
    }

    /// The wrong password of this connection is answered when the server may.
    pub(super) fn wait_for_throttle(&mut self, connection: Id) {
        self.cx.waiting.push(Waiter::Throttled(connection));
        self.waiting_since.get_or_insert_with(Instant::now);
    }

    /// Tries again what the cache had no buffers for.
    pub(super) fn retry_waiting(&mut self) {
        if self.waiting_since.is_none_or(|since| since.elapsed() < RETRY_AFTER) {
            return;
        }
        self.waiting_since = None;
        self.cx.shared.look_after_maintenance();
        for waiter in std::mem::take(&mut self.cx.waiting) {
            match waiter {
                Waiter::Operation(id) => {
                    if let Some(Job::Operation(operation)) = self.cx.pending.remove(id) {
                        self.resume(operation);
                    }
                }
                Waiter::Connection(id) => {
                    if let Some(connection) = self.connections.get_mut(id) {
                        connection.stop_waiting();
                        self.ready.add(connection);
                    }
                }
                Waiter::Throttled(id) => self.answer_failure(id),
            }
        }
    }

    fn answer_failure(&mut self, id: Id) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if self.cx.shared.failures.may_answer(Instant::now()) {
            connection.may_answer_failure();
            self.ready.add(connection);
        } else {
            self.wait_for_throttle(id);
        }
    }
}

/// Forgets an operation that changes nothing and whose client has gone, and says whether it was such a one. Those
/// who ask a slow drive, lose patience and ask again would else wait for all that they have asked before.
fn forget_abandoned(
    pending: &mut Slab<Job>,
    connections: &mut Slab<Connection>,
    operation: Id,
) -> bool {
    let connection = match pending.get_mut(operation) {
        Some(Job::Operation(operation)) if !operation.is_write => operation.connection,
        Some(Job::Chunks(chunks)) => chunks.connection,
        _ => return false,
    };
    let is_abandoned = connections.get_mut(connection).is_none();
    if is_abandoned {
        pending.remove(operation);
    }
    is_abandoned
}
