//! The tiered cache: an exact table of the records in DRAM, a compact index of the sealed records on
//! drives, and the segments that carry records from one to the other. Knows no sockets.
//!
//! A worker thread owns a [`Session`] and calls [`Session::get`] and [`Session::update`]. Neither
//! blocks on a drive: where the answer needs a page from flash they return a [`Search`] that says
//! what to read; the worker reads it, gives the bytes to [`Search::take`], and calls again with
//! [`Search::evidence`]. Sealing, reclaim and index growth run in [`Cache::maintain`] on a
//! thread of their own.
//!
//! The folders are layers: each imports those above it in this list, and none below (a test holds that).
//!
//! ```text
//! platform    what processor, kernel and threads give: mappings, RCU, quiescence; knows nothing of records
//! records     what a record is: key, hash, bytes, and items too large for one
//! index       the sealed index: from a name to a segment in about four bytes
//! state       the file of what outlives the process
//! config      what a cache is opened with, and what is said in return
//! segments    sorted pages of records on a drive, and which page has which record
//! dram        blocks of records under one cap, the exact table, what a record knows of its uses
//! stats       what is counted
//! tiers       the drives: free segments, tier levels, write budgets
//! log         the tombstone log of a tier: what must not come back after a crash
//! shared      what all shards share, and the sizes that follow from the configuration
//! shard       the records of one part of the hash, and the lock under which they change
//! engine      all shards, and what concerns the cache as a whole: fullness, limits, durability
//! request     what a worker does: look up, say what to read, check it, change a record
//! background  what threads of the background do, in slices: seal, reclaim, demote, grow, evict, expire
//! recovery    from what an earlier process left to an open cache
//! facade      the cache as its callers see it
//! ```
//!
//! # Lock order
//!
//! A thread that holds a lock takes only locks that stand further down. Of each kind it holds one at most.
//!
//! 1. A partition of the background (`background::scheduler`): what one thread works with between two slices.
//! 2. The pass of the search for chunks (`engine::census`).
//! 3. `drains` (`engine`): which tiers take new records.
//! 4. `due_written`, then `strict_written` (`engine`): what the superblocks say.
//! 5. The handling of a lost state (`state`).
//! 6. A shard (`shard`): everything that its keys mean.
//! 7. The chunks of items that are gone (`records::garbage`).
//! 8. The writer of a tombstone log (`log`).
//! 9. Lists under which nothing else is taken: free blocks, free segments, write budgets, the ghost list, memory that
//!    readers may still see, readers, buffers of recovery.

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
pub use config::witness::Witness;
pub use config::{Config, Durability, FULL_PERCENT, OnMismatch, Tier, Tuning, WriteRate};
pub use engine::drain::{DrainError, Remove, RemoveError};
pub use engine::join::{JoinError, NewTier};
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
pub use recovery::mount::{is_foreign, is_member, set_of};
pub use recovery::sizing::{RECORD_BYTES_REFUSED, RECORD_BYTES_WARNED};
pub use request::ahead::Intent;
pub use request::chunks::Pin;
pub use request::search::{Evidence, Search, Taken};
pub use request::session::{Chunks, Hit, Lookup, Session};
pub use request::update::{Change, Update};
pub use segments::segment::ReadPlan;
pub use shared::observer::{Observer, Reclaim};
pub use state::{RETIRED, StateFile, StateOwner, TIERS_MAX, is_in_memory};
pub use stats::{
    CacheStats, DrainMode, DrainStats, DriveErrors, DriveFailure, MemoryStats, SegmentStats,
    TierState, TierStats,
};
pub use terrace_policy::WritePolicy;
