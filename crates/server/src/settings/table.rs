//! The flags: one row each. Parsing, `--help` and docs/flags.md come from here.

use super::{
    AdminAddress, Durability, IoEngine, LogFormat, OnMismatch, PasswordFile, Port, Protocol,
    Settings, WritePolicy, address, display_bytes, memory, size, write_rate,
};
use std::path::PathBuf;

/// Under which heading a flag stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Network,
    Cache,
    Tiers,
    Commands,
    Process,
    Other,
    NoEffect,
}

impl Section {
    pub(crate) const ALL: [Self; 7] = [
        Self::Network,
        Self::Cache,
        Self::Tiers,
        Self::Commands,
        Self::Process,
        Self::Other,
        Self::NoEffect,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Network => "Network",
            Self::Cache => "Cache",
            Self::Tiers => "Tiers",
            Self::Commands => "Commands",
            Self::Process => "Process",
            Self::Other => "Other",
            Self::NoEffect => "memcached's, accepted without effect",
        }
    }
}

/// What a flag does with its value. Flags without an argument get an empty one.
pub(crate) enum Action {
    /// Changes the settings.
    Set(fn(&mut Settings, &str) -> Result<(), String>),
    /// Asks for something to be printed instead of serving.
    Print(super::Print),
    /// Names a configuration file.
    Config,
    /// Carries options of the table in `extended.rs`.
    Extended,
    /// Accepted, and noted in the log with this reason.
    Note(&'static str),
}

/// One flag.
pub(crate) struct Flag {
    pub(crate) short: Option<char>,
    pub(crate) long: &'static str,
    /// The placeholder of its argument; `None` for a flag that takes none.
    pub(crate) argument: Option<&'static str>,
    pub(crate) default: &'static str,
    pub(crate) help: &'static str,
    pub(crate) section: Section,
    pub(crate) action: Action,
}

use Action::{Config, Extended, Note, Print, Set};
use Section::{Cache, Commands, Network, NoEffect, Other, Process, Tiers};

/// A row, in the order in which it is read.
const fn flag(
    short: &'static str,
    long: &'static str,
    argument: &'static str,
    default: &'static str,
    help: &'static str,
    section: Section,
    action: Action,
) -> Flag {
    let short = match short.as_bytes() {
        [] => None,
        [letter, ..] => Some(*letter as char),
    };
    let argument = if argument.is_empty() { None } else { Some(argument) };
    Flag { short, long, argument, default, help, section, action }
}

/// Every flag, by section.
#[rustfmt::skip]
pub(crate) const FLAGS: &[Flag] = &[
    flag("p", "port", "NUM", "11211", "TCP port; 0 turns TCP off, -1 takes any that is free", Network, Set(port)),
    flag("l", "listen", "ADDR", "all addresses", "where: ADDR[:PORT],...; before one notls:, btls:, mtls:, proto[NAME]:, tag[NAME]:", Network, Set(listen)),
    flag("U", "udp-port", "NUM", "0", "UDP port; 0 turns UDP off; without -p it is the TCP port too", Network, Set(udp_port)),
    flag("", "public-udp", "", "", "UDP replies of any length to public addresses; else 3 times the request at most", Network, Set(|s, _| set(&mut s.public_udp, true))),
    flag("Z", "enable-ssl", "", "", "speak TLS, with the certificate of -o ssl_chain_cert and ssl_key", Network, Set(|s, _| set(&mut s.tls.enabled, true))),
    flag("s", "unix-socket", "FILE", "", "listen on this Unix socket, and on no network", Network, Set(unix_socket)),
    flag("a", "unix-mask", "MASK", "700", "permissions of the Unix socket, in octal", Network, Set(unix_mask)),
    flag("c", "conn-limit", "NUM", "1024", "connections at once", Network, Set(conn_limit)),
    flag("b", "listen-backlog", "NUM", "1024", "length of the kernel's queue of new connections", Network, Set(listen_backlog)),
    flag("B", "protocol", "NAME", "auto", "what connections speak: auto, ascii or binary", Network, Set(protocol)),
    flag("R", "max-reqs-per-event", "NUM", "20", "requests of one connection before the others get their turn", Network, Set(requests_per_event)),

    flag("Y", "auth-file", "FILE", "", "ASCII authentication: lines of user:password; read again at SIGHUP", Network, Set(auth_file)),
    flag("S", "enable-sasl", "", "", "SASL PLAIN, binary protocol only; lines of user:password in the file that MEMCACHED_SASL_PWDB names", Network, Set(|s, _| set(&mut s.sasl, true))),
    flag("", "sasl-passwords", "FILE", "", "the same, with the file named here", Network, Set(sasl_passwords)),

    flag("m", "memory-limit", "SIZE", "64", "DRAM for all that grows with data: megabytes, a suffix (4g), or auto: a share of what there is", Cache, Set(memory_limit)),
    flag("M", "disable-evictions", "", "", "answer an error when full instead of evicting", Cache, Set(|s, _| set(&mut s.evict, false))),
    flag("I", "max-item-size", "SIZE", "1m", "the longest value, 1k to 1g; an eighth of -m, or of all tiers, at most", Cache, Set(item_size)),
    flag("C", "disable-cas", "", "", "keep no CAS numbers", Cache, Set(|s, _| set(&mut s.cas, false))),
    flag("t", "threads", "NUM", "4", "worker threads, 1 to 256", Cache, Set(threads)),
    flag("k", "lock-memory", "", "", "lock all memory", Cache, Set(|s, _| set(&mut s.lock_memory, true))),
    flag("L", "enable-largepages", "", "", "huge pages for records in DRAM that are the process's own, not the state's", Cache, Set(|s, _| set(&mut s.huge_pages, true))),

    flag("", "tier", "KIND:PLACE[:SIZE]", "none", "a drive, repeatable: ssd:/data/cache:512g, nvme-tcp:HOST/NQN; ,profile=FILE; ,below: under others", Tiers, Set(tier)),
    flag("", "state", "DIR", "/dev/shm", "where the file lies that makes a crash come back warm: a folder on a tmpfs", Tiers, Set(state_dir)),
    flag("", "roster", "FILE", "", "keeps which tiers belong together; by itself $STATE_DIRECTORY/roster, where that is set", Tiers, Set(roster)),
    flag("", "tier-wait", "SECONDS", "10", "how long a start waits for a tier that is not there, before it goes on without", Tiers, Set(tier_wait)),
    flag("", "durability", "MODE", "process", "what comes back warm: process (any end of it) or strict (a power loss too; slower)", Tiers, Set(durability)),
    flag("", "on-mismatch", "WHAT", "cold", "where a start erases what another could keep: cold does it, refuse does not start", Tiers, Set(on_mismatch)),
    flag("", "write-budget", "RATE,...", "unlimited", "how much each drive may be written, or each its own: 1dwpd, 40MB/s, unlimited", Tiers, Set(write_budget)),
    flag("", "tier-full", "PERCENT", "80", "a tier is full when records take so much of it; less holds less, and is written less", Tiers, Set(tier_full)),
    flag("", "write-policy", "NAME", "all-once", "what full tiers admit and reinsert: all-once, all-twice, reused-once, reused-none", Tiers, Set(write_policy)),
    flag("", "stop-timeout", "SECONDS", "25", "how long a stop may take to write everything out", Tiers, Set(stop_timeout)),
    flag("", "background-threads", "NUM", "2 to 4, by -t, cores, tiers", "threads that write and take back what is on drives", Tiers, Set(background_threads)),
    flag("", "io-engine", "NAME", "auto", "how drives are read: auto, io_uring or pool (of threads)", Tiers, Set(io_engine)),

    flag("A", "enable-shutdown", "", "", "let clients use `shutdown`", Commands, Set(|s, _| set(&mut s.shutdown_command, true))),
    flag("F", "disable-flush-all", "", "", "refuse `flush_all`", Commands, Set(|s, _| set(&mut s.flush_all_command, false))),
    flag("X", "disable-dumping", "", "", "refuse commands that list keys or their prefixes", Commands, Set(|s, _| set(&mut s.dump_commands, false))),
    flag("D", "prefix-delimiter", "CHAR", ":", "count commands by what stands before this in keys, for `stats detail dump`", Commands, Set(prefix_delimiter)),
    flag("W", "disable-watch", "", "", "refuse `watch`", Commands, Set(|s, _| set(&mut s.watch_command, false))),

    flag("u", "user", "NAME", "", "give up root for this user; root must say which, `-u root` to stay", Process, Set(user)),
    flag("d", "daemon", "", "", "run in the background, once everything is ready", Process, Set(|s, _| set(&mut s.daemon, true))),
    flag("P", "pidfile", "FILE", "", "write the process id there", Process, Set(pid_file)),
    flag("r", "enable-coredumps", "", "", "allow core dumps of any size", Process, Set(|s, _| set(&mut s.core_dumps, true))),
    flag("", "log-format", "FORMAT", "text", "lines of the log: text (time, level, message) or json", Process, Set(log_format)),
    flag("v", "verbose", "", "", "log more; -vv and -vvv still more", Process, Set(verbose)),
    flag("", "admin", "ADDR:PORT", "off", "serve a live page, metrics and status over HTTP there, or on a Unix socket (a path)", Process, Set(admin)),
    flag("", "admin-token-file", "FILE", "", "the admin page asks for the token in this file: in a form, as a password, or in `Authorization: Bearer`", Process, Set(admin_token_file)),
    flag("", "admin-host", "NAME", "", "take this name for the admin page's `Host`, too; may be repeated", Process, Set(admin_host)),
    flag("", "config", "FILE", "", "read settings from this TOML file; what the command line says wins", Process, Config),

    flag("o", "extended", "NAME[=VALUE],...", "", "memcached's extended options, listed below", Other, Extended),
    flag("h", "help", "", "", "print this and exit", Other, Print(super::Print::Help)),
    flag("V", "version", "", "", "print the version and exit", Other, Print(super::Print::Version)),
    flag("i", "license", "", "", "print the licence and exit", Other, Print(super::Print::License)),

    flag("f", "slab-growth-factor", "FACTOR", "1.25", "shown by `stats settings`; there are no slab classes", NoEffect, Set(growth_factor)),
    flag("n", "slab-min-size", "NUM", "48", "shown by `stats settings`; there are no slab classes", NoEffect, Set(chunk_size)),
    flag("e", "memory-file", "FILE", "", "every restart keeps the tiers' content: see --tier and --state", NoEffect, Note("every restart keeps the content of the tiers; see --tier and --state")),
    flag("N", "napi-ids", "NUM", "0", "workers share connections evenly", NoEffect, Set(napi_ids)),

];

/// Worker threads at most.
const THREADS_MAX: u32 = 256;

fn set<T>(field: &mut T, value: T) -> Result<(), String> {
    *field = value;
    Ok(())
}

fn port(s: &mut Settings, text: &str) -> Result<(), String> {
    set(&mut s.tcp_port, Port::parse(text)?)
}

fn listen(s: &mut Settings, text: &str) -> Result<(), String> {
    s.listen.extend(address::listeners(text)?);
    Ok(())
}

/// A path that leads to the same file wherever the process goes: a daemon leaves its directory.
pub(crate) fn path(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("the path is empty; write the path of a file".into()),
        text => std::path::absolute(text).map_err(|error| error.to_string()),
    }
}

fn unix_socket(s: &mut Settings, text: &str) -> Result<(), String> {
    set(&mut s.unix_socket, Some(path(text)?))
}

fn unix_mask(s: &mut Settings, text: &str) -> Result<(), String> {
    let text = text.trim_start();
    let digits = text.bytes().take_while(|byte| (b'0'..=b'7').contains(byte)).count();
    match u32::from_str_radix(&text[..digits], 8) {
        Ok(mask) if mask <= 0o777 => set(&mut s.unix_mask, mask),
        _ => Err("a mask is an octal number such as 700 or 770".into()),
    }
}

fn conn_limit(s: &mut Settings, text: &str) -> Result<(), String> {
    set(&mut s.connections_max, size::leading_number(text, 1..=1_000_000, "the connection limit")?)
}

fn listen_backlog(s: &mut Settings, text: &str) -> Result<(), String> {
    set(&mut s.listen_backlog, size::leading_number(text, 0..=i32::MAX as u32, "the backlog")?)
}

fn protocol(s: &mut Settings, text: &str) -> Result<(), String> {
    set(&mut s.protocol, protocol_named(text)?)
}

/// What is spoken, as `-B` and `proto[]` call it.
pub(crate) fn protocol_named(text: &str) -> Result<Protocol, String> {
    match text.trim() {
        "auto" | "auto-negotiate" => Ok(Protocol::Auto),
        "ascii" => Ok(Protocol::Ascii),
        "binary" => Ok(Protocol::Binary),
        _ => Err("write auto, ascii or binary".into()),
    }
}

fn auth_file(s: &mut Settings, text: &str) -> Result<(), String> {
    let passwords = PasswordFile::read(&path(text)?).map_err(|error| error.to_string())?;
    set(&mut s.ascii_passwords, Some(passwords))
}

fn sasl_passwords(s: &mut Settings, text: &str) -> Result<(), String> {
    let passwords = PasswordFile::read(&path(text)?).map_err(|error| error.to_string())?;
    set(&mut s.sasl_passwords, Some(passwords))
}

fn requests_per_event(s: &mut Settings, text: &str) -> Result<(), String> {
    set(
        &mut s.requests_per_event,
        size::leading_number(text, 1..=i32::MAX as u32, "requests per event")?,
    )
}

fn memory_limit(s: &mut Settings, text: &str) -> Result<(), String> {
    if text.trim() == "auto" {
        let bytes = memory::automatic_bytes()?;
        note(s, format!("-m auto: {}", display_bytes(bytes)));
        return set(&mut s.memory_bytes, bytes);
    }
    match size::leading_bytes(text, Some(1 << 20))? {
        0 => Err("there is no cache without memory; write megabytes (64) or a size (4g)".into()),
        bytes => set(&mut s.memory_bytes, bytes),
    }
}

fn item_size(s: &mut Settings, text: &str) -> Result<(), String> {
    match size::leading_bytes(text, Some(1))? {
        bytes @ 0x400..=0x4000_0000 => set(&mut s.item_bytes_max, bytes),
        _ => Err("the longest value can be set from 1k to 1g".into()),
    }
}

fn threads(s: &mut Settings, text: &str) -> Result<(), String> {
    let threads = size::leading_number(text, 1..=u32::MAX, "")
        .map_err(|_| format!("the count of threads is a number from 1 to {THREADS_MAX}"))?;
    if threads > THREADS_MAX {
        note(s, format!("-t {threads}: {THREADS_MAX} threads, which is the most"));
    }
    set(&mut s.threads, threads.min(THREADS_MAX))
}

fn prefix_delimiter(s: &mut Settings, text: &str) -> Result<(), String> {
    match text.as_bytes() {
        &[byte, ref rest @ ..] if byte.is_ascii_graphic() => {
            if !rest.trim_ascii().is_empty() {
                let first = char::from(byte);
                note(s, format!("-D {text}: the first character counts, `{first}`"));
            }
            s.count_prefixes = true;
            set(&mut s.prefix_delimiter, byte)
        }
        _ => Err("write one printable character".into()),
    }
}

fn tier(s: &mut Settings, text: &str) -> Result<(), String> {
    s.tiers.push(address::tier(text)?);
    Ok(())
}

fn background_threads(s: &mut Settings, text: &str) -> Result<(), String> {
    let threads = size::number(text, 1..=4, "the count of background threads")?;
    set(&mut s.background_threads, Some(threads))
}

fn io_engine(s: &mut Settings, text: &str) -> Result<(), String> {
    let engine = match text {
        "auto" => IoEngine::Auto,
        "io_uring" => IoEngine::IoUring,
        "pool" => IoEngine::Pool,
        _ => return Err("write auto, io_uring or pool".into()),
    };
    set(&mut s.io_engine, engine)
}

/// Has the log say how something is taken.
fn note(s: &mut Settings, text: String) {
    s.notes.push(terrace_cache::Note::Info(text));
}

fn log_format(s: &mut Settings, text: &str) -> Result<(), String> {
    let format = match text {
        "text" => LogFormat::Text,
        "json" => LogFormat::Json,
        _ => return Err("write text or json".into()),
    };
    set(&mut s.log_format, format)
}

fn state_dir(s: &mut Settings, text: &str) -> Result<(), String> {
    set(&mut s.state_dir, Some(path(text)?))
}

fn roster(s: &mut Settings, text: &str) -> Result<(), String> {
    set(&mut s.roster, Some(path(text)?))
}

fn tier_wait(s: &mut Settings, text: &str) -> Result<(), String> {
    set(&mut s.tier_wait_s, size::number(text, 0..=3600, "the time to wait")?)
}

fn durability(s: &mut Settings, text: &str) -> Result<(), String> {
    let durability = match text {
        "process" => Durability::Process,
        "strict" => Durability::Power,
        _ => return Err("write process or strict".into()),
    };
    set(&mut s.durability, durability)
}

fn on_mismatch(s: &mut Settings, text: &str) -> Result<(), String> {
    let on_mismatch = match text {
        "cold" => OnMismatch::Cold,
        "refuse" => OnMismatch::Refuse,
        _ => return Err("write cold or refuse".into()),
    };
    set(&mut s.on_mismatch, on_mismatch)
}

fn write_budget(s: &mut Settings, text: &str) -> Result<(), String> {
    set(&mut s.write_rates, write_rate::rates(text)?)
}

fn tier_full(s: &mut Settings, text: &str) -> Result<(), String> {
    set(&mut s.tier_full_percent, size::number(text, 10..=90, "the share")?)
}

fn write_policy(s: &mut Settings, text: &str) -> Result<(), String> {
    let write_policy = text.parse::<WritePolicy>().map_err(|error| error.to_string())?;
    set(&mut s.write_policy, write_policy)
}

fn stop_timeout(s: &mut Settings, text: &str) -> Result<(), String> {
    set(&mut s.stop_timeout_s, size::number(text, 0..=86_400, "the time for a stop")?)
}

fn user(s: &mut Settings, text: &str) -> Result<(), String> {
    match text.trim() {
        "" => Err("the user is empty; write a user's name".into()),
        name => set(&mut s.user, Some(name.to_string())),
    }
}

fn pid_file(s: &mut Settings, text: &str) -> Result<(), String> {
    set(&mut s.pid_file, Some(path(text)?))
}

fn verbose(s: &mut Settings, _: &str) -> Result<(), String> {
    let more = s.verbosity.saturating_add(1);
    set(&mut s.verbosity, more)
}

fn napi_ids(s: &mut Settings, text: &str) -> Result<(), String> {
    s.napi_ids = size::leading_number(text, 1..=u32::MAX, "the number of NAPI ids")?;
    note(s, format!("-N {text}: workers share connections evenly"));
    Ok(())
}

fn growth_factor(s: &mut Settings, text: &str) -> Result<(), String> {
    match size::leading_float(text) {
        Some(factor) if factor > 1.0 => set(&mut s.slab_growth_factor, factor),
        _ => Err("the factor is a number greater than 1".into()),
    }
}

fn chunk_size(s: &mut Settings, text: &str) -> Result<(), String> {
    let bytes = size::leading_number(text, 1..=1 << 20, "the chunk size")?;
    set(&mut s.slab_chunk_bytes_min, bytes)
}

fn udp_port(s: &mut Settings, text: &str) -> Result<(), String> {
    set(&mut s.udp_port, Port::parse(text)?)
}

fn admin(s: &mut Settings, text: &str) -> Result<(), String> {
    set(&mut s.admin, Some(AdminAddress::parse(text)?))
}

fn admin_host(s: &mut Settings, text: &str) -> Result<(), String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match text.strip_suffix('.').unwrap_or(text) {
        name if !name.is_empty() && name.bytes().all(is_name) => {
            s.admin_hosts.push(name.to_ascii_lowercase());
            Ok(())
        }
        _ => Err("write the name of a host without a port, such as cache.example.com".into()),
    }
}

fn admin_token_file(s: &mut Settings, text: &str) -> Result<(), String> {
    set(&mut s.admin_token_file, Some(path(text)?))
}
