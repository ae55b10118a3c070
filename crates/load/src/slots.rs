//! A run's time, divided: the warm-up, then windows, of which the steady ones count.

use crate::plan::Plan;
use crate::tally::Tally;
use std::ops::Range;
use std::time::Duration;

/// How far the rates of windows may lie apart, as a share of the highest, to count as steady.
const STEADY: f64 = 0.2;

/// Slot 0 is the warm-up, the others are the windows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    warm_up_ns: u64,
    window_ns: u64,
}

impl Slots {
    pub(crate) fn of(plan: &Plan) -> Self {
        let window_ns = plan.window.map_or(u64::MAX, nanos);
        Self { warm_up_ns: nanos(plan.warm_up), window_ns }
    }

    /// From the run's start to that of a slot, in nanoseconds; the maximum if there is no such slot.
    pub(crate) fn start(self, slot: usize) -> u64 {
        match (slot as u64).checked_sub(1) {
            None => 0,
            Some(before) => self.warm_up_ns.saturating_add(self.window_ns.saturating_mul(before)),
        }
    }

    /// How many whole windows there are until `end`; `None` without windows.
    pub(crate) fn whole(self, end: Duration) -> Option<usize> {
        let time = nanos(end).saturating_sub(self.warm_up_ns);
        (self.window_ns != u64::MAX).then_some((time / self.window_ns) as usize)
    }
}

/// In nanoseconds.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What came back, slot by slot.
pub(crate) struct Tallies {
    slots: Slots,
    list: Vec<Tally>,
    /// When the last slot of the list ends.
    end_ns: u64,
}

impl Tallies {
    pub(crate) fn new(slots: Slots) -> Self {
        Self { slots, list: vec![Tally::new()], end_ns: slots.start(1) }
    }

    /// The tally for what happens at `now`, which never goes back.
    #[inline]
    pub(crate) fn at(&mut self, now: u64) -> &mut Tally {
        while now >= self.end_ns && self.end_ns < u64::MAX {
            self.list.push(Tally::new());
            self.end_ns = self.slots.start(self.list.len());
        }
        let last = self.list.len() - 1;
        &mut self.list[last]
    }

    /// Adds another thread's.
    pub(crate) fn add(&mut self, other: Self) {
        for (slot, tally) in other.list.into_iter().enumerate() {
            while self.list.len() <= slot {
                self.list.push(Tally::new());
            }
            self.list[slot].add(tally);
        }
    }

    /// Requests per window.
    pub(crate) fn requests(&self, windows: usize) -> Vec<u64> {
        let count = |slot| self.list.get(slot).map_or(0, |tally: &Tally| tally.requests);
        (1..=windows).map(count).collect()
    }

    /// All that came in these windows, counted from 0, and the wrong values of all slots: no wrong
    /// value goes untold.
    pub(crate) fn sum(self, windows: Range<usize>) -> Tally {
        let mut sum = Tally::new();
        for (slot, tally) in self.list.into_iter().enumerate() {
            if slot > 0 && windows.contains(&(slot - 1)) {
                sum.add(tally);
            } else {
                sum.wrong += tally.wrong;
                sum.other_versions += tally.other_versions;
                tally.examples.into_iter().for_each(|text| sum.example(|| text));
            }
        }
        sum
    }
}

/// The longest stretch of windows with about the same rate, above 0; the last of several.
pub(crate) fn steady(requests: &[u64]) -> Range<usize> {
    let mut best = 0..0;
    for start in 0..requests.len() {
        let (mut least, mut most) = (u64::MAX, 0);
        for end in start + 1..=requests.len() {
            least = least.min(requests[end - 1]);
            most = most.max(requests[end - 1]);
            if most == 0 || (most - least) as f64 > STEADY * most as f64 {
                break;
            }
            if end - start >= best.len() {
                best = start..end;
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_steady_stretch_is_found() {
        assert_eq!(steady(&[100, 50, 100, 101, 99, 120, 20, 100]), 2..6);
        assert_eq!(steady(&[1, 2, 4, 8]), 3..4);
        assert_eq!(steady(&[]), 0..0);
        assert_eq!(steady(&[10, 10, 50, 50]), 2..4);
        assert_eq!(steady(&[100, 0, 0, 0]), 0..1);
    }

    #[test]
    fn slots_follow_each_other() {
        let slots = Slots { warm_up_ns: 10, window_ns: 5 };
        assert_eq!([0, 1, 2, 3].map(|slot| slots.start(slot)), [0, 10, 15, 20]);
        assert_eq!(slots.whole(Duration::from_nanos(22)), Some(2));
        let mut tallies = Tallies::new(slots);
        for now in [0, 9, 10, 14, 15, 26] {
            tallies.at(now).answered(1);
        }
        tallies.at(26).wrong += 1;
        assert_eq!(tallies.requests(3), [2, 1, 0]);
        let sum = tallies.sum(0..2);
        assert_eq!((sum.requests, sum.wrong), (3, 1));
    }
}
