//! The server proper: listeners, worker threads and their connections.
//!
//! ```text
//! client -> listener -> acceptor -> inbox -> worker: poll -> input -> parser -> commands -> cache
//!                                               ^                                   |  DRAM
//!                                               |  reads (batched, one per loop)    v
//!                                               +---- pending <---------------- drives
//! client <------------------------------------------ replies (in request order)
//! ```

pub(crate) mod about;
mod acceptor;
mod binary;
mod buffers;
pub(crate) mod chunks;
mod clients;
mod clock;
mod conflicts;
mod connection;
mod connection_memory;
mod context;
mod drive_errors;
pub(crate) mod drive_health;
mod drives;
mod failures;
mod faults;
mod health_log;
mod heartbeat;
mod inbox;
mod input;
pub(crate) mod joining;
mod keys;
pub(crate) mod left_behind;
mod listener;
mod login;
mod naps;
mod notify;
mod pending;
mod poll;
mod recovery;
mod replies;
mod requests;
pub(crate) mod shared;
mod short_index;
mod signals;
mod slab;
pub(crate) mod socket;
mod stream;
mod surplus;
mod tier_log;
mod turns;
mod udp;
mod upload;
pub(crate) mod watch;
mod worker;
mod write_policies;

pub use faults::survive_lost_state;
pub use listener::{ListenError, Listener};
pub use signals::Signals;

use crate::admin::Admin;
use crate::settings::Settings;
use crate::tls::Configs;
use shared::Shared;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use terrace_cache::Cache;
use terrace_device::Drive;
use terrace_runtime::drives::Drives;
use tracing::{info, warn};

/// A running server.
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts to serve `cache` on `listeners`, encrypted by `tls`. `drives` are those that the cache was opened
    /// with, in the same order, and not timed: workers never wait for them. When this returns, clients are being
    /// answered.
    pub fn start(
        settings: &Settings,
        cache: Arc<Cache>,
        drives: Vec<Arc<dyn Drive>>,
        listeners: Vec<Listener>,
        tls: Option<Configs>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(settings.clone(), cache, Drives::new(drives), tls)?);
        shared.listeners.get_or_init(|| listeners.iter().map(Listener::number_and_name).collect());
        let mut server = Self { shared, threads: Vec::new() };
        let (udp, listeners): (Vec<_>, Vec<_>) =
            listeners.into_iter().partition(|listener| listener.udp_address().is_some());
        let udp: Vec<_> = udp.into_iter().map(Arc::new).collect();
        let workers = server.shared.inboxes.len();
        for index in 0..workers {
            let ports = udp.iter().skip(index).step_by(workers).cloned().collect();
            server.start_worker(index, ports)?;
        }
        server.spawn("maintenance-0", maintain)?;
        for number in 1..server.shared.cache.background_threads() {
            let help = move |shared: &Arc<Shared>| help_to_maintain(shared, number);
            server.spawn(&format!("maintenance-{number}"), help)?;
        }
        for index in 0..recovery_threads(&server.shared.cache) {
            server.spawn(&format!("recovery-{index}"), recovery::run)?;
        }
        server.spawn("acceptor", move |shared| acceptor::run(shared, &listeners))?;
        Ok(server)
    }

    /// Starts a worker and waits until it has what it needs: its read queue belongs to its thread.
    fn start_worker(&mut self, index: usize, udp: Vec<Arc<Listener>>) -> io::Result<()> {
        let (started, is_started) = mpsc::channel();
        self.spawn(&format!("worker-{index}"), move |shared| {
            match worker::Worker::new(Arc::clone(shared), index, udp) {
                Ok(worker) => {
                    // The receiver waits below; should it be gone, nobody needs the message.
                    let _ = started.send(Ok(()));
                    if let Err(error) = worker.run() {
                        shared.fail(format!("worker {index}: {error}"));
                    }
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                }
            }
        })?;
        is_started.recv().unwrap_or_else(|_| Err(io::Error::other("a worker ended at its start")))
    }

    fn spawn(
        &mut self,
        name: &str,
        body: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) -> io::Result<()> {
        let all = EndTogether(Arc::clone(&self.shared));
        let threads = self.shared.settings.threads;
        let thread = thread::Builder::new()
            .name(name.to_string())
            .spawn(move || body(&all.0))
            .map_err(|error| no_thread(name, threads, &error))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Asks all threads to end, after what they have begun.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Waits until the server was stopped: by [`Server::stop`], or by the `shutdown` command. An
    /// error means that it stopped because a thread of it panicked or could not go on.
    pub fn join(mut self) -> io::Result<()> {
        self.join_threads();
        self.shared.failure().map_or(Ok(()), |why| Err(io::Error::other(why)))
    }

    /// Says whether all of them ended by themselves; else what they shared is not to be built on.
    fn join_threads(&mut self) -> bool {
        let mut all = true;
        for thread in self.threads.drain(..) {
            let name = thread.thread().name().unwrap_or("a thread").to_owned();
            if thread.join().is_err() {
                self.shared.fail(format!("{name} panicked"));
                all = false;
            }
        }
        all
    }
}

/// The system has no thread to give: says which, and where its limit is set.
fn no_thread(name: &str, workers: u32, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!(
            "the thread {name} can't be started (-t {workers}): {error}; write a smaller -t, or raise \
             the limit of threads (`ulimit -u`, TasksMax= of systemd, pids.max of a container)"
        ),
    )
}

/// A server that has lost a thread answers some clients and hangs others, which nobody can make
/// sense of: it ends as a whole, visibly.
struct EndTogether(Arc<Shared>);

impl Drop for EndTogether {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop();
        // Whoever wants to know how it ended calls `join`.
        self.join_threads();
    }
}

/// Serves until a signal or the `shutdown` command ends it. `is_ready` is called once clients are
/// being answered.
pub fn run(
    settings: &Settings,
    cache: Arc<Cache>,
    drives: Vec<Arc<dyn Drive>>,
    (listeners, tls): (Vec<Listener>, Option<Configs>),
    admin: Option<Admin>,
    signals: Signals,
    is_ready: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let handle = signals.handle();
    let mut server = Server::start(settings, Arc::clone(&cache), drives, listeners, tls)?;
    if let Some(admin) = admin {
        server.spawn("admin", move |shared| admin.run(shared))?;
    }
    let shared = Arc::clone(&server.shared);
    let clock = shared.clock;
    let waiter =
        thread::Builder::new().name("signals".into()).spawn(move || signals.obey(&shared))?;
    notify::ready();
    is_ready()?;
    let is_sound = server.join_threads();
    notify::stopping();
    if is_sound {
        stop_cleanly(settings, &cache, clock.now());
    }
    handle.close();
    let _ = waiter.join();
    server.join()
}

/// Writes everything out, for as long as the operator allows.
fn stop_cleanly(settings: &Settings, cache: &Cache, now: u32) {
    if settings.tiers.is_empty() {
        return;
    }
    let start = Instant::now();
    let patience = Duration::from_secs(settings.stop_timeout_s.into());
    let done = cache.close(now, &|| start.elapsed() < patience);
    let seconds = start.elapsed().as_secs_f32();
    let empty: Vec<_> = cache.tiers_empty_next().collect();
    match done {
        true if empty.is_empty() => {
            info!("stopped cleanly in {seconds:.1} s: the next start is warm, after a reboot too")
        }
        true => warn!(
            "stopped cleanly in {seconds:.1} s: the next start is warm, after a reboot too, but for {}, which took no \
             writes",
            empty.join(", ")
        ),
        false if cache.has_lost_state() => warn!(
            "stopped after {seconds:.1} s; the state was lost while it was in use: the next start is cold"
        ),
        false if !empty.is_empty() => warn!(
            "stopped after {seconds:.1} s; {} took no writes: the next start finds what it held gone",
            empty.join(", ")
        ),
        false => warn!(
            "stopped after {seconds:.1} s with records left in DRAM: the next start is as after a \
             crash (see --stop-timeout)"
        ),
    }
}

fn recovery_threads(cache: &Cache) -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    cores.min(cache.recovering()).min(64)
}

fn maintain(shared: &Arc<Shared>) {
    let mut nap = shared.naps.begin(0);
    let mut write_policies = write_policies::WritePolicies::new(&shared.cache);
    let mut failures = failures::Failures::default();
    let mut health = health_log::HealthLog::new(&shared.cache);
    let mut drive_errors = drive_errors::DriveErrorLog::new(&shared.cache);
    let mut tiers = tier_log::TierLog::default();
    let mut drives = drives::Drives::default();
    let mut drive_health = drive_health::Schedule::new();
    let mut short_index = short_index::ShortIndex::default();
    let mut surplus = surplus::Surplus::default();
    while !shared.is_stopping() {
        write_policies.tell(&shared.cache);
        failures.tell(&shared.cache);
        tiers.log(&shared.cache);
        health.log(&shared.cache);
        drive_errors.log(&shared.cache);
        drives.ask(shared);
        drive_health.ask_if_due(shared);
        short_index.tell(&shared.cache);
        surplus.look(shared);
        shared.flush.run_if_due(&shared.cache, shared.clock.now());
        maintain_once(shared, 0, &mut nap);
    }
}

/// Does nothing but the background work of the cache.
fn help_to_maintain(shared: &Arc<Shared>, number: usize) {
    let mut nap = shared.naps.begin(number);
    while !shared.is_stopping() {
        maintain_once(shared, number, &mut nap);
    }
}

fn maintain_once(shared: &Shared, number: usize, nap: &mut naps::Nap<'_>) {
    shared.heartbeat.beat(number);
    shared.cache.note_hanging(shared.heartbeat.is_missing());
    match shared.cache.maintain(shared.clock.now()) {
        true => {
            nap.shorten();
            shared.naps.note_work(number);
        }
        false => nap.take(),
    }
}
