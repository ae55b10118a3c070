//! The sealed index: from the name of a record on a drive to its segment, in about four bytes; and what
//! keeps it true while names collide.

pub(crate) mod bucket;
mod placing;
pub(crate) mod sealed;
pub(crate) mod suspended;
