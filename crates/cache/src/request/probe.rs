//! What a request has to read from a drive, and what it has seen there so far.

use crate::segments::segment::{Place, ReadPlan, Sealed};
use std::ops::Range;

/// The flash copies that may be the wanted record, newest first, and which of them were looked at.
/// Owned by the request; holds no reference into the cache.
#[derive(Clone, Debug)]
pub struct Probe {
    pub(super) plan: ReadPlan,
    pub(super) place: Place,
    /// The segment that is being looked at.
    pub(super) sealed: Sealed,
    /// Places in it that were looked at before this one.
    pub(super) skip: u16,
    /// One of those could not be read.
    pub(super) unreadable: bool,
    /// Segments that were looked at and do not hold the key's record.
    pub(super) rejected: Vec<Rejected>,
    /// Where in the bytes that were read the record is.
    pub(super) found: Option<Range<usize>>,
}

/// A segment that was looked at in vain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rejected {
    pub(super) sealed: Sealed,
    /// The page could not be read or did not check out: the record may have been there.
    pub(super) unreadable: bool,
}

impl Probe {
    /// What to read next.
    pub fn plan(&self) -> ReadPlan {
        self.plan
    }

    /// A page that may have held the record could not be read or did not check out.
    pub fn met_unreadable(&self) -> bool {
        self.rejected.iter().any(|rejected| rejected.unreadable)
    }

    pub(crate) fn was_rejected(&self, sealed: Sealed) -> bool {
        self.rejected.iter().any(|rejected| rejected.sealed == sealed)
    }
}
