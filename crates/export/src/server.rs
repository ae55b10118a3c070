//! Starts and stops an export.

use crate::buffers::Pool;
use crate::config::{Config, ExportError};
use crate::counters::Status;
use crate::event_loop::EventLoop;
use crate::identity::serial;
use crate::medium::Medium;
use crate::shared::{Exported, Limits, Parts, Shared};
use crate::writers::Writers;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use terrace_device::Event;
use terrace_nvme::command::fabrics::DISCOVERY_NQN;
use terrace_nvme::command::log::{DiscoveryEntry, SubsystemKind};
use terrace_nvme::controller::{self, Export, Target};

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 128;
/// Threads that one export may have for connections: each is a bit of a word.
pub const THREADS_MAX: usize = 64;
/// Entries of a queue, at most: a host with the usual 128 of Linux has room for as many again.
const QUEUE_ENTRIES_MAX: u32 = 256;
/// Data in a capsule, at most.
const CAPSULE_BYTES_MAX: u32 = 8192;
/// The largest transfer, as a power of two in units of 4 KiB: that of the largest buffer.
const TRANSFER_PAGES_SHIFT: u8 = (crate::buffers::LARGEST >> 12).trailing_zeros() as u8;
/// Controllers at a time: hosts, and associations of theirs that have not timed out yet.
const CONTROLLERS_MAX: u16 = 256;

/// An export that is being served. Dropping it stops it, without a word about what that did.
pub struct Server {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<io::Result<()>>>>,
    addresses: Vec<SocketAddr>,
}

/// Why an export did not end well.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unclean(String);

impl Server {
    /// Opens all namespaces and addresses, and serves them.
    ///
    /// # Errors
    /// Says what can't be opened; nothing is served then.
    pub fn start(config: &Config) -> Result<Self, ExportError> {
        let system = |step| move |source| ExportError::System { step, source };
        let mut media = Vec::new();
        for namespace in &config.namespaces {
            media.push(Arc::new(namespace.open(&config.log)?));
        }
        media.sort_by_key(|medium| medium.namespace.nsid);
        let listeners: Vec<TcpListener> = config
            .listen
            .iter()
            .map(|&address| {
                listen(address).map_err(|source| ExportError::Listen { address, source })
            })
            .collect::<Result<_, _>>()?;
        let local = listeners.iter().map(TcpListener::local_addr);
        let addresses: Vec<_> = local.collect::<Result<_, _>>().map_err(system("address"))?;
        let threads = config.threads.clamp(1, THREADS_MAX);
        let events = (0..threads).map(|_| Event::new().map(Arc::new));
        let events: Vec<_> = events.collect::<Result<_, _>>().map_err(system("eventfd"))?;
        let pool = Pool::new(config.buffer_bytes_max, events.clone());
        let shared = Arc::new(Shared::new(Parts {
            limits: Limits {
                connections: config.connections_max.max(1),
                half_open: config.half_open_max.div_ceil(threads).max(1),
            },
            target: target(config, &media, &addresses),
            exported: exported(media),
            pool,
            log: config.log.clone(),
            events,
        }));
        let server = Self { shared, threads: Mutex::default(), addresses };
        // On an error the threads that have been started stop again.
        let mut listeners = Some(listeners);
        for number in 0..threads {
            let own = listeners.take().unwrap_or_default();
            server.spawn(number, own).map_err(system("thread"))?;
        }
        Ok(server)
    }

    fn spawn(&self, number: usize, listeners: Vec<TcpListener>) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let serve = move || {
            // Without one of its threads an export does not go on.
            let _stops = Stops(Arc::clone(&shared));
            EventLoop::new(&shared, number, listeners)?.run()
        };
        let thread = thread::Builder::new().name(format!("export-{number}")).spawn(serve)?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// The addresses that it listens on.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Whether no transfer of a namespace waits for a drive: it lies in memory.
    #[must_use]
    pub fn is_memory(&self, nsid: u32) -> bool {
        self.shared.exported(nsid).is_some_and(|one| one.medium.is_memory)
    }

    /// What it has done, and has at present.
    #[must_use]
    pub fn status(&self) -> Status {
        let Shared { counters, pool, exported, .. } = &*self.shared;
        let (used, held, limit) = pool.usage();
        Status {
            namespaces: exported.iter().map(|one| one.medium.report()).collect(),
            controllers: self.shared.target().controllers() as u64,
            connections: counters.open.get(),
            half_open: counters.half_open.get(),
            accepted: counters.accepted.get(),
            rejected: counters.rejected.get(),
            never_connected: counters.never_connected.get(),
            protocol_errors: counters.protocol_errors.get(),
            keep_alive_timeouts: counters.keep_alive_timeouts.get(),
            stalled: counters.stalled.get(),
            buffer_waits: counters.buffer_waits.get(),
            buffer_bytes_used: used as u64,
            buffer_bytes: held as u64,
            buffer_bytes_max: limit as u64,
        }
    }

    /// Has it stop: no further connection or command is taken, and those under way are finished. Does not wait for that.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Waits until it has stopped, then brings all that was written to the media.
    ///
    /// # Errors
    /// A thread failed, or a flush did: what hosts have not flushed may be lost.
    pub fn wait(&self) -> Result<(), Unclean> {
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let mut result = Ok(());
        for thread in threads {
            let failure = match thread.join() {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it panicked".to_owned(),
            };
            result = Err(Unclean(format!("a thread of the export failed: {failure}")));
        }
        for Exported { medium, writers, .. } in &self.shared.exported {
            writers.close();
            if let Err(error) = medium.drive.flush() {
                result = Err(Unclean(format!(
                    "{}: flush: {error}; what hosts have not flushed may be lost",
                    medium.drive.label()
                )));
            }
        }
        result
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        let _ = self.wait();
    }
}

/// Stops the export when dropped.
struct Stops(Arc<Shared>);

impl Drop for Stops {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// An address of IPv6 takes no connections of IPv4.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn target(config: &Config, media: &[Arc<Medium>], addresses: &[SocketAddr]) -> Target {
    let export = Export {
        nqn: config.nqn.clone(),
        serial: serial(&config.nqn),
        model: "Terrace".into(),
        firmware: env!("CARGO_PKG_VERSION").into(),
        namespaces: media.iter().map(|medium| medium.namespace.clone()).collect(),
        allowed_hosts: config.hosts.clone(),
        // What is written is in the cache of a drive, or of the system, until a Flush.
        volatile_write_cache: true,
        limits: controller::Limits {
            queue_entries_max: QUEUE_ENTRIES_MAX,
            in_capsule_bytes_max: CAPSULE_BYTES_MAX,
            transfer_pages_shift: TRANSFER_PAGES_SHIFT,
            controllers_max: CONTROLLERS_MAX,
            ..controller::Limits::default()
        },
    };
    let entry =
        |kind: SubsystemKind, nqn: &str, number: usize, address: &SocketAddr| DiscoveryEntry {
            kind,
            subsystem_nqn: nqn.to_owned(),
            address: address.ip().to_string(),
            port: address.port(),
            port_id: number as u16 + 1,
            tls: false,
        };
    let entries = addresses.iter().enumerate().flat_map(|(number, address)| {
        [
            entry(SubsystemKind::ThisDiscovery, DISCOVERY_NQN, number, address),
            entry(SubsystemKind::Nvm, &config.nqn, number, address),
        ]
    });
    Target::new(vec![export], entries.collect())
}

fn exported(media: Vec<Arc<Medium>>) -> Vec<Exported> {
    let mut queued = 0..;
    let one = |medium: Arc<Medium>| Exported {
        queue_number: if medium.is_memory { None } else { queued.next() },
        writers: Writers::new(Arc::clone(&medium)),
        medium,
    };
    media.into_iter().map(one).collect()
}
