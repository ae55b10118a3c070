//! How much DRAM and flash a cache needs, how it will do, and what it costs: a model without a
//! clock and without state. What it reads, it reads once, before it calculates.
//!
//! Inputs ([`Data`], [`Load`], [`Popularity`] or a [`Trace`], [`Drive`], [`Node`]) go into
//! [`Plan::new`]; what comes out is a table ([`std::fmt::Display`]). `docs/plan.md` derives each
//! figure and says what it was compared with.
#![forbid(unsafe_code)]

mod cli;
mod drive;
mod error;
mod lab;
mod layout;
mod network;
mod peers;
mod plan;
mod popularity;
mod show;
mod source;
mod trace;

pub use cli::main;
pub use drive::Drive;
pub use error::PlanError;
pub use layout::{Data, Layout};
pub use peers::{extstore_dram_bytes, memcached_item_bytes};
pub use plan::{Limit, Load, Node, Plan, Prices, SameMoney, TIER_FULL};
pub use popularity::Popularity;
pub use trace::Trace;
