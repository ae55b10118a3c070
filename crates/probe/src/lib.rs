//! What a drive can do: bandwidth and latency over block sizes, requests in flight and concurrent
//! writers; how sensitive it is to concurrent access; and a profile of it for `terrace plan`.
//!
//! Reads go through the server's own queue, so that what is measured is what the server gets.
#![forbid(unsafe_code)]

mod cli;
mod error;
mod point;
mod profile;
mod read;
mod sensitivity;
mod target;
mod write;

pub use cli::main;
pub use error::ProbeError;
pub use point::{Access, Point};
pub use profile::Profile;
pub use read::read;
pub use sensitivity::{Sensitivity, knee};
pub use target::Target;
pub use write::write;
