//! What the engine says of itself: its statistics, and its sizes at start.

use crate::config::note::{Note, display_bytes, display_count};
use crate::dram::lane::Lane;
use crate::engine::{Engine, drain, limit};
use crate::facade::cache::Cache;
use crate::recovery::sizing::{RECORD_BYTES_WARNED, records_in};
use crate::segments::segment::SegmentTable;
use crate::stats::counters::TierCounters;
use crate::stats::{CacheStats, DriveErrors, DriveFailure, MemoryStats, SegmentStats, TierStats};
use crate::tiers::slots::TierStore;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_device::Health;
use terrace_policy::WritePolicy;

impl Cache {
    /// A consistent-enough picture for `stats`, `stats tiers` and metrics.
    pub fn stats(&self) -> CacheStats {
        stats(&self.engine)
    }

    /// Lines for the log at start: sizes, shards, segments, limits.
    pub fn describe(&self) -> Vec<Note> {
        describe(&self.engine)
    }

    /// Records that lost their places because the index had no room, and the mebibytes of memory with which records of
    /// 512 bytes would fill the tiers, if any are enough.
    pub fn evictions_by_index(&self) -> (u64, Option<u64>) {
        let evictions = &self.engine.shared().counters().evictions_index();
        (evictions.load(Ordering::Relaxed), self.engine.filling_mebibytes())
    }

    /// Every segment that holds records, in the order of [`SegmentStats::place`].
    pub fn segments(&self) -> Vec<SegmentStats> {
        let engine = &self.engine;
        let of_shard = |segments: &SegmentTable| {
            let stats = segments.iter().map(|sealed| {
                let slot = segments.slot(sealed.number);
                SegmentStats {
                    place: engine.shared().slots().place_number(slot),
                    tier: slot.tier,
                    sequence: sealed.seq,
                    live_bytes: segments.usage(sealed.number).live_bytes().into(),
                }
            });
            stats.collect::<Vec<_>>()
        };
        let mut all: Vec<_> =
            engine.shards().iter().flat_map(|shard| of_shard(shard.segments())).collect();
        all.sort_unstable_by_key(|segment| segment.place);
        all
    }
}

/// A number as people say it.
fn rounded(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..10_000_000 => format!("{} thousand", number / 1_000),
        _ => format!("{} million", number / 1_000_000),
    }
}

impl Cache {
    /// The tiers that were given up, by label, and why.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &DriveFailure)> {
        let tiers = self.engine.shared().slots().tiers().iter();
        tiers.filter_map(|tier| Some((tier.device().label(), tier.failure()?)))
    }

    /// The tiers by label, and how the drive of each is.
    pub fn drive_health(&self) -> impl Iterator<Item = (&str, Health)> {
        let tiers = self.engine.shared().slots().tiers().iter();
        tiers.map(|tier| (tier.device().label(), tier.device().health()))
    }

    /// The tiers by label, and how often their drives erred. Reads nine counters for each.
    pub fn drive_errors(&self) -> impl Iterator<Item = (&str, DriveErrors)> {
        let shared = self.engine.shared();
        shared.slots().tiers().iter().zip(shared.counters().tiers()).map(|(tier, counters)| {
            let errors = DriveErrors {
                failed_reads: counters.read_errors().load(Ordering::Relaxed),
                failed_writes: counters.write_errors().load(Ordering::Relaxed),
                corrupt_pages: counters.corrupt_pages().load(Ordering::Relaxed),
                classes: tier.device().errors(),
            };
            (tier.device().label(), errors)
        })
    }

    /// The tiers, by label, that the next start will find empty: their logs, or the state, could not keep what was
    /// changed.
    pub fn tiers_empty_next(&self) -> impl Iterator<Item = &str> {
        let shared = self.engine.shared();
        let tiers = shared.slots().tiers().iter().zip(shared.logs());
        let tiers = tiers.filter(|(tier, _)| !tier.drain().is_removed());
        let empty = tiers.filter(|(tier, log)| tier.has_failed() || log.has_failed());
        empty.map(|(tier, _)| tier.device().label())
    }

    /// The numbers of the tiers that were removed.
    pub fn removed_tiers(&self) -> impl Iterator<Item = usize> {
        let tiers = self.engine.shared().slots().tiers().iter().enumerate();
        tiers.filter(|(_, tier)| tier.drain().is_removed()).map(|(number, _)| number)
    }

    /// The write policy that each tier is in at present.
    pub fn write_policies(&self) -> impl Iterator<Item = WritePolicy> {
        let shared = self.engine.shared();
        let is_full = shared.counters().is_full();
        (0..shared.slots().tiers().len())
            .map(move |tier| shared.admission().write_policy(tier as u16, is_full))
    }
}

fn stats(engine: &Engine) -> CacheStats {
    let counters = engine.shared().counters();
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let block = u64::from(engine.geometry().block_bytes());
    let mut tiers: Vec<_> = engine
        .shared()
        .slots()
        .tiers()
        .iter()
        .zip(counters.tiers())
        .zip(live_payload_bytes(engine))
        .zip(engine.shared().logs())
        .map(|(((store, counters), payload), log)| {
            tier_stats(store, counters, payload, log.usage())
        })
        .collect();
    for (at, tier) in tiers.iter_mut().enumerate() {
        (tier.state, tier.drain) = drain::state(engine, at);
    }
    engine.shared().admission().show(&mut tiers, counters.is_full());
    let segments_used: u64 = tiers.iter().map(|tier| tier.segments_used).sum();
    let memory = MemoryStats {
        limit: engine.shared().budget().limit(),
        tier_index: get(counters.index_bytes()),
        page_tables: get(counters.page_table_bytes()),
        segment_table: segments_used * SegmentTable::ROW_BYTES,
        dram_index: get(counters.table_bytes()),
        write_buffer: counters.blocks_only_in_dram() * block,
        read_cache: get(counters.blocks(Lane::Hot)) * block,
        free: engine.shared().arena().idle() * block,
        // Blocks that were set aside are texts as what they hold.
        staging: engine.fixed_bytes() - engine.shared().arena().prepaid_blocks() * block,
        write_buffer_records: counters.records(Lane::Fresh).load(Ordering::Relaxed),
        read_cache_records: counters.records(Lane::Hot).load(Ordering::Relaxed),
    };
    CacheStats {
        records: memory.write_buffer_records + tiers.iter().map(|tier| tier.records).sum::<u64>(),
        bytes: counters.fresh_bytes().load(Ordering::Relaxed)
            + tiers.iter().map(|t| t.live_bytes).sum::<u64>(),
        memory,
        stored_total: counters.stored().load(Ordering::Relaxed),
        evictions: get(counters.evictions()),
        evictions_index: get(counters.evictions_index()),
        evictions_tier: get(counters.evictions_tier()),
        evictions_dram: get(counters.evictions_dram()),
        reclaimed_expired: get(counters.expired()),
        expired_unwritten: get(counters.expired_unwritten()),
        met_expired: get(counters.met_expired()),
        evicted_unfetched: get(counters.evicted_unfetched()),
        lost_to_collisions: get(counters.collisions()),
        removed_unread: get(counters.removed_unread()),
        waits: get(counters.waits()),
        read_cache_insertions: get(counters.promotions()),
        read_cache_evictions: get(counters.demotions()),
        shards: engine.shards().len() as u64,
        has_lost_state: engine.has_lost_state(),
        recovering_shards: engine.recovery().waiting().load(Ordering::Acquire) as u64,
        is_searching_chunks: engine.recovery().census().is_running(),
        chunk_search_shards_waiting: engine.recovery().census().shards_waiting() as u64,
        orphaned_chunks: engine.recovery().census().orphaned_chunks(),
        tiers,
    }
}

/// Bytes of keys and values of live records on each tier.
fn live_payload_bytes(engine: &Engine) -> Vec<u64> {
    let mut tiers = vec![0; engine.shared().slots().tiers().len()];
    for segments in engine.shards().iter().map(|shard| shard.segments()) {
        for sealed in segments.iter() {
            let tier = usize::from(segments.slot(sealed.number).tier);
            tiers[tier] += segments.live_payload_bytes(sealed.number);
        }
    }
    tiers
}

fn tier_stats(
    store: &TierStore,
    counters: &TierCounters,
    payload_bytes: u64,
    (tombstones, log_bytes): (u64, u64),
) -> TierStats {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let segment_bytes = u64::from(store.segment_bytes());
    let segments_used = get(counters.segments_used());
    let live_bytes = counters.live_bytes().load(Ordering::Relaxed);
    let footer_bytes = get(counters.footer_bytes());
    let health = store.device().health();
    TierStats {
        label: store.device().label().to_owned(),
        level: store.level(),
        capacity_bytes: store.capacity_bytes(),
        records: counters.records().load(Ordering::Relaxed),
        live_bytes,
        payload_bytes,
        padding_bytes: (segments_used * segment_bytes).saturating_sub(live_bytes + footer_bytes),
        footer_bytes,
        segments: store.segments().into(),
        segments_used,
        segment_bytes,
        hits: counters.hits().load(Ordering::Relaxed),
        false_reads: get(counters.false_reads()),
        reads: counters.reads().load(Ordering::Relaxed),
        read_bytes: counters.read_bytes().load(Ordering::Relaxed),
        background_reads: get(counters.background_reads()),
        background_read_bytes: get(counters.background_read_bytes()),
        segment_writes: get(counters.segment_writes()),
        written_bytes: get(counters.written_bytes()),
        stored_payload_bytes: counters.stored_payload_bytes().load(Ordering::Relaxed),
        tombstone_log_written_bytes: get(counters.log_written_bytes()),
        tombstones,
        tombstone_log_bytes: log_bytes,
        reinserted_records: get(counters.reinserted_records()),
        demoted_records: get(counters.demoted_records()),
        expired_segments: get(counters.expired_segments()),
        corrupt_pages: get(counters.corrupt_pages()),
        read_errors: get(counters.read_errors()),
        write_errors: get(counters.write_errors()),
        failed: store.has_failed(),
        unresponsive_seconds: health.unresponsive_for().as_secs(),
        health,
        drive_errors: store.device.errors(),
        ..TierStats::default()
    }
}

fn describe(engine: &Engine) -> Vec<Note> {
    let geometry = engine.geometry();
    let mut lines = vec![Note::Info(format!(
        "cache: {} of memory in blocks of {}, {} shards; values above {} are stored in chunks",
        display_bytes(engine.shared().budget().limit()),
        display_bytes(geometry.block_bytes() as u64),
        geometry.shards(),
        display_bytes(geometry.inline_bytes_max() as u64),
    ))];
    for tier in engine.shared().slots().tiers() {
        let level = match tier.level() {
            0 => String::new(),
            level => format!(", tier level {level}"),
        };
        lines.push(Note::Info(format!(
            "tier {}: {} segments of {}, full when records take {} % of them{level}",
            tier.device().label(),
            display_count(tier.segments().into()),
            display_bytes(tier.segment_bytes().into()),
            engine.full_percent(),
        )));
    }
    lines.extend(engine.shared().admission().ledger().describe(engine.shared().slots()));
    if engine.has_tiers() {
        lines.extend(describe_index(engine));
    }
    lines
}

fn describe_index(engine: &Engine) -> Vec<Note> {
    let records = records_in(limit::index_room(engine), engine.geometry());
    let capacity =
        engine.shared().slots().tiers().iter().map(TierStore::capacity_bytes).sum::<u64>();
    let full = capacity / 100 * u64::from(engine.full_percent());
    let mut lines = vec![Note::Info(format!(
        "index: up to {} % of the memory, room for about {} records, which fill the tiers with {} each",
        engine.tuning().index_percent,
        rounded(records),
        display_bytes(full / records.max(1))
    ))];
    let wanted = full / RECORD_BYTES_WARNED;
    if records < wanted {
        let enough = engine.filling_mebibytes();
        lines.push(Note::Warning(format!(
            "index: room for about {} records, where {} of {RECORD_BYTES_WARNED} bytes fill the tiers: records of \
             that size leave a part of the tiers unused{}",
            rounded(records),
            rounded(wanted),
            enough.map_or(String::new(), |enough| format!("; write -m {enough} to fill them")),
        )));
    }
    lines
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::rounded;

    #[test]
    fn large_numbers_are_rounded() {
        let texts = [0, 9_999, 10_000, 9_999_999, 10_000_000].map(rounded);
        assert_eq!(texts, ["0", "9999", "10 thousand", "9999 thousand", "10 million"]);
    }
}
