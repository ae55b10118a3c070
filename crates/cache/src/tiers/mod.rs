//! The drives as the cache sees them: their places for segments, the rungs that they stand on, how full
//! they are, what each may be written, and what is written to them at all.

pub(crate) mod admission;
pub(crate) mod fullness;
pub(crate) mod ladder;
pub(crate) mod ledger;
pub(crate) mod slots;
