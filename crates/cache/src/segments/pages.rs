//! The page of a sealed segment that holds a record, from two bytes of DRAM per page.
//!
//! Records are in hash order, so a record's position gives its page roughly. The table holds for each page the distance
//! of its first position from that of an even distribution, in steps of 2^shift (15 bits), and whether the page before
//! ends within the same step (1 bit).
//! Interpolation search over such a table is described by Perl, Itai and Avni ("Interpolation Search",
//! CACM 1978); here the table is exact and the search walks a page or two.

use std::sync::atomic::{AtomicU16, Ordering};

/// No record straddles out of this page.
const NONE: u16 = 0x7fff;
/// Offsets are within this range; it excludes the value of `NONE`.
const OFFSETS: std::ops::Range<i64> = -(1 << 14)..(1 << 14) - 1;
/// With this shift positions have 13 bits and every offset fits.
const SHIFT_MAX: u8 = 19;

/// Pages that one lookup reads, at most. Of pages with a record or less each, thousands to a segment, one in some ten
/// thousand shares its step with two more; each further one is hundreds of times as rare.
pub(crate) const RANGE_MAX: usize = 8;

/// Pages to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRange {
    pub(super) first: u32,
    pub(super) pages: u8,
    /// The record may begin in the first `begins` of them; it may straddle into the one behind these.
    pub(super) begins: u8,
    /// The record may straddle out of the last of these pages.
    pub(super) is_open: bool,
}

impl PageRange {
    /// One page, out of which the record may straddle.
    pub(crate) fn open(page: u32) -> Self {
        Self { first: page, pages: 1, begins: 1, is_open: true }
    }

    /// `page` and the one after it, for a record that begins in `page`.
    pub(crate) fn straddling(page: u32) -> Self {
        Self { first: page, pages: 2, begins: 1, is_open: false }
    }
}

/// The encoded tables of one segment, as built at the seal.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tables {
    pub(super) shift: u8,
    pub(super) starts: Vec<u16>,
    pub(super) straddlers: Vec<u16>,
}

/// The position at which `page` would begin if records were evenly distributed over `pages`, in steps of 2^shift.
fn even(page: usize, pages: usize, shift: u8) -> i64 {
    ((((page as u64) << 32) / pages as u64) >> shift) as i64
}

fn offset(pos: u32, page: usize, pages: usize, shift: u8) -> i64 {
    i64::from(pos >> shift) - even(page, pages, shift)
}

impl Tables {
    /// Encodes, for every page, the positions of the first and of the last record that begin in it, and whether the
    /// last one straddles into the next page. All must be ascending.
    pub(crate) fn encode(firsts: &[u32], lasts: &[u32], straddles: &[bool]) -> Self {
        let pages = firsts.len();
        let fits = |shift: &u8| {
            let mut positions = firsts.iter().chain(lasts).zip((0..pages).chain(0..pages));
            positions.all(|(&pos, page)| OFFSETS.contains(&offset(pos, page, pages, *shift)))
        };
        let shift = (0..SHIFT_MAX).find(fits).unwrap_or(SHIFT_MAX);
        let code = |page: usize, pos: u32, shared: bool| {
            (offset(pos, page, pages, shift) as u16) << 1 | u16::from(shared)
        };
        let shares = |page: usize| page > 0 && lasts[page - 1] >> shift == firsts[page] >> shift;
        let starts = (0..pages).map(|page| code(page, firsts[page], shares(page))).collect();
        let straddler =
            |page: usize| if straddles[page] { code(page, lasts[page], false) } else { NONE };
        let any = straddles.contains(&true);
        let straddlers = if any { (0..pages).map(straddler).collect() } else { Vec::new() };
        Self { shift, starts, straddlers }
    }
}

/// The tables of one segment in DRAM.
#[derive(Clone, Copy)]
pub(crate) struct PageTable<'a> {
    pub(super) shift: u8,
    pub(super) starts: &'a [AtomicU16],
    /// As long as `starts`, or empty.
    pub(super) straddlers: &'a [AtomicU16],
}

impl PageTable<'_> {
    fn bound(&self, table: &[AtomicU16], page: usize) -> i64 {
        let code = table[page].load(Ordering::Relaxed) as i16;
        even(page, self.starts.len(), self.shift) + i64::from(code >> 1)
    }

    /// Whether the record at `wanted` may also be the last of the page before.
    fn is_shared(&self, page: usize, wanted: i64) -> bool {
        page > 0
            && self.starts[page].load(Ordering::Relaxed) & 1 == 1
            && self.bound(self.starts, page) == wanted
    }

    fn straddles(&self, page: usize, wanted: i64) -> bool {
        !self.straddlers.is_empty()
            && self.straddlers[page].load(Ordering::Relaxed) != NONE
            && self.bound(self.straddlers, page) <= wanted
    }

    /// The pages that hold the record at `pos`, if the segment has it. Usually one; two where the record straddles;
    /// where several pages begin in one step, all that rounding leaves open, at most [`RANGE_MAX`].
    pub(crate) fn locate(&self, pos: u32) -> Option<PageRange> {
        let pages = self.starts.len();
        if pages == 0 {
            return None;
        }
        let wanted = i64::from(pos >> self.shift);
        let mut page = ((u64::from(pos) * pages as u64) >> 32) as usize;
        while page + 1 < pages && self.bound(self.starts, page + 1) <= wanted {
            page += 1;
        }
        while page > 0 && self.bound(self.starts, page) > wanted {
            page -= 1;
        }
        let straddles = self.straddles(page, wanted);
        let least = (page + 1).saturating_sub(RANGE_MAX);
        let mut first = page;
        while first > least && self.is_shared(first, wanted) {
            first -= 1;
        }
        if first < page {
            let pages = (page - first) as u8 + 1;
            return Some(PageRange {
                first: first as u32,
                pages,
                begins: pages,
                is_open: straddles,
            });
        }
        if straddles {
            return Some(PageRange::straddling(page as u32));
        }
        Some(PageRange { first: page as u32, pages: 1, begins: 1, is_open: false })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn atomics(codes: &[u16]) -> Vec<AtomicU16> {
        codes.iter().copied().map(AtomicU16::new).collect()
    }

    fn random_positions(mut seed: u64, count: usize) -> Vec<u32> {
        let next = |_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11);
            (seed >> 32) as u32
        };
        (0..count).map(next).collect()
    }

    proptest! {
        /// The page of every record is among those located, with thousands of pages of one record each, too.
        #[test]
        fn located_pages_hold_the_record(
            seed in any::<u64>(),
            records in 1usize..4000,
            per_page in prop_oneof![Just(1usize), 1usize..40],
            straddle in any::<bool>(),
        ) {
            let mut positions = random_positions(seed, records);
            positions.sort_unstable();
            let groups: Vec<_> = positions.chunks(per_page).collect();
            let firsts: Vec<_> = groups.iter().map(|g| g[0]).collect();
            let lasts: Vec<_> = groups.iter().map(|g| g[g.len() - 1]).collect();
            let tables = Tables::encode(&firsts, &lasts, &vec![straddle; groups.len()]);
            let (starts, straddlers) = (atomics(&tables.starts), atomics(&tables.straddlers));
            let table = PageTable { shift: tables.shift, starts: &starts, straddlers: &straddlers };
            for (p, group) in groups.iter().enumerate() {
                for (n, pos) in group.iter().enumerate() {
                    let found = table.locate(*pos).unwrap();
                    let range = found.first as usize..(found.first + u32::from(found.pages)) as usize;
                    prop_assert!(range.contains(&p), "page {p} not in {found:?}");
                    if straddle && n + 1 == group.len() && found.first as usize == p {
                        prop_assert!(found.pages >= 2);
                    }
                }
            }
        }
    }

    #[test]
    fn nearly_all_lookups_need_one_page() {
        let mut positions = random_positions(1, 2196);
        positions.sort_unstable();
        let firsts: Vec<_> = positions.chunks(36).map(|g| g[0]).collect();
        let lasts: Vec<_> = positions.chunks(36).map(|g| g[g.len() - 1]).collect();
        let tables = Tables::encode(&firsts, &lasts, &vec![false; firsts.len()]);
        let starts = atomics(&tables.starts);
        let table = PageTable { shift: tables.shift, starts: &starts, straddlers: &[] };
        let two = positions.iter().filter(|&&p| table.locate(p).unwrap().pages == 2).count();
        assert!(two <= 10, "{two} of {} records need two pages", positions.len());
    }
}
