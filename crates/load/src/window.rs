//! What one connection waits for.

use crate::tally::Tally;
use std::collections::VecDeque;

/// A request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Answered by values of the next so many [`Expected`].
    Get {
        keys: usize,
    },
    Store {
        /// What was missed before: no request of the workload.
        missed: bool,
    },
    Delete,
}

/// A key that was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) number: u64,
    pub(crate) value: Value,
}

/// What a key's value may be, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Each that was ever stored.
    Any,
    /// That of the version which this run has stored last.
    Version(u32),
    /// That of the version which the plan names, as this run has stored none.
    Planned(u32),
    /// None: the record was deleted.
    Absent,
}

/// Requests in flight, oldest first, each with the time it was sent.
#[derive(Debug, Default)]
pub(crate) struct Window {
    pub(crate) requests: VecDeque<(Request, u64)>,
    pub(crate) expected: VecDeque<Expected>,
    /// Records that were missed, where somebody wants to know.
    pub(crate) missed: Option<Vec<u64>>,
}

impl Window {
    /// Counts the next `keys` keys as missed.
    pub(crate) fn miss(&mut self, keys: usize, tally: &mut Tally) {
        tally.misses += keys as u64;
        let gone = self.expected.drain(..keys);
        if let Some(missed) = &mut self.missed {
            missed.extend(gone.map(|expected| expected.number));
        }
    }

    /// Counts the next `keys` keys as refused.
    pub(crate) fn refuse(&mut self, keys: usize) {
        self.expected.drain(..keys);
    }

    /// The request at the front waits for so many keys from now on.
    pub(crate) fn await_keys(&mut self, keys: usize) {
        if let Some((request, _)) = self.requests.front_mut() {
            *request = Request::Get { keys };
        }
    }
}
