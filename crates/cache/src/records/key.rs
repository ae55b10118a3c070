//! Keys and the parts of their hash.

use crate::records::manifest::ItemId;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Consecutive chunks of an item that lie beside each other on a tier, if they were written at once and segments are
/// not tiny. A power of two.
pub const CHUNKS_TOGETHER: u32 = 4;

/// A key with its hash; made by [`crate::Session::key`] or [`crate::Session::chunk_key`].
#[derive(Clone, Copy)]
pub struct Key<'a> {
    /// The client's key (1 to 250 bytes), or the name of a chunk.
    pub(super) bytes: &'a [u8],
    pub(super) hash: u64,
    /// A chunk of a large item; such names never meet clients' keys.
    pub(super) is_chunk: bool,
}

impl<'a> Key<'a> {
    /// A client's key with its hash.
    pub(crate) fn new(bytes: &'a [u8], hash: u64) -> Self {
        Self { bytes, hash, is_chunk: false }
    }

    /// The key as the client sent it.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The key without its bytes and their lifetime: enough for [`crate::Session::look_ahead`].
    pub fn detached(&self) -> Key<'static> {
        Key { bytes: &[], ..*self }
    }

    /// The keyed hash; equal keys have equal hashes within one cache.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

/// The position of a record in its shard's hash order, and its fingerprint. Within one sealed
/// segment no two records share bucket and fingerprint, see [`crate::background::seal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    /// Position in hash order; picks the bucket and the page.
    pub(crate) pos: u32,
    /// Fingerprint, 1 to 32767.
    pub(crate) fingerprint: u16,
}

impl Name {
    /// Bits of the fingerprint in [`Name::short`].
    pub(crate) const SHORT_FINGERPRINT_BITS: u32 = 9;
    /// Those bits.
    pub(crate) const SHORT_FINGERPRINT: u64 = (1 << Self::SHORT_FINGERPRINT_BITS) - 1;

    /// The bits of a name that a word of the tombstone log has: 32 of position, 9 of fingerprint. No two records of one
    /// segment share them, see [`crate::segments::packing::defer_equal_names`].
    pub(crate) fn short(self) -> u64 {
        u64::from(self.pos) << Self::SHORT_FINGERPRINT_BITS
            | u64::from(self.fingerprint) & Self::SHORT_FINGERPRINT
    }

    /// The order of names as a number.
    pub(crate) fn order(self) -> u64 {
        u64::from(self.pos) << 16 | u64::from(self.fingerprint)
    }
}

/// Hashes keys and takes the hashes apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hasher {
    /// Written to the superblock: footers are only readable with the same seed.
    pub(super) seed: u64,
    pub(super) shard_bits: u32,
    pub(super) fingerprint_bits: u32,
    /// Neighbouring chunks have neighbouring hashes. Only allowed where each is an extent: a page table would confuse
    /// more than two pages of records that are so close to each other.
    pub(super) chunks_together: bool,
}

impl Hasher {
    /// For keys in `2^shard_bits` shards, with `fingerprint_bits` bits of fingerprint.
    pub(crate) fn new(
        seed: u64,
        shard_bits: u32,
        fingerprint_bits: u32,
        chunks_together: bool,
    ) -> Self {
        Self { seed, shard_bits, fingerprint_bits, chunks_together }
    }

    pub(crate) fn key<'k>(&self, bytes: &'k [u8], is_chunk: bool) -> Key<'k> {
        let hash = match <&[u8; 12]>::try_from(bytes) {
            Ok(name) if is_chunk => self.hash_of_chunk(name),
            _ => xxh3_64_with_seed(bytes, self.seed),
        };
        Key { bytes, hash, is_chunk }
    }

    /// The key of a chunk; writes its name to `name`.
    pub(crate) fn chunk_key<'k>(
        &self,
        item: ItemId,
        index: u32,
        name: &'k mut [u8; 12],
    ) -> Key<'k> {
        name[..8].copy_from_slice(&item.0.to_le_bytes());
        name[8..].copy_from_slice(&index.to_le_bytes());
        self.key(name, true)
    }

    /// Indices of an item that differ in the lowest bits only give hashes that differ in the lowest bits of position
    /// and fingerprint only: so these chunks are neighbours in hash order, and on the tier.
    fn hash_of_chunk(&self, name: &[u8; 12]) -> u64 {
        if !self.chunks_together {
            return xxh3_64_with_seed(name, !self.seed);
        }
        let member = u32::from(name[8]) % CHUNKS_TOGETHER;
        let mut common = *name;
        common[8] -= member as u8;
        // Another seed for chunks keeps their hashes apart from those of clients' keys.
        let hash = xxh3_64_with_seed(&common, !self.seed);
        let lowest = |part: u32| u64::from(part) << (32 - self.shard_bits) | u64::from(part);
        hash & !lowest(CHUNKS_TOGETHER - 1) | lowest(member)
    }

    /// The shard that owns the key: the topmost bits.
    pub(crate) fn shard(&self, hash: u64) -> usize {
        if self.shard_bits == 0 { 0 } else { (hash >> (64 - self.shard_bits)) as usize }
    }

    /// Position: the 32 bits below the shard's. Fingerprint: the lowest bits. They do not overlap.
    pub(crate) fn name(&self, hash: u64) -> Name {
        let mask = (1u16 << self.fingerprint_bits) - 1;
        let fingerprint = hash as u16 & mask;
        Name { pos: ((hash << self.shard_bits) >> 32) as u32, fingerprint: fingerprint.max(1) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn chunks_have_neighbouring_hashes_only_where_allowed() {
        let apart = |chunks_together| {
            let hasher = Hasher { seed: 1, shard_bits: 2, fingerprint_bits: 15, chunks_together };
            let position =
                |index| hasher.name(hasher.chunk_key(ItemId(7), index, &mut [0; 12]).hash).pos;
            let near = |index| position(index + 1).abs_diff(position(index)) == 1;
            [0, 1, 2, 3, 4].map(near)
        };
        assert_eq!(apart(true), [true, true, true, false, true]);
        assert_eq!(apart(false), [false; 5]);
    }
}
