//! A worker's reads from drives: bounded memory, one batch per loop.

use super::slab::Id;
use crate::stats::latency::Latency;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;
use terrace_cache::ReadPlan;
use terrace_device::{AlignedBuf, Done, Read, ReadQueue};

/// Bytes of buffers in flight or held as evidence, at most, unless a single read is longer. What
/// exceeds it waits here.
const BUFFER_BYTES_MAX: usize = 4 << 20;

/// A read that came back.
pub(crate) struct Finished {
    /// The operation that it was for.
    pub(crate) operation: Id,
    /// To be handed back with [`Reads::release`].
    pub(crate) buffer: AlignedBuf,
    pub(crate) result: io::Result<()>,
}

struct Started {
    operation: Id,
    plan: ReadPlan,
    at: Instant,
}

/// The queue of one worker over all tiers.
pub(crate) struct Reads {
    queue: Box<dyn ReadQueue>,
    /// Reads that found no room.
    waiting: VecDeque<(ReadPlan, Id)>,
    /// Bytes of buffers given out.
    buffer_bytes: usize,
    started: Vec<Option<Started>>,
    vacant: Vec<usize>,
    submitted: bool,
    reaped: Vec<Done>,
    latency: Arc<Latency>,
}

impl Reads {
    pub(crate) fn new(queue: Box<dyn ReadQueue>, latency: Arc<Latency>) -> Self {
        Self {
            queue,
            waiting: VecDeque::new(),
            buffer_bytes: 0,
            started: Vec::new(),
            vacant: Vec::new(),
            submitted: false,
            reaped: Vec::new(),
            latency,
        }
    }

    /// Readable when [`Reads::reap`] has something to do.
    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        self.queue.event_fd()
    }

    /// Goes on with another queue, after the old one failed as a whole: what that did not bring back
    /// is read again.
    pub(crate) fn move_to(&mut self, queue: Box<dyn ReadQueue>) {
        self.queue = queue;
        self.vacant.clear();
        for Started { plan, operation, .. } in
            std::mem::take(&mut self.started).into_iter().flatten()
        {
            self.buffer_bytes -= plan.bytes as usize;
            self.submit(plan, operation);
        }
    }

    /// Reads `plan` for `operation`, now or when there is room.
    pub(crate) fn submit(&mut self, plan: ReadPlan, operation: Id) {
        if self.has_room(plan) && self.waiting.is_empty() {
            self.start(plan, operation);
        } else {
            self.waiting.push_back((plan, operation));
        }
    }

    fn has_room(&self, plan: ReadPlan) -> bool {
        self.buffer_bytes == 0 || self.buffer_bytes + plan.bytes as usize <= BUFFER_BYTES_MAX
    }

    fn start(&mut self, plan: ReadPlan, operation: Id) {
        let started = Started { operation, plan, at: Instant::now() };
        let token = match self.vacant.pop() {
            Some(place) => {
                self.started[place] = Some(started);
                place
            }
            None => {
                self.started.push(Some(started));
                self.started.len() - 1
            }
        };
        let buf = self.queue.buffer(plan.bytes as usize);
        self.buffer_bytes += buf.len();
        let (device, offset) = (plan.tier, plan.offset);
        self.queue.submit(Read { device, offset, buf, token: token as u64 });
        self.submitted = true;
    }

    /// Takes a buffer back.
    pub(crate) fn release(&mut self, buffer: AlignedBuf) {
        self.buffer_bytes -= buffer.len();
    }

    /// Hands what was submitted to the drives, all at once.
    ///
    /// # Errors
    /// The queue failed as a whole, now or since the last flush; see [`Reads::move_to`].
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while let Some(&(plan, operation)) = self.waiting.front() {
            if !self.has_room(plan) {
                break;
            }
            self.waiting.pop_front();
            self.start(plan, operation);
        }
        if std::mem::take(&mut self.submitted) || self.queue.in_flight() > 0 {
            self.queue.flush()?;
        }
        Ok(())
    }

    /// Whether anything is on its way.
    pub(crate) fn is_busy(&self) -> bool {
        self.queue.in_flight() > 0 || !self.waiting.is_empty()
    }

    /// Appends what came back; never blocks.
    pub(crate) fn reap(&mut self, finished: &mut Vec<Finished>) {
        self.queue.reap(&mut self.reaped);
        if self.reaped.is_empty() {
            return;
        }
        let now = Instant::now();
        for done in self.reaped.drain(..) {
            let place = done.token as usize;
            let Some(started) = self.started.get_mut(place).and_then(Option::take) else {
                continue;
            };
            self.vacant.push(place);
            self.latency.record(started.plan.tier, now - started.at);
            let operation = started.operation;
            finished.push(Finished { operation, buffer: done.buf, result: done.result });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use terrace_device::{Device, Engine, FileDevice, open_queue};

    /// A queue that the system refuses when it is first used.
    struct Refused {
        reads: usize,
        null: std::fs::File,
    }

    impl ReadQueue for Refused {
        fn submit(&mut self, _: Read) {
            self.reads += 1;
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::PermissionDenied.into())
        }
        fn reap(&mut self, _: &mut Vec<Done>) {}
        fn event_fd(&self) -> BorrowedFd<'_> {
            self.null.as_fd()
        }
        fn clear_event(&mut self) {}
        fn in_flight(&self) -> usize {
            self.reads
        }
    }

    #[test]
    fn another_queue_takes_over_what_one_does_not_bring_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tier");
        std::fs::write(&path, [7; 64 << 10]).unwrap();
        let device: Arc<dyn Device> = Arc::new(FileDevice::open(&path, None).unwrap());
        let null = std::fs::File::open("/dev/null").unwrap();
        let latency = Arc::new(Latency::new(1));
        let mut reads = Reads::new(Box::new(Refused { reads: 0, null }), latency);
        let mut operations = super::super::slab::Slab::new();
        for at in 0..3 {
            let plan = ReadPlan { tier: 0, offset: at * 4096, bytes: 4096 };
            reads.submit(plan, operations.insert(at));
        }
        assert!(reads.flush().is_err());
        assert!(reads.flush().is_err(), "told again until something is done about it");
        reads.move_to(open_queue(&[device], Engine::Pool, 8).unwrap().queue);
        reads.flush().unwrap();
        let mut finished = Vec::new();
        let end = Instant::now() + std::time::Duration::from_secs(10);
        while finished.len() < 3 && Instant::now() < end {
            reads.reap(&mut finished);
        }
        assert!(!reads.is_busy());
        let mut seen: Vec<_> = finished
            .drain(..)
            .map(|read| {
                read.result.unwrap();
                assert_eq!(read.buffer[..], [7; 4096]);
                reads.release(read.buffer);
                operations.remove(read.operation).unwrap()
            })
            .collect();
        seen.sort_unstable();
        assert_eq!((seen, reads.buffer_bytes), (vec![0, 1, 2], 0));
    }
}
