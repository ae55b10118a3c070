//! When requests of an open loop are due.

use crate::Plan;

/// The schedule of one connection, whatever the server does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Nanoseconds between requests of this connection.
    step: f64,
    /// Nanoseconds from the start to the next one.
    next: f64,
}

impl Pace {
    /// That of connection `part`: connections take turns. `None` in a closed loop.
    pub(crate) fn of(plan: &Plan, part: usize) -> Option<Self> {
        let between = 1e9 / plan.rate?;
        Some(Self { step: between * plan.connections as f64, next: between * part as f64 })
    }

    pub(crate) fn due(&self) -> u64 {
        self.next as u64
    }

    pub(crate) fn advance(&mut self) {
        self.next += self.step;
    }
}
