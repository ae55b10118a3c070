//! Processor, kernel and threads: hints, mappings, atomics, locks, and when unlinked memory may be used again. Knows
//! nothing of records.

pub(crate) mod appended;
pub(crate) mod crash;
pub(crate) mod getters;
pub(crate) mod lanes;
pub(crate) mod lock;
pub(crate) mod mapped;
pub(crate) mod prefetch;
pub(crate) mod quiesce;
pub(crate) mod random;
pub(crate) mod rcu;
pub(crate) mod striped;
pub(crate) mod sync;
