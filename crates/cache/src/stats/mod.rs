//! What the cache counts.

pub(crate) mod counters;

use std::time::Duration;
use terrace_device::{ErrorClass, ErrorCounts, Health};
use terrace_policy::WritePolicy;

/// Everything that `stats`, `stats tiers` and the metrics show of the cache.
#[derive(Clone, Debug, Default)]
pub struct CacheStats {
    /// Where DRAM goes.
    pub memory: MemoryStats,
    /// Live records, in DRAM and on tiers.
    pub records: u64,
    /// Payload bytes (keys and values) of live records, as far as known.
    pub bytes: u64,
    /// Records ever stored.
    pub stored_total: u64,
    /// Live records evicted.
    pub evictions: u64,
    /// Of those, because the index had no room for them, though the tiers had.
    pub evictions_index: u64,
    /// Of those, because the tiers were full.
    pub evictions_tier: u64,
    /// Of those, from DRAM, where they were alone.
    pub evictions_dram: u64,
    /// Records dropped because they had expired.
    pub reclaimed_expired: u64,
    /// Of those, never written to a drive.
    pub expired_unwritten: u64,
    /// Lookups that missed because what they found had expired.
    pub met_expired: u64,
    /// Unread among the evicted.
    pub evicted_unfetched: u64,
    /// Records that lost their place to one of equal bucket and fingerprint, and found none when they
    /// were to come back.
    pub lost_to_collisions: u64,
    /// Sealed records that a change removed unread, in a full cache or from a page that can't be read: most are the
    /// key's own older record, the rest have its bucket and fingerprint.
    pub removed_unread: u64,
    /// SETs that had to wait for buffers.
    pub waits: u64,
    /// Copies of hot records of tiers made in DRAM.
    pub read_cache_insertions: u64,
    /// Such copies dropped.
    pub read_cache_evictions: u64,
    /// Shards, and those of them whose sealed records are not back yet after a start.
    pub shards: u64,
    /// Shards still to be recovered.
    pub recovering_shards: u64,
    /// A part of the state was lost while it was in use, see [`crate::replace_lost`].
    pub has_lost_state: bool,
    /// Whether chunks of large items without an owner are looked for, or about to be.
    pub is_searching_chunks: bool,
    /// Shards that this search has yet to look through.
    pub chunk_search_shards_waiting: u64,
    /// Chunks without an owner that were found since the start.
    pub orphaned_chunks: u64,
    /// One per configured tier.
    pub tiers: Vec<TierStats>,
}

/// Where DRAM goes, in bytes.
#[derive(Clone, Debug, Default)]
pub struct MemoryStats {
    /// The cap (`-m`).
    pub limit: u64,
    /// The index of records on tiers: buckets and their versions.
    pub tier_index: u64,
    /// Page tables and extent directories.
    pub page_tables: u64,
    /// Segment table rows.
    pub segment_table: u64,
    /// The exact table of records in DRAM.
    pub dram_index: u64,
    /// Blocks with records that are on no tier yet; without tiers, all records.
    pub write_buffer: u64,
    /// Blocks with copies of hot records of tiers.
    pub read_cache: u64,
    /// Blocks that hold no records.
    pub free: u64,
    /// Buffers of segments that are written and reclaimed, the state and the tombstone log; without tiers also
    /// write buffers that are set aside.
    pub staging: u64,
    /// Records that are on no tier yet.
    pub write_buffer_records: u64,
    /// Copies of hot records of tiers.
    pub read_cache_records: u64,
}

/// One tier.
#[derive(Clone, Debug, Default)]
pub struct TierStats {
    /// The device as the user named it.
    pub label: String,
    /// Its tier level: 0 for the tiers that take new records, one more behind each `,below`.
    pub level: u16,
    /// Bytes of the device that segments can use.
    pub capacity_bytes: u64,
    /// Live records.
    pub records: u64,
    /// Bytes of live records with their headers.
    pub live_bytes: u64,
    /// Keys and values in live records' bytes.
    pub payload_bytes: u64,
    /// Page headers and padding in segments that hold records.
    pub padding_bytes: u64,
    /// Footers of segments that hold records.
    pub footer_bytes: u64,
    /// Segments: all, holding records, free.
    pub segments: u64,
    /// Segments that hold records.
    pub segments_used: u64,
    /// Bytes per segment.
    pub segment_bytes: u64,
    /// Gets answered from this tier.
    pub hits: u64,
    /// Reads that found another key, or nothing.
    pub false_reads: u64,
    /// Reads for requests, and their bytes.
    pub reads: u64,
    /// Bytes read for requests.
    pub read_bytes: u64,
    /// Reads by reclaim and growth.
    pub background_reads: u64,
    /// Bytes read by reclaim and growth.
    pub background_read_bytes: u64,
    /// Segments written.
    pub segment_writes: u64,
    /// Bytes written, all told.
    pub written_bytes: u64,
    /// Keys and values that clients stored and that were written here for the first time.
    pub stored_payload_bytes: u64,
    /// Bytes written to the tombstone log, which [`TierStats::written_bytes`] does not count.
    pub tombstone_log_written_bytes: u64,
    /// Tombstones of the log that name a segment in use.
    pub tombstones: u64,
    /// Bytes that the tombstone log takes, on the tier and in the state.
    pub tombstone_log_bytes: u64,
    /// What the tier writes and keeps at present.
    pub write_policy: WritePolicy,
    /// What the drive may be written on average, in bytes per second; 0 without a limit.
    pub budget_bytes_per_second: u64,
    /// Bytes of that which were saved up; negative when overdrawn.
    pub budget_balance_bytes: i64,
    /// Records dropped from DRAM unwritten, by the write policy or for lack of write budget.
    pub dropped_records: u64,
    /// Bytes of those.
    pub dropped_bytes: u64,
    /// Bytes that the drive writes per byte that it is sent, as it says itself, if it does.
    pub amplification: Option<f64>,
    /// Years until the drive has been written its size once a day for five years, at the rate since the start. `None`
    /// until the process has run for a day, and as long as nothing was written.
    pub life_years: Option<f64>,
    /// Records written again by reclaim.
    pub reinserted_records: u64,
    /// Records demoted to this tier from the tier level above.
    pub demoted_records: u64,
    /// Segments given back unread, since all of their records had expired.
    pub expired_segments: u64,
    /// Pages whose checksum did not fit; each a miss.
    pub corrupt_pages: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// The device was given up after errors.
    pub failed: bool,
    /// Whether it takes new records, is drained, or is out of use.
    pub state: TierState,
    /// How far its drain is, if there is one.
    pub drain: Option<DrainStats>,
    /// How the drive is, as transfers have shown.
    pub health: Health,
    /// For how many seconds the drive has not answered a transfer; 0 while it answers.
    pub unresponsive_seconds: u64,
    /// Errors of transfers, by class. [`TierStats::read_errors`] and [`TierStats::write_errors`] count what came of them.
    pub drive_errors: ErrorCounts,
}

/// What a tier is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TierState {
    /// It takes new records.
    #[default]
    Working,
    /// It takes no new records, and those that it has are being moved to other tiers.
    Draining,
    /// As `Draining`; no other tier has room at present.
    NoRoom,
    /// As `Draining`; no record is left.
    Drained,
    /// It was given up after errors of its drive.
    Failed,
    /// It left the set, for as long as the process lives.
    Removed,
}

impl TierState {
    /// Its name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            TierState::Working => "working",
            TierState::Draining => "draining",
            TierState::NoRoom => "no-room",
            TierState::Drained => "drained",
            TierState::Failed => "failed",
            TierState::Removed => "removed",
        }
    }

    /// Its number in metrics.
    pub fn number(self) -> u64 {
        match self {
            TierState::Working => 0,
            TierState::Draining => 1,
            TierState::NoRoom => 2,
            TierState::Drained => 3,
            TierState::Failed => 4,
            TierState::Removed => 5,
        }
    }
}

/// What a drain does with records that no other tier has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainMode {
    /// It waits for room.
    KeepAll,
    /// The oldest records of the other tiers, or of this one, are dropped, as they are when all tiers are full.
    DropOldest,
}

/// How far the drain of a tier is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainStats {
    /// What it does with records that no other tier has room for.
    pub mode: DrainMode,
    /// Unix seconds when it began.
    pub began: u32,
    /// How long it has lasted.
    pub lasted: Duration,
    /// Bytes of live records at that time.
    pub began_with: u64,
    /// Segments that still hold records.
    pub segments_left: u64,
    /// Bytes of live records in them.
    pub bytes_left: u64,
}

/// Errors of a tier's drive since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveErrors {
    /// As [`TierStats::read_errors`].
    pub failed_reads: u64,
    /// As [`TierStats::write_errors`].
    pub failed_writes: u64,
    /// As [`TierStats::corrupt_pages`].
    pub corrupt_pages: u64,
    /// As [`TierStats::drive_errors`].
    pub classes: ErrorCounts,
}

/// Why a tier was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveFailure {
    /// What the last error means to an operator.
    pub class: ErrorClass,
    /// The last error, in the system's words.
    pub message: String,
}

/// One segment that holds records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentStats {
    /// The number of its place among those of all tiers, one tier after the other.
    pub place: u64,
    /// The tier that it lies on.
    pub tier: u16,
    /// The number of its seal.
    pub sequence: u64,
    /// Bytes of its live records with their headers.
    pub live_bytes: u64,
}
