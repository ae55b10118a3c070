//! Counters of the running cache; relaxed atomics.

use crate::dram::lane::Lane;
use crate::platform::appended::Appended;
use crate::platform::getters::getters;
use crate::platform::striped::Striped;
use crate::state::TIERS_MAX;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

macro_rules! counters {
    (
        $(#[$doc:meta])* $name:ident {
            by_shard { $($(#[$spread_doc:meta])* $spread:ident,)* }
            by_session { $($(#[$session_doc:meta])* $session:ident,)* }
            $($(#[$field_doc:meta])* $field:ident,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Default)]
        pub(crate) struct $name {
            $($spread: Striped,)*
            $($session: Striped,)*
            $($field: AtomicU64,)*
        }

        impl $name {
            $($(#[$spread_doc])* pub(crate) fn $spread(&self) -> &Striped { &self.$spread })*
            $($(#[$session_doc])* pub(crate) fn $session(&self) -> &Striped { &self.$session })*
            $($(#[$field_doc])* pub(crate) fn $field(&self) -> &AtomicU64 { &self.$field })*

            /// For a cache with `shards` shards and at most `sessions` sessions.
            fn new(shards: usize, sessions: usize) -> Self {
                let [$($spread),*] = Striped::over(shards);
                let [$($session),*] = Striped::over(sessions);
                Self { $($spread,)* $($session,)* ..Self::default() }
            }
        }
    };
}

counters! {
    /// The counters of one tier.
    TierCounters {
        by_shard {
            records,
            live_bytes,
            stored_records,
            stored_payload_bytes,
        }
        by_session {
            hits,
            reads,
            read_bytes,
        }
        segments_used,
        /// Bytes of footers of segments in use.
        footer_bytes,
        /// Bytes of pages, extents and footers of segments in use; `sealed_bytes`: bytes of the records in them.
        filled_bytes,
        sealed_bytes,
        false_reads,
        background_reads,
        background_read_bytes,
        segment_writes,
        written_bytes,
        /// Bytes written to the tombstone log, its directory and cleaning included.
        log_written_bytes,
        reinserted_records,
        /// Records that came from the tier level above.
        demoted_records,
        expired_segments,
        corrupt_pages,
        read_errors,
        write_errors,
    }
}

impl TierCounters {
    /// Counts one more live record of a shard. The caller must hold its lock.
    pub(crate) fn add_live(&self, shard: usize, bytes: u32) {
        self.records.add(shard, 1);
        self.live_bytes.add(shard, bytes.into());
    }

    /// Counts one live record less. The caller must hold the shard's lock.
    pub(crate) fn sub_live(&self, shard: usize, bytes: u32) {
        self.records.sub(shard, 1);
        self.live_bytes.sub(shard, bytes.into());
    }

    /// Bytes of the tier that live records take, with their share of pages and footers.
    pub(crate) fn live_place_bytes(&self) -> u64 {
        let live = u128::from(self.live_bytes.load(Ordering::Relaxed));
        let [filled, sealed] = [&self.filled_bytes, &self.sealed_bytes]
            .map(|bytes| u128::from(bytes.load(Ordering::Relaxed)));
        (live * filled.max(sealed) / sealed.max(1)) as u64
    }
}

/// The counters of the whole cache.
#[derive(Default)]
pub(crate) struct Counters {
    fresh_blocks: AtomicU64,
    hot_blocks: AtomicU64,
    protected_blocks: AtomicU64,
    fresh_records: Striped,
    hot_records: Striped,
    /// Encoded bytes of live records that are only in DRAM.
    pub(super) fresh_bytes: Striped,
    pub(super) stored: Striped,
    pub(super) table_bytes: AtomicU64,
    pub(super) index_bytes: AtomicU64,
    /// Bytes that the indexes being built have more than those that they will replace.
    pub(super) index_growing_bytes: AtomicU64,
    pub(super) page_table_bytes: AtomicU64,
    pub(super) evictions: AtomicU64,
    /// Evictions because the index has no room though the tiers have; `evictions_tier`: for lack of free segments.
    pub(super) evictions_index: AtomicU64,
    pub(super) evictions_tier: AtomicU64,
    /// Evictions of records that were in DRAM only.
    pub(super) evictions_dram: AtomicU64,
    /// The index was the cause when the cache was last full.
    pub(super) index_full: AtomicBool,
    pub(super) evicted_unfetched: AtomicU64,
    pub(super) expired: AtomicU64,
    /// Expired records that were never written to a tier.
    pub(super) expired_unwritten: AtomicU64,
    /// Lookups that found an expired record.
    pub(super) met_expired: AtomicU64,
    pub(super) collisions: AtomicU64,
    pub(super) removed_unread: AtomicU64,
    pub(super) waits: AtomicU64,
    pub(super) promotions: AtomicU64,
    pub(super) demotions: AtomicU64,
    /// All tiers, or DRAM without tiers, are so full that records may be evicted.
    pub(super) full: AtomicBool,
    /// The tiers are full, or will be once the fresh records are written.
    pub(super) crowded: AtomicBool,
    tiers: Appended<TierCounters>,
    shards: usize,
    sessions: usize,
}

getters! {
    Counters {
        waits: &AtomicU64,
        met_expired: &AtomicU64,
        evictions_tier: &AtomicU64,
        page_table_bytes: &AtomicU64,
        evictions_index: &AtomicU64,
        collisions: &AtomicU64,
        removed_unread: &AtomicU64,
        index_growing_bytes: &AtomicU64,
        demotions: &AtomicU64,
        expired_unwritten: &AtomicU64,
        expired: &AtomicU64,
        stored: &Striped,
        promotions: &AtomicU64,
        index_bytes: &AtomicU64,
        table_bytes: &AtomicU64,
        fresh_bytes: &Striped,
        full: &AtomicBool,
        index_full: &AtomicBool,
        crowded: &AtomicBool,
        evicted_unfetched: &AtomicU64,
        evictions_dram: &AtomicU64,
        evictions: &AtomicU64,
    }
}

impl Counters {
    pub(crate) fn new(tiers: usize, shards: usize, sessions: usize) -> Self {
        let tiers = (0..tiers).map(|_| TierCounters::new(shards, sessions));
        let tiers = Appended::new(tiers, TIERS_MAX);
        let [fresh_records, hot_records, fresh_bytes, stored] = Striped::over(shards);
        Self {
            tiers,
            shards,
            sessions,
            fresh_records,
            hot_records,
            fresh_bytes,
            stored,
            ..Self::default()
        }
    }

    /// Adds the counters of one more tier; nothing if there are as many as there can be.
    pub(crate) fn append_tier(&self) {
        let _ = self.tiers.append(TierCounters::new(self.shards, self.sessions));
    }

    pub(crate) fn tier(&self, tier: u16) -> &TierCounters {
        &self.tiers[usize::from(tier)]
    }

    pub(crate) fn tiers(&self) -> &[TierCounters] {
        &self.tiers
    }

    pub(crate) fn blocks(&self, lane: Lane) -> &AtomicU64 {
        match lane {
            Lane::Fresh => &self.fresh_blocks,
            Lane::Hot => &self.hot_blocks,
            Lane::Protected => &self.protected_blocks,
        }
    }

    /// Records of a lane; fresh and protected ones are counted together.
    pub(crate) fn records(&self, lane: Lane) -> &Striped {
        match lane {
            Lane::Fresh | Lane::Protected => &self.fresh_records,
            Lane::Hot => &self.hot_records,
        }
    }

    /// Blocks of the records that have no sealed original.
    pub(crate) fn blocks_only_in_dram(&self) -> u64 {
        let blocks = |lane| self.blocks(lane).load(Ordering::Relaxed);
        blocks(Lane::Fresh) + blocks(Lane::Protected)
    }

    /// Counts live records that were evicted from tiers.
    pub(crate) fn note_evicted_from_tiers(&self, records: u64) {
        let by_index = self.index_full.load(Ordering::Relaxed);
        let cause = if by_index { &self.evictions_index } else { &self.evictions_tier };
        cause.fetch_add(records, Ordering::Relaxed);
        self.evictions.fetch_add(records, Ordering::Relaxed);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
