//! What executing a command needs.

use crate::server::shared::Shared;
use crate::stats::counters::Counters;
use std::time::Duration;
use terrace_cache::{Search, Session};
use terrace_runtime::limits::Limits;

/// One worker's means to execute commands, at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Executor<'w> {
    pub(crate) session: &'w Session,
    pub(crate) shared: &'w Shared,
    pub(crate) counters: &'w Counters,
    /// Which worker it is.
    pub(crate) worker: usize,
    /// Unix time in seconds.
    pub(crate) now: u32,
    pub(crate) limits: Limits,
}

/// Why an operation has no result yet. It changed nothing and wrote nothing.
#[derive(Debug)]
pub(crate) enum Unfinished {
    /// A page must be read first.
    Read(Box<Search>),
    /// Buffers are full: try again in about a millisecond.
    Wait,
    /// The record may not be back yet after a start: try again in about a millisecond, for [`RECOVERY_PATIENCE`].
    Recovering,
}

/// What waits for a start to bring a record back is refused after this.
pub(crate) const RECOVERY_PATIENCE: Duration = Duration::from_secs(1);
