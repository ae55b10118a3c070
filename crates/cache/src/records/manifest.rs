//! Large items: chunks, and a manifest that is published last.

use std::sync::atomic::{AtomicU32, Ordering};

/// Names the chunks of one upload; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ItemId(pub u64);

/// Consecutive chunks of one upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The upload that the chunks belong to.
    pub item: ItemId,
    /// Number of chunks; their indices are `0..chunks`.
    pub chunks: u32,
    /// Bytes in each chunk but the last.
    pub chunk_bytes: u32,
    /// Bytes in the last chunk, 1 to `chunk_bytes`.
    pub last_bytes: u32,
}

/// Bytes of an encoded [`Run`].
const RUN_BYTES: usize = 20;

impl Run {
    /// Bytes of all chunks together.
    pub fn bytes(&self) -> u64 {
        match self.chunks {
            0 => 0,
            n => u64::from(n - 1) * u64::from(self.chunk_bytes) + u64::from(self.last_bytes),
        }
    }

    fn encode(&self) -> [u8; RUN_BYTES] {
        let mut out = [0; RUN_BYTES];
        out[..8].copy_from_slice(&self.item.0.to_le_bytes());
        out[8..12].copy_from_slice(&self.chunks.to_le_bytes());
        out[12..16].copy_from_slice(&self.chunk_bytes.to_le_bytes());
        out[16..].copy_from_slice(&self.last_bytes.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8; RUN_BYTES]) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let item = ItemId(u64::from(word(0)) | u64::from(word(4)) << 32);
        Self { item, chunks: word(8), chunk_bytes: word(12), last_bytes: word(16) }
    }
}

/// The runs that a large item consists of, in order. An append or prepend adds a run and does not change the other
/// ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The runs, in the order of the value's bytes.
    pub runs: Vec<Run>,
}

impl Manifest {
    /// Length of the value in bytes.
    pub fn bytes(&self) -> u64 {
        // The bytes of a drive can be anything.
        self.runs.iter().fold(0, |sum, run| sum.saturating_add(run.bytes()))
    }

    /// The upload and the index of each chunk, in the order of the value's bytes.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = (ItemId, u32)> {
        self.runs.iter().flat_map(|run| (0..run.chunks).map(|index| (run.item, index)))
    }

    /// Bytes of the value of the record that holds this manifest.
    pub fn encoded_bytes(&self) -> usize {
        self.runs.len() * RUN_BYTES
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        self.runs.iter().flat_map(Run::encode).collect()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let (runs, _) = bytes.as_chunks::<RUN_BYTES>();
        Self { runs: runs.iter().map(Run::decode).collect() }
    }
}

/// Unix seconds at which the next of some items expires; 0 for never.
#[derive(Default)]
pub(crate) struct NextExpiry(AtomicU32);

impl NextExpiry {
    /// Adds an item that expires at this time; 0 for never.
    pub(crate) fn note(&self, expires: u32) {
        if expires != 0 {
            let sooner = |next: u32| (next == 0 || expires < next).then_some(expires);
            let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sooner);
        }
    }

    pub(crate) fn has_come(&self, now: u32) -> bool {
        (1..=now).contains(&self.0.load(Ordering::Relaxed))
    }

    /// Must be called before all items are added anew.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
