//! What the operator asked for: one plain struct, made from the command line and a configuration
//! file, and read by everything else.

mod address;
mod arguments;
mod assign;
mod config_file;
mod convert;
mod error;
mod extended;
mod help;
mod listeners;
#[cfg(test)]
mod manual;
mod memory;
mod noted;
mod renamed;
pub(crate) mod size;
mod table;
#[cfg(test)]
mod tests;
mod without_effect;
mod write_rate;

pub use crate::auth::{PasswordFile, PasswordFileError};
pub use crate::log::LogFormat;
pub use convert::convert;
pub use error::UsageError;
pub use help::{help, markdown};
pub use listeners::{
    AdminAddress, Endpoint, ListenAddress, ListenTls, Port, TlsSettings, Unresolved, Verify,
};
pub use memory::{BESIDES_BYTES_MAX, MemoryShares, group_bytes};
pub use terrace_cache::{Durability, OnMismatch, WritePolicy, WriteRate};
use terrace_cache::{FULL_PERCENT, Note};
pub use terrace_cache::{display_bytes, display_count};
pub use terrace_device::Engine as IoEngine;
pub use terrace_protocol::Protocol;

use arguments::CommandLine;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use terrace_runtime::place::Place;

/// Everything that a server is started with. [`Settings::default`] is memcached's default.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// TCP port of listeners without one of their own (`-p`).
    pub tcp_port: Port,
    /// UDP port of listeners without one of their own (`-U`).
    pub udp_port: Port,
    /// UDP replies to public addresses may be as long as any (`--public-udp`).
    pub public_udp: bool,
    /// Where to listen; empty for all addresses, IPv4 and IPv6 (`-l`). Not looked at when
    /// `unix_socket` is set.
    pub listen: Vec<ListenAddress>,
    /// TLS (`-Z`, `ssl_` options).
    pub tls: TlsSettings,
    /// Where metrics and status are served over HTTP (`--admin`).
    pub admin: Option<AdminAddress>,
    /// The file with the token that the admin page asks for (`--admin-token-file`).
    pub admin_token_file: Option<PathBuf>,
    /// Names by which the admin page may be asked for without a token, besides loopback names (`--admin-host`).
    pub admin_hosts: Vec<String>,
    /// Listen on this socket and on no network at all (`-s`).
    pub unix_socket: Option<PathBuf>,
    /// Permission bits of the Unix socket (`-a`, octal on the command line).
    pub unix_mask: u32,
    /// Length of the kernel's queue of connections not yet accepted (`-b`).
    pub listen_backlog: u32,
    /// Connections at once (`-c`).
    pub connections_max: u32,
    /// Above `connections_max`: `true` answers `ERROR Too many open connections` and closes,
    /// `false` leaves new connections in the backlog (`-o maxconns_fast`, `-o no_maxconns_fast`).
    pub refuse_when_full: bool,
    /// Close connections that were silent for this many seconds; 0 for never (`-o idle_timeout`).
    pub idle_timeout_s: u32,
    /// Cap on the memory of all connections together; 0 for a quarter of `memory_bytes`, 64 MiB at least
    /// (`-o read_buf_mem_limit`, in megabytes on the command line).
    pub connection_buffer_bytes_max: u64,
    /// Worker threads (`-t`).
    pub threads: u32,
    /// Requests that one connection may have answered before the others get their turn (`-R`).
    pub requests_per_event: u32,
    /// The protocol that connections speak (`-B`).
    pub protocol: Protocol,
    /// Who may use the server, with ASCII authentication (`-Y`); forces ASCII.
    pub ascii_passwords: Option<PasswordFile>,
    /// SASL was asked for (`-S`): without `sasl_passwords` the environment names the file.
    pub sasl: bool,
    /// Who may use the server, with SASL (`-S`, `--sasl-passwords`); forces the binary protocol.
    pub sasl_passwords: Option<PasswordFile>,
    /// Bytes of DRAM for everything that grows with data (`-m`, in megabytes on the command line).
    pub memory_bytes: u64,
    /// What the process's memory cgroup allows: found at a start, not asked for.
    pub group_bytes: Option<u64>,
    /// `false` answers an error instead of evicting when full (`-M`).
    pub evict: bool,
    /// `false` keeps no CAS numbers (`-C`).
    pub cas: bool,
    /// The longest value, in bytes (`-I`).
    pub item_bytes_max: u64,
    /// Drives below DRAM, fastest first (`--tier`, `-o ext_path`).
    pub tiers: Vec<TierSpec>,
    /// How much each tier may be written, or all of them (`--write-budget`).
    pub write_rates: Vec<WriteRate>,
    /// The share of a tier that records take when it is full, in percent (`--tier-full`).
    pub tier_full_percent: u32,
    /// What a full tier writes and keeps (`--write-policy`).
    pub write_policy: WritePolicy,
    /// Threads that write, merge and take back what is on tiers; `None` for as many as suit workers and cores
    /// (`--background-threads`).
    pub background_threads: Option<u32>,
    /// How drives are read and written (`--io-engine`).
    pub io_engine: IoEngine,
    /// How lines of the log are written.
    pub log_format: LogFormat,
    /// Where the file lies that outlives the process; `None` for `/dev/shm` (`--state`).
    pub state_dir: Option<PathBuf>,
    /// What comes back warm (`--durability`).
    pub durability: Durability,
    /// The file that keeps which tiers belong together (`--roster`).
    pub roster: Option<PathBuf>,
    /// Seconds that a start waits for a tier that is not there (`--tier-wait`).
    pub tier_wait_s: u32,
    /// What to do with tiers that can't be recovered (`--on-mismatch`).
    pub on_mismatch: OnMismatch,
    /// How long a stop may take to write everything out, in seconds (`--stop-timeout`).
    pub stop_timeout_s: u32,
    /// The `shutdown` command works (`-A`).
    pub shutdown_command: bool,
    /// The `flush_all` command works (off with `-F`).
    pub flush_all_command: bool,
    /// Commands that list keys work (off with `-X`).
    pub dump_commands: bool,
    /// The `watch` command works (off with `-W`).
    pub watch_command: bool,
    /// Commands are counted by the prefixes of keys from the start (`-D`); see `stats detail`.
    pub count_prefixes: bool,
    /// What separates a key's prefix from the rest (`-D`).
    pub prefix_delimiter: u8,
    /// How much is logged: 0, 1 (`-v`), 2 (`-vv`), 3 (`-vvv`).
    pub verbosity: u8,
    /// Run in the background (`-d`).
    pub daemon: bool,
    /// Where to write the process id (`-P`).
    pub pid_file: Option<PathBuf>,
    /// Give up root for this user (`-u`).
    pub user: Option<String>,
    /// Allow core dumps of any size (`-r`).
    pub core_dumps: bool,
    /// Lock all memory (`-k`).
    pub lock_memory: bool,
    /// Huge pages for records in DRAM (`-L`).
    pub huge_pages: bool,
    /// `stats sizes` counts sizes from the start (`-o track_sizes`).
    pub track_sizes: bool,
    /// memcached's way to choose threads (`-N`): no effect here, 0 if not given.
    pub napi_ids: u32,
    /// memcached's slab growth factor (`-f`): no effect here, shown by `stats settings`.
    pub slab_growth_factor: f64,
    /// memcached's smallest chunk in bytes (`-n`): no effect here, shown by `stats settings`.
    pub slab_chunk_bytes_min: u32,
    /// Values of options that have no effect here, by their names in `stats settings`, which shows them.
    pub shown: BTreeMap<&'static str, String>,
    /// Lines for the log about options that were accepted and have no effect here.
    pub notes: Vec<Note>,
    /// The files of `--config`, in order; none where the command line names tiers, which then count alone.
    pub tier_files: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tcp_port: Port::At(11211),
            udp_port: Port::Off,
            public_udp: false,
            tls: TlsSettings::default(),
            admin: None,
            admin_token_file: None,
            admin_hosts: Vec::new(),
            listen: Vec::new(),
            unix_socket: None,
            unix_mask: 0o700,
            listen_backlog: 1024,
            connections_max: 1024,
            refuse_when_full: true,
            idle_timeout_s: 0,
            connection_buffer_bytes_max: 0,
            threads: 4,
            requests_per_event: 20,
            protocol: Protocol::Auto,
            ascii_passwords: None,
            sasl: false,
            sasl_passwords: None,
            memory_bytes: 64 << 20,
            group_bytes: None,
            evict: true,
            cas: true,
            item_bytes_max: 1 << 20,
            tiers: Vec::new(),
            write_rates: Vec::new(),
            tier_full_percent: FULL_PERCENT,
            write_policy: WritePolicy::AllOnce,
            background_threads: None,
            io_engine: IoEngine::Auto,
            log_format: LogFormat::Text,
            state_dir: None,
            roster: None,
            tier_wait_s: 10,
            durability: Durability::Process,
            on_mismatch: OnMismatch::Cold,
            stop_timeout_s: 25,
            shutdown_command: false,
            flush_all_command: true,
            dump_commands: true,
            watch_command: true,
            count_prefixes: false,
            prefix_delimiter: b':',
            verbosity: 0,
            daemon: false,
            pid_file: None,
            user: None,
            core_dumps: false,
            lock_memory: false,
            huge_pages: false,
            track_sizes: false,
            napi_ids: 0,
            slab_growth_factor: 1.25,
            slab_chunk_bytes_min: 48,
            shown: BTreeMap::new(),
            notes: Vec::new(),
            tier_files: Vec::new(),
        }
    }
}

/// One `--tier ssd:PATH[:SIZE][,below][,profile=FILE]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierSpec {
    /// The file, block device or remote drive.
    pub place: Place,
    /// Bytes to use; `None` for all of a block device or an existing file.
    pub bytes: Option<u64>,
    /// Reads in flight beyond which more only queue, from the drive's profile.
    pub read_depth: Option<u32>,
    /// It stands below the tiers named before it, and takes what those have no room for.
    pub is_below: bool,
}

impl TierSpec {
    /// Reads what `--tier` takes.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        address::tier(text)
    }
}

/// What a command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Invocation {
    /// To serve.
    Serve(Box<Settings>),
    /// To print something and exit.
    Print(Print),
}

/// What can be asked for instead of serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Print {
    /// `-h`: [`help()`].
    Help,
    /// `-V`.
    Version,
    /// `-i`.
    License,
}

impl Invocation {
    /// Reads a command line (without the program's name) and the files that its `--config` names.
    pub fn parse(arguments: &[String]) -> Result<Self, UsageError> {
        let line = CommandLine::parse(arguments)?;
        let mut assignments = Vec::new();
        for file in &line.config_files {
            let text = std::fs::read_to_string(file)
                .map_err(|error| UsageError::at(format!("--config {file}"), error))?;
            assignments.extend(config_file::parse(file, &text)?);
        }
        assignments.retain(|from_file| line.assignments.iter().all(|a| a.key() != from_file.key()));
        let has_tiers = line.assignments.iter().any(|assignment| assignment.key() == "tier");
        let tier_files = if has_tiers { Vec::new() } else { line.config_files };
        assignments.extend(line.assignments);
        let mut settings = Settings { tier_files, ..Settings::default() };
        let is_given = |key| assignments.iter().any(|assignment| assignment.key() == key);
        let moves_tcp = is_given("udp-port") && !is_given("port");
        let unheard = without_effect::Given::new(&assignments);
        for assignment in assignments {
            if let Some(print) = assignment.apply(&mut settings)? {
                return Ok(Self::Print(print));
            }
        }
        if moves_tcp && settings.udp_port != Port::Off {
            // As in memcached: -U alone means both.
            settings.tcp_port = settings.udp_port;
        }
        settings.find_sasl_passwords()?;
        let unread = line.unread.iter();
        let ignored = |word| Note::Warning(format!("{word}: not looked at, since it is no flag"));
        settings.notes.extend(unread.map(ignored));
        settings.note_what_is_not_looked_at();
        let notes = unheard.notes(&settings);
        settings.notes.extend(notes);
        settings.check()?;
        Ok(Self::Serve(Box::new(settings)))
    }
}

impl Settings {
    /// Reads again which tiers the files of `--config` name; `None` if there is no such file, or the command line names
    /// tiers, which then count alone.
    pub(crate) fn tiers_of_files(&self) -> Result<Option<Vec<TierSpec>>, UsageError> {
        if self.tier_files.is_empty() {
            return Ok(None);
        }
        let mut settings = Self::default();
        for file in &self.tier_files {
            let text = std::fs::read_to_string(file)
                .map_err(|error| UsageError::at(format!("--config {file}"), error))?;
            for assignment in config_file::parse(file, &text)? {
                if assignment.key() == "tier" {
                    assignment.apply(&mut settings)?;
                }
            }
        }
        Ok(Some(settings.tiers))
    }

    /// Reads from a file of `--config` where the admin page is served, and the file of its token.
    pub(crate) fn admin_of(file: &Path) -> Result<Self, UsageError> {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|error| UsageError::at(&name, error))?;
        config_file::admin(&name, &text)
    }

    /// What connections speak: authentication leaves no choice.
    pub fn spoken_protocol(&self) -> Protocol {
        match (&self.ascii_passwords, &self.sasl_passwords) {
            (Some(_), _) => Protocol::Ascii,
            (None, Some(_)) => Protocol::Binary,
            (None, None) => self.protocol,
        }
    }

    /// Whether clients must say who they are.
    pub fn asks_for_passwords(&self) -> bool {
        self.ascii_passwords.is_some() || self.sasl_passwords.is_some()
    }

    /// Reads the password file that the environment names, as it does for memcached.
    fn find_sasl_passwords(&mut self) -> Result<(), UsageError> {
        const VARIABLE: &str = "MEMCACHED_SASL_PWDB";
        if !self.sasl || self.sasl_passwords.is_some() {
            return Ok(());
        }
        let Some(file) = std::env::var_os(VARIABLE) else {
            let reason = format!(
                "set {VARIABLE} to a file of lines user:password, or write --sasl-passwords FILE"
            );
            return Err(UsageError::at("-S", reason));
        };
        let passwords = table::path(&file.to_string_lossy())
            .and_then(|file| PasswordFile::read(&file).map_err(|error| error.to_string()));
        self.sasl_passwords = Some(passwords.map_err(|error| UsageError::at(VARIABLE, error))?);
        Ok(())
    }

    /// As in memcached, a Unix socket is served alone, and certificates that clients may show count for
    /// nothing where nobody vouches for them.
    fn note_what_is_not_looked_at(&mut self) {
        if self.tls.verify == Verify::Request && self.tls.ca.is_none() {
            self.tls.verify = Verify::None;
            let note = "-o ssl_verify_mode=1: clients are not asked, since ssl_ca_cert names no CA";
            self.notes.push(Note::Warning(note.into()));
        }
        if self.tls.enabled && self.asks_for_certificates() && self.tls.ca.is_none() {
            let note = "-o ssl_verify_mode or mtls: each client is turned away where a certificate is needed, since no \
                        CA vouches for any; write -o ssl_ca_cert=FILE";
            self.notes.push(Note::Warning(note.into()));
        }
        if self.udp_port != Port::Off && self.asks_for_certificates() {
            self.udp_port = Port::Off;
            let note = "-U: not listened on, since datagrams show no certificate, and clients are asked for one";
            self.notes.push(Note::Warning(note.into()));
        }
        if self.listens_on_nothing() {
            let note = "-p 0: no client gets in; write a port or -s FILE";
            self.notes.push(Note::Warning(note.into()));
        }
        if self.unix_socket.is_some() && self.udp_port != Port::Off {
            self.udp_port = Port::Off;
            let note = "-U: not listened on, since -s is served alone";
            self.notes.push(Note::Info(note.into()));
        }
    }

    /// Finds settings that contradict each other.
    fn check(&self) -> Result<(), UsageError> {
        let protocol = |flag, spoken| {
            let reason = format!("{flag} is for the {spoken} protocol; leave -B out");
            Err(UsageError::conflict("-B", reason))
        };
        match (&self.ascii_passwords, &self.sasl_passwords, self.protocol) {
            (Some(_), Some(_), _) => {
                return Err(UsageError::conflict(
                    "-S",
                    "SASL and -Y exclude each other; write one",
                ));
            }
            (Some(_), _, Protocol::Binary) => return protocol("-Y", "ASCII"),
            (_, Some(_), Protocol::Ascii) => return protocol("-S", "binary"),
            _ => {}
        }
        if self.tiers.is_empty() && self.item_bytes_max > self.memory_bytes / 2 {
            return Err(UsageError::conflict(
                format!("-I {}", self.item_bytes_max),
                format!(
                    "an item may be half of the memory at most; write -m {} or more, or a smaller -I",
                    (self.item_bytes_max * 2).div_ceil(1 << 20)
                ),
            ));
        }
        self.check_listeners()?;
        if self.napi_ids > self.threads {
            let reason = format!("there are {} threads; write no more ids than that", self.threads);
            return Err(UsageError::conflict(format!("-N {}", self.napi_ids), reason));
        }
        let percent = |name, default| {
            let shown = self.shown.get(name).and_then(|text| text.parse::<u32>().ok());
            shown.unwrap_or(default)
        };
        if percent("hot_lru_pct", 20) + percent("warm_lru_pct", 40) > 80 {
            return Err(UsageError::conflict(
                "-o hot_lru_pct and warm_lru_pct",
                "together they may be 80 at most",
            ));
        }
        if self.write_rates.len() > self.tiers.len().max(1) {
            return Err(UsageError::conflict(
                "--write-budget",
                format!("there are {} tiers; write one rate, or one each", self.tiers.len()),
            ));
        }
        for (at, tier) in self.tiers.iter().enumerate() {
            if self.tiers[..at].iter().any(|other| other.place.is_same(&tier.place)) {
                return Err(UsageError::conflict(
                    &tier.place,
                    "named twice; give each tier a file of its own",
                ));
            }
        }
        Ok(())
    }
}
