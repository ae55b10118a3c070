//! Keys and the parts of their hash.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A key with its hash; made by [`crate::Session::key`] or [`crate::Session::chunk_key`].
#[derive(Clone, Copy)]
pub struct Key<'a> {
    /// The client's key (1 to 250 bytes), or the name of a chunk.
    pub(crate) bytes: &'a [u8],
    pub(crate) hash: u64,
    /// A chunk of a large item; such names never meet clients' keys.
    pub(crate) is_chunk: bool,
}

impl<'a> Key<'a> {
    /// The key as the client sent it.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The keyed hash; equal keys have equal hashes within one cache.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

/// The position of a record in its shard's hash order, and its fingerprint. Within one sealed
/// segment no two records share bucket and fingerprint, see [`crate::seal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    /// Position in hash order; picks the bucket and the page.
    pub(crate) pos: u32,
    /// Fingerprint, 1 to 32767.
    pub(crate) fingerprint: u16,
}

/// Hashes keys and takes the hashes apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hasher {
    /// Written to the superblock: footers are only readable with the same seed.
    pub(crate) seed: u64,
    pub(crate) shard_bits: u32,
    pub(crate) fingerprint_bits: u32,
}

impl Hasher {
    pub(crate) fn key<'k>(&self, bytes: &'k [u8], is_chunk: bool) -> Key<'k> {
        // Another seed for chunks keeps their hashes apart from those of clients' keys.
        let seed = if is_chunk { !self.seed } else { self.seed };
        Key { bytes, hash: xxh3_64_with_seed(bytes, seed), is_chunk }
    }

    /// The shard that owns the key: the topmost bits.
    pub(crate) fn shard(&self, hash: u64) -> usize {
        if self.shard_bits == 0 { 0 } else { (hash >> (64 - self.shard_bits)) as usize }
    }

    /// The 32 bits below the shard's, and the lowest ones; they overlap with neither.
    pub(crate) fn name(&self, hash: u64) -> Name {
        let mask = (1u16 << self.fingerprint_bits) - 1;
        let fingerprint = hash as u16 & mask;
        Name { pos: ((hash << self.shard_bits) >> 32) as u32, fingerprint: fingerprint.max(1) }
    }
}
