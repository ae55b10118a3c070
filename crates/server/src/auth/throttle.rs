//! The rate at which wrong passwords are answered.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time between two answers: 20 a second.
const SPACING: Duration = Duration::from_millis(50);

/// Spaces the answers to wrong passwords and tokens of all connections, so that at most 20 a second can be tried. Right
/// ones never ask it.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    /// The earliest time of the next answer. A lock of its own: no other is taken while it is held.
    next: Mutex<Option<Instant>>,
}

impl Throttle {
    /// Whether a failure may be answered at `now`; if so, the next one may be after [`SPACING`].
    pub(crate) fn may_answer(&self, now: Instant) -> bool {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let may = next.is_none_or(|next| next <= now);
        if may {
            *next = Some(now + SPACING);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_failures_are_answered_in_any_second() {
        let (throttle, begin) = (Throttle::default(), Instant::now());
        let times = (0..3000).map(|ms| begin + Duration::from_millis(ms));
        let answered: Vec<_> = times.filter(|now| throttle.may_answer(*now)).collect();
        assert_eq!(answered.len(), 60);
        for from in &answered {
            let within = |at: &&Instant| (*from..*from + Duration::from_secs(1)).contains(*at);
            assert!(answered.iter().filter(within).count() <= 20);
        }
    }
}
