//! `stats extstore`: every place for a segment, as memcached lists its pages.

use super::walk::PIECE_BYTES;
use super::{Listing, Source};
use std::io::Write;
use std::ops::Range;
use std::vec::IntoIter;
use terrace_cache::{Cache, SegmentStats};

/// What is still to be listed.
#[derive(Debug)]
pub(super) struct Segments {
    /// Places of all tiers.
    places: Range<u64>,
    /// Segments that hold records, in the order of places.
    used: std::iter::Peekable<IntoIter<SegmentStats>>,
    /// Where the places of each tier end.
    ends: Vec<u64>,
}

/// Begins the list. A page is a segment here: its version is the number of its seal, its bytes are
/// those of its live records, and the bucket that it goes back to is its tier. All of them are of one
/// kind, so the bucket that says what a page is for is always 0.
pub(crate) fn begin(cache: &Cache) -> Listing {
    let mut ends: Vec<u64> = Vec::new();
    for tier in cache.stats().tiers {
        ends.push(ends.last().unwrap_or(&0) + tier.segments);
    }
    let places = 0..ends.last().copied().unwrap_or(0);
    let used = cache.segments().into_iter().peekable();
    let source = Source::Segments(Segments { places, used, ends });
    Listing { source, terminator: Some(b"END\r\n".to_vec()) }
}

impl Segments {
    /// The next piece.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        while out.len() < PIECE_BYTES
            && let Some(place) = self.places.next()
        {
            let used = self.used.next_if(|segment| segment.place == place);
            let (version, bytes) = used.map_or((0, 0), |used| (used.sequence, used.live_bytes));
            let tier = self.ends.partition_point(|&end| end <= place);
            // Writing to a `Vec` never fails.
            let _ = write!(
                out,
                "STAT {place}:version {version}\r\nSTAT {place}:bytes {bytes}\r\n\
                 STAT {place}:bucket 0\r\nSTAT {place}:free_bucket {tier}\r\n"
            );
        }
        (!out.is_empty()).then_some(out)
    }
}
