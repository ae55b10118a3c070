//! `stats settings`: memcached's names; what has no counterpart here shows memcached's default.

use super::view::{Row, Source, View, write_row};
use crate::settings::{Port, Verify};
use Source::{Never, Number, Text};
use std::sync::atomic::Ordering::Relaxed;

const ROWS: &[Row] = &[
    ("maxbytes", Number(|v| v.shared.memory_asked.load(Relaxed))),
    ("maxconns", Number(|v| u64::from(v.shared.settings.connections_max))),
    ("tcpport", Number(|v| port(v.shared.settings.tcp_port))),
    ("udpport", Number(|v| port(v.shared.settings.udp_port))),
    ("inter", Text(addresses)),
    ("verbosity", Number(|v| u64::from(v.shared.verbosity()))),
    ("oldest", Never),
    ("evictions", Text(|v| on(v.shared.settings.evict))),
    ("domain_socket", Text(socket)),
    ("umask", Text(|v| format!("{:o}", v.shared.settings.unix_mask))),
    ("shutdown_command", Text(|v| yes(v.shared.settings.shutdown_command))),
    ("growth_factor", Text(|v| format!("{:.2}", v.shared.settings.slab_growth_factor))),
    ("chunk_size", Number(|v| u64::from(v.shared.settings.slab_chunk_bytes_min))),
    ("num_threads", Number(|v| u64::from(v.shared.settings.threads))),
    ("num_threads_per_udp", Number(|v| u64::from(v.shared.settings.threads))),
    ("stat_key_prefix", Text(|v| char::from(v.shared.settings.prefix_delimiter).to_string())),
    ("detail_enabled", Text(|v| yes(v.shared.prefixes.is_on()))),
    ("reqs_per_event", Number(|v| u64::from(v.shared.settings.requests_per_event))),
    ("cas_enabled", Text(|v| yes(v.shared.settings.cas))),
    ("tcp_backlog", Number(|v| u64::from(v.shared.settings.listen_backlog))),
    ("binding_protocol", Text(protocol)),
    ("auth_enabled_sasl", Text(|v| yes(v.shared.settings.sasl_passwords.is_some()))),
    ("auth_enabled_ascii", Text(password_file)),
    ("item_size_max", Number(|v| v.shared.cache.item_bytes_max())),
    ("maxconns_fast", Text(|v| yes(v.shared.settings.refuse_when_full))),
    ("hashpower_init", Never),
    ("slab_reassign", Text(|_| yes(true))),
    ("slab_automove", Number(|_| 1)),
    ("slab_automove_ratio", Text(|_| "0.80".into())),
    ("slab_automove_window", Number(|_| 10)),
    ("slab_chunk_max", Number(|_| 512 << 10)),
    ("lru_crawler", Text(|_| yes(true))),
    ("lru_crawler_sleep", Number(|_| 100)),
    ("lru_crawler_tocrawl", Never),
    ("tail_repair_time", Never),
    ("flush_enabled", Text(|v| yes(v.shared.settings.flush_all_command))),
    ("dump_enabled", Text(|v| yes(v.shared.settings.dump_commands))),
    ("hash_algorithm", Text(|_| "xxh3".into())),
    ("lru_maintainer_thread", Text(|_| yes(true))),
    // As in memcached, it goes with the maintainer.
    ("lru_segmented", Text(|v| yes(v.shared.knobs.is_on("lru_maintainer_thread")))),
    ("hot_lru_pct", Number(|_| 20)),
    ("warm_lru_pct", Number(|_| 40)),
    ("hot_max_factor", Text(|_| "0.20".into())),
    ("warm_max_factor", Text(|_| "2.00".into())),
    ("temp_lru", Text(|_| yes(false))),
    ("temporary_ttl", Number(|_| 61)),
    ("idle_timeout", Number(|v| u64::from(v.shared.settings.idle_timeout_s))),
    ("watcher_logbuf_size", Number(|_| 256 << 10)),
    ("worker_logbuf_size", Number(|_| 64 << 10)),
    ("read_buf_mem_limit", Number(|v| v.shared.settings.connection_buffer_bytes_max)),
    ("track_sizes", Text(|v| yes(v.shared.track_sizes.load(Relaxed)))),
    ("inline_ascii_response", Text(|_| yes(false))),
    ("drop_privileges", Text(|_| yes(false))),
];

/// What memcached shows where an extstore and TLS are built in, be they used or not.
const BUILT_IN_ROWS: &[Row] = &[
    ("ext_item_size", Number(|_| 512)),
    ("ext_item_age", Number(|_| u64::from(u32::MAX))),
    ("ext_low_ttl", Never),
    ("ext_recache_rate", Number(|_| 2000)),
    ("ext_wbuf_size", Number(|_| 4 << 20)),
    ("ext_compact_under", Never),
    ("ext_drop_under", Never),
    ("ext_max_sleep", Number(|_| 1_000_000)),
    ("ext_max_frag", Text(|_| "0.80".into())),
    ("slab_automove_freeratio", Text(|_| "0.010".into())),
    ("ext_drop_unread", Text(|_| yes(false))),
    ("ssl_enabled", Text(|v| yes(v.shared.settings.tls.enabled))),
    ("ssl_chain_cert", Text(|v| path(v.shared.settings.tls.chain.as_deref(), "(null)"))),
    ("ssl_key", Text(|v| path(v.shared.settings.tls.key.as_deref(), "(null)"))),
    ("ssl_verify_mode", Number(|v| verify_mode(v.shared.settings.tls.verify))),
    ("ssl_keyformat", Number(|v| if v.shared.settings.tls.is_der { 2 } else { 1 })),
    ("ssl_ciphers", Text(|v| v.shared.settings.tls.ciphers.clone().unwrap_or("NULL".into()))),
    ("ssl_ca_cert", Text(|v| path(v.shared.settings.tls.ca.as_deref(), "NULL"))),
    ("ssl_wbuf_size", Number(|_| 16 << 10)),
    ("ssl_session_cache", Text(|v| yes(v.shared.settings.tls.session_cache))),
    ("ssl_kernel_tls", Text(|_| yes(false))),
    ("ssl_min_version", Text(|v| min_version(v.shared.settings.tls.only_tls13))),
];

const LAST_ROWS: &[Row] = &[
    ("proxy_enabled", Text(|_| yes(false))),
    ("num_napi_ids", Never),
    ("memory_file", Text(|_| "(null)".into())),
    ("client_flags_size", Number(|_| 4)),
    // The one name that is not memcached's: `version` says which memcached this stands in for.
    ("terrace_version", Text(|_| env!("CARGO_PKG_VERSION").into())),
];

/// Writes the answer of `stats settings`, without its end.
pub(crate) fn write(out: &mut Vec<u8>, view: &View<'_>) {
    for row in [ROWS, BUILT_IN_ROWS, LAST_ROWS].into_iter().flatten() {
        match view.shared.knobs.shown(row.0) {
            Some(value) => super::view::write(out, row.0, value),
            None => write_row(out, view, row),
        }
    }
}

fn yes(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.into()
}

fn on(is_so: bool) -> String {
    if is_so { "on" } else { "off" }.into()
}

fn port(port: Port) -> u64 {
    port.number().unwrap_or(0).into()
}

fn path(path: Option<&std::path::Path>, unset: &str) -> String {
    path.map_or(unset.into(), |path| path.display().to_string())
}

fn verify_mode(verify: Verify) -> u64 {
    match verify {
        Verify::None => 0,
        Verify::Request => 1,
        Verify::Require => 2,
    }
}

fn min_version(only_tls13: bool) -> String {
    if only_tls13 { "tlsv1.3" } else { "tlsv1.2" }.into()
}

fn addresses(view: &View<'_>) -> String {
    let listen = &view.shared.settings.listen;
    if listen.is_empty() {
        return "NULL".into();
    }
    let text = |address: &crate::settings::ListenAddress| match address.port {
        Some(port) => format!("{}:{port}", address.host),
        None => address.host.clone(),
    };
    listen.iter().map(text).collect::<Vec<_>>().join(",")
}

fn socket(view: &View<'_>) -> String {
    let path = view.shared.settings.unix_socket.as_ref();
    path.map_or("NULL".into(), |path| path.display().to_string())
}

fn password_file(view: &View<'_>) -> String {
    let passwords = view.shared.settings.ascii_passwords.as_ref();
    passwords.map_or("no".into(), |passwords| passwords.path().display().to_string())
}

fn protocol(view: &View<'_>) -> String {
    use crate::settings::Protocol;
    match view.shared.settings.spoken_protocol() {
        Protocol::Auto => "auto-negotiate",
        Protocol::Ascii => "ascii",
        Protocol::Binary => "binary",
    }
    .into()
}
