//! What a record is: its key and the parts of its hash, its bytes, which are the same in DRAM and on every
//! medium, and what becomes of items that are too large for one.

pub(crate) mod chunks;
pub(crate) mod key;
pub(crate) mod manifest;
pub(crate) mod record;
