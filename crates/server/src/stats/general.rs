//! `stats`: memcached's names in memcached's order, since monitoring knows them by heart.

use super::view::{Row, Source, View};
use crate::tls::Tls;
use Source::{Never, Number, Text};
use std::sync::atomic::Ordering::Relaxed;

/// What the `version` command and `stats` call this server: the memcached that it can stand in for.
pub(crate) const VERSION: &str = "1.6.45";

/// The rows of `stats`.
pub(crate) const ROWS: &[Row] = &[
    ("pid", Number(|_| u64::from(std::process::id()))),
    ("uptime", Number(|v| u64::from(v.shared.clock.uptime()))),
    ("time", Number(|v| u64::from(v.now))),
    ("version", Text(|_| VERSION.into())),
    ("libevent", Text(|_| "none".into())),
    ("pointer_size", Number(|_| u64::from(usize::BITS))),
    ("rusage_user", Text(|_| seconds(processor_time().0))),
    ("rusage_system", Text(|_| seconds(processor_time().1))),
    ("max_connections", Number(|v| u64::from(v.shared.settings.connections_max))),
    ("curr_connections", Number(|v| u64::from(v.shared.connections.current.load(Relaxed)))),
    ("total_connections", Number(|v| v.accepted)),
    ("rejected_connections", Number(|v| v.rejected)),
    ("connection_structures", Number(|v| u64::from(v.shared.connections.current.load(Relaxed)))),
    ("response_obj_oom", Never),
    ("response_obj_count", Never),
    ("response_obj_bytes", Never),
    ("read_buf_count", Never),
    ("read_buf_bytes", Number(|v| v.shared.memory.held())),
    ("read_buf_bytes_free", Never),
    ("read_buf_oom", Number(|v| v.totals.read_buf_oom)),
    ("reserved_fds", Never),
    ("proxy_conn_requests", Never),
    ("proxy_conn_errors", Never),
    ("proxy_conn_oom", Never),
    ("proxy_req_active", Never),
    ("cmd_get", Number(|v| v.totals.cmd_get)),
    ("cmd_set", Number(|v| v.totals.cmd_set)),
    ("cmd_flush", Number(|v| v.totals.cmd_flush)),
    ("cmd_touch", Number(|v| v.totals.cmd_touch)),
    ("cmd_meta", Number(|v| v.totals.cmd_meta)),
    ("get_hits", Number(|v| v.totals.get_hits)),
    ("get_misses", Number(|v| v.totals.get_misses)),
    ("get_expired", Number(|v| v.cache.met_expired)),
    ("get_flushed", Never),
];

/// The rows of `stats` that memcached shows where it has an extstore, in their place.
pub(crate) const TIER_ROWS: &[Row] = &[
    ("get_extstore", Number(|v| v.totals.get_extstore)),
    ("get_aborted_extstore", Never),
    ("get_oom_extstore", Never),
    ("recache_from_extstore", Number(|v| v.cache.read_cache_insertions)),
    ("miss_from_extstore", Number(|v| v.totals.miss_from_extstore)),
    ("badcrc_from_extstore", Number(|v| v.tiers(|t| t.corrupt_pages))),
];

/// The rows after those.
pub(crate) const MORE_ROWS: &[Row] = &[
    ("delete_misses", Number(|v| v.totals.delete_misses)),
    ("delete_hits", Number(|v| v.totals.delete_hits)),
    ("incr_misses", Number(|v| v.totals.incr_misses)),
    ("incr_hits", Number(|v| v.totals.incr_hits)),
    ("decr_misses", Number(|v| v.totals.decr_misses)),
    ("decr_hits", Number(|v| v.totals.decr_hits)),
    ("cas_misses", Number(|v| v.totals.cas_misses)),
    ("cas_hits", Number(|v| v.totals.cas_hits)),
    ("cas_badval", Number(|v| v.totals.cas_badval)),
    ("touch_hits", Number(|v| v.totals.touch_hits)),
    ("touch_misses", Number(|v| v.totals.touch_misses)),
    ("store_too_large", Number(|v| v.totals.store_too_large)),
    ("store_no_memory", Number(|v| v.totals.store_no_memory)),
    ("auth_cmds", Number(|v| v.totals.auth_cmds)),
    ("auth_errors", Number(|v| v.totals.auth_errors)),
    ("idle_kicks", Number(|v| v.totals.idle_kicks)),
    ("bytes_read", Number(|v| v.totals.bytes_read)),
    ("bytes_written", Number(|v| v.totals.bytes_written)),
    ("limit_maxbytes", Number(|v| v.shared.memory_asked.load(Relaxed))),
    ("accepting_conns", Number(|v| u64::from(!v.shared.must_leave_in_backlog()))),
    ("listen_disabled_num", Number(|v| v.shared.connections.listen_disabled.load(Relaxed))),
    (
        "time_in_listen_disabled_us",
        Number(|v| v.shared.connections.listen_disabled_us.load(Relaxed)),
    ),
    ("threads", Number(|v| v.shared.workers.len() as u64)),
    ("conn_yields", Number(|v| v.totals.conn_yields)),
    ("hash_power_level", Never),
    ("hash_bytes", Number(|v| v.cache.memory.dram_index + v.cache.memory.tier_index)),
    ("hash_is_expanding", Never),
    ("slab_reassign_rescues", Never),
    ("slab_reassign_chunk_rescues", Never),
    ("slab_reassign_inline_reclaim", Never),
    ("slab_reassign_busy_items", Never),
    ("slab_reassign_busy_deletes", Never),
    ("slab_reassign_busy_nomem", Never),
    ("slab_reassign_last_busy_status", Text(|_| "none".into())),
    ("slab_reassign_running", Never),
    ("slabs_moved", Never),
    // memcached's crawler is what lists keys.
    ("lru_crawler_running", Number(|v| u64::from(v.shared.walks.is_busy()))),
    ("lru_crawler_starts", Number(|v| v.shared.walks.begun.load(Relaxed))),
    ("lru_maintainer_juggles", Never),
    ("malloc_fails", Never),
    ("log_worker_dropped", Never),
    ("log_worker_written", Number(|v| v.shared.watchers.written.load(Relaxed))),
    ("log_watcher_skipped", Number(|v| v.shared.watchers.skipped.load(Relaxed))),
    ("log_watcher_sent", Number(|v| v.shared.watchers.sent.load(Relaxed))),
    ("log_watchers", Number(|v| v.shared.watchers.count() as u64)),
];

/// memcached's rows about extstore; a page there is a segment here.
pub(crate) const EXTSTORE_ROWS: &[Row] = &[
    ("extstore_memory_pressure", Never),
    ("extstore_compact_lost", Never),
    ("extstore_compact_rescues", Number(|v| v.tiers(|t| t.reinserted_records))),
    ("extstore_compact_resc_cold", Never),
    ("extstore_compact_resc_old", Never),
    ("extstore_compact_skipped", Never),
    ("extstore_page_allocs", Number(|v| v.tiers(|t| t.segment_writes))),
    ("extstore_page_evictions", Never),
    (
        "extstore_page_reclaims",
        Number(|v| v.tiers(|t| t.segment_writes - t.segments_used.min(t.segment_writes))),
    ),
    ("extstore_pages_free", Number(|v| v.tiers(|t| t.segments - t.segments_used.min(t.segments)))),
    ("extstore_pages_used", Number(|v| v.tiers(|t| t.segments_used))),
    ("extstore_objects_evicted", Number(|v| v.cache.evictions)),
    ("extstore_objects_read", Number(|v| v.tiers(|t| t.hits))),
    ("extstore_objects_written", Number(|v| v.tiers(|t| t.records))),
    ("extstore_objects_used", Number(|v| v.tiers(|t| t.records))),
    ("extstore_bytes_evicted", Never),
    ("extstore_bytes_written", Number(|v| v.tiers(|t| t.written_bytes))),
    ("extstore_bytes_read", Number(|v| v.tiers(|t| t.read_bytes))),
    ("extstore_bytes_used", Number(|v| v.tiers(|t| t.live_bytes))),
    (
        "extstore_bytes_fragmented",
        Number(|v| v.tiers(|t| (t.segments_used * t.segment_bytes).saturating_sub(t.live_bytes))),
    ),
    ("extstore_limit_maxbytes", Number(|v| v.tiers(|t| t.capacity_bytes))),
    ("extstore_io_queue", Never),
];

/// The rows at the end.
pub(crate) const LAST_ROWS: &[Row] = &[
    ("ssl_new_sessions", Number(|v| tls(v, Tls::sessions_kept))),
    ("ssl_handshake_errors", Number(|v| tls(v, |t| t.counters.handshake_errors.load(Relaxed)))),
    ("ssl_proto_errors", Number(|v| tls(v, |t| t.counters.protocol_errors.load(Relaxed)))),
    (
        "time_since_server_cert_refresh",
        Number(|v| tls(v, |t| v.now.saturating_sub(t.refreshed()).into())),
    ),
    ("unexpected_napi_ids", Never),
    ("round_robin_fallback", Never),
    ("bytes", Number(|v| v.cache.bytes)),
    ("curr_items", Number(|v| v.cache.records)),
    ("total_items", Number(|v| v.cache.stored_total)),
    ("slab_global_page_pool", Never),
    ("expired_unfetched", Never),
    ("evicted_unfetched", Number(|v| v.cache.evicted_unfetched)),
    ("evicted_active", Never),
    ("evictions", Number(|v| v.cache.evictions)),
    ("reclaimed", Number(|v| v.cache.reclaimed_expired)),
    // Background work frees what has expired; a crawl that is asked for finds nothing left.
    ("crawler_reclaimed", Number(|v| v.cache.reclaimed_expired)),
    ("crawler_items_checked", Number(|v| v.shared.walks.records.load(Relaxed))),
    ("lrutail_reflocked", Never),
    ("moves_to_cold", Number(|v| v.cache.read_cache_evictions)),
    ("moves_to_warm", Number(|v| v.cache.read_cache_insertions)),
    ("moves_within_lru", Never),
    ("direct_reclaims", Never),
    ("lru_bumps_dropped", Never),
];

/// Writes the answer of `stats`, without its end.
pub(crate) fn write(out: &mut Vec<u8>, view: &View<'_>) {
    let has_tiers = !view.cache.tiers.is_empty();
    let some = |rows| if has_tiers { rows } else { &[][..] };
    let all = [ROWS, some(TIER_ROWS), MORE_ROWS, some(EXTSTORE_ROWS), LAST_ROWS];
    let shown = all.into_iter().flatten().filter(|(name, _)| is_shown(view, name));
    shown.for_each(|row| super::view::write_row(out, view, row));
}

/// Whether memcached shows a row where it is set up as this server is.
fn is_shown(view: &View<'_>, name: &str) -> bool {
    let View { shared, .. } = view;
    match name {
        "rejected_connections" => shared.settings.refuse_when_full,
        "idle_kicks" => shared.settings.idle_timeout_s > 0,
        "proxy_conn_requests" | "proxy_conn_errors" | "proxy_conn_oom" | "proxy_req_active" => {
            false
        }
        "ssl_new_sessions"
        | "ssl_handshake_errors"
        | "ssl_proto_errors"
        | "time_since_server_cert_refresh" => shared.tls.is_some(),
        "slabs_moved" => shared.knobs.is_on("slab_reassign"),
        _ if name.starts_with("slab_reassign_") => shared.knobs.is_on("slab_reassign"),
        "lru_crawler_running" | "lru_crawler_starts" => shared.knobs.is_on("lru_crawler"),
        "lru_maintainer_juggles"
        | "evicted_active"
        | "moves_to_cold"
        | "moves_to_warm"
        | "moves_within_lru"
        | "direct_reclaims"
        | "lru_bumps_dropped" => shared.knobs.is_on("lru_maintainer_thread"),
        _ => true,
    }
}

/// A number of what encrypted connections share; 0 without TLS.
fn tls(view: &View<'_>, number: impl Fn(&Tls) -> u64) -> u64 {
    view.shared.tls.as_ref().map_or(0, number)
}

/// Seconds in user and in kernel mode so far, of all threads together.
pub(crate) fn processor_time() -> (f64, f64) {
    // utime and stime stand 12 and 13 words behind the name, which ends with the last parenthesis.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let mut ticks = fields.split(' ').skip(11).map(|word| word.parse().unwrap_or(0.0));
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    let mut next = || ticks.next().unwrap_or(0.0) / per_second;
    (next(), next())
}

fn seconds(time: f64) -> String {
    format!("{time:.6}")
}

/// The names of all rows that count something here.
#[cfg(test)]
pub(crate) fn counted_names() -> Vec<String> {
    let all = [ROWS, TIER_ROWS, MORE_ROWS, EXTSTORE_ROWS, LAST_ROWS];
    let counted = |row: &&Row| !matches!(row.1, Never);
    all.into_iter().flatten().filter(counted).map(|row| row.0.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Who reads a 0 should be able to find out that it is always one.
    #[test]
    fn rows_that_count_nothing_are_documented() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol-conformance.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, section) = page.split_once("## Rows of `stats` that stay 0").unwrap();
        let section = section.split("\n## ").next().unwrap();
        let is_name = |text: &&str| text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        let documented: BTreeSet<_> =
            section.split('`').skip(1).step_by(2).filter(is_name).collect();
        let all = [ROWS, TIER_ROWS, MORE_ROWS, EXTSTORE_ROWS, LAST_ROWS].into_iter().flatten();
        let never = all.filter(|row| matches!(row.1, Never)).map(|row| row.0);
        assert_eq!(documented, never.collect());
    }
}
