//! Logs the errors of drives, at most once a minute for each tier.

use std::fmt;
use std::time::{Duration, Instant};
use terrace_cache::{Cache, DriveErrors};
use tracing::error;

/// Errors within this time after a line are counted in the next one.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// What was logged, by tier.
#[derive(Default)]
pub(super) struct DriveErrorLog(Vec<Logged>);

#[derive(Clone, Copy, Default)]
struct Logged {
    errors: DriveErrors,
    at: Option<Instant>,
}

impl DriveErrorLog {
    /// Logs what the counters have gained. Must be called several times a minute; takes no lock.
    pub(super) fn log(&mut self, cache: &Cache) {
        let now = Instant::now();
        for (tier, (label, errors)) in cache.drive_errors().enumerate() {
            if tier == self.0.len() {
                self.0.push(Logged::default());
            }
            if let Some(new) = self.0[tier].due(errors, now) {
                error!(
                    "tier {label}: {}; serving continues, the records concerned are misses; check the drive and \
                     the kernel's log, and replace it if this goes on",
                    Summary(new)
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
        })
    }
}

/// The counts that are not 0, in words.
struct Summary(DriveErrors);

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DriveErrors { failed_reads, failed_writes, corrupt_pages } = self.0;
        let counts = [
            (failed_reads, "failed reads"),
            (failed_writes, "failed writes"),
            (corrupt_pages, "corrupt pages"),
        ];
        let mut separator = "";
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{separator}{what}: {count}")?;
            separator = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(failed_reads: u64, failed_writes: u64, corrupt_pages: u64) -> DriveErrors {
        DriveErrors { failed_reads, failed_writes, corrupt_pages }
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
    }
}
