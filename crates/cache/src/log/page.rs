//! Pages of the tombstone log on a tier, and the directory of the slots that they lie in. Little-endian.
//!
//! ```text
//! page       0 crc32c of [8..), seeded with the page's number u32  4 "KLOG"  8 key u64
//!            16 number of the page u64  24 link u32  28 not durable u32  32 508 words u64
//! directory  0 "TRCKLOG\0"  8 version u32  12 crc32c of [16..) u32  16 key u64  24 generation u64
//!            32 first page u64  40 slots u32  44 link of the first page u32  64 slots, two in 5 bytes
//! ```
//!
//! The link is the checksum of the page ahead when this one was written: after a start that went on from an earlier
//! page, a page written in that place does not lead to the old pages behind it. A link of 0 follows any page. *Not
//! durable* counts the pages right ahead of this one that were not acknowledged as durable: a power loss may have lost
//! each of these.
//!
//! There are two directories; even and odd generations take turns, so that a crash while one is written leaves the
//! other.

use crate::log::word;
use crate::segments::layout::{VERSION, checksum, put_u32, put_u64, u32_at, u64_at};
use crate::state::LOG_SLOTS_MAX;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const PAGE: usize = crate::segments::layout::PAGE;
pub(crate) const HEADER_WORDS: usize = 4;
/// Words of a page besides its header.
pub(crate) const WORDS: usize = PAGE / 8 - HEADER_WORDS;
const MAGIC: &[u8; 4] = b"KLOG";

/// The header of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(super) key: u64,
    pub(super) page: u64,
    /// The checksum of the page ahead; 0 if there is none, or none that counts.
    pub(super) link: u32,
    /// Pages below this one are durable for certain.
    pub(super) durable: u64,
}

/// A page as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(super) header: Header,
    pub(super) words: Vec<u64>,
    pub(super) checksum: u32,
}

impl Page {
    /// Whether it was written behind the page with this checksum.
    pub(crate) fn follows(&self, checksum: u32) -> bool {
        [0, checksum].contains(&self.header.link)
    }
}

/// Writes a page of the ring into `out`; returns its checksum. Waits for words with positions that were taken, but that
/// are not stored yet: their threads hold no lock that this one needs.
pub(crate) fn encode(words: &[AtomicU64], header: Header, out: &mut [u8]) -> u32 {
    put_u64(out, 8, header.key);
    put_u64(out, 16, header.page);
    put_u32(out, 24, header.link);
    let not_durable = header.page.saturating_sub(header.durable);
    put_u32(out, 28, u32::try_from(not_durable).unwrap_or(u32::MAX));
    for (at, word) in words.iter().enumerate().skip(HEADER_WORDS) {
        let bits = loop {
            match word.load(Ordering::Acquire) {
                0 => std::thread::yield_now(),
                bits => break bits,
            }
        };
        put_u64(out, at * 8, bits);
    }
    out[4..8].copy_from_slice(MAGIC);
    let crc = checksum(header.page as u32, &out[8..]);
    put_u32(out, 0, crc);
    crc
}

/// Decodes page number `page` of the log with this key; `None` if the bytes are no such page.
pub(crate) fn decode(bytes: &[u8], key: u64, page: u64) -> Option<Page> {
    let fits = bytes.len() == PAGE
        && &bytes[4..8] == MAGIC
        && u32_at(bytes, 0) == checksum(page as u32, &bytes[8..])
        && u64_at(bytes, 8) == key
        && u64_at(bytes, 16) == page;
    fits.then(|| Page {
        header: Header {
            key,
            page,
            link: u32_at(bytes, 24),
            durable: page.saturating_sub(u32_at(bytes, 28).into()),
        },
        words: (HEADER_WORDS..PAGE / 8).map(|at| u64_at(bytes, at * 8)).collect(),
        checksum: u32_at(bytes, 0),
    })
}

/// No log ever has more pages: calculations with a page's number can't overflow.
pub(crate) const PAGES_MAX: u64 = 1 << 48;

/// Bytes of a directory on the tier.
pub(crate) const DIRECTORY_BYTES: usize = 4 * PAGE;
const DIRECTORY_MAGIC: &[u8; 8] = b"TRCKLOG\0";
const DIRECTORY_HEADER: usize = 64;
/// The two places for directories, between superblock and segments.
const DIRECTORIES_AT: [u64; 2] = [16 << 10, 32 << 10];

/// The bytes of two slots, 20 bits each.
const PAIR_BYTES: usize = 5;
/// Directories below this version have 4 bytes for each slot.
const PAIRED_SINCE: u32 = 3;

const _: () = assert!(2 * word::SLOT_BITS as usize <= 8 * PAIR_BYTES);
const _: () = assert!(LOG_SLOTS_MAX.is_multiple_of(2));
const _: () = assert!(DIRECTORY_HEADER + LOG_SLOTS_MAX / 2 * PAIR_BYTES <= DIRECTORY_BYTES);

/// Where the log lies on its tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directory {
    pub(super) key: u64,
    /// Counts the directories of the log.
    pub(super) generation: u64,
    /// The first page that counts, which is the first one of the first slot.
    pub(super) tail: u64,
    /// The checksum of the page ahead of that one, which is gone; 0 if unknown.
    pub(super) link: u32,
    /// The slots of the log, oldest first.
    pub(super) slots: Vec<u32>,
}

impl Directory {
    /// Where it must be written.
    pub(crate) fn offset(&self) -> u64 {
        DIRECTORIES_AT[(self.generation % 2) as usize]
    }

    /// Where the two directories lie.
    pub(crate) fn offsets() -> [u64; 2] {
        DIRECTORIES_AT
    }

    pub(crate) fn encode(&self, out: &mut [u8]) {
        out.fill(0);
        out[..8].copy_from_slice(DIRECTORY_MAGIC);
        put_u32(out, 8, VERSION);
        put_u64(out, 16, self.key);
        put_u64(out, 24, self.generation);
        put_u64(out, 32, self.tail);
        put_u32(out, 40, self.slots.len() as u32);
        put_u32(out, 44, self.link);
        let bytes = out[DIRECTORY_HEADER..].chunks_exact_mut(PAIR_BYTES);
        for (pair, bytes) in self.slots.chunks(2).zip(bytes) {
            let second = pair.get(1).copied().unwrap_or(0);
            let both = u64::from(pair[0]) | u64::from(second) << word::SLOT_BITS;
            bytes.copy_from_slice(&both.to_le_bytes()[..PAIR_BYTES]);
        }
        let crc = checksum(0, &out[16..]);
        put_u32(out, 12, crc);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let fits = bytes.len() == DIRECTORY_BYTES
            && &bytes[..8] == DIRECTORY_MAGIC
            && u32_at(bytes, 12) == checksum(0, &bytes[16..]);
        let slots = u32_at(bytes, 40) as usize;
        let fits = fits && slots <= LOG_SLOTS_MAX && u64_at(bytes, 32) <= PAGES_MAX;
        fits.then(|| Self {
            key: u64_at(bytes, 16),
            generation: u64_at(bytes, 24),
            tail: u64_at(bytes, 32),
            link: u32_at(bytes, 44),
            slots: slots_of(u32_at(bytes, 8), &bytes[DIRECTORY_HEADER..], slots),
        })
    }
}

/// The first `count` slots that a directory of this version lists.
fn slots_of(version: u32, bytes: &[u8], count: usize) -> Vec<u32> {
    let number =
        |bytes: &[u8]| bytes.iter().rev().fold(0, |n: u64, &byte| n << 8 | u64::from(byte));
    if version < PAIRED_SINCE {
        return bytes.chunks_exact(4).take(count).map(|slot| number(slot) as u32).collect();
    }
    let pairs = bytes.chunks_exact(PAIR_BYTES).map(number);
    let slots =
        pairs.flat_map(|both| [both as u32 & word::SLOTS_MAX, (both >> word::SLOT_BITS) as u32]);
    slots.take(count).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn undamaged_pages_and_directories_round_trip() {
        let words: Vec<AtomicU64> = (0..512).map(|n| AtomicU64::new(n + 1)).collect();
        let mut page = vec![0; PAGE];
        let header = Header { key: 7, page: 9, link: 3, durable: 4 };
        let checksum = encode(&words, header, &mut page);
        let read = decode(&page, 7, 9).unwrap();
        assert_eq!((read.words[507], read.header, read.checksum), (512, header, checksum));
        assert!(read.follows(3) && !read.follows(4));
        assert_eq!(decode(&page, 8, 9), None);
        assert_eq!(decode(&page, 7, 10), None);
        page[100] ^= 1;
        assert_eq!(decode(&page, 7, 9), None);

        let directory = Directory { key: 1, generation: 2, tail: 64, link: 3, slots: vec![5, 6] };
        let mut image = vec![0; DIRECTORY_BYTES];
        directory.encode(&mut image);
        assert_eq!(Directory::decode(&image), Some(directory));
        image[65] ^= 1;
        assert_eq!(Directory::decode(&image), None);
    }

    #[test]
    fn directory_has_room_for_the_most_slots_of_a_log() {
        let slots: Vec<u32> = (0..LOG_SLOTS_MAX as u32 - 1).map(|n| word::SLOTS_MAX - n).collect();
        let directory = Directory { key: 1, generation: 2, tail: 64, link: 3, slots };
        let mut image = vec![0; DIRECTORY_BYTES];
        directory.encode(&mut image);
        assert_eq!(Directory::decode(&image), Some(directory));
    }

    #[test]
    fn directory_of_the_previous_format_is_read() {
        let directory =
            Directory { key: 1, generation: 2, tail: 64, link: 3, slots: vec![5, 70_000, 6] };
        let mut image = vec![0; DIRECTORY_BYTES];
        directory.encode(&mut image);
        put_u32(&mut image, 8, PAIRED_SINCE - 1);
        for (n, &slot) in directory.slots.iter().enumerate() {
            put_u32(&mut image, DIRECTORY_HEADER + 4 * n, slot);
        }
        let crc = checksum(0, &image[16..]);
        put_u32(&mut image, 12, crc);
        assert_eq!(Directory::decode(&image), Some(directory));
    }
}
