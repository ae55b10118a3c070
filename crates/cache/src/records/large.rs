//! The records that a large item consists of.

use crate::records::manifest::{ItemId, Manifest};
use crate::records::record::Record;

/// A live record that belongs to a large item.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Large {
    /// The item and the index of the chunk.
    Chunk(ItemId, u32),
    /// The record under the client's key.
    Manifest(Manifest),
}

impl Large {
    pub(crate) fn of(record: &Record<'_>) -> Option<Self> {
        if record.is_manifest {
            return Some(Self::Manifest(Manifest::decode(record.raw)));
        }
        let (item, index) = record.key.split_first_chunk::<8>()?;
        let index = record.is_chunk.then(|| index.try_into().ok()).flatten()?;
        Some(Self::Chunk(ItemId(u64::from_le_bytes(*item)), u32::from_le_bytes(index)))
    }
}
