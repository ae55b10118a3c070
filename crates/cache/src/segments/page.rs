//! One page of small records: its header, and which parts of it are sound.
//!
//! A header has a checksum for every sector of its page, so that a lookup checks the sectors of its record only: drives
//! write to memory, from where the processor must fetch each byte that it checks.

use crate::segments::layout::{PAGE, checksum, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use std::ops::Range;

/// Header: crc32c of the header's rest u32 | seal sequence u64 | records that begin here u16 | 0 u16
/// | per sector: crc32c u32 | per sector: offset of the first record that begins in it u16.
pub(crate) const PAGE_HEADER: usize = FIRSTS_AT + 2 * SECTORS;
/// Bytes of records in a page.
pub(crate) const PAGE_ROOM: usize = PAGE - PAGE_HEADER;
/// The part of a page with a checksum of its own; the first one excludes the header. Sectors of half the size would
/// leave less to check, for 24 bytes more in each page.
const SECTOR: usize = 1024;
const SECTORS: usize = PAGE / SECTOR;
const SUMS_AT: usize = 16;
const FIRSTS_AT: usize = SUMS_AT + 4 * SECTORS;

/// The records that begin in a page that is being written.
#[derive(Clone, Copy, Default)]
pub(crate) struct Starts {
    records: u16,
    /// Offset of the first record in each sector; 0 where none begins.
    firsts: [u16; SECTORS],
}

impl Starts {
    /// Adds the next record, which begins at this offset in the page's room.
    pub(crate) fn add(&mut self, at: usize) {
        let at = PAGE_HEADER + at;
        let first = &mut self.firsts[at / SECTOR];
        if *first == 0 {
            *first = at as u16;
        }
        self.records += 1;
    }

    /// Completes page number `number`; its records must be in place.
    pub(crate) fn finish(&self, page: &mut [u8], number: u32, seq: u64) {
        put_u64(page, 4, seq);
        put_u16(page, 12, self.records);
        put_u16(page, 14, 0);
        for (sector, first) in self.firsts.into_iter().enumerate() {
            put_u16(page, FIRSTS_AT + 2 * sector, first);
        }
        put_checksums(page, number);
    }
}

/// Puts checksums into a page; the rest of its header must be complete.
pub(crate) fn put_checksums(page: &mut [u8], number: u32) {
    for sector in 0..SECTORS {
        let sum = checksum(0, &page[bytes_of(sector)]);
        put_u32(page, SUMS_AT + 4 * sector, sum);
    }
    let sum = checksum(number, &page[4..PAGE_HEADER]);
    put_u32(page, 0, sum);
}

/// The bytes of a page that a sector's checksum covers.
fn bytes_of(sector: usize) -> Range<usize> {
    PAGE_HEADER.max(sector * SECTOR)..(sector + 1) * SECTOR
}

/// The header of a page, with a correct checksum.
#[derive(Clone, Copy)]
pub(crate) struct PageHead([u8; PAGE_HEADER]);

impl PageHead {
    /// The header of page number `number`; `None` if its checksum does not fit.
    #[inline]
    pub(crate) fn of(page: &[u8], number: u32) -> Option<Self> {
        let head: &[u8; PAGE_HEADER] = page.first_chunk().filter(|_| page.len() >= PAGE)?;
        (u32_at(head, 0) == checksum(number, &head[4..])).then_some(Self(*head))
    }

    /// Sequence of the seal that wrote the page.
    pub(crate) fn seq(&self) -> u64 {
        u64_at(&self.0, 4)
    }

    /// Records that begin in the page.
    pub(crate) fn records(&self) -> u16 {
        u16_at(&self.0, 12)
    }

    /// Where the first record begins; `PAGE` if none does. Bytes before it belong to a record of the page before.
    #[inline]
    pub(crate) fn first(&self) -> usize {
        let first = (0..SECTORS).find_map(|sector| self.first_in(sector));
        first.map_or(PAGE, |first| first.clamp(PAGE_HEADER, PAGE))
    }

    /// Whether a walk from record to record enters a sector at `at` where its first record begins, as the header says.
    /// So a wrong length in a damaged sector never misleads a walk in the next one.
    #[inline]
    pub(crate) fn enters_at(&self, at: usize) -> bool {
        self.first_in(at / SECTOR) == Some(at)
    }

    fn first_in(&self, sector: usize) -> Option<usize> {
        let first = (sector < SECTORS).then(|| u16_at(&self.0, FIRSTS_AT + 2 * sector))?;
        (first != 0).then_some(first.into())
    }

    /// Whether the sectors with these bytes of the page have correct checksums.
    #[inline]
    pub(crate) fn is_sound(&self, page: &[u8], bytes: Range<usize>) -> bool {
        let sum = |sector| u32_at(&self.0, SUMS_AT + 4 * sector);
        let mut sectors = bytes.start / SECTOR..bytes.end.div_ceil(SECTOR).min(SECTORS);
        bytes.is_empty()
            || sectors.all(|sector| checksum(0, &page[bytes_of(sector)]) == sum(sector))
    }

    /// The end of the sector that the byte at `at` is in.
    #[inline]
    pub(crate) fn end_of_sector(at: usize) -> usize {
        (at / SECTOR + 1) * SECTOR
    }
}

/// The header of a page if all of its checksums are correct.
pub(crate) fn check_page(page: &[u8], number: u32) -> Option<PageHead> {
    PageHead::of(page, number).filter(|head| head.is_sound(page, PAGE_HEADER..PAGE))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn page() -> Vec<u8> {
        let mut page: Vec<u8> = (0..PAGE).map(|at| ((at * at) >> 3) as u8).collect();
        let mut starts = Starts::default();
        [10, 900, 1000, 3500, 3600].into_iter().for_each(|at| starts.add(at));
        starts.finish(&mut page, 7, 1 << 40);
        page
    }

    #[test]
    fn finished_page_has_correct_checksums() {
        let page = page();
        let head = check_page(&page, 7).expect("it is sound");
        assert_eq!((head.seq(), head.records(), head.first()), (1 << 40, 5, PAGE_HEADER + 10));
        assert!(check_page(&page, 8).is_none());
        assert!(check_page(&page[..PAGE - 1], 7).is_none());
        let mut empty = vec![0; PAGE];
        Starts::default().finish(&mut empty, 0, 1);
        assert_eq!(check_page(&empty, 0).expect("it is sound").first(), PAGE);
    }

    #[test]
    fn walk_enters_each_sector_at_its_first_record() {
        let page = page();
        let head = PageHead::of(&page, 7).expect("it is sound");
        for (at, expected) in [
            (PAGE_HEADER + 10, true),
            (PAGE_HEADER + 11, false),
            (PAGE_HEADER + 900, false),
            (PAGE_HEADER + 1000, true),
            (PAGE_HEADER + 1001, false),
            (2100, false),
            (PAGE_HEADER + 3500, true),
            (PAGE_HEADER + 3600, false),
            (PAGE, false),
            (PAGE + 600, false),
        ] {
            assert_eq!(head.enters_at(at), expected, "{at}");
        }
        assert_eq!([0, 1023, 1024].map(PageHead::end_of_sector), [1024, 1024, 2048]);
    }

    /// Each bit of a page is covered by one checksum of a sector, or by the header's.
    #[test]
    fn damage_is_found_in_its_sector_only() {
        const PARTS: [(usize, usize); 5] =
            [(PAGE_HEADER, 1024), (1024, 2048), (1200, 1201), (2000, 3000), (4095, 4096)];
        let mut page = page();
        for at in 0..PAGE {
            page[at] ^= 0x10;
            assert!(check_page(&page, 7).is_none(), "{at}");
            let head = PageHead::of(&page, 7);
            assert_eq!(head.is_some(), at >= PAGE_HEADER, "{at}");
            for (from, to) in PARTS {
                let is_hit = (from / SECTOR..to.div_ceil(SECTOR)).contains(&(at / SECTOR));
                let sound = head.map(|head| head.is_sound(&page, from..to));
                assert!(sound.is_none_or(|sound| sound != is_hit), "{at}: {from} to {to}");
            }
            page[at] ^= 0x10;
        }
        let head = check_page(&page, 7).expect("it is sound");
        page[PAGE_HEADER] ^= 1;
        assert!(head.is_sound(&page, PAGE_HEADER..PAGE_HEADER), "nothing is sound");
    }
}
