//! `stats tiers`: where DRAM goes, and what each tier holds and does. Sizes are in bytes, times in
//! microseconds.

use super::latency::{Latency, Percentiles};
use super::tier_state;
use super::view::{Row, Source, View, write, write_rows};
use crate::server::drive_health::report::Figure;
use Source::{Number, Text};
use std::sync::Arc;
use terrace_cache::TierStats;
use terrace_device::ErrorClass;

/// Rows of the cache as a whole.
const ROWS: &[Row] = &[
    ("memory_limit", Number(|v| v.cache.memory.limit)),
    ("memory_tier_index", Number(|v| v.cache.memory.tier_index)),
    ("memory_page_tables", Number(|v| v.cache.memory.page_tables)),
    ("memory_segment_table", Number(|v| v.cache.memory.segment_table)),
    ("memory_dram_index", Number(|v| v.cache.memory.dram_index)),
    ("memory_write_buffer", Number(|v| v.cache.memory.write_buffer)),
    ("memory_read_cache", Number(|v| v.cache.memory.read_cache)),
    ("memory_free", Number(|v| v.cache.memory.free)),
    ("memory_staging", Number(|v| v.cache.memory.staging)),
    ("memory_program", Number(|v| v.shared.program_bytes)),
    ("memory_connections", Number(|v| v.shared.memory.held())),
    ("memory_connections_limit", Number(|v| v.shared.memory.cap())),
    ("records", Number(|v| v.cache.records)),
    ("records_write_buffer", Number(|v| v.cache.memory.write_buffer_records)),
    ("records_read_cache", Number(|v| v.cache.memory.read_cache_records)),
    ("index_bytes_per_record", Text(index_bytes_per_record)),
    ("evictions", Number(|v| v.cache.evictions)),
    ("evictions_index", Number(|v| v.cache.evictions_index)),
    ("evictions_tier", Number(|v| v.cache.evictions_tier)),
    ("evictions_dram", Number(|v| v.cache.evictions_dram)),
    ("reclaimed_expired", Number(|v| v.cache.reclaimed_expired)),
    ("expired_unwritten", Number(|v| v.cache.expired_unwritten)),
    ("evicted_unfetched", Number(|v| v.cache.evicted_unfetched)),
    ("lost_to_collisions", Number(|v| v.cache.lost_to_collisions)),
    ("store_waits", Number(|v| v.cache.waits)),
    ("recovery", Text(recovery)),
    ("recovery_shards", Number(|v| v.cache.shards)),
    ("recovery_shards_waiting", Number(|v| v.cache.recovering_shards)),
    ("recovery_refused", Number(|v| v.totals.recovery_refused)),
    ("state_lost", Number(|v| v.cache.has_lost_state.into())),
    ("chunk_search", Text(chunk_search)),
    ("chunk_search_shards_waiting", Number(|v| v.cache.chunk_search_shards_waiting)),
    ("orphaned_chunks", Number(|v| v.cache.orphaned_chunks)),
    ("read_cache_insertions", Number(|v| v.cache.read_cache_insertions)),
    ("read_cache_evictions", Number(|v| v.cache.read_cache_evictions)),
];

/// Whether all that can come back after a start is there.
fn recovery(view: &View<'_>) -> String {
    if view.cache.recovering_shards == 0 { "ready" } else { "recovering" }.to_owned()
}

/// Whether chunks of large items without an owner are looked for.
fn chunk_search(view: &View<'_>) -> String {
    if view.cache.is_searching_chunks { "running" } else { "done" }.to_owned()
}

/// A row of one tier.
type TierRow = (&'static str, fn(&TierStats) -> u64);

/// Rows of one tier; each name is written behind the tier's number.
const TIER_ROWS: &[TierRow] = &[
    ("capacity_bytes", |t| t.capacity_bytes),
    ("records", |t| t.records),
    ("live_bytes", |t| t.live_bytes),
    ("payload_bytes", |t| t.payload_bytes),
    ("header_bytes", |t| t.live_bytes.saturating_sub(t.payload_bytes)),
    ("padding_bytes", |t| t.padding_bytes),
    ("footer_bytes", |t| t.footer_bytes),
    ("segment_bytes", |t| t.segment_bytes),
    ("segments", |t| t.segments),
    ("segments_used", |t| t.segments_used),
    ("level", |t| u64::from(t.level)),
    ("hits", |t| t.hits),
    ("false_reads", |t| t.false_reads),
    ("reads", |t| t.reads),
    ("read_bytes", |t| t.read_bytes),
    ("background_reads", |t| t.background_reads),
    ("background_read_bytes", |t| t.background_read_bytes),
    ("segment_writes", |t| t.segment_writes),
    ("written_bytes", |t| t.written_bytes),
    ("tombstone_log_written_bytes", |t| t.tombstone_log_written_bytes),
    ("tombstone_log_bytes", |t| t.tombstone_log_bytes),
    ("tombstones", |t| t.tombstones),
    ("stored_payload_bytes", |t| t.stored_payload_bytes),
    ("reinserted_records", |t| t.reinserted_records),
    ("demoted_records", |t| t.demoted_records),
    ("expired_segments", |t| t.expired_segments),
    ("corrupt_pages", |t| t.corrupt_pages),
    ("read_errors", |t| t.read_errors),
    ("write_errors", |t| t.write_errors),
    ("failed", |t| u64::from(t.failed)),
    ("drain_bytes_total", |t| t.drain.map_or(0, |drain| drain.began_with)),
    ("drain_bytes_left", |t| t.drain.map_or(0, |drain| drain.bytes_left)),
    ("unresponsive_seconds", |t| t.unresponsive_seconds),
    ("errors_no_space", |t| t.drive_errors.of(ErrorClass::NoSpace)),
    ("errors_read_only", |t| t.drive_errors.of(ErrorClass::ReadOnly)),
    ("errors_medium_error", |t| t.drive_errors.of(ErrorClass::Medium)),
    ("errors_gone", |t| t.drive_errors.of(ErrorClass::Gone)),
    ("errors_unresponsive", |t| t.drive_errors.of(ErrorClass::Unresponsive)),
    ("errors_other", |t| t.drive_errors.of(ErrorClass::Other)),
    ("budget_bytes_per_second", |t| t.budget_bytes_per_second),
    ("dropped_records", |t| t.dropped_records),
    ("dropped_bytes", |t| t.dropped_bytes),
];

/// What the drive says of its own health; each is written where it is known.
pub(crate) const DRIVE_ROWS: &[(&str, Figure)] = &[
    ("drive_failing", Figure::Failing),
    ("drive_critical_warning", Figure::CriticalWarning),
    ("drive_used_percent", Figure::UsedPercent),
    ("drive_spare_percent", Figure::SparePercent),
    ("drive_spare_threshold_percent", Figure::SpareThresholdPercent),
    ("drive_media_errors", Figure::MediaErrors),
    ("drive_reallocated_sectors", Figure::ReallocatedSectors),
    ("drive_pending_sectors", Figure::PendingSectors),
    ("drive_written_bytes", Figure::WrittenBytes),
    ("drive_power_on_hours", Figure::PowerOnHours),
    ("drive_unsafe_shutdowns", Figure::UnsafeShutdowns),
    ("drive_temperature_celsius", Figure::TemperatureCelsius),
];

/// The value of a row that cannot be told yet; `/status` has null for it.
pub(crate) const UNKNOWN: &str = "unknown";

const PERCENTILES: &[(&str, f64)] =
    &[("read_us_p50", 0.5), ("read_us_p99", 0.99), ("read_us_p999", 0.999)];

/// Writes the answer of `stats tiers`, without its end.
pub(crate) fn write_tiers(out: &mut Vec<u8>, view: &View<'_>) {
    write_rows(out, view, ROWS);
    for (number, tier) in view.cache.tiers.iter().enumerate() {
        let mut row = |name: &str, value: &dyn std::fmt::Display| {
            write(out, &format!("tier:{number}:{name}"), value);
        };
        row("device", &tier.label);
        for (name, value) in TIER_ROWS {
            row(name, &value(tier));
        }
        row("state", &tier_state::name(tier));
        let seconds = tier_state::drain_seconds_left(tier);
        row("drain_seconds_left", &seconds.map_or_else(|| UNKNOWN.to_owned(), |s| s.to_string()));
        row("health", &tier.health.name());
        row("write_policy", &tier.write_policy);
        row("budget_balance_bytes", &tier.budget_balance_bytes);
        row("life_years", &life(tier));
        if let Some(factor) = tier.amplification {
            row("device_amplification", &format!("{factor:.3}"));
        }
        row("write_amplification", &ratio(tier.written_bytes, tier.stored_payload_bytes));
        row("reads_per_hit", &ratio(tier.reads, tier.hits));
        let workers = view.shared.workers.iter();
        let latencies = workers.map(|worker| -> &Latency { Arc::as_ref(&worker.latency) });
        row("read_depth", &read_depth(view, number));
        let percentiles = Percentiles::of(latencies, number);
        for (name, share) in PERCENTILES {
            row(name, &percentiles.micros(*share));
        }
        if let Some(report) = view.shared.drive_health.report(number) {
            row("drive", &report.drive);
            row("drive_model", &report.model);
            for (name, figure) in DRIVE_ROWS {
                if let Some(value) = report.get(*figure) {
                    row(name, &value);
                }
            }
        }
    }
}

/// Reads that a tier may have in flight at present, those of all workers together: what a profile says,
/// or what has proved better since.
pub(crate) fn read_depth(view: &View<'_>, tier: usize) -> u64 {
    view.shared.workers.iter().map(|worker| u64::from(worker.latency.depth(tier))).sum()
}

/// Years that the drive lasts; a word that no parser takes for a number while they are unknown.
fn life(tier: &TierStats) -> String {
    tier.life_years.map_or_else(|| UNKNOWN.to_owned(), |years| format!("{years:.1}"))
}

/// DRAM of index, page tables and segment table for each live record.
fn index_bytes_per_record(view: &View<'_>) -> String {
    let memory = &view.cache.memory;
    let bytes = memory.tier_index + memory.page_tables + memory.segment_table;
    ratio(bytes, view.cache.records)
}

fn ratio(of: u64, to: u64) -> String {
    if to == 0 { "0".into() } else { format!("{:.4}", of as f64 / to as f64) }
}

/// The names of all rows; those of a tier begin with `tier:`.
#[cfg(test)]
pub(crate) fn names() -> Vec<String> {
    let of_tier = [
        "device",
        "state",
        "drain_seconds_left",
        "health",
        "write_policy",
        "budget_balance_bytes",
        "life_years",
    ]
    .into_iter();
    let of_tier = of_tier.chain([
        "device_amplification",
        "write_amplification",
        "reads_per_hit",
        "read_depth",
    ]);
    let of_tier = of_tier.chain(TIER_ROWS.iter().map(|row| row.0));
    let of_tier = of_tier.chain(PERCENTILES.iter().map(|row| row.0));
    let of_tier = of_tier.chain(["drive", "drive_model"]);
    let of_tier = of_tier.chain(DRIVE_ROWS.iter().map(|row| row.0));
    let all = ROWS.iter().map(|row| row.0.to_string());
    all.chain(of_tier.map(|name| format!("tier:{name}"))).collect()
}
