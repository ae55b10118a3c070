//! The cache as its callers see it.

pub(crate) mod cache;
pub(crate) mod dump;
pub(crate) mod report;
