//! Records in DRAM: the memory cap, the blocks, the exact table that finds records, their uses, and what was evicted.

pub(crate) mod ages;
pub(crate) mod budget;
pub(crate) mod evicted;
pub(crate) mod heat;
pub(crate) mod lane;
pub(crate) mod memory;
pub(crate) mod resident;
pub(crate) mod table;
