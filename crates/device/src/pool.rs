//! Reads by a few threads of one drive: for kernels that forbid io_uring, and drives without a descriptor.

use crate::drive::Drive;
use crate::event::Event;
use crate::queue::DROP_PATIENCE;
use crate::read::{Done, Read};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

/// A reader's stack, in bytes: its calls are shallow.
const STACK_BYTES: usize = 128 << 10;
/// Between two looks whether a thread has ended.
const NAP: Duration = Duration::from_millis(1);

/// What the threads of all drives of a queue have read.
pub(crate) struct Finished {
    done: Mutex<Vec<Done>>,
    /// Signalled whenever `done` stops being empty.
    event: Arc<Event>,
}

impl Finished {
    pub(crate) fn new(event: Arc<Event>) -> Self {
        Self { done: Mutex::default(), event }
    }

    /// Appends what was read since the last call to `done`.
    pub(crate) fn take(&self, done: &mut Vec<Done>) {
        done.append(&mut self.lock());
    }

    fn add(&self, read: Done) {
        let mut done = self.lock();
        let was_empty = done.is_empty();
        done.push(read);
        drop(done);
        // While it was not empty, an earlier signal is still to be answered by a reap.
        if was_empty {
            self.event.signal();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Done>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Threads whose reads are blocking calls. They belong to one drive, so that a drive that does not answer takes
/// none from another drive.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// For the next flush.
    submitted: Vec<Read>,
}

struct Shared {
    drive: Arc<dyn Drive>,
    state: Mutex<State>,
    /// Threads without work wait on it.
    work: Condvar,
    finished: Arc<Finished>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Read>,
    is_stopping: bool,
}

impl Pool {
    /// Starts `threads` threads, which bring what they read to `finished`.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(crate) fn open(
        drive: Arc<dyn Drive>,
        threads: usize,
        finished: Arc<Finished>,
    ) -> io::Result<Self> {
        let (state, work) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { drive, state, work, finished });
        // Built first, so that dropping it stops the threads if one of them can't be started.
        let mut pool = Self { shared, threads: Vec::new(), submitted: Vec::new() };
        for at in 0..threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            let builder = Builder::new().name(format!("read-{at}")).stack_size(STACK_BYTES);
            pool.threads.push(builder.spawn(move || shared.serve())?);
        }
        Ok(pool)
    }

    /// Takes a read for the next flush.
    pub(crate) fn submit(&mut self, read: Read) {
        self.submitted.push(read);
    }

    /// Hands the threads what was submitted.
    pub(crate) fn flush(&mut self) {
        let reads = self.submitted.len();
        if reads == 0 {
            return;
        }
        self.shared.lock().jobs.extend(self.submitted.drain(..));
        for _ in 0..reads.min(self.threads.len()) {
            self.shared.work.notify_one();
        }
    }

    /// Ends the threads, each after the read that it has begun, and returns the reads that none has begun. Does
    /// not wait.
    pub(crate) fn close(mut self) -> Vec<Read> {
        let mut reads = self.shared.stop();
        reads.append(&mut self.submitted);
        // Each has its own buffer, and ends by itself.
        self.threads.clear();
        reads
    }
}

impl Drop for Pool {
    /// Waits for the reads that a thread has begun; reads that wait are dropped. A thread whose drive does not answer is
    /// left to itself, with the buffer that is its own.
    fn drop(&mut self) {
        self.shared.stop();
        let end = Instant::now() + DROP_PATIENCE;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < end {
                thread::sleep(NAP);
            }
            if thread.is_finished() {
                // A reader that panicked has nothing left to wait for.
                let _ = thread.join();
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing inside the lock panics half-way; a poisoned state is as good as any.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) -> Vec<Read> {
        let mut state = self.lock();
        state.is_stopping = true;
        let left = state.jobs.drain(..).collect();
        drop(state);
        self.work.notify_all();
        left
    }

    /// The life of a thread.
    fn serve(&self) {
        while let Some(Read { offset, mut buf, token, .. }) = self.next() {
            let result = self.drive.read_at(offset, &mut buf);
            self.finished.add(Done { token, buf, result });
        }
    }

    fn next(&self) -> Option<Read> {
        let mut state = self.lock();
        loop {
            if state.is_stopping {
                return None;
            }
            if let Some(read) = state.jobs.pop_front() {
                return Some(read);
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
