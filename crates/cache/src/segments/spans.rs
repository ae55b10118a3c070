//! Where the records of a whole segment lie in the bytes read of it.

use crate::records::record::Record;
use crate::segments::layout::{EXTENT_HEADER, EXTENT_UNIT, PAGE, check_extent};
use crate::segments::page::{PAGE_HEADER, PAGE_ROOM, check_page};
use crate::segments::segment::{Sealed, SegmentTable};
use std::ops::Range;

/// Shows the records of a whole segment in `buffer`, and `None` for every damaged page or extent. Joins its pages in
/// place.
pub(crate) fn each_record<E>(
    segments: &SegmentTable,
    sealed: Sealed,
    buffer: &mut [u8],
    mut visit: impl FnMut(Option<&[u8]>) -> Result<(), E>,
) -> Result<(), E> {
    let spans = spans(segments, sealed, buffer);
    spans.into_iter().try_for_each(|span| visit(span.map(|span| &buffer[span])))
}

/// Where the records of a whole segment lie in `buffer`; `None` for every damaged page or extent. Joins its pages in
/// place.
pub(crate) fn spans(
    segments: &SegmentTable,
    sealed: Sealed,
    buffer: &mut [u8],
) -> Vec<Option<Range<usize>>> {
    let mut spans = Vec::with_capacity(segments.usage(sealed.number).records as usize);
    for extent in segments.extents(sealed.number) {
        let at = extent.unit as usize * EXTENT_UNIT;
        let checked = buffer.get(at..).and_then(|bytes| check_extent(bytes, extent.unit));
        let record = checked.filter(|(seq, _)| *seq == sealed.seq).map(|(_, record)| record.len());
        let start = at + EXTENT_HEADER;
        spans.push(record.map(|bytes| start..start + bytes));
    }
    let pages = segments.pages(sealed.number);
    for run in join_pages(buffer, pages, sealed.seq) {
        let Some(Run { mut at, records, end }) = run else {
            spans.push(None);
            continue;
        };
        for _ in 0..records {
            let Some((_, taken)) = buffer.get(at..end).and_then(Record::decode) else { break };
            spans.push(Some(at..at + taken));
            at += taken;
        }
    }
    spans
}

/// The records that begin in one page, after pages were joined.
struct Run {
    at: usize,
    records: u16,
    /// Bytes from here on may be damaged: a record that reaches beyond is.
    end: usize,
}

/// Removes the page headers from the first `pages` of a segment, so that records that straddle pages are in one piece.
/// Returns where the records of each page begin; `None` for a damaged page.
fn join_pages(segment: &mut [u8], pages: usize, seq: u64) -> Vec<Option<Run>> {
    let mut runs: Vec<Option<Run>> = Vec::with_capacity(pages);
    for page in 0..pages {
        let bytes = &segment[page * PAGE..(page + 1) * PAGE];
        let head = check_page(bytes, page as u32).filter(|head| head.seq() == seq);
        let end = (page + 1) * PAGE_ROOM;
        if let (Some(_), Some(Some(before))) = (&head, runs.last_mut()) {
            before.end = end;
        }
        runs.push(head.map(|head| {
            let at = page * PAGE_ROOM + head.first() - PAGE_HEADER;
            Run { at, records: head.records(), end }
        }));
        segment.copy_within(page * PAGE + PAGE_HEADER..(page + 1) * PAGE, page * PAGE_ROOM);
    }
    runs
}
