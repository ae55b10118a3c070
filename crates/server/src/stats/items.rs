//! `stats items` and `stats slabs`. There are no slab classes here; all records count as class 1, so
//! that scripts find the numbers where they look for them. A chunk is as long as the mean record, a page
//! is a mebibyte of DRAM or drive, whatever lies on it.

use super::view::{Row, Source, View, write_row, write_rows};
use Source::{Never, Number};
use std::sync::atomic::Ordering::Relaxed;

/// Records in DRAM are memcached's hot and warm ones, those on tiers its cold ones.
const ITEMS: &[Row] = &[
    ("items:1:number", Number(|v| v.cache.records)),
    ("items:1:number_hot", Number(|v| v.cache.memory.write_buffer_records)),
    ("items:1:number_warm", Number(|v| v.cache.memory.read_cache_records)),
    ("items:1:number_cold", Number(|v| v.tiers(|t| t.records))),
    ("items:1:age_hot", Never),
    ("items:1:age_warm", Never),
    ("items:1:age", Never),
    ("items:1:mem_requested", Number(|v| v.cache.memory.write_buffer + v.cache.memory.read_cache)),
    ("items:1:evicted", Number(|v| v.cache.evictions)),
    ("items:1:evicted_nonzero", Never),
    ("items:1:evicted_time", Never),
    ("items:1:outofmemory", Number(|v| v.totals.store_no_memory)),
    ("items:1:tailrepairs", Never),
    ("items:1:reclaimed", Number(|v| v.cache.reclaimed_expired)),
    ("items:1:expired_unfetched", Never),
    ("items:1:evicted_unfetched", Number(|v| v.cache.evicted_unfetched)),
    ("items:1:evicted_active", Never),
    ("items:1:crawler_reclaimed", Number(|v| v.cache.reclaimed_expired)),
    ("items:1:crawler_items_checked", Number(|v| v.shared.walks.records.load(Relaxed))),
    ("items:1:lrutail_reflocked", Never),
    ("items:1:moves_to_cold", Number(|v| v.cache.read_cache_evictions)),
    ("items:1:moves_to_warm", Number(|v| v.cache.read_cache_insertions)),
    ("items:1:moves_within_lru", Never),
    ("items:1:direct_reclaims", Never),
    (
        "items:1:hits_to_hot",
        Number(|v| v.totals.get_hits - v.totals.get_extstore.min(v.totals.get_hits)),
    ),
    ("items:1:hits_to_warm", Never),
    ("items:1:hits_to_cold", Number(|v| v.totals.get_extstore)),
    ("items:1:hits_to_temp", Never),
];

/// memcached's pages.
const PAGE_BYTES: u64 = 1 << 20;

const SLABS: &[Row] = &[
    ("1:chunk_size", Number(chunk_bytes)),
    ("1:chunks_per_page", Number(|v| (PAGE_BYTES / chunk_bytes(v)).max(1))),
    ("1:total_pages", Number(|v| bytes_taken(v).div_ceil(PAGE_BYTES))),
    ("1:total_chunks", Number(chunks)),
    ("1:used_chunks", Number(|v| v.cache.records)),
    ("1:free_chunks", Number(|v| chunks(v) - v.cache.records)),
    ("1:free_chunks_end", Never),
    ("1:get_hits", Number(|v| v.totals.get_hits)),
    ("1:cmd_set", Number(|v| v.totals.cmd_set)),
    ("1:delete_hits", Number(|v| v.totals.delete_hits)),
    ("1:incr_hits", Number(|v| v.totals.incr_hits)),
    ("1:decr_hits", Number(|v| v.totals.decr_hits)),
    ("1:cas_hits", Number(|v| v.totals.cas_hits)),
    ("1:cas_badval", Number(|v| v.totals.cas_badval)),
    ("1:touch_hits", Number(|v| v.totals.touch_hits)),
];

const SLABS_TOTAL: &[Row] = &[
    ("active_slabs", Number(|v| u64::from(v.cache.records > 0))),
    (
        "total_malloced",
        Number(|v| {
            let m = &v.cache.memory;
            m.tier_index
                + m.page_tables
                + m.segment_table
                + m.dram_index
                + m.write_buffer
                + m.read_cache
                + m.staging
        }),
    ),
];

/// Length of the mean record.
fn chunk_bytes(view: &View<'_>) -> u64 {
    view.cache.bytes.div_ceil(view.cache.records.max(1)).max(1)
}

/// Blocks of DRAM and segments of drives that hold records.
fn bytes_taken(view: &View<'_>) -> u64 {
    let memory = &view.cache.memory;
    memory.write_buffer
        + memory.read_cache
        + view.tiers(|tier| tier.segments_used * tier.segment_bytes)
}

/// Mean records that these have room for.
fn chunks(view: &View<'_>) -> u64 {
    (bytes_taken(view) / chunk_bytes(view)).max(view.cache.records)
}

/// Writes the answer of `stats items`, without its end.
pub(crate) fn write_items(out: &mut Vec<u8>, view: &View<'_>) {
    if view.cache.records == 0 {
        return;
    }
    // memcached shows these where its maintainer runs.
    let is_maintained = view.shared.knobs.is_on("lru_maintainer_thread");
    let of_queues = |name: &str| {
        let name = name.trim_start_matches("items:1:");
        ["number_", "age_", "moves_", "hits_to_"].iter().any(|begin| name.starts_with(begin))
            || matches!(name, "evicted_active" | "direct_reclaims")
    };
    let shown = ITEMS.iter().filter(|(name, _)| is_maintained || !of_queues(name));
    shown.for_each(|row| write_row(out, view, row));
}

/// Writes the answer of `stats slabs`, without its end.
pub(crate) fn write_slabs(out: &mut Vec<u8>, view: &View<'_>) {
    if view.cache.records > 0 {
        write_rows(out, view, SLABS);
    }
    write_rows(out, view, SLABS_TOTAL);
}
