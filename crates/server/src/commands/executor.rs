//! What executing a command needs.

use crate::server::shared::Shared;
use crate::stats::counters::Counters;
use std::time::Duration;
use terrace_cache::{Search, Session};

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
    /// Bytes per chunk, at most.
    pub(crate) chunk_bytes_max: usize,
    /// Longer values are refused.
    pub(crate) item_bytes_max: u64,
}

impl Executor<'_> {
    /// Bytes per chunk of a value.
    pub(crate) fn chunk_bytes(&self, value_bytes: u64) -> usize {
        even_chunks(value_bytes, self.chunk_bytes_max as u64) as usize
    }
}

/// No more chunks than it takes, and all of them about as long: a short one at the end would lie in a page,
/// away from the others, and cost a read of its own.
fn even_chunks(value_bytes: u64, most: u64) -> u64 {
    let chunks = value_bytes.div_ceil(most).max(1);
    value_bytes.div_ceil(chunks).max(1)
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

/// Sizes that never change while a server runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) inline_bytes_max: usize,
    pub(crate) chunk_bytes_max: usize,
    pub(crate) item_bytes_max: u64,
}

impl Limits {
    pub(crate) fn of(cache: &terrace_cache::Cache) -> Self {
        let inline_bytes_max = cache.inline_bytes_max();
        Self {
            inline_bytes_max,
            chunk_bytes_max: inline_bytes_max.clamp(1, CHUNK_BYTES_MAX),
            item_bytes_max: cache.item_bytes_max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_a_value_are_about_as_long_and_as_few_as_can_be() {
        assert_eq!([0, 1, 100, 101].map(|bytes| even_chunks(bytes, 100)), [1, 1, 100, 51]);
        for value in 1..2000_u64 {
            let each = even_chunks(value, 100);
            let (chunks, last) = (value.div_ceil(each), (value - 1) % each + 1);
            assert_eq!(chunks, value.div_ceil(100), "{value}");
            assert!(each <= 100 && each - last < chunks, "{value}: {each}, at the end {last}");
        }
    }
}
