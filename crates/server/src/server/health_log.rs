//! Logs when a drive stops to answer, refuses writes or is gone, and when it works again; and when what outlives the
//! process is lost.

use super::drive_errors::action;
use crate::stats::tier_state::absent;
use std::mem;
use terrace_cache::Cache;
use terrace_device::{ErrorClass, Health};
use tracing::{error, info};

/// What was logged.
pub(super) struct HealthLog {
    /// By tier, how its drive was at the last call.
    drives: Vec<Health>,
    /// Tiers that the next start will find empty.
    empty_next: Vec<String>,
    has_lost_state: bool,
}

impl HealthLog {
    /// For a server that starts; drives that are absent have a line of their own.
    pub(super) fn new(cache: &Cache) -> Self {
        let drives = cache.drive_health().zip(absent(cache));
        let drives =
            drives.map(|((_, now), is_absent)| if is_absent { now } else { Health::Working });
        Self { drives: drives.collect(), empty_next: Vec::new(), has_lost_state: false }
    }

    /// Logs what has changed since the last call. Must be called several times a minute.
    pub(super) fn log(&mut self, cache: &Cache) {
        let has_lost_state = cache.has_lost_state();
        if has_lost_state && !mem::replace(&mut self.has_lost_state, true) {
            error!(
                "state: a part of its file is gone (another process truncated it, or its file system has no memory \
                 left): records in DRAM are misses, serving continues, the next start will be cold; give the server \
                 a folder that nothing else writes to (--state DIR)"
            );
        }
        // A tier that was given up has a line of its own.
        let is_given_up = |label: &str| cache.failures().any(|(given_up, _)| given_up == label);
        for label in cache.tiers_empty_next().filter(|_| !has_lost_state) {
            if !is_given_up(label) && !self.empty_next.iter().any(|known| known == label) {
                error!(
                    "tier {label}: writing its tombstone log failed; serving continues, the next start will find the \
                     tier empty; check the drive"
                );
                self.empty_next.push(label.to_owned());
            }
        }
        for (tier, (label, now)) in cache.drive_health().enumerate() {
            if tier == self.drives.len() {
                self.drives.push(Health::Working);
            }
            let before = mem::replace(&mut self.drives[tier], now.clone());
            if before.name() == now.name() {
                continue;
            }
            match Change::of(&before, &now) {
                Change::ForWorse(text) => error!("tier {label}: {text}"),
                Change::ForBetter(text) => info!("tier {label}: {text}"),
            }
        }
    }
}

/// The line about a drive whose health has changed, without its name.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    ForWorse(String),
    ForBetter(String),
}

impl Change {
    fn of(before: &Health, now: &Health) -> Self {
        let worse = |class: ErrorClass, what: &str, consequence: &str| {
            Self::ForWorse(format!(
                "{class}: {what}; serving continues, {consequence}; {}",
                action(class)
            ))
        };
        match (before, now) {
            (_, Health::Unresponsive(lasts)) => worse(
                ErrorClass::Unresponsive,
                &format!("no answer for {} s", lasts.as_secs()),
                "its records are misses until it answers",
            ),
            (_, Health::ReadOnly(why)) => {
                worse(ErrorClass::ReadOnly, why, "nothing new is written to it")
            }
            (_, Health::Gone(why)) => worse(ErrorClass::Gone, why, "its records are misses"),
            (Health::Unresponsive(lasted), Health::Working) => {
                Self::ForBetter(format!("answers again after {} s", lasted.as_secs()))
            }
            (Health::ReadOnly(_), Health::Working) => {
                Self::ForBetter("takes writes again".to_owned())
            }
            (_, Health::Working) => Self::ForBetter("is back".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn line_has_class_event_consequence_and_action() {
        let unresponsive = Health::Unresponsive(Duration::from_secs(11));
        let line = "unresponsive: no answer for 11 s; serving continues, its records are misses until it answers; \
                    check the drive and the path to it";
        let change = Change::of(&Health::Working, &unresponsive);
        assert_eq!(change, Change::ForWorse(line.to_owned()));
        let read_only = Health::ReadOnly("Read-only file system (os error 30)".into());
        let Change::ForWorse(line) = Change::of(&Health::Working, &read_only) else {
            panic!("it is worse")
        };
        assert!(line.starts_with("read-only: Read-only file system (os error 30); "), "{line}");
        assert!(line.ends_with(action(ErrorClass::ReadOnly)), "{line}");
        let better = Change::of(&unresponsive, &Health::Working);
        assert_eq!(better, Change::ForBetter("answers again after 11 s".to_owned()));
    }
}
