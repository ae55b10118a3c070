//! Looking for a record on tiers, read by read.
//!
//! 1. [`Session::get`] or [`Session::update`] returns a [`Search`] where it needs a read.
//! 2. The caller reads [`Search::plan`] and shows it to [`Search::take`], which says whether to read again.
//! 3. The same call of the session with [`Search::evidence`] then has its result, or returns the next search: the record
//!    may have moved meanwhile.

use crate::records::key::Name;
use crate::segments::segment::{Place, ReadPlan, Sealed};
use crate::shard::{Candidates, Shard};
use std::fmt;
use std::ops::Range;

/// The sealed records that may be the wanted one, newest first, and which of them were checked. Owned by the request;
/// holds no reference into the cache.
pub struct Search {
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
    /// The record within the bytes that were read; empty while there is none.
    pub(super) found: Range<u32>,
}

/// The allocator is quick with no more.
const _: () = assert!(size_of::<Search>() <= 96);

impl fmt::Debug for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Search").field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// A segment in which the record was not found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rejected {
    pub(super) sealed: Sealed,
    /// The page could not be read or was damaged: the record may have been there.
    pub(super) unreadable: bool,
}

/// What was found out on tiers about one key.
#[derive(Clone, Copy)]
pub struct Evidence<'a> {
    pub(super) search: &'a Search,
    /// The bytes of the last read; looked at only where they hold the record.
    pub(super) bytes: &'a [u8],
}

impl<'a> Evidence<'a> {
    /// The encoded record; empty if there is none.
    pub(super) fn record_bytes(&self) -> &'a [u8] {
        let Range { start, end } = self.search.found;
        self.bytes.get(start as usize..end as usize).unwrap_or_default()
    }

    /// See [`Search::met_unreadable`].
    pub fn met_unreadable(&self) -> bool {
        self.search.met_unreadable()
    }
}

/// What comes after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is known whether the bytes hold the record: call the session again, with evidence.
    Known,
    /// The segment was moved or its place reused meanwhile: call the session again, without evidence.
    Moved,
    /// Not in these pages: read [`Search::plan`], which has the next.
    Read,
}

impl Search {
    /// The next read.
    pub fn plan(&self) -> ReadPlan {
        self.plan
    }

    /// Whether a page that may have held the record could not be read or was damaged.
    pub fn met_unreadable(&self) -> bool {
        self.rejected.iter().any(|rejected| rejected.unreadable)
    }

    /// What the bytes show that [`Search::take`] has taken.
    pub fn evidence<'a>(&'a self, bytes: &'a [u8]) -> Evidence<'a> {
        Evidence { search: self, bytes }
    }

    pub(crate) fn was_rejected(&self, sealed: Sealed) -> bool {
        self.rejected.iter().any(|rejected| rejected.sealed == sealed)
    }
}

/// The read of the newest candidate that was not checked yet.
pub(crate) fn next_search(
    shard: &Shard,
    candidates: &mut Candidates,
    name: Name,
    before: Option<&Search>,
) -> Option<Box<Search>> {
    candidates.retain(|sealed| before.is_none_or(|search| !search.was_rejected(*sealed)));
    // A segment that is dropped while its read is planned is no candidate any more.
    while let Some(newest) = candidates.iter().copied().max_by_key(|sealed| sealed.seq) {
        if let Some((place, plan)) = shard.segments().plan(newest, name.pos, 0) {
            let rejected = before.map_or_else(Vec::new, |search| search.rejected.clone());
            let (skip, unreadable, found) = (0, false, 0..0);
            return Some(Box::new(Search {
                plan,
                place,
                sealed: newest,
                skip,
                unreadable,
                rejected,
                found,
            }));
        }
        candidates.retain(|sealed| *sealed != newest);
    }
    None
}
