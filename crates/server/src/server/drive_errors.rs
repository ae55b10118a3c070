//! Logs the errors of drives, at most once a minute for each tier.

use crate::stats::tier_state::absent;
use std::fmt;
use std::time::{Duration, Instant};
use terrace_cache::{Cache, DriveErrors};
use terrace_device::{ErrorClass, ErrorCounts};
use tracing::error;

/// Errors within this time after a line are counted in the next one.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// What was logged, by tier.
pub(super) struct DriveErrorLog(Vec<Logged>);

#[derive(Clone, Copy, Default)]
struct Logged {
    errors: DriveErrors,
    at: Option<Instant>,
}

impl DriveErrorLog {
    /// For a server that starts; drives that are absent have a line of their own.
    pub(super) fn new(cache: &Cache) -> Self {
        let logged = cache.drive_errors().zip(absent(cache)).map(|((_, errors), is_absent)| {
            if is_absent { Logged { errors, at: None } } else { Logged::default() }
        });
        Self(logged.collect())
    }

    /// Logs what the counters have gained. Must be called several times a minute; takes no lock.
    pub(super) fn log(&mut self, cache: &Cache) {
        let now = Instant::now();
        for (tier, (label, errors)) in cache.drive_errors().enumerate() {
            if tier == self.0.len() {
                self.0.push(Logged::default());
            }
            if let Some(new) = self.0[tier].due(errors, now) {
                error!(
                    "tier {label}: {}; serving continues, the records concerned are misses; {}",
                    Summary(new),
                    action(worst(&new.classes))
                );
            }
        }
    }
}

impl Logged {
    /// The errors since the last line, if there are any and a line is due.
    fn due(&mut self, errors: DriveErrors, now: Instant) -> Option<DriveErrors> {
        let is_early = self.at.is_some_and(|at| now.duration_since(at) < LOG_EVERY);
        if errors == self.errors || is_early {
            return None;
        }
        let before = std::mem::replace(self, Self { errors, at: Some(now) }).errors;
        Some(DriveErrors {
            failed_reads: errors.failed_reads - before.failed_reads,
            failed_writes: errors.failed_writes - before.failed_writes,
            corrupt_pages: errors.corrupt_pages - before.corrupt_pages,
            classes: errors.classes.since(&before.classes),
        })
    }
}

/// Of the classes that have errors, the one that is to be acted on first.
fn worst(classes: &ErrorCounts) -> ErrorClass {
    use ErrorClass::{Gone, Medium, NoSpace, Other, ReadOnly, Unresponsive};
    let order = [Gone, ReadOnly, NoSpace, Unresponsive, Medium, Other];
    order.into_iter().find(|class| classes.of(*class) > 0).unwrap_or(Medium)
}

/// What the operator does about errors of a class.
pub(super) fn action(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::NoSpace => {
            "free space on its file system or thin pool, or raise the limit of file sizes (ulimit -f)"
        }
        ErrorClass::ReadOnly => {
            "see in the kernel's log why it is read-only, make it writable or replace the drive"
        }
        ErrorClass::Gone => "reconnect the drive or the path to it, and restart",
        ErrorClass::Unresponsive => "check the drive and the path to it",
        ErrorClass::Medium => {
            "check the drive and the kernel's log, and replace it if this goes on"
        }
        ErrorClass::Other => "check the drive and the kernel's log",
    }
}

/// The counts that are not 0, in words: what failed, and why.
struct Summary(DriveErrors);

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DriveErrors { failed_reads, failed_writes, corrupt_pages, classes } = self.0;
        let failed = listed([
            ("failed reads", failed_reads),
            ("failed writes", failed_writes),
            ("corrupt pages", corrupt_pages),
        ]);
        let why = listed(ErrorClass::ALL.map(|class| (class, classes.of(class))));
        match failed.is_empty() || why.is_empty() {
            true => write!(f, "{failed}{why}"),
            false => write!(f, "{failed} ({why})"),
        }
    }
}

/// The counts that are not 0.
fn listed(counts: impl IntoIterator<Item = (impl fmt::Display, u64)>) -> String {
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    counts.map(|(what, count)| format!("{what}: {count}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(failed_reads: u64, failed_writes: u64, corrupt_pages: u64) -> DriveErrors {
        let classes = ErrorCounts::default();
        DriveErrors { failed_reads, failed_writes, corrupt_pages, classes }
    }

    #[test]
    fn errors_within_a_minute_are_one_line() {
        let (mut logged, begin) = (Logged::default(), Instant::now());
        let mut due = |seconds, errors| logged.due(errors, begin + Duration::from_secs(seconds));
        assert_eq!(due(0, errors(0, 0, 0)), None);
        assert_eq!(due(1, errors(1, 0, 0)), Some(errors(1, 0, 0)));
        assert_eq!(due(2, errors(40_000, 0, 5)), None);
        assert_eq!(due(60, errors(40_000, 0, 5)), None);
        assert_eq!(due(61, errors(40_001, 2, 5)), Some(errors(40_000, 2, 5)));
        assert_eq!(due(200, errors(40_001, 2, 5)), None);
    }

    #[test]
    fn line_names_what_there_is() {
        assert_eq!(Summary(errors(3, 0, 2)).to_string(), "failed reads: 3, corrupt pages: 2");
        assert_eq!(Summary(errors(0, 1, 0)).to_string(), "failed writes: 1");
        let mut classes = ErrorCounts::default();
        classes.add(ErrorClass::Medium, 3);
        let both = DriveErrors { classes, ..errors(3, 0, 2) };
        let line = "failed reads: 3, corrupt pages: 2 (medium error: 3)";
        assert_eq!(
            (Summary(both).to_string().as_str(), worst(&classes)),
            (line, ErrorClass::Medium)
        );
        classes.add(ErrorClass::NoSpace, 1);
        let alone = DriveErrors { classes, ..errors(0, 0, 0) };
        assert_eq!(Summary(alone).to_string(), "no space: 1, medium error: 3");
        assert_eq!(worst(&classes), ErrorClass::NoSpace);
    }
}
