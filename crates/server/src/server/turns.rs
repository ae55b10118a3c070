//! Who gets a turn next: connections whose turns are short before those that send much.
//!
//! A turn that sends a part of a large item, or many replies, takes a hundred times as long as that of a small
//! request. In each loop of a worker every connection of the first kind has its turn, and those of the second kind
//! one after the other for [`LONG_TURNS`]; the others of them stay first in line.

use super::connection::Connection;
use super::slab::Id;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long turns of the second kind take in one loop, but for the last of them.
const LONG_TURNS: Duration = Duration::from_millis(1);

/// Connections that are to have a turn.
#[derive(Default)]
pub(crate) struct Turns {
    short: VecDeque<Id>,
    long: VecDeque<Id>,
}

impl Turns {
    /// Lists a connection, unless it is.
    #[inline]
    pub(crate) fn add(&mut self, connection: &mut Connection) {
        if !connection.is_ready {
            connection.is_ready = true;
            let list = if connection.is_long { &mut self.long } else { &mut self.short };
            list.push_back(connection.id);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.short.is_empty() && self.long.is_empty()
    }

    /// Connections that have a short turn in this loop, as far as they are listed.
    pub(crate) fn short(&self) -> &VecDeque<Id> {
        &self.short
    }

    pub(crate) fn next_short(&mut self) -> Option<Id> {
        self.short.pop_front()
    }

    /// Whether any is to have a long turn.
    pub(crate) fn are_long(&self) -> bool {
        !self.long.is_empty()
    }

    /// The next one that has a long turn in this loop, of which the first began at `since`.
    pub(crate) fn next_long(&mut self, since: Instant) -> Option<Id> {
        if since.elapsed() < LONG_TURNS { self.long.pop_front() } else { None }
    }
}
