//! When requests of an open loop are due.

use crate::plan::{Gaps, Plan};
use crate::{etc, keys};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// The schedule of one connection, whatever the server does.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Nanoseconds between requests of this connection, or its batches, in the mean.
    step: f64,
    /// Nanoseconds from the start to the next one.
    next: f64,
    random: Option<SmallRng>,
}

impl Pace {
    /// That of connection `part`: connections take turns, or have gaps of their own. `None` in a
    /// closed loop.
    pub(crate) fn of(plan: &Plan, part: usize) -> Option<Self> {
        let at_once = if plan.batch { plan.depth } else { 1 };
        let between = 1e9 * at_once as f64 / plan.rate?;
        let random = (plan.gaps == Gaps::Etc)
            .then(|| SmallRng::seed_from_u64(keys::mix(plan.seed ^ !(part as u64))));
        Some(Self { step: between * plan.connections as f64, next: between * part as f64, random })
    }

    pub(crate) fn due(&self) -> u64 {
        self.next as u64
    }

    pub(crate) fn advance(&mut self) {
        self.next += match &mut self.random {
            Some(random) => self.step * etc::gap(random.random()),
            None => self.step,
        };
    }
}
