//! What is known of a drive: how it is, and how often it erred.

use crate::failure::{ErrorClass, ErrorCounts};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a transfer is waited for. A drive that has one under way for longer is unresponsive.
pub const DEADLINE: Duration = Duration::from_secs(10);

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
pub(crate) enum Direction {
    Read,
    /// Flushes too.
    Write,
}

/// Where everything that transfers data from or to a drive records how that went. One for each drive, shared by all
/// threads; a transfer that succeeds costs one load.
#[derive(Debug)]
pub struct Monitor {
    counts: [AtomicU64; ErrorClass::COUNT],
    /// Whether `refusal` is there.
    refuses: AtomicBool,
    /// Guards the last error of a drive that is read-only or gone. No other lock is taken under it.
    refusal: Mutex<Option<(ErrorClass, Arc<str>)>>,
}

impl Default for Monitor {
    fn default() -> Self {
        Self {
            counts: Default::default(),
            refuses: AtomicBool::new(false),
            refusal: Mutex::new(None),
        }
    }
}

impl Monitor {
    /// How the drive is at present.
    pub fn health(&self) -> Health {
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

    /// Records how a transfer went, and returns it.
    pub(crate) fn record(&self, direction: Direction, result: io::Result<()>) -> io::Result<()> {
        match &result {
            Ok(()) if !self.refuses.load(Ordering::Relaxed) => {}
            Ok(()) => self.end_refusal(direction),
            Err(error) => self.record_error(direction, error),
        }
        result
    }

    /// Records the error of a transfer.
    #[cold]
    pub(crate) fn record_error(&self, direction: Direction, error: &io::Error) {
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
}
