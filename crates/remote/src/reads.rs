//! The reads of one worker: commands on a queue of its own, over a socket that wakes it.

use crate::session::Session;
use crate::shared::{Mailbox, Request, Shared};
use crate::status::{Failure, failure};
use crate::wire::{Data, Wire};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_device::{
    AlignedBuf, Direction, Done, Late, OwnReads, Read, Waited, Waker, unanswered,
};
use terrace_nvme::command::nvm::{self, Blocks};
use terrace_nvme::host::{Event, Outcome};

/// Reads that are sent without waiting for the flush: the target begins with these while the worker prepares the next. Each
/// time costs a system call.
const BATCH: usize = 4;
/// Before a worker asks again for a queue that it did not get.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// See [`OwnReads`].
pub(crate) struct WorkerReads {
    shared: Arc<Shared>,
    waker: Waker,
    depth: u32,
    link: Option<Link>,
    asked: Option<Arc<Mailbox>>,
    /// When it may ask for a queue again.
    asks_from: Option<Instant>,
    jobs: Jobs,
    /// Jobs of which not all commands were submitted.
    waiting: VecDeque<usize>,
    /// For the next reap.
    ready: Vec<Done>,
    given_up: usize,
}

/// A connection that works.
struct Link {
    wire: Wire,
    session: Arc<Session>,
    /// Whether the waker watches for room to send, too.
    awaits_room: bool,
}

struct Job {
    read: Read,
    /// Bytes that commands were submitted for.
    submitted: u32,
    /// Commands under way.
    commands: u32,
    error: Option<io::Error>,
    waited: Waited,
    is_given_up: bool,
}

/// Reads under way, and the commands that they are made of.
#[derive(Default)]
struct Jobs {
    slots: Vec<Option<Job>>,
    free: Vec<usize>,
    /// By tag: the slot, and the offset of the command's data in the read's.
    commands: Vec<(usize, u32)>,
}

impl Data for Jobs {
    fn sent(&self, _tag: usize, _offset: u32, _bytes: u32) -> &[u8] {
        &[]
    }

    fn received(&mut self, tag: usize, offset: u32, bytes: u32) -> &mut [u8] {
        let (slot, at) = self.commands[tag];
        match &mut self.slots[slot] {
            Some(job) => &mut job.read.buf[(at + offset) as usize..][..bytes as usize],
            None => &mut [],
        }
    }
}

impl Jobs {
    fn add(&mut self, job: Job) -> usize {
        if let Some(slot) = self.free.pop() {
            self.slots[slot] = Some(job);
            return slot;
        }
        self.slots.push(Some(job));
        self.slots.len() - 1
    }

    fn remove(&mut self, slot: usize) -> Option<Job> {
        let job = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some(job)
    }

    fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl WorkerReads {
    /// Up to `depth` commands at once.
    pub(crate) fn new(shared: Arc<Shared>, depth: u32, waker: Waker) -> Self {
        shared.add_waker(waker.clone());
        Self {
            shared,
            waker,
            depth,
            link: None,
            asked: None,
            asks_from: None,
            jobs: Jobs::default(),
            waiting: VecDeque::new(),
            ready: Vec::new(),
            given_up: 0,
        }
    }

    /// Takes the queue that was asked for, or asks for one.
    fn connect(&mut self) {
        if self.link.is_some() {
            return;
        }
        match self.asked.as_ref().map(|asked| asked.take()) {
            // Nothing would wake what waits for the next time.
            None if self.asks_from.is_some_and(|from| Instant::now() < from) => {
                self.fail_all(&unanswered);
            }
            None => {
                let answer = Mailbox::new(self.waker.clone());
                self.shared.ask(Request { depth: self.depth, answer: Arc::clone(&answer) });
                self.asked = Some(answer);
            }
            Some(None) => {}
            Some(Some(Ok((wire, session)))) => {
                self.asked = None;
                if self.waker.watch(&wire, false).is_ok() {
                    self.jobs.commands.resize(wire.capacity(), (0, 0));
                    self.link = Some(Link { wire, session, awaits_room: false });
                }
            }
            Some(Some(Err(_))) => {
                self.asked = None;
                self.asks_from = Some(Instant::now() + ASK_AGAIN);
                self.fail_all(&unanswered);
            }
        }
    }

    /// Submits what waits, as far as the queue has room, and sends it.
    fn pump(&mut self) {
        let Some(link) = &mut self.link else { return };
        let Link { wire, session, awaits_room } = link;
        let namespace = &session.namespace;
        let (shift, most) = (namespace.info.block_shift, session.controller.transfer_bytes_max());
        while wire.has_room()
            && let Some(&slot) = self.waiting.front()
        {
            let Some(job) = &mut self.jobs.slots[slot] else {
                self.waiting.pop_front();
                continue;
            };
            let bytes = (job.read.buf.len() as u32 - job.submitted).min(most);
            let lba = (job.read.offset + u64::from(job.submitted)) >> shift;
            let command = nvm::read(namespace.nsid, Blocks { lba, count: bytes >> shift });
            let Ok(tag) = wire.submit(command, bytes) else { break };
            self.jobs.commands[tag.index()] = (slot, job.submitted);
            job.submitted += bytes;
            job.commands += 1;
            if job.submitted as usize == job.read.buf.len() {
                self.waiting.pop_front();
            }
        }
        let sent = wire.send(&self.jobs);
        if wire.is_blocked() != *awaits_room {
            *awaits_room = wire.is_blocked();
            // Without it what is left goes with the next reads.
            let _ = self.waker.watch(&*wire, *awaits_room);
        }
        if let Err(error) = sent {
            self.lose(&error);
        }
    }

    /// Takes what has come.
    fn take(&mut self) -> bool {
        let Some(link) = &mut self.link else { return false };
        if link.session.is_over() {
            self.lose(&io::ErrorKind::ConnectionAborted.into());
            return false;
        }
        let received = link.wire.receive(&mut self.jobs);
        while let Some(event) = self.link.as_mut().and_then(|link| link.wire.event()) {
            if let Event::Completed { tag, outcome } = event {
                self.complete(tag.index(), outcome);
            }
        }
        match received {
            Ok(has_come) => has_come,
            Err(error) => {
                self.lose(&error);
                false
            }
        }
    }

    fn complete(&mut self, tag: usize, outcome: Outcome) {
        let (slot, _) = self.jobs.commands[tag];
        let Some(job) = &mut self.jobs.slots[slot] else { return };
        job.commands -= 1;
        match failure(outcome.status, false) {
            None => {}
            Some(Failure::Command(error)) => {
                job.error.get_or_insert(error);
            }
            Some(Failure::Session(status)) => {
                job.error.get_or_insert_with(unanswered);
                if let Some(link) = &self.link {
                    link.session.end(|| status.to_string());
                    self.shared.ring();
                }
            }
            Some(Failure::Namespace(status)) => {
                job.error.get_or_insert_with(|| io::Error::other(status.to_string()));
                self.shared.give_up(status.to_string());
                if let Some(link) = &self.link {
                    link.session.end(|| status.to_string());
                }
            }
        }
        if job.commands == 0 && job.submitted as usize == job.read.buf.len() {
            self.finish(slot);
        }
    }

    /// A read is over.
    fn finish(&mut self, slot: usize) {
        let Some(job) = self.jobs.remove(slot) else { return };
        if job.is_given_up {
            self.given_up -= 1;
            return;
        }
        let result = job.error.map_or(Ok(()), Err);
        let result = self.shared.monitor.record(Direction::Read, result);
        self.ready.push(Done { token: job.read.token, buf: job.read.buf, result });
    }

    /// The connection is lost: its reads fail.
    fn lose(&mut self, error: &io::Error) {
        if let Some(link) = self.link.take() {
            self.waker.forget(&link.wire);
            link.session.end(|| error.to_string());
            self.shared.ring();
        }
        self.fail_all(&unanswered);
    }

    /// Fails all reads.
    fn fail_all(&mut self, error: &dyn Fn() -> io::Error) {
        self.waiting.clear();
        for slot in 0..self.jobs.slots.len() {
            if let Some(job) = &mut self.jobs.slots[slot] {
                job.error.get_or_insert_with(error);
                self.finish(slot);
            }
        }
        if !self.ready.is_empty() {
            self.waker.wake();
        }
    }
}

impl OwnReads for WorkerReads {
    fn submit(&mut self, read: Read) {
        // Without a session it would wait for one longer than a request does. What is connected has one: no lock is taken.
        let is_connected = self.link.as_ref().is_some_and(|link| !link.session.is_over());
        if !is_connected && let Err(error) = self.shared.session() {
            let result = self.shared.monitor.record(Direction::Read, Err(error));
            self.ready.push(Done { token: read.token, buf: read.buf, result });
            return self.waker.wake();
        }
        let (waited, is_given_up) = (Waited::default(), false);
        let job = Job { read, submitted: 0, commands: 0, error: None, waited, is_given_up };
        self.waiting.push_back(self.jobs.add(job));
        if self.waiting.len() >= BATCH {
            self.pump();
        }
    }

    fn flush(&mut self) {
        if !self.waiting.is_empty() {
            self.connect();
            self.pump();
        }
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> bool {
        let has_come = if self.jobs.len() > 0 {
            self.connect();
            let has_come = self.take();
            self.pump();
            has_come
        } else {
            false
        };
        done.append(&mut self.ready);
        has_come
    }

    fn give_up_late(&mut self, tick: u32, late: &mut Vec<Late>) {
        if self.jobs.len() == 0 {
            // The peer may have closed it, which would wake the worker again and again.
            self.take();
        }
        for job in self.jobs.slots.iter_mut().flatten() {
            if job.waited.is_over(tick) && !std::mem::replace(&mut job.is_given_up, true) {
                self.given_up += 1;
                let Read { device, token, ref buf, .. } = job.read;
                late.push(Late { device, buf: AlignedBuf::zeroed(buf.len()), token });
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.jobs.len() - self.given_up + self.ready.len()
    }

    fn given_up(&self) -> usize {
        self.given_up
    }

    fn close(&mut self) -> Vec<Read> {
        if let Some(link) = self.link.take() {
            self.waker.forget(&link.wire);
        }
        self.given_up = 0;
        self.waiting.clear();
        let jobs = std::mem::take(&mut self.jobs).slots.into_iter().flatten();
        jobs.filter(|job| !job.is_given_up).map(|job| job.read).collect()
    }
}

impl Drop for WorkerReads {
    fn drop(&mut self) {
        self.close();
        self.shared.remove_waker(&self.waker);
        self.shared.give_queue();
    }
}
