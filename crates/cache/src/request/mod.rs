//! What a worker does with the cache: look a key up, say what to read, check what was read, change a
//! record. Nothing in here waits for a drive.

pub(crate) mod ahead;
pub(crate) mod chunks;
pub(crate) mod probe;
pub(crate) mod session;
pub(crate) mod update;
