//! Recovery: from the tiers and the state of an earlier process to an open cache; decides what may be trusted, and
//! brings it back.

pub(crate) mod media;
mod membership;
pub(crate) mod mount;
pub(crate) mod recover;
pub(crate) mod sizing;
pub(crate) mod start;
pub(crate) mod surviving;
