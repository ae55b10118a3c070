//! The reads that a lookup needs from tiers, and its results so far.

use crate::segments::segment::{Place, ReadPlan, Sealed};
use std::ops::Range;

/// The sealed records that may be the wanted one, newest first, and which of them were checked. Owned by the request;
/// holds no reference into the cache.
#[derive(Clone, Debug)]
pub struct Probe {
    pub(super) plan: ReadPlan,
    pub(super) place: Place,
    /// The segment of the present read.
    pub(super) sealed: Sealed,
    /// Places in it that were checked before this one.
    pub(super) skip: u16,
    /// One of these could not be read.
    pub(super) unreadable: bool,
    /// Segments that were checked and do not hold the key's record.
    pub(super) rejected: Vec<Rejected>,
    /// The record within the bytes that were read.
    pub(super) found: Option<Range<usize>>,
}

/// A segment in which the record was not found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rejected {
    pub(super) sealed: Sealed,
    /// The page could not be read or was damaged: the record may have been there.
    pub(super) unreadable: bool,
}

impl Probe {
    /// The next read.
    pub fn plan(&self) -> ReadPlan {
        self.plan
    }

    /// Whether a page that may have held the record could not be read or was damaged.
    pub fn met_unreadable(&self) -> bool {
        self.rejected.iter().any(|rejected| rejected.unreadable)
    }

    pub(crate) fn was_rejected(&self, sealed: Sealed) -> bool {
        self.rejected.iter().any(|rejected| rejected.sealed == sealed)
    }
}
