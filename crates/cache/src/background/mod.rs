//! Background work, in slices: seal, reclaim, demote, grow, reconcile, expire, evict.

pub(crate) mod admission;
pub(crate) mod buffers;
pub(crate) mod census;
pub(crate) mod chunks;
pub(crate) mod demote;
pub(crate) mod drain;
pub(crate) mod drop_segment;
pub(crate) mod eviction;
pub(crate) mod expiry;
pub(crate) mod footers;
pub(crate) mod gain;
pub(crate) mod grow;
pub(crate) mod items;
pub(crate) mod listing;
pub(crate) mod maintenance;
pub(crate) mod merge;
pub(crate) mod pick;
pub(crate) mod promote;
pub(crate) mod reclaim;
pub(crate) mod reconcile;
pub(crate) mod relocate;
pub(crate) mod round;
pub(crate) mod scheduler;
pub(crate) mod seal;
pub(crate) mod sweep;
pub(crate) mod turn;
