//! A simulated back end: what it takes to get a record that the cache does not hold.

use std::collections::VecDeque;
use std::time::Duration;

/// Records on their way from the back end, oldest first; all take the same time.
#[derive(Debug)]
pub(crate) struct BackEnd {
    latency_ns: u64,
    /// When each is there, and its number.
    awaited: VecDeque<(u64, u64)>,
}

impl BackEnd {
    pub(crate) fn new(latency: Duration) -> Self {
        let latency_ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        Self { latency_ns, awaited: VecDeque::new() }
    }

    /// Asks for a record.
    pub(crate) fn ask(&mut self, number: u64, now: u64) {
        self.awaited.push_back((now.saturating_add(self.latency_ns), number));
    }

    /// The next record that has come.
    pub(crate) fn answer(&mut self, now: u64) -> Option<u64> {
        self.due().filter(|due| *due <= now)?;
        Some(self.awaited.pop_front()?.1)
    }

    /// When the next record comes.
    pub(crate) fn due(&self) -> Option<u64> {
        Some(self.awaited.front()?.0)
    }

    /// How many records are awaited.
    pub(crate) fn len(&self) -> usize {
        self.awaited.len()
    }
}
