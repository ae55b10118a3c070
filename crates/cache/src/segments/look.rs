//! Finds a record in the pages or the extent that were read for it.

use crate::records::key::Key;
use crate::records::record::Record;
use crate::segments::layout::{EXTENT_HEADER, PAGE, check_extent};
use crate::segments::page::{PAGE_HEADER, PageHead};
use crate::segments::pages::{PageRange, RANGE_MAX};
use crate::segments::segment::{Place, Sealed};
use arrayvec::ArrayVec;
use std::ops::Range;

/// What the bytes of one place hold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// The key's record, at these bytes.
    Record(Range<usize>),
    /// Records of other keys only.
    Others,
    /// The record may begin in this page and end in the next, which was not read.
    Cut(u32),
    /// The bytes are of another seal.
    Replaced,
    /// The bytes are damaged.
    Corrupt,
}

/// Looks for `key` in the bytes that were read. The rest of a record that straddles pages is joined to it in place
/// (over the header between them), so that the record is in one piece.
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
    let start = start + EXTENT_HEADER;
    match Record::decode(record) {
        Some((found, taken)) if found.is_of(key) => Sight::Record(start..start + taken),
        Some(_) => Sight::Others,
        None => Sight::Corrupt,
    }
}

fn look_at_pages(key: &Key<'_>, sealed: Sealed, range: PageRange, bytes: &mut [u8]) -> Sight {
    let mut heads = ArrayVec::<_, RANGE_MAX>::new();
    for n in 0..range.pages as usize {
        let page = bytes.get(n * PAGE..(n + 1) * PAGE);
        let Some(head) = page.and_then(|page| PageHead::of(page, range.first + n as u32)) else {
            return Sight::Corrupt;
        };
        if head.seq() != sealed.seq {
            return Sight::Replaced;
        }
        heads.push(head);
    }
    // Bytes of the current page that were checked already.
    let mut checked = 0;
    for n in 0..range.begins as usize {
        let (start, end) = (n * PAGE, (n + 1) * PAGE);
        let Some(joined) = join(bytes, end, heads.get(n + 1)) else { return Sight::Corrupt };
        match look_at_page(key, &bytes[start..end + joined], &heads[n], checked) {
            Seen::Record(at) => return Sight::Record(start + at.start..start + at.end),
            Seen::Corrupt => return Sight::Corrupt,
            // A record that straddles out of the pages that the page table named is another one.
            Seen::Cut if range.is_open => return Sight::Cut(range.first + n as u32),
            Seen::Cut | Seen::Others => {}
        }
        checked = if joined > 0 { PageHead::end_of_sector(PAGE_HEADER + joined - 1) } else { 0 };
    }
    Sight::Others
}

/// Moves the rest of a record, at the front of the page at `at`, back over the page's header, so that it follows the
/// record's beginning. Returns its length; `None` if the bytes are damaged.
fn join(bytes: &mut [u8], at: usize, head: Option<&PageHead>) -> Option<usize> {
    let Some(head) = head else { return Some(0) };
    let rest = PAGE_HEADER..head.first();
    if !head.is_sound(&bytes[at..at + PAGE], rest.clone()) {
        return None;
    }
    bytes.copy_within(at + rest.start..at + rest.end, at);
    Some(rest.len())
}

/// What the records that begin in one page hold.
enum Seen {
    /// The key's record, at these bytes from the page's start.
    Record(Range<usize>),
    /// Records of other keys only.
    Others,
    /// The last record ends in the next page, which was not read.
    Cut,
    Corrupt,
}

/// Walks the records that begin in a page; the rest of the last one must have been joined. The first `checked` bytes
/// are sound. Checks the sectors of the record, or all if it is not found: a damaged one may have held it.
fn look_at_page(key: &Key<'_>, bytes: &[u8], head: &PageHead, checked: usize) -> Seen {
    let is_sound = |part: Range<usize>| {
        head.is_sound(bytes, part.start.max(checked)..part.end.min(PAGE).max(checked))
    };
    let key_end = key.bytes().last().copied();
    let (mut at, mut sector_end, mut seen) = (head.first(), 0, Seen::Others);
    for _ in 0..head.records() {
        if at >= sector_end {
            if !head.enters_at(at) {
                return Seen::Corrupt;
            }
            sector_end = PageHead::end_of_sector(at);
        }
        let rest = bytes.get(at..).unwrap_or_default();
        match Record::outline(rest) {
            Some((taken, end)) if Some(end) == key_end && Record::is_at(rest, key) => {
                let found = at..at + taken;
                return if is_sound(found.clone()) { Seen::Record(found) } else { Seen::Corrupt };
            }
            Some((taken, _)) => at += taken,
            // Only the last record of a page can straddle out of it.
            None => {
                seen = Seen::Cut;
                break;
            }
        }
    }
    if is_sound(PAGE_HEADER..PAGE) { seen } else { Seen::Corrupt }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::records::key::Name;
    use crate::segments::layout::PACKED_MAX;
    use crate::segments::packing::{At, Item, assemble, describe, fit};
    use crate::segments::page::PAGE_ROOM;
    use proptest::prelude::*;
    use terrace_device::AlignedBuf;

    const SEGMENT: usize = 64 << 10;
    const SEQ: u64 = 5;

    /// Record `n` as bytes, with a key of its own.
    fn record(n: usize, value_bytes: usize) -> Vec<u8> {
        let key = format!("key {n:04}");
        let mut bytes = vec![key.len() as u8, 0, value_bytes as u8, (value_bytes >> 8) as u8];
        bytes.extend_from_slice(key.as_bytes());
        bytes.extend((0..value_bytes).map(|at| (at * n) as u8));
        bytes
    }

    /// A segment, and where in its pages' rooms each of the records begins.
    fn segment(records: &[Vec<u8>]) -> (AlignedBuf, Vec<(usize, &[u8])>) {
        let step = u32::MAX / records.len() as u32;
        let name = |n: usize| Name { pos: n as u32 * step, fingerprint: 1 };
        let mut items: Vec<_> =
            records.iter().enumerate().map(|(n, bytes)| Item::new(name(n), bytes, ())).collect();
        assert!(fit(&mut items, SEGMENT).is_empty());
        let (mut bytes, mut footer) = (AlignedBuf::zeroed(SEGMENT), describe(&items));
        footer.seq = SEQ;
        assemble(&items, &mut bytes, &mut footer);
        let places = items.iter().filter_map(|item| match item.at {
            At::Stream(at) => Some((at as usize, item.bytes)),
            At::Extent(_) => None,
        });
        (bytes, places.collect())
    }

    fn key_of(record: &[u8]) -> Key<'_> {
        Key::new(&record[4..12], 0)
    }

    /// The pages that a record begins and ends in.
    fn pages_of(at: usize, bytes: usize) -> PageRange {
        let (page, end) = ((at / PAGE_ROOM) as u32, ((at + bytes - 1) / PAGE_ROOM) as u32);
        PageRange { first: page, pages: (end - page) as u8 + 1, begins: 1, is_open: false }
    }

    fn look_in(key: &Key<'_>, range: PageRange, read: &mut [u8]) -> Sight {
        look(key, Sealed { number: 0, seq: SEQ }, Place::Pages(range), read)
    }

    proptest! {
        /// With any one bit flipped, a record is found whole or the bytes are reported as damaged; and a record that is
        /// not in the pages is never reported absent where damage may hide it.
        #[test]
        fn lookup_in_damaged_pages_finds_the_record_whole_or_reports_damage(
            sizes in prop::collection::vec(prop_oneof![4 => 1usize..300, 1 => 300..PACKED_MAX - 12], 1..20),
            flip in any::<prop::sample::Index>(),
        ) {
            let records: Vec<_> = sizes.iter().enumerate().map(|(n, &bytes)| record(n, bytes)).collect();
            let (segment, places) = segment(&records);
            for (at, record) in places {
                let range = pages_of(at, record.len());
                let start = range.first as usize * PAGE;
                let sound = &segment[start..start + range.pages as usize * PAGE];
                let mut read = sound.to_vec();
                let Sight::Record(found) = look_in(&key_of(record), range, &mut read) else {
                    panic!("it is there");
                };
                prop_assert_eq!(&read[found], record);
                let mut read = sound.to_vec();
                read[flip.index(sound.len())] ^= 0x04;
                match look_in(&key_of(record), range, &mut read) {
                    Sight::Record(found) => prop_assert_eq!(&read[found], record),
                    sight => prop_assert_eq!(sight, Sight::Corrupt),
                }
                let mut read = sound[..PAGE].to_vec();
                let first = PageRange { pages: 1, is_open: true, ..range };
                let absent = look_in(&key_of(b"    another."), first, &mut read);
                prop_assert!(matches!(absent, Sight::Others | Sight::Cut(_)), "{absent:?}");
                read.copy_from_slice(&sound[..PAGE]);
                read[flip.index(PAGE)] ^= 0x04;
                prop_assert_eq!(look_in(&key_of(b"    another."), first, &mut read), Sight::Corrupt);
            }
        }

        /// Where rounding leaves open in which of several pages a record begins, all of them are searched.
        #[test]
        fn lookup_searches_all_pages_that_the_record_may_begin_in(
            sizes in prop::collection::vec(prop_oneof![1usize..300, 1000..PACKED_MAX - 12], 1..14),
            flip in any::<prop::sample::Index>(),
        ) {
            let records: Vec<_> = sizes.iter().enumerate().map(|(n, &bytes)| record(n, bytes)).collect();
            let (segment, places) = segment(&records);
            let end = places.last().map_or(0, |(at, record)| at + record.len());
            let pages = end.div_ceil(PAGE_ROOM).min(RANGE_MAX) as u8;
            let range = PageRange { first: 0, pages, begins: pages, is_open: false };
            let sound = &segment[..pages as usize * PAGE];
            for (at, record) in places {
                let (mut read, mut damaged) = (sound.to_vec(), sound.to_vec());
                let is_within = at + record.len() <= pages as usize * PAGE_ROOM;
                match look_in(&key_of(record), range, &mut read) {
                    Sight::Record(found) => prop_assert_eq!(&read[found], record),
                    sight => prop_assert!(!is_within && sight == Sight::Others),
                }
                damaged[flip.index(sound.len())] ^= 0x20;
                match look_in(&key_of(record), range, &mut damaged) {
                    Sight::Record(found) => prop_assert_eq!(&damaged[found], record),
                    sight => prop_assert!(sight == Sight::Corrupt || !is_within),
                }
            }
        }
    }

    /// Bytes within a value that look like a record are none, even if a damaged header points there.
    #[test]
    fn lookup_in_damaged_pages_finds_no_record_within_a_value() {
        let forged = record(7, 100);
        let mut host = record(1, 1400);
        host[1200..1200 + forged.len()].copy_from_slice(&forged);
        let (segment, _) = segment(&[host, record(2, 50)]);
        let range = PageRange { first: 0, pages: 1, begins: 1, is_open: true };
        let mut read = segment[..PAGE].to_vec();
        assert_eq!(look_in(&key_of(&forged), range, &mut read), Sight::Others);
        let value_bytes = PAGE_HEADER + 2;
        read[value_bytes..value_bytes + 2].copy_from_slice(&1188u16.to_le_bytes());
        assert_eq!(look_in(&key_of(&forged), range, &mut read), Sight::Corrupt);
    }
}
