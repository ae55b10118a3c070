//! Transfers with a deadline: a drive that answers nothing, not even an error, holds its caller up for no longer.

use crate::buffer::AlignedBuf;
use crate::drive::{Drive, Geometry, Part, Reads};
use crate::failure::{is_unanswered, unanswered};
use crate::health::Monitor;
use crate::io_thread::{IoThread, Transfer, ended};
use crate::worker_queue::Engine;
use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Carries out the transfers of a drive on threads of its own, each with a deadline.
///
/// A transfer that takes longer fails for its caller ([`crate::is_unanswered`]), while the kernel
/// may still read or write its memory and the drive's: so the memory is the thread's, and until the
/// transfer is over all that begin later fail at once, in the same way. The blocks of a write that was
/// not answered may therefore be written again by this drive: nothing gets there before the late write does.
///
/// Transfers go to the device directly, and wait, until [`Drive::begin_timing`]; flushes always do, since they
/// may take long. Reads past this device, as a [`crate::ReadQueue`] makes them, are not affected.
pub struct DeadlineDrive {
    device: Arc<dyn Drive>,
    patience: Duration,
    born: Instant,
    has_begun: AtomicBool,
    /// Each has one transfer at a time.
    threads: Box<[Mutex<IoThread>]>,
    /// Counts transfers: threads take turns.
    turn: AtomicUsize,
    /// How many threads have a transfer that is overdue.
    late: AtomicUsize,
    /// When the first of these began, in milliseconds since `born`.
    late_since: AtomicU64,
}

impl DeadlineDrive {
    /// Waits for transfers of `device` up to `patience`, once they are timed. At most `at_once` are under way at the same
    /// time. Reads go through `engine`.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn new(
        device: Arc<dyn Drive>,
        patience: Duration,
        at_once: usize,
        engine: Engine,
    ) -> io::Result<Self> {
        let thread = |_| IoThread::open(Arc::clone(&device), engine).map(Mutex::new);
        let threads = (0..at_once.max(1)).map(thread).collect::<io::Result<_>>()?;
        Ok(Self {
            device,
            patience,
            born: Instant::now(),
            has_begun: AtomicBool::new(false),
            threads,
            turn: AtomicUsize::new(0),
            late: AtomicUsize::new(0),
            late_since: AtomicU64::new(0),
        })
    }

    /// Whether a transfer is overdue. Waits for none.
    fn is_silent(&self) -> bool {
        self.late.load(Ordering::Acquire) > 0 && {
            self.look_for_late();
            self.late.load(Ordering::Acquire) > 0
        }
    }

    /// Looks which overdue transfers are over.
    fn look_for_late(&self) {
        // While a caller has a thread, nothing in it is overdue.
        for mut thread in self.threads.iter().filter_map(try_lock) {
            if thread.is_late && thread.done.try_recv().is_ok() {
                self.end_lateness(&mut thread);
            }
        }
    }

    /// The overdue transfer of a thread is over, if there was one.
    fn end_lateness(&self, thread: &mut IoThread) {
        if mem::take(&mut thread.is_late) {
            self.late.fetch_sub(1, Ordering::Release);
        }
    }

    /// A thread without a transfer, unless one of this device is overdue.
    fn free_thread(&self) -> io::Result<MutexGuard<'_, IoThread>> {
        if self.is_silent() {
            return Err(unanswered());
        }
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let by_turns = |step: usize| &self.threads[first.wrapping_add(step) % self.threads.len()];
        let free = (0..self.threads.len()).find_map(|step| try_lock(by_turns(step)));
        let thread =
            free.unwrap_or_else(|| by_turns(0).lock().unwrap_or_else(PoisonError::into_inner));
        // What it was waited for, or another one, may be overdue by now.
        if self.is_silent() { Err(unanswered()) } else { Ok(thread) }
    }

    /// Has the thread's thread do it, and waits.
    fn carry_out(&self, thread: &mut IoThread, transfer: Transfer) -> io::Result<Transfer> {
        let began = self.born.elapsed();
        let direction = transfer.direction();
        thread.ask(transfer)?;
        thread.done.recv_timeout(self.patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                thread.is_late = true;
                if self.late.load(Ordering::Acquire) == 0 {
                    // Stored first: a thread that sees `late` above 0 then sees since when.
                    self.late_since.store(began.as_millis() as u64, Ordering::Relaxed);
                }
                self.late.fetch_add(1, Ordering::Release);
                let error = unanswered();
                if let Some(monitor) = self.device.monitor() {
                    monitor.record_error(direction, &error);
                }
                error
            }
            RecvTimeoutError::Disconnected => ended(),
        })
    }

    /// The callers' memory is read into; they get other memory if that takes too long.
    fn read(&self, parts: &mut [Part<'_>]) -> io::Result<()> {
        let mut thread = self.free_thread()?;
        let sizes: Vec<_> =
            parts.iter().map(|part| (part.buf.capacity(), part.buf.len())).collect();
        let lend =
            |part: &mut Part<'_>| (part.offset, mem::replace(part.buf, AlignedBuf::zeroed(0)));
        let asked = Transfer::reads(parts.iter_mut().map(lend));
        let read = self.carry_out(&mut thread, asked).map(|done| {
            for (part, step) in parts.iter_mut().zip(done.steps) {
                (*part.buf, part.result) = (step.buffer, step.result);
            }
        });
        for (part, (capacity, len)) in parts.iter_mut().zip(sizes) {
            replace_kept(part.buf, capacity, len);
        }
        read
    }
}

impl Drive for DeadlineDrive {
    fn label(&self) -> &str {
        self.device.label()
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read_at(&self, offset: u64, buf: &mut AlignedBuf) -> io::Result<()> {
        if !self.has_begun.load(Ordering::Relaxed) {
            return self.device.read_at(offset, buf);
        }
        let mut part = [Part::new(offset, buf)];
        self.read(&mut part)?;
        let [part] = part;
        part.result
    }

    fn read_each(&self, parts: &mut [Part<'_>]) {
        if !self.has_begun.load(Ordering::Relaxed) {
            return self.device.read_each(parts);
        }
        if let Err(error) = self.read(parts) {
            let alike = || if is_unanswered(&error) { unanswered() } else { ended() };
            parts.iter_mut().for_each(|part| part.result = Err(alike()));
        }
    }

    fn write_at(&self, offset: u64, buf: &AlignedBuf) -> io::Result<()> {
        if !self.has_begun.load(Ordering::Relaxed) {
            return self.device.write_at(offset, buf);
        }
        let mut copy = AlignedBuf::zeroed(buf.len());
        copy.copy_from_slice(buf);
        self.write_lent(offset, &mut copy)
    }

    /// The caller gets other memory if that takes too long.
    fn write_lent(&self, offset: u64, buf: &mut AlignedBuf) -> io::Result<()> {
        if !self.has_begun.load(Ordering::Relaxed) {
            return self.device.write_at(offset, buf);
        }
        let mut thread = self.free_thread()?;
        let (capacity, len) = (buf.capacity(), buf.len());
        let asked = Transfer::write(offset, mem::replace(buf, AlignedBuf::zeroed(0)));
        let written = self.carry_out(&mut thread, asked).and_then(|done| {
            let Some(step) = done.steps.into_iter().next() else { return Ok(()) };
            *buf = step.buffer;
            step.result
        });
        replace_kept(buf, capacity, len);
        written
    }

    fn flush(&self) -> io::Result<()> {
        if self.is_silent() { Err(unanswered()) } else { self.device.flush() }
    }

    fn fence(&self) -> io::Result<()> {
        let end = Instant::now() + self.patience;
        for thread in &self.threads {
            let mut thread = thread.lock().unwrap_or_else(PoisonError::into_inner);
            let left = end.saturating_duration_since(Instant::now());
            if thread.is_late && thread.done.recv_timeout(left).is_err() {
                return Err(unanswered());
            }
            self.end_lateness(&mut thread);
        }
        self.device.fence()
    }

    fn explain(&self, error: io::Error) -> io::Error {
        self.device.explain(error)
    }

    fn close(&self) {
        for thread in &self.threads {
            let mut thread = thread.lock().unwrap_or_else(PoisonError::into_inner);
            if !thread.is_late {
                let _ = self.carry_out(&mut thread, Transfer::none());
            }
        }
        self.device.close();
    }

    fn reads(&self) -> Reads<'_> {
        self.device.reads()
    }

    fn begin_timing(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
        self.device.begin_timing();
    }

    fn monitor(&self) -> Option<&Monitor> {
        self.device.monitor()
    }

    fn unresponsive_for(&self) -> Duration {
        if !self.is_silent() {
            return self.device.unresponsive_for();
        }
        let began = Duration::from_millis(self.late_since.load(Ordering::Relaxed));
        self.born.elapsed().saturating_sub(began).max(self.patience)
    }
}

impl Drop for DeadlineDrive {
    /// The device is closed when this returns, unless it does not answer.
    fn drop(&mut self) {
        self.look_for_late();
        for thread in &mut self.threads {
            let thread = thread.get_mut().unwrap_or_else(PoisonError::into_inner);
            let is_late = thread.is_late;
            if let Some(thread) = thread.close().filter(|_| !is_late) {
                // It has no more to do; one that panicked has told so.
                let _ = thread.join();
            }
        }
    }
}

/// Puts other memory in the place of what a thread has kept.
fn replace_kept(buf: &mut AlignedBuf, capacity: usize, len: usize) {
    if buf.capacity() < capacity {
        *buf = AlignedBuf::zeroed(capacity);
    }
    buf.set_len(len);
}

fn try_lock(thread: &Mutex<IoThread>) -> Option<MutexGuard<'_, IoThread>> {
    match thread.try_lock() {
        Ok(thread) => Some(thread),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
