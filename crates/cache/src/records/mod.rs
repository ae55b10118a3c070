//! Records: key and hash, and the bytes, which are the same in DRAM and on every medium; large items.

pub(crate) mod access;
pub(crate) mod garbage;
pub(crate) mod key;
pub(crate) mod large;
pub(crate) mod listed;
pub(crate) mod manifest;
pub(crate) mod record;
