//! Load for memcached servers: many connections, pipelined, and every value checked.
//!
//! A [`Plan`] says what to send and over how many connections; [`run`] sends it and gives back a
//! [`Report`]. Keys and values follow from a number alone ([`Sizes`], [`Values`]), so that no memory of
//! what was stored is needed to tell a right value from an old, torn or foreign one.
//!
//! The generator must cost less than what it measures: it allocates nothing per request, and asks
//! the kernel once per batch of requests rather than once per request.
#![forbid(unsafe_code)]

mod address;
mod arguments;
mod back_end;
mod cli;
mod client;
mod compare;
mod connection;
mod cores;
mod drives;
mod encode;
mod error;
mod etc;
mod html;
mod keys;
mod left;
mod monitor;
mod pace;
mod pick;
mod plan;
mod precondition;
mod process;
mod progress;
mod records;
mod replay;
mod replies;
mod report;
mod requests;
mod search;
mod series;
mod server;
mod sizes;
mod slots;
mod socket;
mod tally;
mod threads;
mod tls;
mod values;
mod versions;
mod window;

pub use address::Address;
pub use cli::{command, main};
pub use client::Client;
pub use error::LoadError;
pub use plan::{End, Gaps, Plan, Popularity, Protocol, Workload};
pub use process::{Process, Usage};
pub use replay::Replay;
pub use report::{Latency, Report, Windows};
pub use series::Series;
pub use sizes::Sizes;
pub use tally::Tally;
pub use threads::run;
pub use tls::Tls;
pub use values::Values;
