//! The state of the cache, which requests and background work share.

pub(crate) mod fullness;
pub(crate) mod lost;
