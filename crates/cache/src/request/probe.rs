//! Looking for a record in the pages that were read.

use crate::records::key::Key;
use crate::records::record::Record;
use crate::request::session::ReadPlan;
use crate::segments::layout::{NO_FIRST, PAGE, PAGE_HEADER, PAGE_ROOM, check_extent, check_page};
use crate::segments::pages::{PageRange, RANGE_MAX};
use crate::segments::segment::{Place, Sealed};
use arrayvec::ArrayVec;
use std::ops::Range;

/// The flash copies that may be the wanted record, newest first, and which of them were looked at.
/// Owned by the request; holds no reference into the cache.
#[derive(Clone, Debug)]
pub struct Probe {
    pub(crate) plan: ReadPlan,
    pub(crate) place: Place,
    /// The segment that is being looked at.
    pub(crate) sealed: Sealed,
    /// Places in it that were looked at before this one.
    pub(crate) skip: u16,
    /// One of those could not be read.
    pub(crate) unreadable: bool,
    /// Segments that were looked at and do not hold the key's record.
    pub(crate) rejected: Vec<Rejected>,
    /// Where in the bytes that were read the record is.
    pub(crate) found: Option<Range<usize>>,
}

/// A segment that was looked at in vain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rejected {
    pub(crate) sealed: Sealed,
    /// The page could not be read or did not check out: the record may have been there.
    pub(crate) unreadable: bool,
}

impl Probe {
    /// What to read next.
    pub fn plan(&self) -> ReadPlan {
        self.plan
    }

    pub(crate) fn was_rejected(&self, sealed: Sealed) -> bool {
        self.rejected.iter().any(|rejected| rejected.sealed == sealed)
    }
}

/// What was found in the bytes of one place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// The key's record, here in the bytes.
    Record(Range<usize>),
    /// Records of other keys only.
    Others,
    /// The record may begin in this page and ends in the next, which was not read.
    Cut(u32),
    /// The bytes are of another seal.
    Replaced,
    /// The bytes do not check out.
    Corrupt,
}

/// Looks for `key` in what was read. Pages are joined in place (the headers between them are
/// overwritten), so that a record that straddles two is in one piece.
pub(crate) fn look(key: &Key<'_>, sealed: Sealed, place: Place, bytes: &mut [u8]) -> Sight {
    match place {
        Place::Extent { unit, start } => look_at_extent(key, sealed, unit, start as usize, bytes),
        Place::Pages(range) => look_at_pages(key, sealed, range, bytes),
    }
}

fn look_at_extent(key: &Key<'_>, sealed: Sealed, unit: u32, start: usize, bytes: &[u8]) -> Sight {
    let Some((seq, record)) = bytes.get(start..).and_then(|bytes| check_extent(bytes, unit)) else {
        return Sight::Corrupt;
    };
    if seq != sealed.seq {
        return Sight::Replaced;
    }
    let start = start + crate::segments::layout::EXTENT_HEADER;
    match Record::decode(record) {
        Some((found, taken)) if found.is_of(key) => Sight::Record(start..start + taken),
        Some(_) => Sight::Others,
        None => Sight::Corrupt,
    }
}

fn look_at_pages(key: &Key<'_>, sealed: Sealed, range: PageRange, bytes: &mut [u8]) -> Sight {
    let pages = range.pages as usize;
    let mut runs = ArrayVec::<_, RANGE_MAX>::new();
    for n in 0..pages {
        let page = bytes.get(n * PAGE..(n + 1) * PAGE);
        let Some(header) = page.and_then(|page| check_page(page, range.first + n as u32)) else {
            return Sight::Corrupt;
        };
        if header.seq != sealed.seq {
            return Sight::Replaced;
        }
        runs.push(match header.first {
            NO_FIRST => (0, 0),
            first => (usize::from(header.records), usize::from(first) + n * PAGE_ROOM),
        });
    }
    let end = PAGE + (pages - 1) * PAGE_ROOM;
    for n in 1..pages {
        bytes.copy_within(n * PAGE + PAGE_HEADER..(n + 1) * PAGE, PAGE + (n - 1) * PAGE_ROOM);
    }
    runs.into_iter()
        .enumerate()
        .map(|(n, (records, first))| {
            let page = range.first + n as u32;
            match look_at_run(key, &bytes[..end], records, PAGE_HEADER + first, page) {
                // A record that straddles out of what the page table told to read is another one.
                Sight::Cut(_) if !range.is_open => Sight::Others,
                sight => sight,
            }
        })
        .find(|sight| *sight != Sight::Others)
        .unwrap_or(Sight::Others)
}

/// Walks `records` records that begin at `at`, all of page number `page`.
fn look_at_run(key: &Key<'_>, bytes: &[u8], records: usize, mut at: usize, page: u32) -> Sight {
    let key_end = key.bytes.last().copied();
    for _ in 0..records {
        let rest = bytes.get(at..).unwrap_or_default();
        match Record::outline(rest) {
            Some((taken, end)) if Some(end) == key_end && Record::is_at(rest, key) => {
                return Sight::Record(at..at + taken);
            }
            Some((taken, _)) => at += taken,
            // Only the last record of a page can straddle out of it.
            None => return Sight::Cut(page),
        }
    }
    Sight::Others
}
