//! A device that answers nothing, not even an error, is waited for only so long.

use crate::buffer::AlignedBuf;
use crate::drive::{Drive, Geometry, Part, Reads};
use crate::failure::{is_unanswered, unanswered};
use crate::health::Monitor;
use crate::lane::{Lane, Transfer, ended};
use crate::worker_queue::Engine;
use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Carries out transfers on threads of its own, so that a caller need not wait for ever.
///
/// A transfer that takes longer than the patience fails for its caller ([`crate::is_unanswered`]), while the kernel
/// may still read or write its memory and the drive's: so the memory is the thread's, and until the
/// transfer is over all that begin later fail at once, in the same way. A caller of a write that was
/// not answered may therefore use its place again: nothing gets there before the late write does.
///
/// Transfers go to the device directly, and wait, until [`Drive::begin_timing`]; flushes always do, since they
/// may take long. Reads past this device, as a [`crate::ReadQueue`] makes them, are not affected.
pub struct TimedDevice {
    device: Arc<dyn Drive>,
    patience: Duration,
    born: Instant,
    has_begun: AtomicBool,
    /// Each has one transfer at a time.
    lanes: Box<[Mutex<Lane>]>,
    /// Counts transfers: lanes take turns.
    turn: AtomicUsize,
    /// How many lanes have a transfer that is overdue.
    late: AtomicUsize,
    /// When the first of these began, in milliseconds since `born`.
    late_since: AtomicU64,
}

impl TimedDevice {
    /// Waits for transfers of `device` so long, once they are timed; so many go on at once, at most. Reads go through
    /// `engine`.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn new(
        device: Arc<dyn Drive>,
        patience: Duration,
        at_once: usize,
        engine: Engine,
    ) -> io::Result<Self> {
        let lane = |_| Lane::open(Arc::clone(&device), engine).map(Mutex::new);
        let lanes = (0..at_once.max(1)).map(lane).collect::<io::Result<_>>()?;
        Ok(Self {
            device,
            patience,
            born: Instant::now(),
            has_begun: AtomicBool::new(false),
            lanes,
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
        // While a caller has a lane, nothing in it is overdue.
        for mut lane in self.lanes.iter().filter_map(try_lock) {
            if lane.is_late && lane.done.try_recv().is_ok() {
                self.end_lateness(&mut lane);
            }
        }
    }

    /// The overdue transfer of a lane is over, if there was one.
    fn end_lateness(&self, lane: &mut Lane) {
        if mem::take(&mut lane.is_late) {
            self.late.fetch_sub(1, Ordering::Release);
        }
    }

    /// A lane without a transfer, unless one of this device is overdue.
    fn free_lane(&self) -> io::Result<MutexGuard<'_, Lane>> {
        if self.is_silent() {
            return Err(unanswered());
        }
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let by_turns = |step: usize| &self.lanes[first.wrapping_add(step) % self.lanes.len()];
        let free = (0..self.lanes.len()).find_map(|step| try_lock(by_turns(step)));
        let lane =
            free.unwrap_or_else(|| by_turns(0).lock().unwrap_or_else(PoisonError::into_inner));
        // What it was waited for, or another one, may be overdue by now.
        if self.is_silent() { Err(unanswered()) } else { Ok(lane) }
    }

    /// Has the lane's thread do it, and waits.
    fn carry_out(&self, lane: &mut Lane, transfer: Transfer) -> io::Result<Transfer> {
        let began = self.born.elapsed();
        let direction = transfer.direction();
        lane.ask(transfer)?;
        lane.done.recv_timeout(self.patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                lane.is_late = true;
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
        let mut lane = self.free_lane()?;
        let sizes: Vec<_> =
            parts.iter().map(|part| (part.buf.capacity(), part.buf.len())).collect();
        let lend =
            |part: &mut Part<'_>| (part.offset, mem::replace(part.buf, AlignedBuf::zeroed(0)));
        let asked = Transfer::reads(parts.iter_mut().map(lend));
        let read = self.carry_out(&mut lane, asked).map(|done| {
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

impl Drive for TimedDevice {
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
        let mut lane = self.free_lane()?;
        let (capacity, len) = (buf.capacity(), buf.len());
        let asked = Transfer::write(offset, mem::replace(buf, AlignedBuf::zeroed(0)));
        let written = self.carry_out(&mut lane, asked).and_then(|done| {
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
        for lane in &self.lanes {
            let mut lane = lane.lock().unwrap_or_else(PoisonError::into_inner);
            let left = end.saturating_duration_since(Instant::now());
            if lane.is_late && lane.done.recv_timeout(left).is_err() {
                return Err(unanswered());
            }
            self.end_lateness(&mut lane);
        }
        self.device.fence()
    }

    fn reads(&self) -> Reads<'_> {
        self.device.reads()
    }

    fn begin_timing(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    fn monitor(&self) -> Option<&Monitor> {
        self.device.monitor()
    }

    fn unresponsive_for(&self) -> Duration {
        if !self.is_silent() {
            return Duration::ZERO;
        }
        let began = Duration::from_millis(self.late_since.load(Ordering::Relaxed));
        self.born.elapsed().saturating_sub(began).max(self.patience)
    }
}

impl Drop for TimedDevice {
    /// The device is closed when this returns, unless it does not answer.
    fn drop(&mut self) {
        self.look_for_late();
        for lane in &mut self.lanes {
            let lane = lane.get_mut().unwrap_or_else(PoisonError::into_inner);
            let is_late = lane.is_late;
            if let Some(thread) = lane.close().filter(|_| !is_late) {
                // It has no more to do; one that panicked has told so.
                let _ = thread.join();
            }
        }
    }
}

/// Puts other memory in the place of what a lane has kept.
fn replace_kept(buf: &mut AlignedBuf, capacity: usize, len: usize) {
    if buf.capacity() < capacity {
        *buf = AlignedBuf::zeroed(capacity);
    }
    buf.set_len(len);
}

fn try_lock(lane: &Mutex<Lane>) -> Option<MutexGuard<'_, Lane>> {
    match lane.try_lock() {
        Ok(lane) => Some(lane),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
