//! What remains to be recovered of a shard.

use crate::log::replay::Logged;
use crate::records::key::Name;
use crate::segments::segment::SlotId;
use std::cmp::Reverse;
use std::collections::HashSet;

/// A shard with sealed records that are not recovered yet; records of the names in `changed` must not come back.
#[derive(Default)]
pub(crate) struct Recovering {
    segments: Vec<(SlotId, u32, Logged)>,
    /// Names that were changed since the start.
    changed: HashSet<Name>,
}

impl Recovering {
    /// Adds a name that the start itself changes.
    pub(crate) fn add_change(&mut self, name: Name) {
        self.changed.insert(name);
    }

    /// Adds a segment to recover at `place`, with the number `slot` in the log.
    pub(crate) fn add_segment(&mut self, place: SlotId, slot: u32, logged: Logged) {
        self.segments.push((place, slot, logged));
    }

    /// Sorts the segments, the newest first, and returns their numbers.
    pub(crate) fn sort(&mut self) -> HashSet<u16> {
        self.segments.sort_unstable_by_key(|(.., logged)| Reverse(logged.seat().seq));
        self.segments.iter().map(|(.., logged)| logged.seat().number).collect()
    }

    /// The segments, each with its place, its slot number in the log, and its log entry.
    pub(crate) fn segments(&self) -> &[(SlotId, u32, Logged)] {
        &self.segments
    }

    /// Names that were changed since the start.
    pub(crate) fn into_changed(self) -> HashSet<Name> {
        self.changed
    }

    /// Adds a changed name; `false` if it was added before, or there is nothing to recover.
    pub(crate) fn note(&mut self, name: Name) -> bool {
        !self.segments.is_empty() && self.changed.insert(name)
    }

    /// Whether a record of the name may still be recovered: it was not changed since the start.
    pub(crate) fn may_hold(&self, name: Name) -> bool {
        !self.segments.is_empty() && !self.changed.contains(&name)
    }

    /// The places and log slots of the segments.
    pub(crate) fn places(&self) -> impl Iterator<Item = (SlotId, u32)> {
        self.segments.iter().map(|&(place, slot, _)| (place, slot))
    }
}
