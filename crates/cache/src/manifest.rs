//! Large items: chunks, and a manifest that is published last.

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

impl Run {
    /// Bytes of all chunks together.
    pub fn bytes(&self) -> u64 {
        match self.chunks {
            0 => 0,
            n => u64::from(n - 1) * u64::from(self.chunk_bytes) + u64::from(self.last_bytes),
        }
    }
}

/// What a large item consists of: its runs in order. An append or prepend adds a run and leaves the
/// others as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The runs, in the order of the value's bytes.
    pub runs: Vec<Run>,
}

impl Manifest {
    /// Length of the value in bytes.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(Run::bytes).sum()
    }
}
