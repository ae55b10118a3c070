//! What a medium can do: bandwidth and latency over block sizes, requests in flight, concurrent
//! writers and processes; how sensitive it is to concurrent access; and a profile of a drive for the
//! server and for `terrace plan`.
//!
//! Reads of drives go through the server's own queue, so that what is measured is what the server
//! gets.
#![forbid(unsafe_code)]

/// Writes a line of results. Who does not listen any more, as `head` does, is no reason to end.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

/// The same of what is told besides, on standard error.
macro_rules! tell {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod chart;
mod cli;
mod error;
mod holes;
mod measure;
mod medium;
mod memory;
mod point;
mod process;
mod profile;
mod read;
mod sensitivity;
mod series;
mod show;
mod target;
mod worker;
mod write;

pub use cli::{command, main};
pub use error::ProbeError;
pub use point::{Access, Operation, Point};
pub use profile::Profile;
pub use read::read;
pub use sensitivity::{Sensitivity, knee};
pub use target::Target;
pub use write::write;
