//! The options behind `-o`: one row each, like the flags.

use super::table::path;
use super::{Settings, Verify, address, size};

/// What an option does.
pub(crate) enum Effect {
    /// Changes the settings; the option has a value.
    Set(fn(&mut Settings, &str) -> Result<(), String>),
    /// Changes the settings; the option has no value.
    Switch(fn(&mut Settings)),
    /// Accepted, and noted in the log with this reason.
    Note(&'static str),
    /// Refused with this reason.
    Refuse(&'static str),
}

/// One option; several names where they share their fate.
pub(crate) struct Extended {
    pub(crate) names: &'static [&'static str],
    /// The placeholder of the value, where one is looked at.
    pub(crate) argument: Option<&'static str>,
    pub(crate) default: &'static str,
    pub(crate) help: &'static str,
    pub(crate) effect: Effect,
}

use Effect::{Note, Refuse, Set, Switch};

const LRU: &str = "records are not kept in memcached's LRU queues";
const SLABS: &str = "there are no slab classes";
const HASH: &str = "the index has its own hash and grows by itself";
const PAGES: &str = "tiers are laid out in segments that follow from their size";
const PLACEMENT: &str = "every record goes to the tiers when DRAM needs its place";
const PROXY: &str = "there is no built-in proxy; run memcached's or mcrouter in front";

const fn set(
    name: &'static [&'static str],
    argument: &'static str,
    default: &'static str,
    help: &'static str,
    effect: fn(&mut Settings, &str) -> Result<(), String>,
) -> Extended {
    Extended { names: name, argument: Some(argument), default, help, effect: Set(effect) }
}

const fn switch(
    name: &'static [&'static str],
    default: &'static str,
    help: &'static str,
    effect: fn(&mut Settings),
) -> Extended {
    Extended { names: name, argument: None, default, help, effect: Switch(effect) }
}

const fn note(names: &'static [&'static str], reason: &'static str) -> Extended {
    Extended { names, argument: None, default: "", help: reason, effect: Note(reason) }
}

const fn refuse(names: &'static [&'static str], reason: &'static str) -> Extended {
    Extended { names, argument: None, default: "", help: reason, effect: Refuse(reason) }
}

/// Every option of memcached, first those that do something.
#[rustfmt::skip]
pub(crate) const OPTIONS: &[Extended] = &[
    set(&["ext_path"], "FILE:SIZE", "none", "the same as --tier ssd:FILE:SIZE; repeatable", ext_path),
    set(&["idle_timeout"], "SECONDS", "0", "close connections that were silent for so long; 0 for never", idle_timeout),
    set(&["read_buf_mem_limit"], "MEGABYTES", "0", "cap on the memory of all connections together; 0 for a quarter of -m, 64 at least", buffer_limit),
    switch(&["maxconns_fast"], "on", "above -c, answer an error and close", |s| s.refuse_when_full = true),
    switch(&["track_sizes"], "off", "have `stats sizes` count the sizes of records", |s| s.track_sizes = true),
    set(&["ssl_chain_cert"], "FILE", "", "the certificate of -Z and those that vouch for it", |s, text| put(&mut s.tls.chain, Some(path(text)?))),
    set(&["ssl_key"], "FILE", "", "its key", |s, text| put(&mut s.tls.key, Some(path(text)?))),
    set(&["ssl_keyformat"], "NAME", "PEM", "the format of both files: PEM or DER", ssl_keyformat),
    set(&["ssl_verify_mode"], "NUM", "0", "client certificates: 0 none, 1 checked if shown, 2 or 3 required", ssl_verify_mode),
    set(&["ssl_ca_cert"], "FILE", "", "the CAs that vouch for clients", |s, text| put(&mut s.tls.ca, Some(path(text)?))),
    set(&["ssl_ciphers"], "NAMES", "all safe ones", "cipher suites as OpenSSL writes them, such as HIGH:!aNULL", |s, text| put(&mut s.tls.ciphers, Some(text.to_string()))),
    set(&["ssl_min_version"], "NUM", "2", "2 for TLS 1.2, 3 for TLS 1.3; 0 and 1 mean 2, older ones are unsafe", ssl_min_version),
    switch(&["ssl_session_cache"], "off", "let clients resume TLS sessions", |s| s.tls.session_cache = true),
    switch(&["no_maxconns_fast"], "", "above -c, leave new connections waiting", |s| s.refuse_when_full = false),
    switch(&["no_modern"], "", "no_maxconns_fast; and `stats` and `stats settings` as of a memcached without its newer parts", no_modern),

    note(&["ext_page_size", "ext_wbuf_size", "ext_compact_under", "ext_drop_under", "ext_max_frag", "ext_max_sleep"], PAGES),
    note(&["ext_threads", "ext_io_depth"], "workers read drives themselves, many reads at a time"),
    note(&["ext_item_size", "ext_item_age", "ext_low_ttl", "ext_recache_rate", "ext_drop_unread"], PLACEMENT),
    note(&["hashpower", "no_hashexpand", "hash_algorithm"], HASH),
    note(&["slab_reassign", "no_slab_reassign", "slab_automove", "no_slab_automove", "slab_automove_ratio", "slab_automove_window", "slab_automove_freeratio", "slab_sizes", "slab_chunk_max", "no_chunked_items"], SLABS),
    note(&["lru_crawler", "no_lru_crawler", "lru_crawler_sleep", "lru_crawler_tocrawl", "lru_maintainer", "no_lru_maintainer", "hot_lru_pct", "warm_lru_pct", "hot_max_factor", "warm_max_factor", "temporary_ttl", "tail_repair_time"], LRU),
    note(&["watcher_logbuf_size", "worker_logbuf_size"], "log buffers have a fixed size"),
    note(&["inline_ascii_resp", "no_inline_ascii_resp", "resp_obj_mem_limit", "modern", "sock_cookie_id"], "nothing here depends on it"),
    note(&["ssl_wbuf_size"], "TLS records are as large as what there is to send"),
    note(&["ssl_kernel_tls"], "TLS is spoken by the server itself"),
    note(&["drop_privileges", "no_drop_privileges", "relaxed_privileges"], "no system call filter is set; use the service manager's"),

    refuse(&["proxy_config", "proxy_arg", "proxy_uring", "proxy_memprofile"], PROXY),
];

fn ext_path(s: &mut Settings, text: &str) -> Result<(), String> {
    s.tiers.push(address::ext_path(text)?);
    Ok(())
}

fn idle_timeout(s: &mut Settings, text: &str) -> Result<(), String> {
    s.idle_timeout_s = size::leading_number(text, 0..=i32::MAX as u32, "the timeout in seconds")?;
    Ok(())
}

fn no_modern(s: &mut Settings) {
    s.refuse_when_full = false;
    let off = ["slab_reassign", "lru_crawler", "lru_maintainer_thread", "lru_segmented"];
    s.shown.extend(off.map(|name| (name, "no".to_string())));
    s.shown.extend([("slab_automove", "0".into()), ("slab_chunk_max", (1 << 20).to_string())]);
}

fn put<T>(field: &mut T, value: T) -> Result<(), String> {
    *field = value;
    Ok(())
}

fn ssl_keyformat(s: &mut Settings, text: &str) -> Result<(), String> {
    s.tls.is_der = match text {
        "PEM" => false,
        "DER" => true,
        "ENGINE" => return Err("keys are read from files here; write PEM or DER".into()),
        _ => return Err("write PEM or DER".into()),
    };
    Ok(())
}

fn ssl_verify_mode(s: &mut Settings, text: &str) -> Result<(), String> {
    s.tls.verify = match size::number(text, 0..=3u8, "the mode")? {
        0 => Verify::None,
        1 => Verify::Request,
        _ => Verify::Require,
    };
    Ok(())
}

fn ssl_min_version(s: &mut Settings, text: &str) -> Result<(), String> {
    let version = size::number(text, 0..=3u8, "the version")?;
    if version < 2 {
        let note = format!("-o ssl_min_version={version}: TLS 1.2 is the oldest that is safe");
        s.notes.push(terrace_cache::Note::Info(note));
    }
    s.tls.only_tls13 = version == 3;
    Ok(())
}

fn buffer_limit(s: &mut Settings, text: &str) -> Result<(), String> {
    s.connection_buffer_bytes_max = size::bytes(text, Some(1 << 20))?;
    Ok(())
}
