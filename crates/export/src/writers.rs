//! Threads that make the calls of one file or device that may block: writes, flushes and the like.
//!
//! Each namespace has its own, so that one whose drive does not answer holds up no other.

use crate::buffers::Buffer;
use crate::medium::Medium;
use crate::wake::Inbox;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use terrace_nvme::command::Status;
use terrace_nvme::command::nvm::Blocks;
use terrace_nvme::controller::CommandTag;

/// Threads of a namespace: as many of its writes are under way at once.
const THREADS: usize = 4;

/// A call that may block.
pub(crate) enum Call {
    Write { offset: u64, buffer: Buffer, durably: bool },
    Flush,
    WriteZeroes(Blocks),
    Deallocate(Box<[Blocks]>),
}

/// The command that a call belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// Its connection, as the event loop numbers them.
    pub(crate) link: usize,
    pub(crate) tag: CommandTag,
}

/// A command whose call is over.
pub(crate) struct Finished {
    pub(crate) caller: Caller,
    pub(crate) status: Status,
}

/// A call on its way to a thread.
pub(crate) struct Job<T> {
    pub(crate) call: Call,
    pub(crate) caller: Caller,
    /// Where its end is reported.
    pub(crate) inbox: Arc<Inbox<T>>,
}

/// The threads of one namespace.
pub(crate) struct Writers<T: 'static> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    medium: Arc<Medium>,
    queue: Mutex<Queue<T>>,
    is_changed: Condvar,
}

struct Queue<T> {
    jobs: VecDeque<Job<T>>,
    /// Threads that wait for a job.
    idle: usize,
    started: usize,
    is_closed: bool,
}

impl<T: From<Finished> + Send + 'static> Writers<T> {
    /// Threads start with the first jobs that need them.
    pub(crate) fn new(medium: Arc<Medium>) -> Self {
        let queue =
            Mutex::new(Queue { jobs: VecDeque::new(), idle: 0, started: 0, is_closed: false });
        let shared = Arc::new(Shared { medium, queue, is_changed: Condvar::new() });
        Self { shared }
    }

    /// Hands a job to a thread. Never blocks for long; a job for which there is no thread at all is done at once.
    pub(crate) fn push(&self, job: Job<T>) {
        let mut queue = self.shared.lock();
        if queue.idle <= queue.jobs.len() && queue.started < THREADS {
            match self.start() {
                Ok(()) => queue.started += 1,
                Err(_) if queue.started == 0 => {
                    drop(queue);
                    return self.shared.run(job);
                }
                Err(_) => {}
            }
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.shared.is_changed.notify_one();
    }

    fn start(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let name = format!("export-write-{}", self.shared.medium.namespace.nsid);
        thread::Builder::new().name(name).spawn(move || shared.work()).map(drop)
    }

    /// Has the threads end behind their last job. One whose drive does not answer is not waited for.
    pub(crate) fn close(&self) {
        self.shared.lock().is_closed = true;
        self.shared.is_changed.notify_all();
    }
}

impl<T: From<Finished>> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                self.run(job);
                queue = self.lock();
            } else if queue.is_closed {
                return;
            } else {
                queue.idle += 1;
                queue = self.is_changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
            }
        }
    }

    fn run(&self, job: Job<T>) {
        let Job { call, caller, inbox } = job;
        let status = run(&self.medium, call);
        inbox.push(Finished { caller, status }.into());
    }
}

/// Makes a call.
pub(crate) fn run(medium: &Medium, call: Call) -> Status {
    match call {
        Call::Write { offset, mut buffer, durably } => match buffer.memory() {
            Some(memory) => medium.write(offset, memory, durably),
            None => Status::INTERNAL_ERROR,
        },
        Call::Flush => medium.flush(),
        Call::WriteZeroes(blocks) => medium.write_zeroes(blocks),
        Call::Deallocate(ranges) => medium.deallocate(&ranges),
    }
}
