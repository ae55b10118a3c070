//! `cache_memlimit`.

use crate::commands::executor::Executor;
use std::sync::atomic::Ordering;
use terrace_cache::LimitError;
use terrace_protocol::{number_u64, reply};
use tracing::warn;

/// What memcached takes for bytes instead of megabytes.
const MEGABYTES_MAX: u64 = 1_000_000_000;

/// Changes the cap on memory, until the server ends.
pub(super) fn execute(executor: &Executor<'_>, arguments: &[&[u8]]) -> &'static [u8] {
    let [word, ..] = arguments else { return reply::ERROR };
    let Some(megabytes) = number_u64(word) else {
        return reply::ERROR;
    };
    if megabytes < 8 {
        return b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n";
    }
    if megabytes > MEGABYTES_MAX {
        return b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n";
    }
    let shared = executor.shared;
    let asked = megabytes << 20;
    match shared.cache.set_memory_limit(asked.min(shared.settings.cache_bytes_max())) {
        Ok(()) => {
            shared.memory_asked.store(asked, Ordering::Relaxed);
            shared.log(1, || format!("maxbytes adjusted to {megabytes}m"));
            reply::OK
        }
        Err(error) => {
            let bound = match error {
                LimitError::TooLow { least } => format!(" ({} MiB)", least.div_ceil(1 << 20)),
                LimitError::TooHigh { most } => format!(" ({} MiB)", most >> 20),
                LimitError::NoRoom => String::new(),
            };
            warn!("cache_memlimit {megabytes}: {error}{bound}");
            b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n"
        }
    }
}
