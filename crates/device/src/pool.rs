//! Reads by a few threads: for kernels that forbid io_uring, and devices without a descriptor.

use crate::event::Event;
use crate::queue::no_such_device;
use crate::{Device, Done, Read, ReadQueue};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// More threads than this only wait for each other, whatever the depth.
const THREADS_MAX: u32 = 16;
/// A reader's stack, in bytes: its calls are shallow.
const STACK_BYTES: usize = 128 << 10;

/// A queue whose reads are blocking calls on its own threads. At most [`THREADS_MAX`] of them.
pub(crate) struct PoolQueue {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// For the next flush.
    submitted: Vec<Read>,
    in_flight: usize,
}

struct Shared {
    devices: Vec<Arc<dyn Device>>,
    state: Mutex<State>,
    /// Waited on by threads without work.
    work: Condvar,
    /// Signalled whenever `State::done` stops being empty.
    event: Event,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Read>,
    done: Vec<Done>,
    stopping: bool,
}

impl PoolQueue {
    pub(crate) fn open(devices: &[Arc<dyn Device>], depth: u32) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            devices: devices.to_vec(),
            state: Mutex::default(),
            work: Condvar::new(),
            event: Event::new()?,
        });
        // Built first, so that dropping it stops the threads if one of them can't be started.
        let mut queue = Self { shared, threads: Vec::new(), submitted: Vec::new(), in_flight: 0 };
        for at in 0..depth.clamp(1, THREADS_MAX) {
            let shared = Arc::clone(&queue.shared);
            let builder = Builder::new().name(format!("read-{at}")).stack_size(STACK_BYTES);
            queue.threads.push(builder.spawn(move || shared.serve())?);
        }
        Ok(queue)
    }
}

impl ReadQueue for PoolQueue {
    fn submit(&mut self, read: Read) {
        self.in_flight += 1;
        self.submitted.push(read);
    }

    fn flush(&mut self) -> io::Result<()> {
        let reads = self.submitted.len();
        if reads == 0 {
            return Ok(());
        }
        self.shared.lock().jobs.extend(self.submitted.drain(..));
        for _ in 0..reads.min(self.threads.len()) {
            self.shared.work.notify_one();
        }
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        if self.in_flight == self.submitted.len() {
            return;
        }
        let mut state = self.shared.lock();
        self.in_flight -= state.done.len();
        done.append(&mut state.done);
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }

    fn clear_event(&mut self) {
        self.shared.event.clear();
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for PoolQueue {
    /// Waits for the reads that a thread has begun; the others are dropped.
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A reader that panicked has nothing left to wait for.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing inside the lock panics half-way; a poisoned state is as good as any.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread's life.
    fn serve(&self) {
        while let Some(read) = self.next() {
            self.finish(self.carry_out(read));
        }
    }

    fn next(&self) -> Option<Read> {
        let mut state = self.lock();
        loop {
            if state.stopping {
                return None;
            }
            if let Some(read) = state.jobs.pop_front() {
                return Some(read);
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn carry_out(&self, Read { device, offset, mut buf, token }: Read) -> Done {
        let result = match self.devices.get(device) {
            Some(device) => device.read_at(offset, &mut buf),
            None => Err(no_such_device(device)),
        };
        Done { token, buf, result }
    }

    fn finish(&self, done: Done) {
        let mut state = self.lock();
        let was_empty = state.done.is_empty();
        state.done.push(done);
        drop(state);
        // While it was not empty, an earlier signal is still to be answered by a reap.
        if was_empty {
            self.event.signal();
        }
    }
}
