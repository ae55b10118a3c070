//! What a record is: its key and the parts of its hash, and its bytes, which are the same in DRAM and on every
//! medium.

pub(crate) mod access;
pub(crate) mod garbage;
pub(crate) mod key;
pub(crate) mod large;
pub(crate) mod listed;
pub(crate) mod manifest;
pub(crate) mod record;
