//! From a command line to a running server: what the process asks of the system before and while
//! it serves. The steps are in `main`, one file here for each.

pub(crate) mod banner;
pub(crate) mod daemon;
pub(crate) mod limits;
pub(crate) mod pid_file;
pub(crate) mod port_file;
pub(crate) mod roster;
pub(crate) mod state;
pub(crate) mod tiers;
pub(crate) mod user;

use std::fmt::Display;

/// Why the process ends: one line, and the exit code of sysexits.h.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) code: u8,
}

impl Failure {
    /// Settings can't be had, or not together.
    pub(crate) const USAGE: u8 = terrace::settings::UsageError::EX_USAGE;
    /// The user of `-u` does not exist.
    pub(crate) const NO_USER: u8 = 67;
    /// The system refused something.
    pub(crate) const SYSTEM: u8 = 71;

    pub(crate) fn new(code: u8, message: impl Display) -> Self {
        Self { message: message.to_string(), code }
    }

    pub(crate) fn system(message: impl Display) -> Self {
        Self::new(Self::SYSTEM, message)
    }
}
