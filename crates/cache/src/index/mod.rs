//! The sealed index: from the name of a record on a drive to its segment, in about four bytes; and what
//! keeps it true while names collide and while it grows.

pub(crate) mod bucket;
pub(crate) mod grow;
mod placing;
pub(crate) mod sealed;
pub(crate) mod settle;
pub(crate) mod suspended;
