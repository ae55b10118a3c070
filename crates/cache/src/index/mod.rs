//! The sealed index: from the name of a record on a drive to its segment, in about four bytes; and what
//! keeps it true while names collide.

pub(crate) mod bucket;
pub(crate) mod deferred;
mod placing;
pub(crate) mod sealed;
