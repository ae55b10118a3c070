//! A record as listings and observers see it.

use crate::records::record::Record;

/// A record as a listing shows it.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// The record; the value of a large item is its manifest.
    pub record: Record<'a>,
    /// Unix time in seconds of the last use; of a record on a tier, when it was sealed.
    pub accessed: u32,
    /// It was read at least once.
    pub fetched: bool,
    /// It lies on a tier.
    pub is_sealed: bool,
}
