//! What all clones of a store and its lanes share.

use crate::background::Background;
use crate::drives::Drives;
use crate::error::Error;
use crate::limits::Limits;
use crate::opening::now;
use crate::options::Options;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{mem, process};
use terrace_cache::{Cache, ReadPlan, Session};
use terrace_device::{AlignedBuf, Done, Drive, Engine, Read, ReadQueue, TICK, WorkerQueue, ticks};

/// Where buffers are full, background work has room again in about this time.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

/// How long a clean close may take; the next start is as after a crash then.
const CLOSE_PATIENCE: Duration = Duration::from_secs(60);

/// What all clones and lanes share.
pub(crate) struct Inner {
    pub(crate) cache: Arc<Cache>,
    pub(crate) drives: Arc<Drives>,
    pub(crate) limits: Limits,
    /// Ends before the cache is closed.
    background: Option<Background>,
    /// What threads block with, while none does.
    idle: Mutex<Vec<Worker>>,
    /// Sessions that lanes and threads have, idle ones included; at most `lanes_max`.
    sessions: AtomicUsize,
    lanes_max: usize,
    /// The process that opened the store.
    process: u32,
    /// Unix seconds that an earlier run acted on: expiry never uses an earlier time.
    clock_floor: u32,
    is_closed: bool,
}

/// What one thread blocks with.
pub(crate) struct Worker {
    pub(crate) session: Session,
    /// Reads by a thread of each drive, since a ring would belong to one thread that blocks.
    queue: WorkerQueue,
    /// For the next read.
    spare: Option<AlignedBuf>,
}

impl Worker {
    /// Reads, and waits until the drive has answered or is waited for no more.
    ///
    /// # Errors
    /// There is no waiting.
    pub(crate) fn read(&mut self, plan: ReadPlan) -> io::Result<(AlignedBuf, io::Result<()>)> {
        self.session.park();
        let ReadPlan { tier: device, offset, bytes } = plan;
        let buf = buffer_of(self.spare.take(), bytes as usize);
        self.queue.submit(Read { device, offset, buf, token: 0 });
        let mut done = Vec::new();
        loop {
            self.queue.wait(&mut done, TICK)?;
            if let Some(Done { buf, result, .. }) = done.pop() {
                return Ok((buf, result));
            }
            self.queue.give_up_late(ticks());
        }
    }

    /// Takes a buffer back.
    pub(crate) fn release(&mut self, buffer: Option<AlignedBuf>) {
        self.spare = buffer.or(self.spare.take());
    }
}

impl Inner {
    pub(crate) fn new(
        options: &Options,
        cache: Arc<Cache>,
        drives: Vec<Arc<dyn Drive>>,
        background: Background,
    ) -> Self {
        Self {
            limits: Limits::of(&cache),
            clock_floor: cache.clock_floor(),
            cache,
            drives: Drives::new(drives),
            background: Some(background),
            idle: Mutex::default(),
            sessions: AtomicUsize::new(0),
            lanes_max: options.lanes_max,
            process: process::id(),
            is_closed: false,
        }
    }

    /// Unix seconds, never before what an earlier run acted on.
    pub(crate) fn now(&self) -> u32 {
        now().max(self.clock_floor)
    }

    pub(crate) fn check_value(&self, bytes: usize) -> Result<(), Error> {
        let (bytes, most) = (bytes as u64, self.limits.item_bytes_max);
        if bytes > most { Err(Error::Value { bytes, most }) } else { Ok(()) }
    }

    /// Its threads are in the process that opened it alone.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.process == process::id() { Ok(()) } else { Err(Error::Forked) }
    }

    /// A session for a thread or a lane, which gives it back by [`Inner::end_session`].
    pub(crate) fn session(&self) -> Result<Session, Error> {
        let more = |sessions: usize| (sessions < self.lanes_max).then_some(sessions + 1);
        if self.sessions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok() {
            if let Some(session) = self.cache.try_session() {
                return Ok(session);
            }
            self.end_session();
        }
        // Those of threads that do not block at the moment can be had by a lane.
        let idle = self.idle().pop().map(|worker| worker.session);
        idle.ok_or(Error::TooManyLanes { most: self.lanes_max })
    }

    pub(crate) fn end_session(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn take_worker(&self) -> Result<Worker, Error> {
        self.check_process()?;
        if let Some(worker) = self.idle().pop() {
            return Ok(worker);
        }
        let queue = WorkerQueue::open_within(&self.drives.all(), Engine::Pool, 1, 0)?;
        Ok(Worker { session: self.session()?, queue, spare: None })
    }

    /// Takes a worker back, for the next thread that blocks.
    pub(crate) fn return_worker(&self, mut worker: Worker) {
        worker.session.park();
        self.idle().push(worker);
    }

    pub(crate) fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Worker>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the threads, and writes everything out. Returns whether the next start finds all of it.
    pub(crate) fn end(&mut self) -> bool {
        if mem::replace(&mut self.is_closed, true) {
            return true;
        }
        self.background = None;
        self.idle().clear();
        let start = Instant::now();
        let is_clean = self.cache.close(self.now(), &|| start.elapsed() < CLOSE_PATIENCE);
        is_clean || self.drives.all().is_empty()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.check_process().is_ok() {
            self.end();
        } else {
            // The threads are not in this process; joining them would wait for ever.
            mem::forget(self.background.take());
            mem::forget(mem::take(self.idle.get_mut().unwrap_or_else(PoisonError::into_inner)));
        }
    }
}

/// A buffer of `bytes` bytes: `spare`, if that is long enough.
fn buffer_of(spare: Option<AlignedBuf>, bytes: usize) -> AlignedBuf {
    match spare.filter(|buffer| buffer.capacity() >= bytes) {
        Some(mut buffer) => {
            buffer.set_len(bytes);
            buffer
        }
        None => AlignedBuf::zeroed(bytes),
    }
}

pub(crate) fn check_key(key: &[u8]) -> Result<(), Error> {
    match key.len() {
        1..=Error::KEY_BYTES_MAX => Ok(()),
        bytes => Err(Error::Key { bytes }),
    }
}
