//! What the server tells about itself.

pub(crate) mod conns;
pub(crate) mod counters;
pub(crate) mod general;
pub(crate) mod items;
pub(crate) mod knobs;
pub(crate) mod latency;
pub(crate) mod prefixes;
pub(crate) mod settings;
pub(crate) mod tier_state;
pub(crate) mod tiers;
pub(crate) mod view;
