//! The sealed index: from the name of a record on a tier to its segment, in about four bytes; and the entries that
//! overwrites deferred.

pub(crate) mod bucket;
pub(crate) mod deferred;
mod placing;
pub(crate) mod sealed;
