//! Formats on a tier: extent and footer; pages are in [`crate::segments::page`], superblocks in
//! [`crate::tiers::superblock`]. Numbers are little-endian.
//!
//! ```text
//! device   two superblocks (4 KiB each) | two log directories at 16 and 32 KiB | from 64 KiB on: segment | segment | ...
//! segment  pages of small records in hash order | extents | unused | footer, right-aligned
//! ```
//!
//! `docs/design.md` shows the bytes.

use crate::index::bucket::SEGMENTS_MAX;
use crate::platform::getters::getters;
use crate::records::key::Name;
use crc_fast::{CrcAlgorithm, Digest};

/// Pages of small records, and the unit of reads.
pub(crate) const PAGE: usize = 4096;
/// Records up to this size do not straddle pages.
pub(crate) const WHOLE_MAX: usize = 256;
/// Records up to this size lie in pages and straddle at most one border; longer ones are extents. It leaves room for a
/// header and 4 KiB of key and value.
pub(crate) const PACKED_MAX: usize = 4160;
/// Extents begin at multiples of this.
pub(crate) const EXTENT_UNIT: usize = 64;
/// Extent header: crc32c u32 | record bytes u32 | seal sequence u64.
pub(crate) const EXTENT_HEADER: usize = 16;
/// The first segment begins here.
pub(crate) const SEGMENTS_AT: u64 = 64 << 10;
/// Version of everything in this file, of superblocks, of pages, of the log's directory and of the record encoding. 1
/// had one checksum per page, 2 a directory with 4 bytes for a slot, 3 no ids of members and no rosters. A build with
/// `TERRACE_NEXT_FORMAT` in its environment calls the same format the next one, so that upgrade and rollback can be
/// tested.
pub(crate) const VERSION: u32 = if option_env!("TERRACE_NEXT_FORMAT").is_some() { 5 } else { 4 };
/// The oldest version that can still be read.
pub(crate) const VERSION_MIN: u32 = 2;

const FOOTER_MAGIC: &[u8; 8] = b"TRCFOOT\0";

/// Checksum (CRC-32C) of bytes, seeded with their position `at`, so that a misdirected write is noticed; or continued
/// from the checksum `at` of the bytes before them.
pub(crate) fn checksum(at: u32, bytes: &[u8]) -> u32 {
    // Finished checksums are complements of the state behind them.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!at));
    digest.update(bytes);
    digest.finalize() as u32
}

/// Completes an extent (header and record, without padding); `at` is its first unit in the segment.
pub(crate) fn finish_extent(extent: &mut [u8], at: u32, seq: u64) {
    put_u32(extent, 4, (extent.len() - EXTENT_HEADER) as u32);
    put_u64(extent, 8, seq);
    let crc = checksum(at, &extent[4..]);
    put_u32(extent, 0, crc);
}

/// The seal sequence and the record bytes of an extent; `None` if it does not check out.
pub(crate) fn check_extent(bytes: &[u8], at: u32) -> Option<(u64, &[u8])> {
    if bytes.len() < EXTENT_HEADER {
        return None;
    }
    let extent = bytes.get(..EXTENT_HEADER.checked_add(u32_at(bytes, 4) as usize)?)?;
    let fits = u32_at(extent, 0) == checksum(at, &extent[4..]);
    fits.then(|| (u64_at(extent, 8), &extent[EXTENT_HEADER..]))
}

/// An entry of the extent directory: position in hash order (32 bits), first unit (20), units (12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(super) pos: u32,
    pub(super) unit: u32,
    pub(super) units: u32,
}

getters! {
    Extent {
        pos: u32,
    }
}

impl Extent {
    /// Bytes of the record, up to the last unit.
    pub(crate) fn record_bytes(self) -> u32 {
        (self.units * EXTENT_UNIT as u32).saturating_sub(EXTENT_HEADER as u32)
    }

    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.pos) | u64::from(self.unit) << 32 | u64::from(self.units) << 52
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self { pos: bits as u32, unit: (bits >> 32) as u32 & 0xf_ffff, units: (bits >> 52) as u32 }
    }
}

/// Everything about a sealed segment but its records: enough to rebuild index and page table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(super) seq: u64,
    pub(super) shard: u16,
    pub(super) number: u16,
    /// Unix seconds of the seal.
    pub(super) sealed: u32,
    /// Unix seconds from which on all records have expired; 0 if one never does.
    pub(super) expires: u32,
    /// Bytes of all records with their headers; a segment is at most 64 MiB.
    pub(super) record_bytes: u32,
    /// Bytes of their keys and values.
    pub(super) payload_bytes: u32,
    /// Buckets of the shard's index at the seal. No two names of the segment share bucket and fingerprint in an index
    /// with as many or more, see [`crate::background::seal`].
    pub(super) buckets: u32,
    /// See [`crate::segments::pages::PageTable`].
    pub(super) shift: u8,
    /// One of the records is an item with chunks.
    pub(super) has_manifests: bool,
    /// In hash order.
    pub(super) names: Vec<Name>,
    pub(super) starts: Vec<u16>,
    /// Empty if no record straddles pages.
    pub(super) straddlers: Vec<u16>,
    pub(super) extents: Vec<Extent>,
}

/// Bytes of the fixed part, which is at the very end of the segment.
pub(crate) const FOOTER_HEADER: usize = 64;
/// Names per value of the topmost 7 bits of their position; the entries keep the 25 bits below.
const DIRECTORY: usize = 128;
const NAME_BYTES: usize = 5;
/// Flags of a footer.
const STRADDLING: u8 = 1;
const MANIFESTS: u8 = 2;

getters! {
    Footer {
        buckets: u32,
        shard: u16,
        number: u16,
        names: &[Name],
        seq: u64,
    }
}

impl Footer {
    /// The footer of segment `number` of a shard, sealed as number `seq` of all at `now` (unix seconds).
    pub(crate) fn of_seal(self, shard: u16, number: u16, seq: u64, now: u32) -> Self {
        Self { seq, shard, number, sealed: now, ..self }
    }

    /// The footer with another number of buckets.
    pub(crate) fn under(self, buckets: u32) -> Self {
        Self { buckets, ..self }
    }

    /// The names of the records.
    pub(crate) fn into_names(self) -> Vec<Name> {
        self.names
    }

    /// Takes the names of the records out of the footer.
    pub(crate) fn take_names(&mut self) -> Vec<Name> {
        std::mem::take(&mut self.names)
    }

    /// Bytes of those records of the segment that are at the positions `some`: exact for extents, else their average.
    pub(crate) fn bytes_of_some(&self, some: impl Iterator<Item = u32>) -> u32 {
        let all_large: u64 =
            self.extents.iter().map(|extent| u64::from(extent.record_bytes())).sum();
        let all_small = u64::from(self.record_bytes).saturating_sub(all_large);
        let (mut large, mut small_records) = (0, 0);
        for pos in some {
            match self.extents.binary_search_by_key(&pos, |extent| extent.pos) {
                Ok(at) => large += u64::from(self.extents[at].record_bytes()),
                Err(_) => small_records += 1,
            }
        }
        let of_all = self.names.len().saturating_sub(self.extents.len()) as u64;
        let small = (all_small * small_records).checked_div(of_all).unwrap_or(0);
        (large + small).min(self.record_bytes.into()) as u32
    }

    /// Bytes of a footer with these parts.
    pub(crate) fn bytes_for(names: usize, pages: usize, straddling: bool, extents: usize) -> usize {
        let tables = if straddling { 2 } else { 1 };
        FOOTER_HEADER + DIRECTORY * 4 + names * NAME_BYTES + pages * 2 * tables + extents * 8
    }

    pub(crate) fn bytes(&self) -> usize {
        let straddling = !self.straddlers.is_empty();
        Self::bytes_for(self.names.len(), self.starts.len(), straddling, self.extents.len())
    }

    /// Writes the footer to the end of `segment`.
    pub(crate) fn encode(&self, segment: &mut [u8]) {
        let at = segment.len() - self.bytes();
        let out = &mut segment[at..];
        let mut body = Vec::with_capacity(out.len());
        let mut counts = [0u32; DIRECTORY];
        for name in &self.names {
            counts[(name.pos >> 25) as usize] += 1;
        }
        counts.iter().for_each(|count| body.extend(count.to_le_bytes()));
        for name in &self.names {
            let low = u64::from(name.pos & 0x1ff_ffff) | u64::from(name.fingerprint) << 25;
            body.extend(&low.to_le_bytes()[..NAME_BYTES]);
        }
        let tables = self.starts.iter().chain(&self.straddlers);
        tables.for_each(|entry| body.extend(entry.to_le_bytes()));
        self.extents.iter().for_each(|extent| body.extend(extent.to_bits().to_le_bytes()));
        let header_at = out.len() - FOOTER_HEADER;
        out[..header_at].copy_from_slice(&body);
        let header = &mut out[header_at..];
        header.fill(0);
        header[..8].copy_from_slice(FOOTER_MAGIC);
        put_u32(header, 8, VERSION);
        put_u64(header, 16, self.seq);
        put_u32(header, 24, self.names.len() as u32);
        put_u16(header, 28, self.starts.len() as u16);
        header[30] = self.shift;
        let flags = [(!self.straddlers.is_empty(), STRADDLING), (self.has_manifests, MANIFESTS)];
        header[31] = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum();
        put_u32(header, 32, self.extents.len() as u32);
        put_u16(header, 36, self.shard);
        put_u16(header, 38, self.number);
        put_u32(header, 40, self.sealed);
        put_u32(header, 44, self.expires);
        put_u32(header, 48, self.record_bytes);
        put_u32(header, 52, self.payload_bytes);
        put_u32(header, 56, self.buckets);
        let crc = footer_checksum(out);
        put_u32(&mut out[header_at..], 12, crc);
    }

    /// Bytes of the footer at the end of a segment, from the segment's last [`FOOTER_HEADER`] bytes or more; `None` if
    /// these are no footer of this version.
    pub(crate) fn bytes_of(tail: &[u8]) -> Option<usize> {
        let header = tail.get(tail.len().checked_sub(FOOTER_HEADER)?..)?;
        let version = u32_at(header, 8);
        if &header[..8] != FOOTER_MAGIC || !(VERSION_MIN..=VERSION).contains(&version) {
            return None;
        }
        let counts = [u32_at(header, 24), u32_at(header, 32)].map(|n| n as usize);
        if counts.iter().any(|&n| n > 1 << 26) {
            return None;
        }
        let pages = usize::from(u16_at(header, 28));
        Some(Self::bytes_for(counts[0], pages, header[31] & STRADDLING != 0, counts[1]))
    }

    /// Reads the footer at the end of `tail`; `None` if it does not check out. Never panics.
    pub(crate) fn decode(tail: &[u8]) -> Option<Self> {
        let bytes = tail.get(tail.len().checked_sub(Self::bytes_of(tail)?)?..)?;
        let (body, header) = bytes.split_at(bytes.len() - FOOTER_HEADER);
        let number = u16_at(header, 38);
        if u32_at(header, 12) != footer_checksum(bytes) || u32::from(number) >= SEGMENTS_MAX {
            return None;
        }
        let (counts, body) = body.split_at(DIRECTORY * 4);
        let count = u32_at(header, 24) as usize;
        // `body` plus header: 8 bytes are read for each name of 5.
        let names = decode_names(counts, &bytes[counts.len()..], count)?;
        let body = &body[count * NAME_BYTES..];
        let pages = usize::from(u16_at(header, 28));
        let (starts, body) = body.split_at(pages * 2);
        let straddling = if header[31] & STRADDLING != 0 { pages * 2 } else { 0 };
        let (straddlers, extents) = body.split_at(straddling);
        let words = |bytes: &[u8]| bytes.chunks_exact(2).map(|b| u16_at(b, 0)).collect();
        Some(Self {
            seq: u64_at(header, 16),
            shard: u16_at(header, 36),
            number,
            sealed: u32_at(header, 40),
            expires: u32_at(header, 44),
            record_bytes: u32_at(header, 48),
            payload_bytes: u32_at(header, 52),
            buckets: u32_at(header, 56),
            shift: header[30],
            has_manifests: header[31] & MANIFESTS != 0,
            names,
            starts: words(starts),
            straddlers: words(straddlers),
            extents: extents.chunks_exact(8).map(|b| Extent::from_bits(u64_at(b, 0))).collect(),
        })
    }
}

/// Reads names from the start of `body`, which must go on for 3 bytes behind them.
fn decode_names(counts: &[u8], body: &[u8], names: usize) -> Option<Vec<Name>> {
    let mut out = Vec::with_capacity(names);
    for top in 0..DIRECTORY {
        let count = u32_at(counts, top * 4) as usize;
        let first = out.len();
        if count > names - first {
            return None;
        }
        out.extend((first..first + count).map(|at| {
            // Reads eight bytes, of which five count.
            let low = u64_at(body, at * NAME_BYTES);
            let pos = (top as u32) << 25 | low as u32 & 0x1ff_ffff;
            Name { pos, fingerprint: (low >> 25) as u16 & 0x7fff }
        }));
    }
    (out.len() == names).then_some(out)
}

/// The checksum of all bytes but itself.
fn footer_checksum(footer: &[u8]) -> u32 {
    let crc_at = footer.len() - FOOTER_HEADER + 12;
    checksum(checksum(0, &footer[..crc_at]), &footer[crc_at + 4..])
}

pub(crate) fn put_u16(out: &mut [u8], at: usize, value: u16) {
    out[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u32(out: &mut [u8], at: usize, value: u32) {
    out[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(out: &mut [u8], at: usize, value: u64) {
    out[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes_at(bytes, at))
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(bytes, at))
}

#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(bytes, at))
}

/// One check of bounds, not one for each byte.
#[inline]
fn bytes_at<const BYTES: usize>(bytes: &[u8], at: usize) -> [u8; BYTES] {
    let mut out = [0; BYTES];
    out.copy_from_slice(&bytes[at..at + BYTES]);
    out
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The checksums of tiers that earlier versions wrote.
    #[test]
    fn checksums_agree_with_earlier_versions() {
        let bytes = b"123456789";
        assert_eq!(checksum(0, bytes), 0xe306_9283, "the check value of CRC-32C");
        assert_eq!(checksum(checksum(0, &bytes[..4]), &bytes[4..]), 0xe306_9283);
        let page: Vec<u8> = (0..4092u32).map(|n| ((n * n) >> 3) as u8).collect();
        assert_eq!(
            [0, 77, u32::MAX].map(|at| checksum(at, &page)),
            [0x4bc2_0c89, 0x499f_e4e5, 0x130f_ab18]
        );
    }

    #[test]
    fn bytes_of_some_records_are_exact_for_extents_and_average_for_the_rest() {
        let names = [1, 2, 3, 4].map(|pos| Name { pos, fingerprint: 0 }).to_vec();
        let extents =
            vec![Extent { pos: 2, unit: 0, units: 10 }, Extent { pos: 3, unit: 10, units: 100 }];
        let [few, many] = [0, 1].map(|at: usize| extents[at].record_bytes());
        let record_bytes = few + many + 200;
        let footer = Footer { names, extents, record_bytes, ..Footer::default() };
        let bytes = |some: &[u32]| footer.bytes_of_some(some.iter().copied());
        assert_eq!(bytes(&[]), 0);
        assert_eq!(bytes(&[1, 2]), few + 100);
        assert_eq!(bytes(&[3]), many);
        assert_eq!(bytes(&[1, 2, 3, 4]), record_bytes);
    }

    proptest! {
        #[test]
        fn footer_round_trips(
            mut names in prop::collection::vec((any::<u32>(), 1u16..0x8000), 0..300),
            starts in prop::collection::vec(any::<u16>(), 0..20),
            straddling in any::<bool>(),
            extents in prop::collection::vec((any::<u32>(), 0u32..1 << 20, 0u32..1 << 12), 0..9),
            flip in any::<prop::sample::Index>(),
        ) {
            names.sort_unstable();
            let footer = Footer {
                seq: 1 << 40, shard: 200, number: 2047, sealed: 5, expires: 6, record_bytes: 1 << 25, payload_bytes: 1 << 24, buckets: 1 << 23,
                has_manifests: true,
                shift: 13,
                names: names.into_iter().map(|(pos, fingerprint)| Name { pos, fingerprint }).collect(),
                straddlers: if straddling { starts.clone() } else { Vec::new() },
                starts,
                extents: extents.into_iter().map(|(pos, unit, units)| Extent { pos, unit, units }).collect(),
            };
            let mut segment = vec![0xaa; 8192];
            footer.encode(&mut segment);
            prop_assert_eq!(Footer::bytes_of(&segment[8192 - FOOTER_HEADER..]), Some(footer.bytes()));
            prop_assert_eq!(Footer::decode(&segment), Some(footer.clone()));
            let at = 8192 - footer.bytes() + flip.index(footer.bytes());
            segment[at] ^= 0x10;
            prop_assert_eq!(Footer::decode(&segment), None);
        }

        #[test]
        fn decoding_any_footer_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut tail = bytes;
            let _ = Footer::decode(&tail);
            if tail.len() >= FOOTER_HEADER {
                let at = tail.len() - FOOTER_HEADER;
                tail[at..at + 8].copy_from_slice(FOOTER_MAGIC);
                put_u32(&mut tail[at..], 8, VERSION);
                prop_assert_eq!(Footer::decode(&tail), None);
            }
        }
    }
}
