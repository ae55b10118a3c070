//! Keys and the parts of their hash.

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
