//! The tiered cache: an exact table of the records in DRAM, a compact index of the sealed records on
//! drives, and the segments that carry records from one to the other. Knows no sockets.
//!
//! A worker thread owns a [`Session`] and calls [`Session::get`] and [`Session::update`]. Neither
//! blocks on a drive: where the answer needs a page from flash they hand back a [`Probe`] that says
//! what to read; the worker reads it, shows the bytes to [`Session::check`], and calls again with
//! the result as [`Evidence`]. Sealing, reclaim and index growth run in [`Cache::maintain`] on a
//! thread of their own.
//!
//! The folders follow the data, from a request to a drive:
//!
//! ```text
//! request    what a worker does: look up, say what to read, check it, change a record
//! records    what a record is: key, hash, bytes, and items too large for one
//! dram       records in DRAM: blocks under one cap, the exact table, hot copies, what is let go
//! index      the sealed index: from a name to a segment in about four bytes
//! segments   from fresh records to sorted pages on a drive, and which page has which
//! tiers      the drives: places, rungs, how full, what may be written, what is written
//! reclaim    taking segments back: merging, moving, descent, expiry
//! kill_log   what must not come back after a crash
//! recovery   from what an earlier process left to an open cache
//! stats      what is counted, and who is told
//! platform   what processor, kernel and threads give; knows nothing of records
//! ```
//!
//! Above them stand the engine ([`Cache`]), its shards and what these share (`shared`), the sizes that follow
//! from its configuration (`geometry`), and the background work in slices (`maintain`).

mod background;
mod config;
mod dram;
mod engine;
mod facade;
mod index;
mod log;
mod platform;
mod records;
mod recovery;
mod request;
mod segments;
mod shard;
mod shared;
mod state;
mod stats;
mod tiers;

pub use config::error::OpenError;
pub use config::note::{Note, display_bytes, display_count};
pub use config::{Config, Durability, FULL_PERCENT, OnMismatch, Tier, Tuning, WriteRate};
pub use engine::limit::LimitError;
pub use facade::cache::Cache;
pub use facade::dump::Dump;
#[cfg(feature = "crash-points")]
pub use platform::crash::set_crash_hook;
pub use platform::mapped::replace_lost;
pub use records::access::Access;
pub use records::key::{CHUNKS_TOGETHER, Key};
pub use records::listed::Listed;
pub use records::manifest::{ItemId, Manifest, Run};
pub use records::record::{Body, NewRecord, NewValue, Record};
#[doc(hidden)]
pub use recovery::media::read_media;
pub use recovery::mount::{FIRST_PAGE, is_foreign, is_member, set_of};
pub use recovery::sizing::{RECORD_BYTES_REFUSED, RECORD_BYTES_WARNED};
pub use request::ahead::Intent;
pub use request::chunks::Pin;
pub use request::probe::Probe;
pub use request::session::{Checked, Chunks, Evidence, Hit, Lookup, Session};
pub use request::update::{Change, Update};
pub use segments::segment::ReadPlan;
pub use shared::observer::{Observer, Reclaim};
pub use state::{RETIRED, StateFile, StateOwner, is_in_memory};
pub use stats::{CacheStats, DriveErrors, MemoryStats, SegmentStats, TierStats};
pub use terrace_policy::WritePolicy;
