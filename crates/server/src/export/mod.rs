//! `terrace export`: files and block devices as namespaces of an NVMe/TCP target.

mod arguments;
mod metrics;

pub use metrics::markdown;

use crate::admin::PlainAdmin;
use crate::log::{self, LogFormat};
use crate::say;
use arguments::Arguments;
use clap::{CommandFactory, Parser};
use rustix::process::{Resource, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use terrace_cache::display_bytes;
use terrace_export::{
    Config, ExportError, Log, NamespaceConfig, Note, Server, Storage, default_nguid, default_nqn,
};
use tracing::{info, warn};

/// Threads, unless told otherwise.
const THREADS_MAX: usize = 4;
/// Descriptors besides those of connections.
const DESCRIPTORS_BESIDES: u64 = 128;
/// Beyond this a shell sees which signal ended a process.
const EXIT_BY_SIGNAL: i32 = 128;

/// Why nothing is served, or not to the end.
struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    /// The flags, or what they name, can't be used.
    fn usage(text: impl ToString) -> Self {
        Self { code: 2, text: text.to_string() }
    }

    /// The system does not do it.
    fn system(text: impl ToString) -> Self {
        Self { code: 1, text: text.to_string() }
    }
}

/// The flags of `terrace export`, for its manual page and completions of shells.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs `terrace export` with its arguments (the first is the program's name) until it is stopped. Exit code 1: the
/// system refuses something, or what hosts have written could not be flushed; 2: the arguments are wrong.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    match serve(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say::error(format_args!("terrace export: {}", failure.text));
            ExitCode::from(failure.code)
        }
    }
}

fn serve(arguments: &Arguments) -> Result<(), Failure> {
    let config = config(arguments)?;
    log::begin(LogFormat::Text);
    let admin = arguments.admin.as_ref();
    let admin = admin
        .map(|address| PlainAdmin::bind(address, arguments.admin_token_file.as_deref()))
        .transpose()
        .map_err(Failure::usage)?;
    allow_descriptors(arguments.connections as u64)?;
    // Before anything is served: a signal that comes at once ends it well, too.
    let signals = Signals::new([SIGINT, SIGTERM]).map_err(Failure::system)?;
    let server = Arc::new(Server::start(&config).map_err(|error| failure_of(&error))?);
    describe(&config, &server);
    if let Some(admin) = &admin {
        say::line(format_args!("metrics on {}/metrics", admin.name()));
    }
    let stopped = Arc::new(AtomicBool::new(false));
    let page = admin.map(|admin| serve_page(admin, &server, &stopped)).transpose()?;
    obey(signals, &server)?;
    let ended = server.wait();
    stopped.store(true, Relaxed);
    if let Some(page) = page {
        let _ = page.join();
    }
    ended.map_err(Failure::system)?;
    say::line("stopped; all that was written is on the media");
    Ok(())
}

fn config(arguments: &Arguments) -> Result<Config, Failure> {
    let first = &arguments.namespaces[0].path;
    let mut config = Config::new(arguments.nqn.clone().unwrap_or_else(|| default_nqn(first)));
    let mut next = 1;
    for namespace in &arguments.namespaces {
        let nsid = namespace.nsid.unwrap_or(next);
        next = nsid.saturating_add(1);
        if config.namespaces.iter().any(|other| other.nsid == nsid) {
            return Err(Failure::usage(format!(
                "{}: nsid {nsid} is another namespace's; write nsid=N behind it",
                namespace.path.display()
            )));
        }
        config.namespaces.push(NamespaceConfig {
            nsid,
            storage: Storage::Path { path: namespace.path.clone(), bytes: namespace.bytes },
            block_bytes: namespace.block_bytes,
            nguid: namespace.nguid.unwrap_or_else(|| default_nguid(&namespace.path)),
            read_only: namespace.read_only,
        });
    }
    let listen: Vec<SocketAddr> =
        arguments.listen.iter().flat_map(|listen| listen.0.iter().copied()).collect();
    config.listen = match listen.is_empty() {
        true => vec![SocketAddr::from(([127, 0, 0, 1], arguments::PORT))],
        false => listen,
    };
    config.hosts = (!arguments.hosts.is_empty()).then(|| arguments.hosts.clone());
    let cores = || thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    config.threads = arguments.threads.unwrap_or_else(cores);
    config.connections_max = arguments.connections;
    config.buffer_bytes_max = usize::try_from(arguments.buffers).unwrap_or(usize::MAX);
    config.log = Log::new(|note| match note {
        Note::Info(text) => info!("{text}"),
        Note::Warning(text) => warn!("{text}"),
    });
    Ok(config)
}

fn failure_of(error: &ExportError) -> Failure {
    match error {
        ExportError::Listen { source, .. } => Failure::system(format!(
            "--listen {error}; {}",
            match source.kind() {
                std::io::ErrorKind::AddrInUse =>
                    "stop the program that has it, or write another port",
                std::io::ErrorKind::AddrNotAvailable => "write an address of this machine",
                _ => "write another address",
            }
        )),
        ExportError::BlockSize { .. } => Failure::usage(format!("{error} (block=4096)")),
        _ => Failure::system(error),
    }
}

/// Says what is served, where, and to which hosts.
fn describe(config: &Config, server: &Server) {
    say::line(format_args!("subsystem {}", config.nqn));
    for namespace in server.status().namespaces {
        let of = config.namespaces.iter().find(|one| one.nsid == namespace.nsid);
        let read_only = if of.is_some_and(|one| one.read_only) { ", read-only" } else { "" };
        let in_memory = if server.is_memory(namespace.nsid) { ", in memory" } else { "" };
        say::line(format_args!(
            "namespace {}: {}, {}{read_only}{in_memory}",
            namespace.nsid,
            namespace.path,
            display_bytes(namespace.bytes)
        ));
    }
    match &config.hosts {
        None => say::line("hosts: all that reach a port; --host NQN allows some alone"),
        Some(hosts) => hosts.iter().for_each(|host| say::line(format_args!("host {host}"))),
    }
    for address in server.addresses() {
        say::line(format_args!("listening on {address}"));
        let (ip, port, nqn) = (address.ip(), address.port(), &config.nqn);
        let ip = if ip.is_unspecified() { "ADDRESS".to_owned() } else { ip.to_string() };
        let host = if ip.contains(':') { format!("[{ip}]") } else { ip.clone() };
        let nsid = match &config.namespaces[..] {
            [one] => format!("/{}", one.nsid),
            _ => "/NSID".to_owned(),
        };
        let nsid = if nsid == "/1" { String::new() } else { nsid };
        say::line(format_args!("  terrace --tier nvme-tcp:{host}:{port}/{nqn}{nsid}"));
        say::line(format_args!("  nvme connect -t tcp -a {ip} -s {port} -n {nqn}"));
    }
    if server.addresses().iter().any(|address| !address.ip().is_loopback()) {
        say::line(
            "nothing on the wire is encrypted, and a host is known by the name that it gives: use a network that you \
             trust, or a tunnel",
        );
    }
}

/// Has the process open as many descriptors as it may need.
fn allow_descriptors(connections: u64) -> Result<(), Failure> {
    let needed = connections + DESCRIPTORS_BESIDES;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    limit.current = Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed)));
    if limit.current.is_some_and(|current| current < needed) {
        return Err(Failure::usage(format!(
            "--connections {connections} needs {needed} open files, and {} are allowed: raise that (ulimit -n), or \
             write fewer",
            limit.current.unwrap_or_default()
        )));
    }
    setrlimit(Resource::Nofile, limit)
        .map_err(|error| Failure::system(format!("open files: {error}")))
}

fn serve_page(
    admin: PlainAdmin,
    server: &Arc<Server>,
    stopped: &Arc<AtomicBool>,
) -> Result<thread::JoinHandle<()>, Failure> {
    let (server, stopped) = (Arc::clone(server), Arc::clone(stopped));
    let serve = move || {
        let metrics = move || metrics::text(&server.status());
        if let Err(error) = admin.run(metrics, move || stopped.load(Relaxed)) {
            warn!("--admin: {error}; there are no metrics any more, hosts are served");
        }
    };
    thread::Builder::new().name("admin".into()).spawn(serve).map_err(Failure::system)
}

/// Stops the export at the first signal, and ends the process at the second.
fn obey(mut signals: Signals, server: &Arc<Server>) -> Result<(), Failure> {
    let server = Arc::clone(server);
    let wait = move || {
        for (number, signal) in signals.forever().enumerate() {
            if number > 0 {
                low_level::exit(EXIT_BY_SIGNAL + signal);
            }
            info!("stopping: commands under way are finished; a second signal ends it at once");
            server.stop();
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait).map(drop).map_err(Failure::system)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_of(words: &[&str]) -> Result<Config, String> {
        let words = ["terrace export"].iter().chain(words);
        let arguments = Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
        config(&arguments).map_err(|failure| failure.text)
    }

    #[test]
    fn loopback_alone_is_served_unless_told_otherwise() {
        let config = config_of(&["/data/a:1g"]).unwrap();
        assert_eq!(config.listen, [SocketAddr::from(([127, 0, 0, 1], 4420))]);
        assert_eq!(config.hosts, None);
        let listen = config_of(&["/data/a:1g", "--listen", "10.0.0.5", "--listen", "[::1]:1"]);
        let listen: Vec<_> = listen.unwrap().listen.iter().map(ToString::to_string).collect();
        assert_eq!(listen, ["10.0.0.5:4420", "[::1]:1"]);
    }

    #[test]
    fn namespaces_count_from_one_and_are_told_apart() {
        let config = config_of(&["/data/a:1g", "/data/b:1g,nsid=7", "/data/c:1g"]).unwrap();
        let nsids: Vec<_> = config.namespaces.iter().map(|one| one.nsid).collect();
        assert_eq!(nsids, [1, 7, 8]);
        assert_ne!(config.namespaces[0].nguid, config.namespaces[1].nguid);
        assert_eq!(config.nqn, default_nqn("/data/a".as_ref()));
        let twice = config_of(&["/data/a:1g", "/data/b:1g,nsid=1"]).err().unwrap();
        assert!(twice.contains("nsid 1 is another namespace's"), "{twice}");
    }
}
