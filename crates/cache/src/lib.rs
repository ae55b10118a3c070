//! The tiered cache: an exact table of the records in DRAM, a compact index of the sealed records on
//! drives, and the segments that carry records from one to the other. Knows no sockets.
//!
//! A worker thread owns a [`Session`] and calls [`Session::get`] and [`Session::update`]. Neither
//! blocks on a drive: where the answer needs a page from flash they hand back a [`Probe`] that says
//! what to read; the worker reads it, shows the bytes to [`Session::check`], and calls again with
//! the result as [`Evidence`]. Sealing, reclaim and index growth run in [`Cache::maintain`] on a
//! thread of their own.

mod admission;
mod bucket;
mod budget;
mod buffers;
mod cache;
mod chunks;
mod config;
mod counters;
mod crash;
mod descent;
mod dram;
mod dump;
mod expiry;
mod fullness;
mod geometry;
mod grow;
mod hot;
mod key;
mod kill_log;
mod ladder;
mod layout;
mod ledger;
mod limit;
mod log_page;
mod maintain;
mod manifest;
mod mapped;
mod media;
mod memory;
mod merge;
mod mount;
mod moving;
mod observer;
mod packing;
mod pages;
mod pick;
mod pool;
mod prefetch;
mod probe;
mod published;
mod quiesce;
mod random;
mod reclaim;
mod record;
mod recover;
mod replay;
mod report;
mod resident;
mod seal;
mod sealed;
mod segment;
mod session;
mod settle;
mod shard;
mod slots;
mod spread;
mod start;
mod state;
mod stats;
mod suspended;
mod sync;
mod table;
mod update;
mod word;

pub use cache::{Cache, OpenError};
pub use config::{Config, Durability, FULL_PERCENT, OnMismatch, Tier, Tuning, WriteRate};
#[cfg(feature = "crash-points")]
pub use crash::set_crash_hook;
pub use dump::{Dump, Listed};
pub use key::{CHUNKS_TOGETHER, Key};
pub use limit::LimitError;
pub use manifest::{ItemId, Manifest, Run};
#[doc(hidden)]
pub use media::read_media;
pub use mount::is_foreign;
pub use observer::{Observer, Reclaim};
pub use probe::Probe;
pub use record::{Body, NewRecord, NewValue, Record};
pub use session::{Access, Checked, Evidence, Hit, Lookup, ReadPlan, Session};
pub use state::StateFile;
pub use stats::{CacheStats, MemoryStats, SegmentStats, TierStats};
pub use terrace_policy::Gear;
pub use update::{Change, Update};

/// Locks, and goes on with what a panicking thread left: every critical section leaves its data
/// consistent at each step that can panic.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
