//! What executing a command needs.

use crate::server::shared::Shared;
use crate::stats::counters::Counters;
use terrace_cache::{Probe, Session};

/// Chunks of large items are no longer than this: what a connection buffers of one is bounded by it.
const CHUNK_BYTES_MAX: usize = 256 << 10;

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
    /// Longer values are chunked.
    pub(crate) inline_bytes_max: usize,
    /// Bytes per chunk.
    pub(crate) chunk_bytes: usize,
    /// Longer values are refused.
    pub(crate) item_bytes_max: u64,
}

/// Why an operation has no result yet. It changed nothing and wrote nothing.
#[derive(Debug)]
pub(crate) enum Unfinished {
    /// A page must be read first. Boxed, so that results fit into registers where nothing is read.
    Read(Box<Probe>),
    /// Buffers are full: try again in about a millisecond.
    Wait,
}

impl Unfinished {
    /// A page must be read first.
    pub(crate) fn read(probe: Probe) -> Self {
        Self::Read(Box::new(probe))
    }
}

/// Sizes that never change while a server runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) inline_bytes_max: usize,
    pub(crate) chunk_bytes: usize,
    pub(crate) item_bytes_max: u64,
}

impl Limits {
    pub(crate) fn of(cache: &terrace_cache::Cache) -> Self {
        let inline_bytes_max = cache.inline_bytes_max();
        Self {
            inline_bytes_max,
            chunk_bytes: inline_bytes_max.clamp(1, CHUNK_BYTES_MAX),
            item_bytes_max: cache.item_bytes_max(),
        }
    }
}
