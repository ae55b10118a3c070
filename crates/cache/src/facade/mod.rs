//! The public face of the cache: opening and closing, dumps, and statistics.

pub(crate) mod cache;
pub(crate) mod dump;
pub(crate) mod report;
