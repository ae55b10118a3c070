//! Logs what becomes of tiers: how drains go on, and what a tier held that failed. The admin port logs what it is asked
//! for.

use crate::stats::tier_state::{held, is_absent};
use std::mem;
use std::time::{Duration, Instant};
use terrace_cache::{Cache, TierState, TierStats};
use tracing::{error, info, warn};

/// Statistics of all tiers are gathered for a look.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What was logged.
#[derive(Default)]
pub(super) struct TierLog {
    /// By tier, its state at the last look.
    states: Vec<TierState>,
    looked: Option<Instant>,
}

impl TierLog {
    /// Logs what has changed since the last look. Must be called several times a minute.
    pub(super) fn log(&mut self, cache: &Cache) {
        if self.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        for (number, tier) in cache.stats().tiers.iter().enumerate() {
            if number == self.states.len() {
                // An absent drive has a line of its own.
                let is_told = is_absent(tier);
                self.states.push(if is_told { tier.state } else { TierState::Working });
            }
            let before = mem::replace(&mut self.states[number], tier.state);
            let label = &tier.label;
            match Line::of(number, before, tier) {
                Some(Line::Info(text)) => info!("tier {label}: {text}"),
                Some(Line::Warning(text)) => warn!("tier {label}: {text}"),
                Some(Line::Error(text)) => error!("tier {label}: {text}"),
                None => {}
            }
        }
    }
}

/// The line about a tier whose state has changed, without its name.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Info(String),
    Warning(String),
    Error(String),
}

impl Line {
    fn of(number: usize, before: TierState, tier: &TierStats) -> Option<Self> {
        let held = held(tier.records, tier.live_bytes);
        Some(match (before, tier.state) {
            (before, now) if before == now => return None,
            (TierState::NoRoom, TierState::Draining) => Self::Info(format!(
                "other tiers have room again: the drain goes on, {held} are left"
            )),
            (_, TierState::NoRoom) => Self::Warning(format!(
                "no other tier has room: the drain waits, {held} are left; delete records, or drop the oldest ones: \
                 terrace tiers drain {number} --force"
            )),
            (_, TierState::Drained) => Self::Info(format!(
                "drained: no record is left on it; terrace tiers remove {number} takes it out of the set"
            )),
            (TierState::Draining | TierState::NoRoom | TierState::Drained, TierState::Working) => {
                Self::Info(format!("takes new records again; it holds {held}"))
            }
            (_, TierState::Failed) => Self::Error(format!(
                "held {held} when it failed: they are read as long as the drive can, and lost with the next start"
            )),
            (_, TierState::Working | TierState::Draining | TierState::Removed) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TierState::{Drained, Draining, Failed, NoRoom, Removed, Working};

    #[test]
    fn change_of_state_is_logged_with_what_the_tier_holds() {
        let line = |before, state| {
            let tier =
                TierStats { state, records: 1234, live_bytes: 3 << 20, ..TierStats::default() };
            Line::of(1, before, &tier)
        };
        let text = |before, state| match line(before, state) {
            Some(Line::Info(text) | Line::Warning(text) | Line::Error(text)) => text,
            None => panic!("no line"),
        };
        for (before, state) in [(Working, Working), (Working, Draining), (Drained, Removed)] {
            assert_eq!(line(before, state), None);
        }
        let waits = text(Draining, NoRoom);
        assert!(waits.contains("1,234 records (3 MiB) are left"), "{waits}");
        assert!(waits.ends_with("terrace tiers drain 1 --force"), "{waits}");
        assert!(text(NoRoom, Draining).contains("goes on, 1,234 records"));
        assert!(text(Draining, Drained).contains("terrace tiers remove 1"));
        let again = "takes new records again; it holds 1,234 records (3 MiB)";
        assert_eq!(text(NoRoom, Working), again);
        let failed = line(Working, Failed);
        assert!(
            matches!(&failed, Some(Line::Error(text)) if text.starts_with("held 1,234 records"))
        );
    }
}
