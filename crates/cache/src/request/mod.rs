//! The steps of a request: look a key up, name the page to read, check what was read, change a record. None of them
//! waits for a drive, except [`crate::Session::make_durable`].

pub(crate) mod ahead;
pub(crate) mod chunks;
mod read;
pub(crate) mod search;
pub(crate) mod session;
pub(crate) mod update;
