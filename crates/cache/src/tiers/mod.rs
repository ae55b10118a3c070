//! The drives as the cache sees them: their free segment slots, tier levels and write budgets.

pub(crate) mod admission;
pub(crate) mod drain;
pub(crate) mod ladder;
pub(crate) mod ledger;
pub(crate) mod roster;
pub(crate) mod shares;
pub(crate) mod slots;
pub(crate) mod superblock;
