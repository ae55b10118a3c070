//! How much DRAM and flash a cache needs, how it will do, and what it costs: a model without a
//! clock and without state. What it reads, it reads once, before it calculates.
//!
//! Inputs ([`Data`], [`Load`], [`Popularity`] or a [`Trace`], [`Drive`], [`Node`]) go into
//! [`Plan::new`]; what comes out is a table ([`std::fmt::Display`]), with a command line for the server.
//! `docs/plan.md` derives each figure and says what it was compared with.
#![forbid(unsafe_code)]

mod answer;
mod cli;
mod compare;
mod drive;
mod error;
mod flags;
mod json;
mod lab;
mod latency;
mod layout;
mod memory;
mod network;
mod peers;
mod plan;
mod popularity;
mod proposal;
mod show;
mod sizing;
mod slice;
mod source;
mod trace;

pub use cli::{command, main};
pub use drive::Drive;
pub use error::PlanError;
pub use latency::Latency;
pub use layout::{Data, Layout};
pub use peers::{extstore_dram_bytes, memcached_item_bytes};
pub use plan::{Limit, Load, Node, Plan, Prices, SameMoney, TIER_FULL, TierSize};
pub use popularity::Popularity;
pub use sizing::LeastMemory;
pub use trace::Trace;
