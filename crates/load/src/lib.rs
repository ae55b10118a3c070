//! Load for memcached servers: many connections, pipelined, and every value checked.
//!
//! A [`Plan`] says what to send and over how many connections; [`run`] sends it and gives back a
//! [`Report`]. Keys and values follow from a number alone ([`Keys`], [`Values`]), so that no memory
//! of what was stored is needed to tell a right value from an old, torn or foreign one.
//!
//! The generator must cost less than what it measures: it allocates nothing per request, and asks
//! the kernel once per batch of requests rather than once per request.
#![forbid(unsafe_code)]

mod cli;
mod client;
mod connection;
mod error;
mod keys;
mod pace;
mod pick;
mod plan;
mod process;
mod replies;
mod report;
mod requests;
mod tally;
mod threads;
mod values;

pub use cli::main;
pub use client::Client;
pub use error::LoadError;
pub use keys::Keys;
pub use plan::{End, Plan, Popularity, Protocol, Workload};
pub use process::{Process, Usage};
pub use report::Report;
pub use tally::Tally;
pub use threads::run;
pub use values::Values;
