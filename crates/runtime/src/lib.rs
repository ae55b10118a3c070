#![doc = include_str!("../README.md")]
//!
//! # Threads
//!
//! [`Store::open`] starts threads for background work (sealing, reclaim, eviction, expiry). As many threads of each drive
//! as there ever were blocking calls at once read for these. They end when the last [`Store`] and [`Lane`] is dropped.
//!
//! # Fork
//!
//! A process that forks must not use a store in the child: its threads are not there. Operations return
//! [`Error::Forked`], and dropping the store does nothing.
//!
//! # Servers
//!
//! A server that runs requests of its own uses what a [`Lane`] consists of: [`flash_lookup`], [`chunks`] and
//! [`reads::Reads`]; and [`in_background`], [`place`],
//! [`state`] and [`roster`].

mod background;
pub mod chunks;
pub mod created;
pub mod drives;
mod error;
pub mod flash_lookup;
mod inner;
mod lane;
pub mod limits;
mod opening;
mod operation;
mod options;
pub mod place;
pub mod reads;
pub mod roster;
mod set;
pub mod state;
mod store;

pub use error::{Error, OpenError};
pub use lane::{Done, Lane, Operation, Outcome};
pub use opening::in_background;
pub use options::Options;
pub use set::Set;
pub use store::{Change, Store};
