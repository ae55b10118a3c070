//! The metrics: one table, which `/metrics` and docs/metrics.md come from.

use super::samples::{Kind, Samples};
use crate::server::drive_health::report::{Figure, Report};
use crate::stats::general::processor_time;
use crate::stats::latency::{Command, Latency, Percentiles};
use crate::stats::tier_state;
use crate::stats::tiers::read_depth;
use crate::stats::view::View;
use Kind::{Counter, Gauge, Histogram};
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use terrace_cache::TierStats;
use terrace_device::ErrorClass;

/// One metric.
struct Metric {
    /// Without the `terrace_` that all begin with.
    name: &'static str,
    kind: Kind,
    /// Its labels, for the documentation.
    labels: &'static str,
    help: &'static str,
    /// The rows of `stats` and `stats tiers` that it shows.
    shows: &'static [&'static str],
    samples: fn(&View<'_>, &mut Samples<'_>),
}

/// A row, in the order in which it is read.
const fn metric(
    name: &'static str,
    kind: Kind,
    labels: &'static str,
    help: &'static str,
    shows: &'static [&'static str],
    samples: fn(&View<'_>, &mut Samples<'_>),
) -> Metric {
    Metric { name, kind, labels, help, shows, samples }
}

#[rustfmt::skip]
const METRICS: &[Metric] = &[
    metric("build_info", Gauge, "version, memcached", "1, with the version and the memcached that it stands in for", &["version"],
        |_, s| s.one(&[("version", env!("CARGO_PKG_VERSION")), ("memcached", crate::stats::general::VERSION)], 1)),
    metric("uptime_seconds", Gauge, "", "time since the start", &["uptime"], |v, s| s.one(&[], u64::from(v.shared.clock.uptime()))),
    metric("time_seconds", Gauge, "", "the server's Unix time, which expiry goes by", &["time"], |v, s| s.one(&[], u64::from(v.now))),
    metric("cpu_seconds_total", Counter, "mode", "processor time of all threads", &["rusage_user", "rusage_system"], |_, s| {
        let (user, system) = processor_time();
        s.one(&[("mode", "user")], user);
        s.one(&[("mode", "system")], system);
    }),
    metric("threads", Gauge, "", "worker threads", &["threads"], |v, s| s.one(&[], v.shared.workers.len() as u64)),

    metric("connections", Gauge, "", "open connections", &["curr_connections", "connection_structures"], |v, s| s.one(&[], u64::from(v.shared.connections.current.load(Relaxed)))),
    metric("connections_max", Gauge, "", "how many may be open (-c)", &["max_connections"], |v, s| s.one(&[], u64::from(v.shared.settings.connections_max))),
    metric("connections_total", Counter, "", "connections since the start", &["total_connections"], |v, s| s.one(&[], v.accepted)),
    metric("connections_rejected_total", Counter, "", "connections refused since there were too many", &["rejected_connections"], |v, s| s.one(&[], v.rejected)),
    metric("connections_accepting", Gauge, "", "1 while new connections are taken", &["accepting_conns"], |v, s| s.one(&[], u64::from(!v.shared.must_leave_in_backlog()))),
    metric("connections_idle_closed_total", Counter, "", "connections closed after idle_timeout", &["idle_kicks"], |v, s| s.one(&[], v.totals.idle_kicks)),
    metric("connections_yielded_total", Counter, "", "turns that ended at -R with requests left", &["conn_yields"], |v, s| s.one(&[], v.totals.conn_yields)),
    metric("connections_shed_total", Counter, "", "connections closed since they were idle longest while the memory of all was short", &["read_buf_oom"], |v, s| s.one(&[], v.totals.read_buf_oom)),
    metric("connection_buffer_bytes", Gauge, "", "memory of connections", &["read_buf_bytes", "memory_connections"], |v, s| s.one(&[], v.shared.memory.held())),
    metric("connection_buffer_limit_bytes", Gauge, "", "how much of that there may be (a quarter of -m, or -o read_buf_mem_limit)", &["memory_connections_limit"], |v, s| s.one(&[], v.shared.memory.cap())),
    metric("listen_disabled_total", Counter, "", "times that new connections were left waiting: as many are open as may be, or no descriptor was left", &["listen_disabled_num"], |v, s| s.one(&[], v.shared.connections.listen_disabled.load(Relaxed))),
    metric("listen_disabled_seconds_total", Counter, "", "how long they were left waiting", &["time_in_listen_disabled_us"], |v, s| {
        s.one(&[], v.shared.connections.listen_disabled_us.load(Relaxed) as f64 / 1e6);
    }),
    metric("received_bytes_total", Counter, "", "bytes from clients", &["bytes_read"], |v, s| s.one(&[], v.totals.bytes_read)),
    metric("sent_bytes_total", Counter, "", "bytes to clients", &["bytes_written"], |v, s| s.one(&[], v.totals.bytes_written)),
    metric("auth_total", Counter, "result", "attempts to log in", &["auth_cmds", "auth_errors"], |v, s| {
        s.one(&[("result", "success")], v.totals.auth_cmds.saturating_sub(v.totals.auth_errors));
        s.one(&[("result", "error")], v.totals.auth_errors);
    }),
    metric("tls_total", Counter, "event", "handshakes done and failed, and errors behind them", &["ssl_new_sessions", "ssl_handshake_errors", "ssl_proto_errors"], |v, s| {
        if let Some(tls) = &v.shared.tls {
            s.one(&[("event", "session")], tls.counters.sessions.load(Relaxed));
            s.one(&[("event", "handshake_error")], tls.counters.handshake_errors.load(Relaxed));
            s.one(&[("event", "protocol_error")], tls.counters.protocol_errors.load(Relaxed));
        }
    }),
    metric("tls_certificate_age_seconds", Gauge, "", "time since certificates were read", &["time_since_server_cert_refresh"], |v, s| {
        if let Some(tls) = &v.shared.tls {
            s.one(&[], u64::from(v.now.saturating_sub(tls.refreshed())));
        }
    }),

    metric("commands_total", Counter, "command, result", "commands by what became of them", &[
        "cmd_get", "cmd_touch", "get_hits", "get_misses", "delete_hits", "delete_misses", "incr_hits", "incr_misses", "decr_hits",
        "decr_misses", "cas_hits", "cas_misses", "cas_badval", "touch_hits", "touch_misses",
    ], |v, s| {
        let t = &v.totals;
        for (command, result, count) in [
            ("get", "hit", t.get_hits), ("get", "miss", t.get_misses),
            ("delete", "hit", t.delete_hits), ("delete", "miss", t.delete_misses),
            ("incr", "hit", t.incr_hits), ("incr", "miss", t.incr_misses),
            ("decr", "hit", t.decr_hits), ("decr", "miss", t.decr_misses),
            ("cas", "hit", t.cas_hits), ("cas", "miss", t.cas_misses), ("cas", "badval", t.cas_badval),
            ("touch", "hit", t.touch_hits), ("touch", "miss", t.touch_misses),
        ] {
            s.one(&[("command", command), ("result", result)], count);
        }
    }),
    metric("stores_total", Counter, "", "commands that store", &["cmd_set"], |v, s| s.one(&[], v.totals.cmd_set)),
    metric("flushes_total", Counter, "", "flush_all", &["cmd_flush"], |v, s| s.one(&[], v.totals.cmd_flush)),
    metric("meta_commands_total", Counter, "", "meta commands, whatever they do", &["cmd_meta"], |v, s| s.one(&[], v.totals.cmd_meta)),
    metric("stores_refused_total", Counter, "reason", "values not stored", &["store_too_large", "store_no_memory"], |v, s| {
        s.one(&[("reason", "too_large")], v.totals.store_too_large);
        s.one(&[("reason", "no_memory")], v.totals.store_no_memory);
    }),
    metric("store_waits_total", Counter, "", "stores that waited for buffers", &["store_waits"], |v, s| s.one(&[], v.cache.waits)),
    metric("command_duration_seconds", Histogram, "command, served", "from the request to its answer, not counting what stands before it; `served` is dram, or the number of the tier that was read last; those that DRAM answered are counted by every 64th", &[], |v, s| {
        for (command, name) in Command::ALL {
            let places = (0..v.cache.tiers.len()).map(Some);
            for tier in std::iter::once(None).chain(places) {
                let served = tier.map_or("dram".to_string(), |tier| tier.to_string());
                let times = Percentiles::of_command(latencies(v), command, tier);
                if times.count() > 0 {
                    s.histogram(&[("command", name), ("served", &served)], &times);
                }
            }
        }
    }),

    metric("watchers", Gauge, "", "connections that watch", &["log_watchers"], |v, s| s.one(&[], v.shared.watchers.count() as u64)),
    metric("listings", Gauge, "", "1 while all keys or sizes are listed", &["lru_crawler_running"], |v, s| s.one(&[], u64::from(v.shared.walks.is_busy()))),
    metric("watch_events_total", Counter, "fate", "events written for watchers, told to them, and not told since they were slow", &["log_worker_written", "log_watcher_sent", "log_watcher_skipped"], |v, s| {
        let w = &v.shared.watchers;
        for (fate, count) in [("written", &w.written), ("sent", &w.sent), ("skipped", &w.skipped)] {
            s.one(&[("fate", fate)], count.load(Relaxed));
        }
    }),

    metric("records", Gauge, "", "live records", &["curr_items", "records"], |v, s| s.one(&[], v.cache.records)),
    metric("records_in_dram", Gauge, "kind", "records that are on no tier yet (write_buffer; without tiers, all), and copies of records of tiers that are read often (read_cache)", &["records_write_buffer", "records_read_cache"], |v, s| {
        s.one(&[("kind", "write_buffer")], v.cache.memory.write_buffer_records);
        s.one(&[("kind", "read_cache")], v.cache.memory.read_cache_records);
    }),
    metric("record_bytes", Gauge, "", "keys and values of live records", &["bytes"], |v, s| s.one(&[], v.cache.bytes)),
    metric("records_stored_total", Counter, "", "records ever stored", &["total_items"], |v, s| s.one(&[], v.cache.stored_total)),
    metric("evictions_by_cause_total", Counter, "cause", "the same by cause: index without room, tiers full, alone in DRAM", &["evictions_index", "evictions_tier", "evictions_dram"], |v, s| {
        s.one(&[("cause", "index")], v.cache.evictions_index);
        s.one(&[("cause", "tier")], v.cache.evictions_tier);
        s.one(&[("cause", "dram")], v.cache.evictions_dram);
    }),
    metric("evictions_total", Counter, "", "live records that lost their place", &["evictions", "extstore_objects_evicted"], |v, s| s.one(&[], v.cache.evictions)),
    metric("evictions_unread_total", Counter, "", "those of them that were never read", &["evicted_unfetched"], |v, s| s.one(&[], v.cache.evicted_unfetched)),
    metric("expired_total", Counter, "", "expired records that were cleared away", &["reclaimed", "reclaimed_expired", "crawler_reclaimed"], |v, s| s.one(&[], v.cache.reclaimed_expired)),
    metric("walks_total", Counter, "", "walks over all records (metadump, mgdump, stats sizes), and requests for a crawl", &["lru_crawler_starts"], |v, s| s.one(&[], v.shared.walks.begun.load(Relaxed))),
    metric("walked_records_total", Counter, "", "records that these walks looked at", &["crawler_items_checked"], |v, s| s.one(&[], v.shared.walks.records.load(Relaxed))),
    metric("expired_misses_total", Counter, "", "misses that met an expired record", &["get_expired"], |v, s| s.one(&[], v.cache.met_expired)),
    metric("expired_unwritten_total", Counter, "", "of the expired records cleared away, never written to a drive", &["expired_unwritten"], |v, s| s.one(&[], v.cache.expired_unwritten)),
    metric("collisions_total", Counter, "", "records taken for others of equal fingerprint that had no room to come back to", &["lost_to_collisions"], |v, s| s.one(&[], v.cache.lost_to_collisions)),
    metric("read_cache_insertions_total", Counter, "", "records of tiers copied into DRAM", &["read_cache_insertions", "recache_from_extstore", "moves_to_warm"], |v, s| s.one(&[], v.cache.read_cache_insertions)),
    metric("read_cache_evictions_total", Counter, "", "such copies dropped", &["read_cache_evictions", "moves_to_cold"], |v, s| s.one(&[], v.cache.read_cache_evictions)),

    metric("memory_limit_bytes", Gauge, "", "the cap on memory: -m, or less where the memory cgroup allows less", &["memory_limit"], |v, s| s.one(&[], v.cache.memory.limit)),
    metric("memory_asked_bytes", Gauge, "", "what -m or cache_memlimit asked for", &["limit_maxbytes"], |v, s| s.one(&[], v.shared.memory_asked.load(Relaxed))),
    metric("memory_bytes", Gauge, "use", "where memory goes; `program` is what the program takes by itself, which -m does not count", &[
        "memory_tier_index", "memory_page_tables", "memory_segment_table", "memory_dram_index", "memory_write_buffer", "memory_read_cache",
        "memory_free", "memory_staging", "memory_program", "hash_bytes", "index_bytes_per_record",
    ], |v, s| {
        let m = &v.cache.memory;
        for (name, bytes) in [
            ("tier_index", m.tier_index), ("page_tables", m.page_tables), ("segment_table", m.segment_table),
            ("dram_index", m.dram_index), ("write_buffer", m.write_buffer), ("read_cache", m.read_cache), ("free", m.free), ("staging", m.staging),
            ("program", v.shared.program_bytes),
        ] {
            s.one(&[("use", name)], bytes);
        }
    }),
    metric("recovery_shards", Gauge, "", "shards of the index", &["recovery_shards"], |v, s| s.one(&[], v.cache.shards)),
    metric("recovery_refused_total", Counter, "", "changes refused since the record may not be back yet after the start", &["recovery_refused"], |v, s| s.one(&[], v.totals.recovery_refused)),
    metric("state_lost", Gauge, "", "whether a part of the state went while it was in use, and what was in DRAM with it", &["state_lost"], |v, s| s.one(&[], u64::from(v.cache.has_lost_state))),
    metric("recovery_shards_waiting", Gauge, "", "those whose records are not back yet after the start", &["recovery_shards_waiting", "recovery"], |v, s| s.one(&[], v.cache.recovering_shards)),
    metric("chunk_search_shards_waiting", Gauge, "", "shards that are yet to be searched for chunks of large items that nothing owns; 0 when that is done", &["chunk_search_shards_waiting", "chunk_search"], |v, s| s.one(&[], v.cache.chunk_search_shards_waiting)),
    metric("orphaned_chunks_total", Counter, "", "such chunks that were found since the start", &["orphaned_chunks"], |v, s| s.one(&[], v.cache.orphaned_chunks)),

    metric("tier_info", Gauge, "tier, device", "1, with the device behind the number", &["tier:device"], |v, s| {
        for (number, tier) in v.cache.tiers.iter().enumerate() {
            s.one(&[("tier", &number.to_string()), ("device", &tier.label)], 1);
        }
    }),
    metric("tier_failed", Gauge, "tier", "1 after the device was given up", &["tier:failed"], |v, s| tiers(v, s, |t| t.failed.into())),
    metric("tier_state", Gauge, "tier", "what the tier is doing: 0 working, 1 draining, 2 draining and without room elsewhere, 3 drained, 4 failed, 5 removed, 6 absent at the start", &["tier:state"], |v, s| tiers(v, s, tier_state::number)),
    metric("tier_drain_bytes", Gauge, "tier", "live records that a drain began with; 0 without a drain", &["tier:drain_bytes_total"], |v, s| tiers(v, s, |t| t.drain.map_or(0, |drain| drain.began_with))),
    metric("tier_drain_left_seconds", Gauge, "tier", "seconds that a drain still takes at the rate so far; absent without a drain, and while that is unknown", &["tier:drain_seconds_left"], drain_seconds),
    metric("tier_drain_left_bytes", Gauge, "tier", "live records that a drain has yet to move; 0 without a drain", &["tier:drain_bytes_left"], |v, s| tiers(v, s, |t| t.drain.map_or(0, |drain| drain.bytes_left))),
    metric("tier_health", Gauge, "tier", "how the drive is: 0 working, 1 unresponsive, 2 read-only, 3 gone", &["tier:health"], |v, s| tiers(v, s, |t| t.health.number())),
    metric("tier_unresponsive_seconds", Gauge, "tier", "seconds since which the device has not answered; 0 while it answers", &["tier:unresponsive_seconds"], |v, s| tiers(v, s, |t| t.unresponsive_seconds)),
    metric("tier_capacity_bytes", Gauge, "tier", "room for segments", &["tier:capacity_bytes", "extstore_limit_maxbytes"], |v, s| tiers(v, s, |t| t.capacity_bytes)),
    metric("tier_records", Gauge, "tier", "live records", &["tier:records", "extstore_objects_used", "extstore_objects_written"], |v, s| tiers(v, s, |t| t.records)),
    metric("tier_live_bytes", Gauge, "tier", "live records with their headers", &["tier:live_bytes", "extstore_bytes_used"], |v, s| tiers(v, s, |t| t.live_bytes)),
    metric("tier_payload_bytes", Gauge, "tier", "keys and values of live records", &["tier:payload_bytes", "tier:header_bytes"], |v, s| tiers(v, s, |t| t.payload_bytes)),
    metric("tier_padding_bytes", Gauge, "tier", "headers of pages and room that is left in them", &["tier:padding_bytes"], |v, s| tiers(v, s, |t| t.padding_bytes)),
    metric("tier_footer_bytes", Gauge, "tier", "footers of segments", &["tier:footer_bytes"], |v, s| tiers(v, s, |t| t.footer_bytes)),
    metric("tier_segments", Gauge, "tier", "segments there are", &["tier:segments", "extstore_pages_free"], |v, s| tiers(v, s, |t| t.segments)),
    metric("tier_segments_used", Gauge, "tier", "segments that hold records", &["tier:segments_used", "extstore_pages_used", "extstore_bytes_fragmented"], |v, s| tiers(v, s, |t| t.segments_used)),
    metric("tier_segment_bytes", Gauge, "tier", "length of a segment", &["tier:segment_bytes"], |v, s| tiers(v, s, |t| t.segment_bytes)),
    metric("tier_hits_total", Counter, "tier", "gets that the tier answered", &["tier:hits", "get_extstore", "extstore_objects_read"], |v, s| tiers(v, s, |t| t.hits)),
    metric("tier_lost_total", Counter, "", "gets that found no record where one may have been, since its page could not be read", &["miss_from_extstore"], |v, s| s.one(&[], v.totals.miss_from_extstore)),
    metric("tier_reads_total", Counter, "tier", "reads for requests", &["tier:reads", "tier:reads_per_hit"], |v, s| tiers(v, s, |t| t.reads)),
    metric("tier_read_bytes_total", Counter, "tier", "bytes read for requests", &["tier:read_bytes", "extstore_bytes_read"], |v, s| tiers(v, s, |t| t.read_bytes)),
    metric("tier_false_reads_total", Counter, "tier", "reads that found another key, or nothing", &["tier:false_reads"], |v, s| tiers(v, s, |t| t.false_reads)),
    metric("tier_background_reads_total", Counter, "tier", "reads of reclaim and growth", &["tier:background_reads"], |v, s| tiers(v, s, |t| t.background_reads)),
    metric("tier_background_read_bytes_total", Counter, "tier", "bytes of those", &["tier:background_read_bytes"], |v, s| tiers(v, s, |t| t.background_read_bytes)),
    metric("tier_read_duration_seconds", Histogram, "tier", "reads for requests, from their start to the answer of the device", &["tier:read_us_p50", "tier:read_us_p99", "tier:read_us_p999"], |v, s| {
        for number in 0..v.cache.tiers.len() {
            s.histogram(&[("tier", &number.to_string())], &Percentiles::of(latencies(v), number));
        }
    }),
    metric("tier_read_depth", Gauge, "tier", "reads for requests that may be in flight at present; a profile's depth to begin with, adapted to the drive since", &["tier:read_depth"], |v, s| {
        for number in 0..v.cache.tiers.len() {
            s.one(&[("tier", &number.to_string())], read_depth(v, number));
        }
    }),
    metric("tier_segment_writes_total", Counter, "tier", "segments written", &["tier:segment_writes", "extstore_page_allocs", "extstore_page_reclaims"], |v, s| tiers(v, s, |t| t.segment_writes)),
    metric("tier_written_bytes_total", Counter, "tier", "bytes written, without the tombstone log", &["tier:written_bytes", "extstore_bytes_written", "tier:write_amplification"], |v, s| tiers(v, s, |t| t.written_bytes)),
    metric("tier_stored_payload_bytes_total", Counter, "tier", "keys and values that came from clients and were written for the first time; written bytes divided by these are the write amplification", &["tier:stored_payload_bytes"], |v, s| tiers(v, s, |t| t.stored_payload_bytes)),
    metric("tier_write_policy", Gauge, "tier", "the write policy in force: 0 all-once, 1 all-twice, 2 reused-once, 3 reused-none", &["tier:write_policy"], |v, s| tiers(v, s, |t| t.write_policy as u64)),
    metric("tier_write_budget_bytes_per_second", Gauge, "tier", "what the drive may be written on average; 0 without a limit", &["tier:budget_bytes_per_second"], |v, s| tiers(v, s, |t| t.budget_bytes_per_second)),
    metric("tier_write_budget_balance_bytes", Gauge, "tier", "what of it was saved up, over restarts too and a week's worth at most; negative when overdrawn", &["tier:budget_balance_bytes"], |v, s| tier_floats(v, s, |t| Some(t.budget_balance_bytes as f64))),
    metric("tier_device_amplification", Gauge, "tier", "bytes that the drive writes per byte that it is sent, as it says itself; only of NVMe drives that say so", &["tier:device_amplification"], |v, s| tier_floats(v, s, |t| t.amplification)),
    metric("tier_life_years", Gauge, "tier", "years until the drive has written its size 1,826 times (once a day for five years), at the rate since the start; absent until the server has run for a day and written something", &["tier:life_years"], |v, s| tier_floats(v, s, |t| t.life_years)),
    metric("tier_dropped_records_total", Counter, "tier", "records dropped from DRAM unwritten, by the write policy or for lack of write budget", &["tier:dropped_records"], |v, s| tiers(v, s, |t| t.dropped_records)),
    metric("tier_dropped_bytes_total", Counter, "tier", "bytes of those", &["tier:dropped_bytes"], |v, s| tiers(v, s, |t| t.dropped_bytes)),
    metric("tier_level", Gauge, "tier", "the tier level: 0 for the tiers that take new records, one more behind each `,below`", &["tier:level"], |v, s| tiers(v, s, |t| t.level.into())),
    metric("tier_demoted_records_total", Counter, "tier", "records demoted to this tier from the tier level above", &["tier:demoted_records"], |v, s| tiers(v, s, |t| t.demoted_records)),
    metric("tier_reinserted_records_total", Counter, "tier", "records that reclaim wrote again", &["tier:reinserted_records", "extstore_compact_rescues"], |v, s| tiers(v, s, |t| t.reinserted_records)),
    metric("tier_expired_segments_total", Counter, "tier", "segments given back unread, since all of their records had expired", &["tier:expired_segments"], |v, s| tiers(v, s, |t| t.expired_segments)),
    metric("tier_tombstone_log_written_bytes_total", Counter, "tier", "bytes written to the tombstone log", &["tier:tombstone_log_written_bytes"], |v, s| tiers(v, s, |t| t.tombstone_log_written_bytes)),
    metric("tier_tombstone_log_bytes", Gauge, "tier", "bytes that the tombstone log takes", &["tier:tombstone_log_bytes"], |v, s| tiers(v, s, |t| t.tombstone_log_bytes)),
    metric("tier_tombstones", Gauge, "tier", "tombstones in the log that name a segment in use", &["tier:tombstones"], |v, s| tiers(v, s, |t| t.tombstones)),
    metric("tier_corrupt_pages_total", Counter, "tier", "pages whose checksum did not fit", &["tier:corrupt_pages", "badcrc_from_extstore"], |v, s| tiers(v, s, |t| t.corrupt_pages)),
    metric("tier_errors_total", Counter, "tier, operation", "reads and writes of the cache that failed", &["tier:read_errors", "tier:write_errors"], |v, s| {
        for (number, tier) in v.cache.tiers.iter().enumerate() {
            s.one(&[("tier", &number.to_string()), ("operation", "read")], tier.read_errors);
            s.one(&[("tier", &number.to_string()), ("operation", "write")], tier.write_errors);
        }
    }),
    metric("tier_drive_errors_total", Counter, "tier, class", "errors of the drive: no_space, read_only, medium_error, gone, unresponsive (no answer within 10 s), other",
        &["tier:errors_no_space", "tier:errors_read_only", "tier:errors_medium_error", "tier:errors_gone", "tier:errors_unresponsive", "tier:errors_other"], |v, s| {
        for (number, tier) in v.cache.tiers.iter().enumerate() {
            for class in ErrorClass::ALL {
                s.one(&[("tier", &number.to_string()), ("class", class.name())], tier.drive_errors.of(class));
            }
        }
    }),
    metric("tier_drive_info", Gauge, "tier, drive, model", "1, with the drive that the tier lies on; this and what follows is what the drive says by smartctl or nvme, where one is installed and may ask it, every five minutes", &["tier:drive", "tier:drive_model"], |v, s| {
        for (number, report) in drive_reports(v) {
            s.one(&[("tier", &number.to_string()), ("drive", &report.drive), ("model", &report.model)], 1);
        }
    }),
    metric("tier_drive_failing", Gauge, "tier", "1 if the drive says that it is failing (its SMART status)", &["tier:drive_failing"], |v, s| drive_figure(v, s, Figure::Failing, whole)),
    metric("tier_drive_critical_warning", Gauge, "tier", "bits of the critical warning of an NVMe drive; 0 if there is none", &["tier:drive_critical_warning"], |v, s| drive_figure(v, s, Figure::CriticalWarning, whole)),
    metric("tier_drive_used_ratio", Gauge, "tier", "how much of the drive's rated life is used, as it says itself; may pass 1", &["tier:drive_used_percent"], |v, s| drive_figure(v, s, Figure::UsedPercent, |percent| percent as f64 / 100.0)),
    metric("tier_drive_spare_ratio", Gauge, "tier", "how much of its spare blocks is left", &["tier:drive_spare_percent"], |v, s| drive_figure(v, s, Figure::SparePercent, |percent| percent as f64 / 100.0)),
    metric("tier_drive_spare_threshold_ratio", Gauge, "tier", "below which share of spare blocks the drive is failing", &["tier:drive_spare_threshold_percent"], |v, s| drive_figure(v, s, Figure::SpareThresholdPercent, |percent| percent as f64 / 100.0)),
    metric("tier_drive_media_errors_total", Counter, "tier", "data that the drive could not give back, over its life", &["tier:drive_media_errors"], |v, s| drive_figure(v, s, Figure::MediaErrors, whole)),
    metric("tier_drive_reallocated_sectors", Gauge, "tier", "sectors that an ATA drive has replaced", &["tier:drive_reallocated_sectors"], |v, s| drive_figure(v, s, Figure::ReallocatedSectors, whole)),
    metric("tier_drive_pending_sectors", Gauge, "tier", "sectors that an ATA drive could not read and has yet to replace", &["tier:drive_pending_sectors"], |v, s| drive_figure(v, s, Figure::PendingSectors, whole)),
    metric("tier_drive_written_bytes_total", Counter, "tier", "bytes that hosts wrote to the drive over its life", &["tier:drive_written_bytes"], |v, s| drive_figure(v, s, Figure::WrittenBytes, whole)),
    metric("tier_drive_power_on_seconds_total", Counter, "tier", "how long the drive was on over its life, in whole hours", &["tier:drive_power_on_hours"], |v, s| drive_figure(v, s, Figure::PowerOnHours, |hours| hours as f64 * 3600.0)),
    metric("tier_drive_unsafe_shutdowns_total", Counter, "tier", "times that the drive lost power without warning", &["tier:drive_unsafe_shutdowns"], |v, s| drive_figure(v, s, Figure::UnsafeShutdowns, whole)),
    metric("tier_drive_temperature_celsius", Gauge, "tier", "the drive's temperature", &["tier:drive_temperature_celsius"], |v, s| drive_figure(v, s, Figure::TemperatureCelsius, whole)),
];

fn tiers(view: &View<'_>, samples: &mut Samples<'_>, value: fn(&TierStats) -> u64) {
    for (number, tier) in view.cache.tiers.iter().enumerate() {
        samples.one(&[("tier", &number.to_string())], value(tier));
    }
}

/// Of those tiers whose drain shows a rate.
fn drain_seconds(view: &View<'_>, samples: &mut Samples<'_>) {
    for (number, tier) in view.cache.tiers.iter().enumerate() {
        if let Some(seconds) = tier_state::drain_seconds_left(tier) {
            samples.one(&[("tier", &number.to_string())], seconds);
        }
    }
}

/// Of those tiers that have the value.
fn tier_floats(view: &View<'_>, samples: &mut Samples<'_>, value: fn(&TierStats) -> Option<f64>) {
    for (number, tier) in view.cache.tiers.iter().enumerate() {
        if let Some(value) = value(tier) {
            samples.one(&[("tier", &number.to_string())], value);
        }
    }
}

/// The reports of those tiers whose drives gave one.
fn drive_reports(view: &View<'_>) -> impl Iterator<Item = (usize, Report)> {
    let tiers = 0..view.cache.tiers.len();
    tiers.filter_map(|tier| Some((tier, view.shared.drive_health.report(tier)?)))
}

/// A figure of the reports that have it, in the unit of the metric.
fn drive_figure(view: &View<'_>, samples: &mut Samples<'_>, figure: Figure, unit: fn(u64) -> f64) {
    for (number, report) in drive_reports(view) {
        if let Some(value) = report.get(figure) {
            samples.one(&[("tier", &number.to_string())], unit(value));
        }
    }
}

fn whole(value: u64) -> f64 {
    value as f64
}

fn latencies<'v>(view: &'v View<'_>) -> impl Iterator<Item = &'v Latency> {
    view.shared.workers.iter().map(|worker| &*worker.latency)
}

/// What `/metrics` answers.
pub(super) fn text(view: &View<'_>) -> String {
    let mut text = String::new();
    for metric in METRICS {
        // Writing to a String can't fail.
        let _ = writeln!(text, "# HELP terrace_{} {}", metric.name, metric.help);
        let _ = writeln!(text, "# TYPE terrace_{} {}", metric.name, metric.kind.name());
        (metric.samples)(view, &mut Samples::new(metric.name, &mut text));
    }
    text
}

/// The content of docs/metrics.md.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Metrics\n\n\
         `--admin ADDR:PORT` (or a path, for a Unix socket) serves a live page at `/`, the metrics at `/metrics`,\n\
         `/status` (all of `stats` and `stats tiers` as JSON, null for what is unknown yet), `/events` (the same once a\n\
         second, as server-sent events), `/healthz`, `/readyz`, and `/readyz?recovered`, which is 503 until all records\n\
         are back after a start.\n\n\
         ![The live page under load](figures/live-page.png)\n\n\
         The page is one document that loads nothing else. It shows hit ratio, requests, latency by what answered,\n\
         evictions by cause, memory by use, and of each tier its state, use, reads, writes, write budget and drive life;\n\
         figures move once a second and charts hold the last five minutes since it was opened. All rows of `stats` stand\n\
         at its end. It says since when the server has not answered, and goes on when it does. Figures are gathered once a\n\
         second for all readers of `/events` together, and not at all without one; 32 may read at a time, and one that\n\
         takes nothing is closed. `bench/run page` measures what readers cost requests.\n\n\
         Any other address than a loopback one needs `--admin-token-file FILE`, whose first line (at least 16 characters)\n\
         readers send as `Authorization: Bearer TOKEN`, or as the password of HTTP Basic with any user. Browsers are asked\n\
         for it by a form, and get a cookie that is good for 12 hours, for this token and for reading alone; it is HttpOnly\n\
         and SameSite=Strict, and a restart does not end it. Wrong tokens are answered 20 a second, with wrong passwords of\n\
         memcached's ports. HTTP is not encrypted: across a network, put a proxy with TLS in front, which passes `Host` on as\n\
         it came; it may serve the page in a folder. `/healthz` and `/readyz` answer without the token, as probes need it. Without a token file, `Host` must be\n\
         a literal address, a loopback name or a name of `--admin-host NAME`, else the answer is 421: a web page whose name\n\
         leads to 127.0.0.1 must not read them.\n\n\
         `/tiers`, which `terrace tiers` shows, is an array of the tiers: number, label, level, state (`working`, `draining`,\n\
         `no-room`, `drained`, `failed`, `removed` or `absent`), health of the drive, records, live bytes, capacity, segments\n\
         used, and of a drain the segments and bytes left, the bytes that it began with and the seconds left at the rate so\n\
         far, null where they are unknown. `POST /tiers/N/drain` moves the records of tier N to other tiers,\n\
         `POST /tiers/N/drain?records=drop` drops the oldest ones where these have no room, `POST /tiers/N/cancel` ends that;\n\
         `POST /tiers/N/remove` takes an empty tier out of the set, `POST /tiers/N/remove?records=drop` one with its records.\n\
         `POST /tiers?tier=TIER` adds a tier, which is named as for `--tier` and percent-encoded; with `&records=drop` also\n\
         on a drive that was a tier before. Each answers as `/tiers` does, or with 400 (not the name of a tier), 404 (no such tier) or 409 and one line that says why not. They need\n\
         `Authorization: Bearer TOKEN`: neither a cookie nor a password is enough, and without a token file they are\n\
         refused with 403.\n\n\
         A connection has one request, of at most 4 KiB and within five seconds. At most 2,000 connections are served at a\n\
         time (fewer if `ulimit -n` allows fewer besides `-c`); when all are taken, the oldest one without a whole request\n\
         is closed.\n\n\
         `/healthz` and `/readyz` are about the process: it runs, and clients are answered. Both\n\
         stay 200 when a tier has failed, which is meant: the cache goes on serving from DRAM and\n\
         the other tiers, and to start it anew or take it out of service would lose those too.\n\
         `terrace_tier_failed` tells of a failed tier: that is what to alert on.\n\n\
         Tiers are numbered from 0 in the order of the command line. `stats reset` sets back the\n\
         same counters here as in `stats`.\n\n\
         Written from the table in `crates/server/src/admin/metrics.rs` by\n\
         `TERRACE_UPDATE_DOCS=1 cargo test -p terrace --lib admin`; a test fails when it is out of\n\
         date, and another when a row of `stats` has no metric.\n\n\
         | metric | type | labels | meaning | rows of `stats` |\n|---|---|---|---|---|\n",
    );
    for metric in METRICS {
        let shows = metric.shows.join(", ");
        let (name, kind) = (metric.name, metric.kind.name());
        let line = format!("| `terrace_{name}` | {kind} | {} | {} |", metric.labels, metric.help);
        text.push_str(&format!("{line} {shows} |\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{general, tiers as tier_stats};

    /// Rows that are no measurement.
    const NO_METRIC: &[&str] =
        &["pid", "libevent", "pointer_size", "slab_reassign_last_busy_status"];

    #[test]
    fn every_row_of_stats_is_shown() {
        let shown: Vec<_> = METRICS.iter().flat_map(|metric| metric.shows).copied().collect();
        let names = general::counted_names().into_iter().chain(tier_stats::names());
        let missing: Vec<_> = names
            .filter(|name| !shown.contains(&name.as_str()) && !NO_METRIC.contains(&name.as_str()))
            .collect();
        assert!(missing.is_empty(), "no metric shows {missing:?}");
    }

    #[test]
    fn names_follow_the_conventions() {
        let mut names: Vec<_> = METRICS.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len(), "a name twice");
        for metric in METRICS {
            let name = metric.name;
            let is_total = name.ends_with("_total");
            assert_eq!(is_total, metric.kind == Counter, "{name}: counters end in _total");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            assert_eq!(metric.kind == Histogram, name.ends_with("_duration_seconds"), "{name}");
        }
    }

    #[test]
    fn the_documentation_is_up_to_date() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        if std::env::var_os("TERRACE_UPDATE_DOCS").is_some() {
            std::fs::write(file, markdown()).unwrap();
        }
        let is_current = std::fs::read_to_string(file).unwrap_or_default() == markdown();
        assert!(
            is_current,
            "docs/metrics.md: run TERRACE_UPDATE_DOCS=1 cargo test -p terrace --lib"
        );
    }
}
