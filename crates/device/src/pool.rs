//! Reads by a few threads: for kernels that forbid io_uring, and devices without a descriptor.

use crate::drive::Device;
use crate::event::Event;
use crate::queue::{DROP_PATIENCE, Done, Read, ReadQueue, no_such_device};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

/// More threads than this only wait for each other, whatever the depth. Drives have the same part of them each, so
/// that one which answers nothing takes none from the others.
const THREADS_MAX: u32 = 16;
/// A reader's stack, in bytes: its calls are shallow.
const STACK_BYTES: usize = 128 << 10;
/// Between two looks whether a thread has ended.
const NAP: Duration = Duration::from_millis(1);

/// A queue whose reads are blocking calls on its own threads, [`THREADS_MAX`] or so, of which each drive has its own.
pub(crate) struct PoolQueue {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Of each drive.
    threads_each: usize,
    /// For the next flush, by drive.
    submitted: Vec<Vec<Read>>,
    in_flight: usize,
}

struct Shared {
    devices: Vec<Arc<dyn Device>>,
    state: Mutex<State>,
    /// By drive: waited on by its threads without work.
    work: Vec<Condvar>,
    /// Signalled whenever `State::done` stops being empty.
    event: Event,
}

#[derive(Default)]
struct State {
    /// By drive.
    jobs: Vec<VecDeque<Read>>,
    done: Vec<Done>,
    stopping: bool,
}

impl PoolQueue {
    pub(crate) fn open(devices: &[Arc<dyn Device>], depth: u32) -> io::Result<Self> {
        // Reads of drives that there are not want an answer, too.
        let drives = devices.len().max(1);
        let threads_each = (depth.clamp(1, THREADS_MAX) as usize).div_ceil(drives);
        let jobs = (0..drives).map(|_| VecDeque::new()).collect();
        let shared = Arc::new(Shared {
            devices: devices.to_vec(),
            state: Mutex::new(State { jobs, ..State::default() }),
            work: (0..drives).map(|_| Condvar::new()).collect(),
            event: Event::new()?,
        });
        let submitted = (0..drives).map(|_| Vec::new()).collect();
        // Built first, so that dropping it stops the threads if one of them can't be started.
        let mut queue = Self { shared, threads: Vec::new(), threads_each, submitted, in_flight: 0 };
        for at in 0..threads_each * drives {
            let shared = Arc::clone(&queue.shared);
            let builder = Builder::new().name(format!("read-{at}")).stack_size(STACK_BYTES);
            queue.threads.push(builder.spawn(move || shared.serve(at % drives))?);
        }
        Ok(queue)
    }
}

impl ReadQueue for PoolQueue {
    fn submit(&mut self, read: Read) {
        self.in_flight += 1;
        let drive = read.device.min(self.submitted.len() - 1);
        self.submitted[drive].push(read);
    }

    fn flush(&mut self) -> io::Result<()> {
        for (drive, submitted) in self.submitted.iter_mut().enumerate() {
            let reads = submitted.len();
            if reads == 0 {
                continue;
            }
            self.shared.lock().jobs[drive].extend(submitted.drain(..));
            for _ in 0..reads.min(self.threads_each) {
                self.shared.work[drive].notify_one();
            }
        }
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        if self.in_flight == self.submitted.iter().map(Vec::len).sum::<usize>() {
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
    /// Waits for the reads that a thread has begun; the others are dropped. A thread whose drive does not answer is
    /// left to itself, with the buffer that is its own.
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.work.iter().for_each(Condvar::notify_all);
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

    /// The life of a thread of a drive.
    fn serve(&self, drive: usize) {
        while let Some(read) = self.next(drive) {
            self.finish(self.carry_out(read));
        }
    }

    fn next(&self, drive: usize) -> Option<Read> {
        let mut state = self.lock();
        loop {
            if state.stopping {
                return None;
            }
            if let Some(read) = state.jobs[drive].pop_front() {
                return Some(read);
            }
            state = self.work[drive].wait(state).unwrap_or_else(PoisonError::into_inner);
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
