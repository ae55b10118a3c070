//! What a tier is doing, as statistics tell it.

use std::time::Duration;
use terrace_cache::{Cache, TierState, TierStats, display_bytes, display_count};

/// A drain that has lasted for less says nothing of its rate.
const LEAST: Duration = Duration::from_secs(1);
/// The number in metrics of a tier whose drive was not there at the start; [`TierState::number`] has the others.
const ABSENT: u64 = 6;

/// Whether the server was started without the tier's drive: a drive that was opened has room.
pub(crate) fn is_absent(tier: &TierStats) -> bool {
    tier.state == TierState::Failed && tier.capacity_bytes == 0
}

pub(crate) fn name(tier: &TierStats) -> &'static str {
    if is_absent(tier) { "absent" } else { tier.state.name() }
}

/// Its number in metrics.
pub(crate) fn number(tier: &TierStats) -> u64 {
    if is_absent(tier) { ABSENT } else { tier.state.number() }
}

/// By tier, whether it is absent.
pub(crate) fn absent(cache: &Cache) -> Vec<bool> {
    cache.stats().tiers.iter().map(is_absent).collect()
}

/// Records and their bytes, in words.
pub(crate) fn held(records: u64, bytes: u64) -> String {
    let plural = if records == 1 { "" } else { "s" };
    format!("{} record{plural} ({})", display_count(records), display_bytes(bytes))
}

/// Seconds until the tier's drain has moved everything, at the rate since it began, rounded up; `None` without a drain,
/// and while that is unknown.
pub(crate) fn drain_seconds_left(tier: &TierStats) -> Option<u64> {
    let drain = tier.drain.as_ref()?;
    let moved = drain.began_with.checked_sub(drain.bytes_left)?;
    match drain.bytes_left {
        0 => Some(0),
        _ if moved == 0 || drain.lasted < LEAST => None,
        left => {
            let seconds = left as f64 * drain.lasted.as_secs_f64() / moved as f64;
            Some(seconds.ceil() as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_cache::{DrainMode, DrainStats};

    #[test]
    fn tier_is_absent_if_its_drive_was_never_opened() {
        let tier =
            |state, capacity_bytes| TierStats { state, capacity_bytes, ..TierStats::default() };
        let told = |tier: &TierStats| (name(tier), number(tier));
        assert_eq!(told(&tier(TierState::Failed, 0)), ("absent", 6));
        assert_eq!(told(&tier(TierState::Failed, 1)), ("failed", 4));
        assert_eq!(told(&tier(TierState::Removed, 0)), ("removed", 5));
    }

    #[test]
    fn seconds_left_follow_from_the_rate_so_far() {
        let left = |bytes_left, millis| {
            let (mode, began, began_with) = (DrainMode::KeepAll, 100, 1000);
            let lasted = Duration::from_millis(millis);
            let drain =
                DrainStats { mode, began, lasted, began_with, segments_left: 1, bytes_left };
            drain_seconds_left(&TierStats { drain: Some(drain), ..TierStats::default() })
        };
        assert_eq!(left(1000, 10_000), None);
        assert_eq!(left(900, 900), None, "it has just begun");
        assert_eq!(left(900, 10_000), Some(90));
        assert_eq!(left(900, 1500), Some(14), "of 13.5");
        assert_eq!(left(900, 1480), Some(14), "of 13.3");
        assert_eq!(left(1, 400_000), Some(1), "of 0.4");
        assert_eq!(left(0, 10_000), Some(0));
        assert_eq!(left(1100, 10_000), None, "it has more than at the beginning");
        assert_eq!(drain_seconds_left(&TierStats::default()), None);
    }
}
