//! The tiered cache: an exact table of the records in DRAM, a compact index of the sealed records on
//! drives, and the segments that carry records from one to the other. Knows no sockets.
//!
//! A worker thread owns a [`Session`] and calls [`Session::get`] and [`Session::update`]. Neither
//! blocks on a drive: where the answer needs a page from flash they hand back a [`Probe`] that says
//! what to read; the worker reads it, shows the bytes to [`Session::check`], and calls again with
//! the result as [`Evidence`]. Sealing, reclaim and index growth run in [`Cache::maintain`] on a
//! thread of their own.

mod config;
mod key;
mod manifest;
mod record;
mod session;
mod stats;

pub use config::{Config, Tier, Tuning};
pub use key::Key;
pub use manifest::{ItemId, Manifest, Run};
pub use record::{Body, NewRecord, NewValue, Record};
pub use session::{
    Access, Change, Checked, Evidence, Hit, Lookup, Probe, ReadPlan, Session, Update,
};
pub use stats::{CacheStats, MemoryStats, TierStats};

use std::sync::Arc;

/// Why a cache could not be opened; the text says what to change.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The configuration contradicts itself or the devices.
    #[error("{0}")]
    Config(String),
    /// A device holds something that is not Terrace's; it was not written.
    #[error("{device}: holds data that Terrace did not write; give an empty file or wipe it first")]
    Foreign {
        /// The device's label.
        device: String,
    },
    /// A device could not be read or written at start.
    #[error("{device}: {source}")]
    Device {
        /// The device's label.
        device: String,
        /// What the device answered.
        source: std::io::Error,
    },
}

/// The cache; shared by all workers.
pub struct Cache {
    _private: (),
}

impl Cache {
    /// Lays out memory and tiers; takes no longer than writing a superblock to each device.
    pub fn open(config: Config) -> Result<Arc<Self>, OpenError> {
        let _ = config;
        Ok(Arc::new(Self { _private: () }))
    }

    /// A session for one worker thread. At most `Config::sessions_max` live at once.
    pub fn session(self: &Arc<Self>) -> Session {
        unimplemented!()
    }

    /// Does one slice of background work (seal, reclaim, grow, release) and says whether there was
    /// any. To be called in a loop by one thread, which naps (about 1 ms) when it returns `false`.
    pub fn maintain(&self, now: u32) -> bool {
        let _ = now;
        false
    }

    /// Makes every record stored so far invisible, at once.
    pub fn flush_all(&self) {}

    /// The longest value (bytes) that one record holds; longer ones are chunked, see
    /// [`Session::store_chunk`].
    pub fn inline_bytes_max(&self) -> usize {
        0
    }

    /// The longest item (bytes of value) that fits: `Config::item_bytes_max` or an eighth of the
    /// capacity, whichever is less.
    pub fn item_bytes_max(&self) -> u64 {
        0
    }

    /// A consistent-enough picture for `stats`, `stats tiers` and metrics.
    pub fn stats(&self) -> CacheStats {
        CacheStats::default()
    }

    /// Lines for the log at start: sizes, shards, segments, limits.
    pub fn describe(&self) -> Vec<String> {
        Vec::new()
    }
}
