//! Parses the contents of a drive without a drive: for the fuzz target `media` and the test of its corpus.

use crate::log::page;
use crate::log::page::{DIRECTORY_BYTES, Directory};
use crate::records::key::Key;
use crate::records::manifest::Manifest;
use crate::records::record::Record;
use crate::segments::layout;
use crate::segments::layout::{FOOTER_HEADER, Footer, PAGE, put_u32};
use crate::segments::look::{Sight, look};
use crate::segments::page::{check_page, put_checksums};
use crate::segments::pages::PageRange;
use crate::segments::segment::{Place, Sealed};
use crate::tiers::superblock::{FirstPage, Superblock};

/// Parses `bytes` with every parser for the contents of a drive, as they are and with a correct checksum, which random
/// changes would else never get past. Returns the number of parsers that accepted them.
///
/// # Panics
/// If a parser reads beyond the end, or panics.
pub fn read_media(bytes: &[u8]) -> usize {
    let whole = [first_page, footer, page, extent, log_page_of, directory];
    whole.iter().filter(|read| read(bytes)).count() + usize::from(records(bytes) > 0)
}

fn first_page(bytes: &[u8]) -> bool {
    let mut page = padded(bytes, PAGE);
    let crc = layout::checksum(0, &page[16..]);
    put_u32(&mut page, 12, crc);
    matches!(Superblock::decode(&page), FirstPage::Ours(_))
}

/// The footer is searched at the end.
fn footer(bytes: &[u8]) -> bool {
    Footer::decode(bytes);
    let Some(length) = Footer::bytes_of(bytes).filter(|&length| length <= bytes.len()) else {
        return false;
    };
    let mut footer = bytes[bytes.len() - length..].to_vec();
    let at = length - FOOTER_HEADER + 12;
    let crc = layout::checksum(layout::checksum(0, &footer[..at]), &footer[at + 4..]);
    put_u32(&mut footer, at, crc);
    Footer::decode(&footer).is_some()
}

fn page(bytes: &[u8]) -> bool {
    let mut page = padded(bytes, PAGE);
    put_checksums(&mut page, 7);
    let Some(head) = check_page(&page, 7) else { return false };
    let found = page.get(head.first()..).unwrap_or_default();
    // Its first record is looked up as a request would, and a key that it does not have.
    let key = Record::decode(found).map_or(&b"key"[..], |(record, _)| record.key).to_vec();
    read_pages(&key, head.seq(), &mut page.clone());
    read_pages(b"another", head.seq(), &mut page.clone());
    records(found) > 0
}

fn read_pages(key: &[u8], seq: u64, page: &mut [u8]) {
    let key = Key::new(key, 0);
    let range = PageRange::open(7);
    if let Sight::Record(at) = look(&key, Sealed { number: 0, seq }, Place::Pages(range), page) {
        assert_eq!(Record::decode(&page[at]).map(|(record, _)| record.key), Some(key.bytes()));
    }
}

fn extent(bytes: &[u8]) -> bool {
    layout::check_extent(bytes, 7);
    let mut extent = bytes.to_vec();
    if extent.len() < 16 {
        return false;
    }
    let length = layout::u32_at(&extent, 4) as usize;
    let Some(body) = length.checked_add(16).and_then(|end| extent.get(4..end)) else {
        return false;
    };
    let crc = layout::checksum(7, body);
    put_u32(&mut extent, 0, crc);
    layout::check_extent(&extent, 7).is_some_and(|(_, body)| records(body) > 0)
}

fn log_page_of(bytes: &[u8]) -> bool {
    let mut page = padded(bytes, PAGE);
    let crc = layout::checksum(9, &page[8..]);
    put_u32(&mut page, 0, crc);
    let (set, number) = (layout::u64_at(&page, 8), layout::u64_at(&page, 16));
    page::decode(&page, set, number).is_some()
}

fn directory(bytes: &[u8]) -> bool {
    let mut directory = padded(bytes, DIRECTORY_BYTES);
    let crc = layout::checksum(0, &directory[16..]);
    put_u32(&mut directory, 12, crc);
    Directory::decode(&directory).is_some()
}

/// Reads records until one is cut off; returns their number.
fn records(mut bytes: &[u8]) -> usize {
    let mut seen = 0;
    while let Some((record, taken)) = Record::decode(bytes) {
        assert!(taken > 0 && taken <= bytes.len(), "{taken} of {}", bytes.len());
        Manifest::decode(record.raw()).bytes();
        record.value_bytes();
        bytes = &bytes[taken..];
        seen += 1;
    }
    seen
}

/// `bytes`, cut off or filled up with zeros.
fn padded(bytes: &[u8], length: usize) -> Vec<u8> {
    let mut out = bytes[..bytes.len().min(length)].to_vec();
    out.resize(length, 0);
    out
}
