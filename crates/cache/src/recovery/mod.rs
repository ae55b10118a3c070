//! From what an earlier process left to an open cache: whether the tiers and the state may be trusted,
//! and what of them comes back.

pub(crate) mod media;
mod members;
pub(crate) mod mount;
pub(crate) mod recover;
pub(crate) mod sizing;
pub(crate) mod start;
pub(crate) mod surviving;
