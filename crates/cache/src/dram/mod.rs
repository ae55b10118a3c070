//! Records in DRAM: the blocks that they live in under one memory cap, and the exact table that finds them.

pub(crate) mod ages;
pub(crate) mod budget;
pub(crate) mod heat;
pub(crate) mod lane;
pub(crate) mod memory;
pub(crate) mod resident;
pub(crate) mod table;
