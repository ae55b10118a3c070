//! A device that answers nothing, not even an error, is waited for only so long.

use crate::lane::{Lane, Transfer, ended};
use crate::{AlignedBuf, Device, Engine, Geometry, Part};
use std::error::Error;
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Carries out transfers on a thread of its own, so that who asked for one need not wait for ever.
///
/// A transfer that takes longer than the patience fails for its caller ([`is_unanswered`]), while the kernel
/// may still read or write its memory and the drive's: so the memory is the thread's, and until the
/// transfer is over every other one of this device fails at once, in the same way. Whoever is told that a write was
/// not answered may therefore use its place again: nothing gets there before the late write does.
///
/// Transfers go to the device directly, and wait, until [`Device::begin_timing`]; flushes always do, since they
/// may take long. Reads past this device, as a [`crate::ReadQueue`] makes them, are not affected.
pub struct TimedDevice {
    device: Arc<dyn Device>,
    patience: Duration,
    born: Instant,
    has_begun: AtomicBool,
    /// When the transfer began that is overdue, in milliseconds since `born`, plus one; 0 if none is.
    overdue: AtomicU64,
    lane: Mutex<Lane>,
}

/// Inside of the errors of [`unanswered`].
#[derive(Debug)]
struct Unanswered;

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the drive does not answer")
    }
}

impl Error for Unanswered {}

/// The error of a transfer that was not answered in time.
pub(crate) fn unanswered() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, Unanswered)
}

/// Whether a transfer failed only because its device has not answered yet, and may still.
pub fn is_unanswered(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Unanswered>())
}

impl TimedDevice {
    /// Waits for transfers of `device` so long, once they are timed. Reads go through `engine`.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn new(device: Arc<dyn Device>, patience: Duration, engine: Engine) -> io::Result<Self> {
        let lane = Mutex::new(Lane::open(Arc::clone(&device), engine)?);
        let (has_begun, overdue) = (AtomicBool::new(false), AtomicU64::new(0));
        Ok(Self { device, patience, born: Instant::now(), has_begun, overdue, lane })
    }

    fn lane(&self) -> MutexGuard<'_, Lane> {
        self.lane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a transfer is overdue. Waits for none.
    fn is_silent(&self) -> bool {
        // While somebody has the lane, nothing in it is overdue.
        let overdue = |lane: MutexGuard<'_, Lane>| self.is_overdue(&lane);
        self.overdue.load(Ordering::Acquire) != 0 && self.lane.try_lock().is_ok_and(overdue)
    }

    /// Looks whether the overdue transfer is over.
    fn is_overdue(&self, lane: &Lane) -> bool {
        if self.overdue.load(Ordering::Acquire) == 0 {
            return false;
        }
        match lane.done.try_recv() {
            Ok(_) => {
                self.overdue.store(0, Ordering::Release);
                false
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => true,
        }
    }

    /// The lane, unless it has something that is overdue.
    fn free_lane(&self) -> io::Result<MutexGuard<'_, Lane>> {
        let lane = self.lane();
        if self.is_overdue(&lane) { Err(unanswered()) } else { Ok(lane) }
    }

    /// Has the thread do it, and waits.
    fn carry_out(&self, lane: &Lane, transfer: Transfer) -> io::Result<Transfer> {
        let began = self.born.elapsed();
        lane.ask(transfer)?;
        lane.done.recv_timeout(self.patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                self.overdue.store(began.as_millis() as u64 + 1, Ordering::Release);
                unanswered()
            }
            RecvTimeoutError::Disconnected => ended(),
        })
    }

    /// The callers' memory is read into; they get other memory if that takes too long.
    fn read(&self, parts: &mut [Part<'_>]) -> io::Result<()> {
        let lane = self.free_lane()?;
        let sizes: Vec<_> =
            parts.iter().map(|part| (part.buf.capacity(), part.buf.len())).collect();
        let lend =
            |part: &mut Part<'_>| (part.offset, mem::replace(part.buf, AlignedBuf::zeroed(0)));
        let asked = Transfer::reads(parts.iter_mut().map(lend));
        let read = self.carry_out(&lane, asked).map(|done| {
            for (part, step) in parts.iter_mut().zip(done.steps) {
                (*part.buf, part.result) = (step.buffer, step.result);
            }
        });
        for (part, (capacity, len)) in parts.iter_mut().zip(sizes) {
            if part.buf.capacity() < capacity {
                *part.buf = AlignedBuf::zeroed(capacity);
            }
            part.buf.set_len(len);
        }
        read
    }
}

impl Device for TimedDevice {
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
        let mut lane = self.free_lane()?;
        let asked = lane.write(offset, buf);
        let done = self.carry_out(&lane, asked)?;
        lane.written(done)
    }

    fn flush(&self) -> io::Result<()> {
        if self.is_silent() { Err(unanswered()) } else { self.device.flush() }
    }

    fn raw_fd(&self) -> Option<RawFd> {
        self.device.raw_fd()
    }

    /// One transfer is under way at a time then.
    fn begin_timing(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    fn silence(&self) -> Duration {
        if !self.is_silent() {
            return Duration::ZERO;
        }
        let began = Duration::from_millis(self.overdue.load(Ordering::Acquire).saturating_sub(1));
        self.born.elapsed().saturating_sub(began).max(self.patience)
    }
}

impl Drop for TimedDevice {
    /// The device is closed when this returns, unless it does not answer.
    fn drop(&mut self) {
        let is_silent = self.is_overdue(&self.lane());
        if let Some(thread) = self.lane().close().filter(|_| !is_silent) {
            // It has no more to do; one that panicked has told so.
            let _ = thread.join();
        }
    }
}
