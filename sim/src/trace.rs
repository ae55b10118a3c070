//! What happened last, for the report of a failure.

use std::collections::VecDeque;
use std::fmt;

const KEPT: usize = 1 << 14;
/// Stands for all keys.
pub(crate) const NO_KEY: u32 = u32::MAX;

/// In place of [`Event::b`]: an operation begins.
pub(crate) const BEGINS: u64 = u64::MAX;

/// Something that happened; `a` and `b` mean what `what` says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) step: u64,
    pub(crate) key: u32,
    pub(crate) what: &'static str,
    pub(crate) a: u64,
    pub(crate) b: u64,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>7}  ", self.step)?;
        if self.key != NO_KEY {
            write!(f, "key {:<5} ", self.key)?;
        }
        match self.b {
            BEGINS => write!(f, "{} {} begins", self.what, self.a),
            b => write!(f, "{} {} {b}", self.what, self.a),
        }
    }
}

/// The last events.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    events: VecDeque<Event>,
    /// Prints each event when it happens.
    pub(crate) prints: bool,
    /// A number that two runs of a seed have in common if they did the same.
    pub(crate) digest: u64,
}

impl Trace {
    pub(crate) fn new(prints: bool) -> Self {
        Self { prints, ..Self::default() }
    }

    pub(crate) fn note(&mut self, event: Event) {
        if self.prints {
            println!("{event}");
        }
        for word in [event.step, event.key.into(), event.a, event.b] {
            self.digest = (self.digest ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        }
        if self.events.len() == KEPT {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// The last `count` events that concern `key`.
    pub(crate) fn of_key(&self, key: u32, count: usize) -> Vec<String> {
        let concerns = |event: &&Event| event.key == key || event.key == NO_KEY;
        let mut last: Vec<_> =
            self.events.iter().rev().filter(concerns).take(count).map(Event::to_string).collect();
        last.reverse();
        last
    }
}
