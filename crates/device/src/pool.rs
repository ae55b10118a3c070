//! Reads by a few threads that block: where io_uring is not to be had, and for devices without a
//! descriptor.

use crate::event::Event;
use crate::{Device, Done, Read, ReadQueue};
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

struct Shared {
    devices: Vec<Arc<dyn Device>>,
    state: Mutex<State>,
    work: Condvar,
    event: Event,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Read>,
    done: Vec<Done>,
    closing: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A queue served by threads.
pub(crate) struct PoolQueue {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Submitted and not yet flushed.
    batch: Vec<Read>,
    in_flight: usize,
}

impl PoolQueue {
    /// Starts `threads` threads; as many reads are under way at once.
    pub(crate) fn open(devices: &[Arc<dyn Device>], threads: u32) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            devices: devices.to_vec(),
            state: Mutex::default(),
            work: Condvar::new(),
            event: Event::new()?,
        });
        let mut queue = Self { shared, threads: Vec::new(), batch: Vec::new(), in_flight: 0 };
        for n in 0..threads.max(1) {
            let shared = Arc::clone(&queue.shared);
            let thread = std::thread::Builder::new().name(format!("read-{n}"));
            queue.threads.push(thread.spawn(move || serve(&shared))?);
        }
        Ok(queue)
    }
}

fn serve(shared: &Shared) {
    loop {
        let mut state = shared.lock();
        let mut read = loop {
            if let Some(read) = state.waiting.pop_front() {
                break read;
            }
            if state.closing {
                return;
            }
            state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        drop(state);
        let result = match shared.devices.get(read.device) {
            Some(device) => device.read_at(read.offset, &mut read.buf),
            None => Err(io::Error::from(io::ErrorKind::NotFound)),
        };
        shared.lock().done.push(Done { token: read.token, buf: read.buf, result });
        shared.event.signal();
    }
}

impl ReadQueue for PoolQueue {
    fn submit(&mut self, read: Read) {
        self.batch.push(read);
        self.in_flight += 1;
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.batch.is_empty() {
            self.shared.lock().waiting.extend(self.batch.drain(..));
            self.shared.work.notify_all();
        }
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        if self.in_flight == 0 {
            return;
        }
        self.shared.event.clear();
        let finished = std::mem::take(&mut self.shared.lock().done);
        self.in_flight -= finished.len();
        done.extend(finished);
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.fd()
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for PoolQueue {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.closing = true;
            state.waiting.clear();
        }
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}
