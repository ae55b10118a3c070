//! Packing: assigns records their places in a segment, and writes its bytes.

use crate::platform::prefetch;
use crate::records::key::Name;
use crate::segments::layout::{
    EXTENT_HEADER, EXTENT_UNIT, Extent, Footer, PACKED_MAX, PAGE, WHOLE_MAX, finish_extent,
};
use crate::segments::page::{PAGE_HEADER, PAGE_ROOM, Starts};
use crate::segments::pages::Tables;
use std::ops::Range;
use terrace_device::AlignedBuf;

/// Records are copied from all over memory: the first lines of the eighth record ahead are prefetched.
const AHEAD: usize = 8;
const AHEAD_LINES: usize = 2;

/// A record that will be written to a segment.
#[derive(Clone, Copy)]
pub(crate) struct Item<'g, S> {
    pub(super) name: Name,
    /// The encoded record.
    pub(super) bytes: &'g [u8],
    /// The former place of the record.
    pub(super) source: S,
    /// Number of records that arrived before it.
    pub(super) arrival: u32,
    pub(super) is_manifest: bool,
    /// Bytes of key and value.
    pub(super) payload_bytes: u32,
    /// Unix seconds; 0 for never.
    pub(super) expires: u32,
    pub(super) at: At,
}

/// Where a record will lie in the segment.
#[derive(Clone, Copy)]
pub(crate) enum At {
    /// Offset in the pages' rooms, one after the other.
    Stream(u32),
    /// First unit, counted from the segment's first extent.
    Extent(u32),
}

impl<'g, S> Item<'g, S> {
    /// The item, as a large item's manifest or not.
    pub(crate) fn with_manifest(self, is_manifest: bool) -> Self {
        Self { is_manifest, ..self }
    }

    /// The item, with its bytes of key and value, and its expiry in unix seconds, 0 for never.
    pub(crate) fn with_payload(self, payload_bytes: u32, expires: u32) -> Self {
        Self { payload_bytes, expires, ..self }
    }

    /// Sets its order among records of the same name.
    pub(crate) fn set_arrival(&mut self, arrival: u32) {
        self.arrival = arrival;
    }

    /// Bytes of key and value.
    #[inline]
    pub(crate) fn payload_bytes(&self) -> u32 {
        self.payload_bytes
    }

    /// The former place of the record.
    #[inline]
    pub(crate) fn source(&self) -> &S {
        &self.source
    }

    #[inline]
    pub(crate) fn name(&self) -> Name {
        self.name
    }

    /// The encoded record.
    #[inline]
    pub(crate) fn bytes(&self) -> &'g [u8] {
        self.bytes
    }

    #[inline]
    pub(crate) fn is_manifest(&self) -> bool {
        self.is_manifest
    }

    pub(crate) fn new(name: Name, bytes: &'g [u8], source: S) -> Self {
        let (arrival, is_manifest, payload_bytes, expires) = (0, false, 0, 0);
        let at = At::Stream(0);
        Self { name, bytes, source, arrival, is_manifest, payload_bytes, expires, at }
    }
}

/// The footer as far as it follows from the records alone.
pub(crate) fn describe<S>(items: &[Item<'_, S>]) -> Footer {
    Footer {
        names: items.iter().map(|item| item.name).collect(),
        record_bytes: items.iter().map(|item| item.bytes.len() as u32).sum(),
        payload_bytes: items.iter().map(|item| item.payload_bytes).sum(),
        has_manifests: items.iter().any(|item| item.is_manifest),
        expires: last_expiry(items),
        ..Footer::default()
    }
}

/// Unix seconds at which a segment of these records should be searched for expired manifests; see [`due`].
pub(crate) fn items_due<S>(items: &[Item<'_, S>]) -> u32 {
    due(items.iter().filter(|item| item.is_manifest).map(|item| item.expires).collect())
}

/// Unix seconds at which half of the manifests that expire at these times (0 for never) have expired; 0 for never. So a
/// segment is read a few times, however many manifests it has.
pub(crate) fn due(mut expiries: Vec<u32>) -> u32 {
    expiries.retain(|&expires| expires != 0);
    expiries.sort_unstable();
    expiries.get(expiries.len() / 2).copied().unwrap_or(0)
}

/// Unix seconds from which on all of them have expired; 0 for never.
fn last_expiry<S>(items: &[Item<'_, S>]) -> u32 {
    let each = items.iter().map(|item| item.expires);
    if each.clone().any(|expires| expires == 0) { 0 } else { each.max().unwrap_or(0) }
}

/// Removes and returns records for a later segment: all but the first of those that could share bucket and fingerprint
/// in an index of any size, or their bits in a word of the log. So (name, segment) always means one record, after a
/// restart too.
pub(crate) fn defer_equal_names<'g, S>(
    items: &mut Vec<Item<'g, S>>,
    width: u32,
) -> Vec<Item<'g, S>> {
    // Usually there is none, and nothing is moved.
    let is_clash = |&at: &usize| clashes(items[at].name, items[..at].iter().map(|i| i.name), width);
    let Some(first) = (1..items.len()).find(is_clash) else { return Vec::new() };
    let mut kept: Vec<_> = items[..first].iter().map(|item| item.name).collect();
    let is_taken = |item: &mut Item<'_, S>| {
        let is_taken = clashes(item.name, kept.iter().copied(), width);
        if !is_taken {
            kept.push(item.name);
        }
        is_taken
    };
    items.extract_if(first.., is_taken).collect()
}

/// Whether a name could share bucket and fingerprint, or its bits in a word of the log, with one of those before it,
/// which must be in order.
fn clashes(name: Name, before: impl DoubleEndedIterator<Item = Name>, width: u32) -> bool {
    let mut near = before.rev().take_while(|other| name.pos - other.pos < width);
    near.any(|other| other.fingerprint == name.fingerprint || other.short() == name.short())
}

/// Gives the items places; removes and returns the latest arrivals until the rest fits.
pub(crate) fn fit<'g, S>(items: &mut Vec<Item<'g, S>>, segment_bytes: usize) -> Vec<Item<'g, S>> {
    let (mut limit, mut taken) = (items.len() as u32, Vec::new());
    loop {
        let needed = place(items);
        if needed <= segment_bytes || items.is_empty() {
            return taken;
        }
        let excess = (needed - segment_bytes) * items.len() / needed;
        limit = limit.saturating_sub(excess.max(1) as u32).min(items.len() as u32);
        // Arrival numbers have gaps after a deferral, so a round may leave out fewer than counted;
        // the next one goes on.
        taken.extend(items.extract_if(.., |item| item.arrival >= limit));
    }
}

/// Gives every item its place; returns the bytes that the segment needs.
fn place<S>(items: &mut [Item<'_, S>]) -> usize {
    // Start of the page that is being filled, in the pages' rooms, and bytes in it.
    let (mut page, mut offset) = (0usize, 0usize);
    let (mut unit, mut extents, mut straddling) = (0usize, 0, false);
    for item in items.iter_mut() {
        let bytes = item.bytes.len();
        if bytes > PACKED_MAX {
            item.at = At::Extent(unit as u32);
            unit += (EXTENT_HEADER + bytes).div_ceil(EXTENT_UNIT);
            extents += 1;
            continue;
        }
        let room = if bytes <= WHOLE_MAX { PAGE_ROOM } else { 2 * PAGE_ROOM };
        if offset + bytes > room {
            (page, offset) = (page + PAGE_ROOM, 0);
        }
        item.at = At::Stream((page + offset) as u32);
        straddling |= offset + bytes > PAGE_ROOM;
        offset += bytes;
        while offset >= PAGE_ROOM {
            (page, offset) = (page + PAGE_ROOM, offset - PAGE_ROOM);
        }
    }
    let pages = (page + offset).div_ceil(PAGE_ROOM);
    pages * PAGE + unit * EXTENT_UNIT + Footer::bytes_for(items.len(), pages, straddling, extents)
}

/// Writes pages, extents and footer into `segment` and completes `footer`.
pub(crate) fn assemble<S>(items: &[Item<'_, S>], segment: &mut AlignedBuf, footer: &mut Footer) {
    let packed: Vec<_> = items
        .iter()
        .filter_map(|item| match item.at {
            At::Stream(at) => Some((at as usize, item)),
            At::Extent(_) => None,
        })
        .collect();
    write_pages(&packed, segment, footer);
    let first_unit = footer.starts.len() * PAGE / EXTENT_UNIT;
    // Bytes without a record must be zero, not what the buffer held before.
    let mut end = first_unit * EXTENT_UNIT;
    for item in items {
        let At::Extent(unit) = item.at else { continue };
        let unit = first_unit + unit as usize;
        let start = unit * EXTENT_UNIT;
        segment[end..start].fill(0);
        end = start + EXTENT_HEADER + item.bytes.len();
        segment[start + EXTENT_HEADER..end].copy_from_slice(item.bytes);
        finish_extent(&mut segment[start..end], unit as u32, footer.seq);
        footer.extents.push(Extent {
            pos: item.name.pos,
            unit: unit as u32,
            units: (end - start).div_ceil(EXTENT_UNIT) as u32,
        });
    }
    let footer_at = segment.len() - footer.bytes();
    segment[end..footer_at].fill(0);
    footer.encode(segment);
}

fn write_pages<S>(packed: &[(usize, &Item<'_, S>)], segment: &mut [u8], footer: &mut Footer) {
    let end = packed.last().map_or(0, |(at, item)| at + item.bytes.len());
    let pages = end.div_ceil(PAGE_ROOM);
    let mut starts = vec![Starts::default(); pages];
    let (mut firsts, mut lasts) = (vec![None; pages], vec![0; pages]);
    let mut straddles = vec![false; pages];
    let mut filled = 0;
    for (n, (at, item)) in packed.iter().enumerate() {
        if let Some((_, ahead)) = packed.get(n + AHEAD) {
            prefetch::lines::<AHEAD_LINES>(ahead.bytes.as_ptr());
        }
        let page = at / PAGE_ROOM;
        starts[page].add(at % PAGE_ROOM);
        firsts[page].get_or_insert(item.name.pos);
        lasts[page] = item.name.pos;
        straddles[page] = at % PAGE_ROOM + item.bytes.len() > PAGE_ROOM;
        each_part(filled, at - filled, |_, place| segment[place].fill(0));
        each_part(*at, item.bytes.len(), |from, place| {
            segment[place.clone()].copy_from_slice(&item.bytes[from..from + place.len()]);
        });
        filled = at + item.bytes.len();
    }
    each_part(filled, pages * PAGE_ROOM - filled, |_, place| segment[place].fill(0));
    for (page, starts) in starts.into_iter().enumerate() {
        starts.finish(&mut segment[page * PAGE..(page + 1) * PAGE], page as u32, footer.seq);
    }
    // A page in which no record begins is never the first to read: it takes the first position of the page after it.
    let mut next = u32::MAX;
    for page in (0..pages).rev() {
        next = firsts[page].unwrap_or(next);
        lasts[page] = if firsts[page].is_some() { lasts[page] } else { next };
        firsts[page] = Some(next);
    }
    let firsts: Vec<_> = firsts.into_iter().flatten().collect();
    let tables = Tables::encode(&firsts, &lasts, &straddles);
    (footer.shift, footer.starts, footer.straddlers) =
        (tables.shift, tables.starts, tables.straddlers);
}

/// Splits a range of the pages' rooms at page headers: shows the offset of each part in the range, and its bytes in the
/// segment.
fn each_part(at: usize, bytes: usize, mut show: impl FnMut(usize, Range<usize>)) {
    let mut done = 0;
    while done < bytes {
        let (page, offset) = ((at + done) / PAGE_ROOM, (at + done) % PAGE_ROOM);
        let part = (bytes - done).min(PAGE_ROOM - offset);
        let start = page * PAGE + PAGE_HEADER + offset;
        show(done, start..start + part);
        done += part;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::segments::pages::PageTable;
    use std::sync::atomic::AtomicU16;

    /// Where pages have a record or less each, several can begin in one step of the page table.
    #[test]
    fn page_table_locates_every_packed_record() {
        const SEGMENT: usize = 64 << 20;
        let mut segment = AlignedBuf::zeroed(SEGMENT);
        let atomics = |codes: &[u16]| codes.iter().copied().map(AtomicU16::new).collect::<Vec<_>>();
        let mut seed = 1u64;
        for bytes in [3000, PAGE_ROOM, 4100, PACKED_MAX] {
            let record = vec![7; bytes];
            let item = |arrival| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11);
                let name = Name { pos: (seed >> 32) as u32, fingerprint: (seed >> 17) as u16 | 1 };
                Item { arrival, ..Item::new(name, &record, ()) }
            };
            let mut items: Vec<_> = (0..(SEGMENT / bytes) as u32).map(item).collect();
            items.sort_by_key(|item| item.name);
            fit(&mut items, SEGMENT);
            assert!(items.len() > SEGMENT / 2 / PACKED_MAX);
            let mut footer = describe(&items);
            assemble(&items, &mut segment, &mut footer);
            let (starts, straddlers) = (atomics(&footer.starts), atomics(&footer.straddlers));
            let table = PageTable { shift: footer.shift, starts: &starts, straddlers: &straddlers };
            for item in &items {
                let At::Stream(at) = item.at else { panic!("it is packed") };
                let page = at / PAGE_ROOM as u32;
                let range = table.locate(item.name.pos).expect("some page");
                let is_in = (range.first..range.first + u32::from(range.pages)).contains(&page);
                assert!(is_in, "{bytes} bytes in page {page}, not in {range:?}");
            }
        }
    }
}
