//! A device that answers nothing, not even an error, is waited for only so long.

use crate::{AlignedBuf, Device, Geometry};
use std::error::Error;
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
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

/// The thread that carries out transfers, as it is seen from outside.
struct Lane {
    /// `None` once the device is being dropped.
    asked: Option<Sender<Transfer>>,
    done: Receiver<Transfer>,
    /// What transfers go through; the thread has it meanwhile.
    buffer: Option<AlignedBuf>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

struct Transfer {
    direction: Direction,
    offset: u64,
    buffer: AlignedBuf,
    result: io::Result<()>,
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
    /// Waits for transfers of `device` so long, once they are timed.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn new(device: Arc<dyn Device>, patience: Duration) -> io::Result<Self> {
        let lane = Mutex::new(Lane::open(Arc::clone(&device))?);
        let (has_begun, overdue) = (AtomicBool::new(false), AtomicU64::new(0));
        Ok(Self { device, patience, born: Instant::now(), has_begun, overdue, lane })
    }

    fn lane(&self) -> MutexGuard<'_, Lane> {
        self.lane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a transfer is overdue. Waits for none.
    fn is_silent(&self) -> bool {
        // While somebody has the lane, nothing in it is overdue.
        let overdue = |mut lane: MutexGuard<'_, Lane>| self.is_overdue(&mut lane);
        self.overdue.load(Ordering::Acquire) != 0 && self.lane.try_lock().is_ok_and(overdue)
    }

    /// Looks whether the overdue transfer is over.
    fn is_overdue(&self, lane: &mut Lane) -> bool {
        if self.overdue.load(Ordering::Acquire) == 0 {
            return false;
        }
        match lane.done.try_recv() {
            Ok(late) => {
                lane.buffer = Some(late.buffer);
                self.overdue.store(0, Ordering::Release);
                false
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => true,
        }
    }

    /// The lane, unless it has something that is overdue.
    fn free_lane(&self) -> io::Result<MutexGuard<'_, Lane>> {
        let mut lane = self.lane();
        if self.is_overdue(&mut lane) { Err(unanswered()) } else { Ok(lane) }
    }

    /// Has the thread do it, and waits.
    fn carry_out(
        &self,
        lane: &Lane,
        direction: Direction,
        offset: u64,
        buffer: AlignedBuf,
    ) -> io::Result<Transfer> {
        let began = self.born.elapsed();
        lane.ask(Transfer { direction, offset, buffer, result: Ok(()) })?;
        lane.done.recv_timeout(self.patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                self.overdue.store(began.as_millis() as u64 + 1, Ordering::Release);
                unanswered()
            }
            RecvTimeoutError::Disconnected => ended(),
        })
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
        let mut lane = self.free_lane()?;
        // The caller's memory is read into; it has other memory if that takes too long.
        let mut other = lane.buffer_of(buf.capacity());
        other.set_len(buf.len());
        let own = mem::replace(buf, other);
        let done = self.carry_out(&lane, Direction::Read, offset, own)?;
        lane.buffer = Some(mem::replace(buf, done.buffer));
        done.result
    }

    fn write_at(&self, offset: u64, buf: &AlignedBuf) -> io::Result<()> {
        if !self.has_begun.load(Ordering::Relaxed) {
            return self.device.write_at(offset, buf);
        }
        let mut lane = self.free_lane()?;
        let mut copy = lane.buffer_of(buf.len());
        copy.set_len(buf.len());
        copy.copy_from_slice(buf);
        let done = self.carry_out(&lane, Direction::Write, offset, copy)?;
        lane.buffer = Some(done.buffer);
        done.result
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

impl Lane {
    fn open(device: Arc<dyn Device>) -> io::Result<Self> {
        let (asked, asking) = channel::<Transfer>();
        let (doing, done) = channel();
        let work = move || {
            for mut transfer in asking {
                transfer.carry_out(device.as_ref());
                if doing.send(transfer).is_err() {
                    break;
                }
            }
        };
        let thread = thread::Builder::new().name("drive".into()).spawn(work)?;
        Ok(Self { asked: Some(asked), done, buffer: None, thread: Some(thread) })
    }

    /// One that holds anything.
    fn buffer_of(&mut self, bytes: usize) -> AlignedBuf {
        match self.buffer.take() {
            Some(buffer) if buffer.capacity() >= bytes => buffer,
            _ => AlignedBuf::zeroed(bytes),
        }
    }

    fn ask(&self, transfer: Transfer) -> io::Result<()> {
        let asked = self.asked.as_ref().ok_or_else(ended)?;
        asked.send(transfer).map_err(|_| ended())
    }
}

impl Transfer {
    fn carry_out(&mut self, device: &dyn Device) {
        self.result = match self.direction {
            Direction::Read => device.read_at(self.offset, &mut self.buffer),
            Direction::Write => device.write_at(self.offset, &self.buffer),
        };
    }
}

impl Drop for TimedDevice {
    /// The device is closed when this returns, unless it does not answer.
    fn drop(&mut self) {
        let is_silent = self.is_overdue(&mut self.lane());
        let mut lane = self.lane();
        lane.asked = None;
        if let Some(thread) = lane.thread.take().filter(|_| !is_silent) {
            // It has no more to do; one that panicked has told so.
            let _ = thread.join();
        }
    }
}

fn ended() -> io::Error {
    io::Error::other("the thread that carries out the drive's transfers has ended")
}
