//! Records in DRAM: the blocks that they live in under one memory cap, the exact table that finds them,
//! copies of hot flash records, and what is let go when memory is short.

pub(crate) mod ages;
pub(crate) mod budget;
pub(crate) mod eviction;
pub(crate) mod hot;
pub(crate) mod lane;
pub(crate) mod limit;
pub(crate) mod memory;
pub(crate) mod resident;
pub(crate) mod sweep;
pub(crate) mod table;
