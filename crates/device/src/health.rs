//! What is known of a drive: how it is, and how often it erred.

use crate::failure::{ErrorClass, ErrorCounts};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the background waits for a transfer. A drive that has one under way for longer is unresponsive.
pub const DEADLINE: Duration = Duration::from_secs(10);
/// How long a request waits for a read, at most: a cache that misses is of more use than one that waits.
pub const READ_DEADLINE: Duration = Duration::from_millis(900);

/// Bytes from which on a write is large: it shows how fast a drive writes.
const LARGE: usize = 64 << 10;
/// Large writes that the pace is smoothed over, about.
const PACES: u64 = 8;

/// How a drive is at present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It answers.
    #[default]
    Working,
    /// It has not answered a transfer for this long, which is at least its deadline.
    Unresponsive(Duration),
    /// It refuses writes, with this message. Ends with the next write that it takes.
    ReadOnly(Arc<str>),
    /// It is no longer there, by this message. Ends with the next transfer that it carries out.
    Gone(Arc<str>),
}

impl Health {
    /// Its name in statistics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Unresponsive(_) => "unresponsive",
            Self::ReadOnly(_) => "read_only",
            Self::Gone(_) => "gone",
        }
    }

    /// Its number in metrics: 0 working, 1 unresponsive, 2 read-only, 3 gone.
    pub fn number(&self) -> u64 {
        match self {
            Self::Working => 0,
            Self::Unresponsive(_) => 1,
            Self::ReadOnly(_) => 2,
            Self::Gone(_) => 3,
        }
    }

    /// For how long the drive has not answered; zero while it does.
    pub fn unresponsive_for(&self) -> Duration {
        match self {
            Self::Unresponsive(lasts) => *lasts,
            Self::Working | Self::ReadOnly(_) | Self::Gone(_) => Duration::ZERO,
        }
    }
}

/// Which way a transfer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the drive.
    Read,
    /// Flushes too.
    Write,
}

/// Where everything that transfers data from or to a drive records how that went. One for each drive, shared by all
/// threads; a transfer that succeeds costs one load.
#[derive(Debug)]
pub struct Monitor {
    counts: [AtomicU64; ErrorClass::COUNT],
    opened: Instant,
    /// Milliseconds since `opened` at which the oldest unanswered transfer began, plus 1; 0 while there is none.
    unanswered_since: AtomicU64,
    /// Nanoseconds that a large write takes per MiB, smoothed; 0 before the first.
    write_pace: AtomicU64,
    /// Large writes so far, at most [`PACES`].
    paced: AtomicU64,
    /// Whether `refusal` is there.
    refuses: AtomicBool,
    /// Guards the last error of a drive that is read-only or gone. No other lock is taken under it.
    refusal: Mutex<Option<(ErrorClass, Arc<str>)>>,
}

impl Default for Monitor {
    fn default() -> Self {
        Self {
            counts: Default::default(),
            opened: Instant::now(),
            unanswered_since: AtomicU64::new(0),
            write_pace: AtomicU64::new(0),
            paced: AtomicU64::new(0),
            refuses: AtomicBool::new(false),
            refusal: Mutex::new(None),
        }
    }
}

impl Monitor {
    /// How the drive is at present.
    pub fn health(&self) -> Health {
        if let Some(lasts) = self.unanswered_for() {
            return Health::Unresponsive(lasts);
        }
        if !self.refuses.load(Ordering::Relaxed) {
            return Health::Working;
        }
        match self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            Some((ErrorClass::ReadOnly, why)) => Health::ReadOnly(why),
            Some((_, why)) => Health::Gone(why),
            None => Health::Working,
        }
    }

    /// Errors since the drive was opened.
    pub fn errors(&self) -> ErrorCounts {
        ErrorCounts([0, 1, 2, 3, 4, 5].map(|at: usize| self.counts[at].load(Ordering::Relaxed)))
    }

    /// The time that a large write takes per MiB, smoothed over the last ones; `None` before the eighth, since a
    /// first write that was held up says nothing of the drive.
    pub fn write_pace(&self) -> Option<Duration> {
        let is_known = self.paced.load(Ordering::Relaxed) >= PACES;
        is_known.then(|| Duration::from_nanos(self.write_pace.load(Ordering::Relaxed)))
    }

    pub(crate) fn set_pace(&self, pace: Duration) {
        let nanos = u64::try_from(pace.as_nanos()).unwrap_or(u64::MAX);
        self.write_pace.store(nanos, Ordering::Relaxed);
        self.paced.store(if nanos > 0 { PACES } else { 0 }, Ordering::Relaxed);
    }

    /// Records how long a write of `bytes` took. Short ones say more of a drive's latency than of its speed.
    pub fn record_pace(&self, bytes: usize, took: Duration) {
        if bytes < LARGE {
            return;
        }
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let pace = (u128::from(took) << 20) / bytes as u128;
        let pace = u64::try_from(pace).unwrap_or(u64::MAX).max(1);
        // Of two writes at the same time one may say nothing.
        let paced = (self.paced.load(Ordering::Relaxed) + 1).min(PACES);
        let before = self.write_pace.load(Ordering::Relaxed);
        self.write_pace.store(before - before / paced + pace / paced, Ordering::Relaxed);
        self.paced.store(paced, Ordering::Relaxed);
    }

    /// Records how a transfer went, and returns it.
    ///
    /// # Errors
    /// That of the transfer.
    pub fn record(&self, direction: Direction, result: io::Result<()>) -> io::Result<()> {
        match &result {
            Ok(()) if !self.refuses.load(Ordering::Relaxed) => {}
            Ok(()) => self.end_refusal(direction),
            Err(error) => self.record_error(direction, error),
        }
        result
    }

    /// Records the error of a transfer.
    #[cold]
    pub fn record_error(&self, direction: Direction, error: &io::Error) {
        let class = ErrorClass::of(error);
        self.counts[class as usize].fetch_add(1, Ordering::Relaxed);
        let refuses = match class {
            ErrorClass::Gone => true,
            ErrorClass::ReadOnly => direction == Direction::Write,
            _ => false,
        };
        if refuses {
            let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
            *refusal = Some((class, error.to_string().into()));
            self.refuses.store(true, Ordering::Relaxed);
        }
    }

    #[cold]
    fn end_refusal(&self, direction: Direction) {
        let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        let is_read_only = matches!(*refusal, Some((ErrorClass::ReadOnly, _)));
        if direction == Direction::Write || !is_read_only {
            *refusal = None;
            self.refuses.store(false, Ordering::Relaxed);
        }
    }

    /// Records that a transfer which began at `began` is not answered, unless one that began before is known.
    pub fn record_unanswered(&self, began: Option<Instant>) {
        // One that is before the machine's start is not older than the drive.
        let began = began.unwrap_or(self.opened);
        let millis = began.saturating_duration_since(self.opened).as_millis() as u64 + 1;
        let (set, seen) = (Ordering::Release, Ordering::Relaxed);
        let _ = self.unanswered_since.compare_exchange(0, millis, set, seen);
    }

    /// Records that the drive has answered.
    pub fn record_answer(&self) {
        self.unanswered_since.store(0, Ordering::Release);
    }

    /// For how long a transfer has not been answered, at least a millisecond; `None` if all were.
    pub(crate) fn unanswered_for(&self) -> Option<Duration> {
        let since = self.unanswered_since.load(Ordering::Acquire).checked_sub(1)?;
        let lasts = self.opened.elapsed().saturating_sub(Duration::from_millis(since));
        Some(lasts.max(Duration::from_millis(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(monitor: &Monitor, direction: Direction, class: ErrorClass) {
        assert!(monitor.record(direction, Err(class.example())).is_err());
    }

    #[test]
    fn health_follows_the_errors_that_an_operator_must_act_on() {
        let monitor = Monitor::default();
        let name = || monitor.health().name();
        for class in [ErrorClass::Medium, ErrorClass::NoSpace, ErrorClass::Other] {
            fail(&monitor, Direction::Write, class);
            assert_eq!(name(), "working");
        }
        fail(&monitor, Direction::Write, ErrorClass::ReadOnly);
        assert_eq!(name(), "read_only");
        monitor.record(Direction::Read, Ok(())).expect("as it was");
        assert_eq!(name(), "read_only", "such a drive can be read");
        monitor.record(Direction::Write, Ok(())).expect("as it was");
        assert_eq!(name(), "working");
        fail(&monitor, Direction::Read, ErrorClass::Gone);
        assert!(matches!(monitor.health(), Health::Gone(why) if why.contains("No such device")));
        monitor.record(Direction::Read, Ok(())).expect("as it was");
        assert_eq!(name(), "working");
        let counts = ErrorClass::ALL.map(|class| monitor.errors().of(class));
        assert_eq!(counts, [1, 1, 1, 1, 0, 1]);
    }

    #[test]
    fn a_pace_is_said_when_some_large_writes_were_seen() {
        let monitor = Monitor::default();
        let write = |millis| monitor.record_pace(1 << 20, Duration::from_millis(millis));
        write(80);
        (0..6).for_each(|_| write(8));
        monitor.record_pace(4096, Duration::from_secs(1));
        assert_eq!(monitor.write_pace(), None);
        write(8);
        let pace = monitor.write_pace().expect("eight were seen");
        assert_eq!(pace.as_micros().div_ceil(1000), 17, "{pace:?}");
        (0..100).for_each(|_| write(40));
        let pace = monitor.write_pace().expect("more were seen");
        assert_eq!(pace.as_micros().div_ceil(1000), 40, "{pace:?}");
    }

    #[test]
    fn unresponsive_lasts_from_the_first_unanswered_transfer_to_the_next_answer() {
        let monitor = Monitor::default();
        let began = Instant::now();
        monitor.record_unanswered(Some(began));
        monitor.record_unanswered(Some(began + Duration::from_secs(3600)));
        let lasts = monitor.health().unresponsive_for();
        assert!(lasts >= Duration::from_millis(1) && lasts < Duration::from_secs(3000));
        monitor.record_answer();
        assert_eq!(monitor.health(), Health::Working);
    }
}
