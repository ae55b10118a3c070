//! Which reads of a queue threads have: those that were given up stay here until the threads bring them.

use crate::buffer::AlignedBuf;
use crate::event::Event;
use crate::pool::Finished;
use crate::read::{Done, Late, Waited};
use std::sync::Arc;

/// The reads that threads of all drives of a queue have. Each has a token of our own meanwhile.
pub(crate) struct ThreadReads {
    /// By token.
    reads: Vec<Option<ThreadRead>>,
    /// Tokens that no read has.
    free: Vec<u64>,
    /// Of `reads`, those that were given up.
    given_up: usize,
    finished: Arc<Finished>,
    /// Reused between reaps.
    reaped: Vec<Done>,
}

struct ThreadRead {
    device: usize,
    /// The caller's token; `None` once the read was given up.
    token: Option<u64>,
    waited: Waited,
    bytes: usize,
}

impl ThreadReads {
    /// Threads signal `event` when they have read something.
    pub(crate) fn new(event: Arc<Event>) -> Self {
        let finished = Arc::new(Finished::new(event));
        Self { reads: Vec::new(), free: Vec::new(), given_up: 0, finished, reaped: Vec::new() }
    }

    /// Where threads bring what they have read.
    pub(crate) fn finished(&self) -> Arc<Finished> {
        Arc::clone(&self.finished)
    }

    /// Adds a read with the caller's token, and returns the token for the threads.
    pub(crate) fn add(&mut self, device: usize, token: u64, bytes: usize) -> u64 {
        let waited = Waited::default();
        let read = Some(ThreadRead { device, token: Some(token), waited, bytes });
        if let Some(at) = self.free.pop()
            && let Some(vacant) = self.reads.get_mut(at as usize)
        {
            *vacant = read;
            return at;
        }
        self.reads.push(read);
        self.reads.len() as u64 - 1
    }

    /// Removes a read. Returns its drive, and the caller's token unless it was given up.
    pub(crate) fn remove(&mut self, token: u64) -> Option<(usize, Option<u64>)> {
        let read = self.reads.get_mut(token as usize)?.take()?;
        self.free.push(token);
        self.given_up -= usize::from(read.token.is_none());
        Some((read.device, read.token))
    }

    /// Appends what was read and was not given up to `done`, and calls `answered` with the drive of each read.
    #[inline]
    pub(crate) fn reap(&mut self, done: &mut Vec<Done>, answered: impl FnMut(usize)) {
        if self.reads.len() > self.free.len() {
            self.reap_some(done, answered);
        }
    }

    fn reap_some(&mut self, done: &mut Vec<Done>, mut answered: impl FnMut(usize)) {
        let mut reaped = std::mem::take(&mut self.reaped);
        self.finished.take(&mut reaped);
        for read in reaped.drain(..) {
            let Some((device, token)) = self.remove(read.token) else { continue };
            answered(device);
            done.extend(token.map(|token| Done { token, ..read }));
        }
        self.reaped = reaped;
    }

    /// Reads that were not given up.
    pub(crate) fn in_flight(&self) -> usize {
        self.reads.len() - self.free.len() - self.given_up
    }

    /// Reads that were given up and that threads still have.
    pub(crate) fn given_up(&self) -> usize {
        self.given_up
    }

    /// Of these, the reads of a drive.
    pub(crate) fn given_up_of(&self, device: usize) -> usize {
        let is_its = |read: &&ThreadRead| read.device == device && read.token.is_none();
        self.reads.iter().flatten().filter(is_its).count()
    }

    /// Gives up reads that have been waited for too long by now. Threads keep the buffers.
    pub(crate) fn give_up_late(&mut self, tick: u32, late: &mut Vec<Late>) {
        for read in self.reads.iter_mut().flatten() {
            if read.waited.is_over(tick)
                && let Some(token) = read.token.take()
            {
                self.given_up += 1;
                late.push(Late { device: read.device, buf: AlignedBuf::zeroed(read.bytes), token });
            }
        }
    }
}
