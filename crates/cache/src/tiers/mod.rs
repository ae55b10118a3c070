//! The drives as the cache sees them: their free segments, the tier levels that they stand on, and what each may be
//! written.

pub(crate) mod admission;
pub(crate) mod ladder;
pub(crate) mod ledger;
pub(crate) mod slots;
pub(crate) mod superblock;
