//! What all threads of a server share.

use super::about::About;
use super::clients::Clients;
use super::clock::Clock;
use super::connection_memory::ConnectionMemory;
use super::drive_health::DriveHealth;
use super::heartbeat::Heartbeat;
use super::inbox::Inbox;
use super::listener::Arrival;
use super::naps::Naps;
use super::poll::Waker;
use super::socket::Socket;
use super::watch::{Watchers, is_miss};
use crate::auth::{Passwords, Throttle};
use crate::commands::listing::Walks;
use crate::settings::{ListenTls, Settings, TierSpec};
use crate::stats::counters::Counters;
use crate::stats::knobs::Knobs;
use crate::stats::latency::Latency;
use crate::stats::prefixes::Prefixes;
use crate::stats::view::Zero;
use crate::tls::{Configs, Tls};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use terrace_cache::Cache;
use terrace_runtime::drives::Drives;
use tracing::debug;

/// One per server.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) cache: Arc<Cache>,
    /// The drives that workers read from.
    pub(crate) drives: Arc<Drives>,
    /// What the tiers are, by number; held while one is added.
    pub(crate) tiers: Mutex<Vec<TierSpec>>,
    pub(crate) clock: Clock,
    pub(crate) inboxes: Vec<Inbox>,
    pub(crate) workers: Vec<Arc<WorkerStats>>,
    /// What `stats reset` takes off the counters.
    pub(crate) zero: Mutex<Zero>,
    pub(crate) connections: Connections,
    pub(crate) clients: Clients,
    pub(crate) watchers: Arc<Watchers>,
    /// What is asked for by the beginnings of keys.
    pub(crate) prefixes: Prefixes,
    pub(crate) drive_health: DriveHealth,
    /// Descriptors and names of the sockets that are listened on.
    pub(crate) listeners: OnceLock<Vec<(i32, String)>>,
    /// What connections hold between their turns.
    pub(crate) memory: ConnectionMemory,
    /// What `-m` or `cache_memlimit` asked for: the cache has less where the memory cgroup allows less.
    pub(crate) memory_asked: AtomicU64,
    /// Resident bytes when the server came up: the program itself.
    pub(crate) program_bytes: u64,
    pub(crate) acceptor_waker: Waker,
    pub(crate) flush: DelayedFlush,
    /// With `-Z`.
    pub(crate) tls: Option<Tls>,
    /// Of the background threads, which write buffers out.
    pub(crate) naps: Naps,
    pub(crate) heartbeat: Heartbeat,
    /// What was turned without effect.
    pub(crate) knobs: Knobs,
    /// Who may use the server; `None` for everybody.
    pub(crate) passwords: Option<Passwords>,
    /// Of wrong passwords and tokens.
    pub(crate) failures: Throttle,
    verbosity: AtomicU8,
    stopping: AtomicBool,
    /// Why the server ends before it was asked to.
    failure: OnceLock<String>,
    told_of_recovery: AtomicBool,
    /// Walks over all records.
    pub(crate) walks: Arc<Walks>,
    /// `stats sizes` counts sizes (`-o track_sizes`).
    pub(crate) track_sizes: AtomicBool,
}

/// What one worker counts.
#[derive(Debug)]
pub(crate) struct WorkerStats {
    pub(crate) counters: Counters,
    pub(crate) latency: Arc<Latency>,
}

impl Shared {
    pub(crate) fn new(
        settings: Settings,
        cache: Arc<Cache>,
        drives: Arc<Drives>,
        tls: Option<Configs>,
    ) -> std::io::Result<Self> {
        let threads = settings.threads.max(1) as usize;
        let background_threads = cache.background_threads();
        let has_tiers = !cache.stats().tiers.is_empty();
        let worker = || WorkerStats {
            counters: Counters::default(),
            latency: Arc::new(Latency::new(has_tiers)),
        };
        let clock = Clock::new(cache.clock_floor());
        cache.note_time(clock.now());
        let watchers = Arc::new(Watchers::new(clock));
        cache.observe(Arc::<Watchers>::clone(&watchers));
        Ok(Self {
            clock,
            tls: tls.map(|configs| Tls::new(&settings.tls, configs, clock.now())),
            flush: DelayedFlush::new(cache.flush_due()),
            cache,
            drives,
            tiers: Mutex::new(settings.tiers.clone()),
            inboxes: (0..threads).map(|_| Inbox::new()).collect::<Result<_, _>>()?,
            workers: (0..threads).map(|_| Arc::new(worker())).collect(),
            zero: Mutex::default(),
            connections: Connections::new(settings.connections_max),
            clients: Clients::default(),
            watchers,
            prefixes: Prefixes::new(settings.prefix_delimiter, settings.count_prefixes),
            drive_health: DriveHealth::default(),
            listeners: OnceLock::new(),
            memory: ConnectionMemory::new(settings.memory_shares().connections),
            memory_asked: AtomicU64::new(settings.memory_bytes),
            program_bytes: resident_bytes(),
            acceptor_waker: Waker::new()?,
            naps: Naps::new(background_threads),
            heartbeat: Heartbeat::new(background_threads),
            knobs: Knobs::new(settings.shown.clone()),
            passwords: Passwords::of(&settings),
            failures: Throttle::default(),
            verbosity: AtomicU8::new(settings.verbosity),
            stopping: AtomicBool::new(false),
            failure: OnceLock::new(),
            told_of_recovery: AtomicBool::new(false),
            walks: Arc::default(),
            track_sizes: AtomicBool::new(settings.track_sizes),
            settings,
        })
    }

    /// What the tiers are, by number; those that were added are among them, and those that were removed.
    pub(crate) fn tier_specs(&self) -> Vec<TierSpec> {
        self.tiers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What to talk with a new client through.
    pub(crate) fn socket(&self, arrival: Arrival) -> std::io::Result<Socket> {
        match (arrival.entry.tls, &self.tls) {
            (ListenTls::Off, _) => Ok(Socket::Plain(arrival.socket)),
            (tls, Some(all)) => Ok(Socket::Tls(Box::new(all.accept(arrival.socket, tls)?))),
            // Settings are checked for this; nobody is served in the clear by mistake.
            (_, None) => Err(std::io::ErrorKind::Unsupported.into()),
        }
    }

    /// Whether anybody looks at single commands.
    pub(crate) fn looks_at_commands(&self) -> bool {
        self.watchers.are_there() || self.prefixes.is_on()
    }

    /// A command on `key` was answered with `reply`: tells those who want to know.
    pub(crate) fn tell_command(&self, number: i32, about: About, key: &[u8], reply: &[u8]) {
        self.prefixes.note(about.kind, key, !is_miss(reply));
        self.watchers.tell_command(number, about, key, reply);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// To be called while requests wait for it: if they do so in vain, the cache refuses them from now on.
    pub(crate) fn look_after_maintenance(&self) {
        if self.heartbeat.is_missing() {
            self.cache.note_hanging(true);
        }
    }

    /// `true` for the one thread that is to say that recovery is done.
    pub(crate) fn tell_once(&self) -> bool {
        !self.told_of_recovery.swap(true, Ordering::Relaxed)
    }

    /// Tells every thread to end.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.naps.end();
        self.acceptor_waker.wake();
        self.inboxes.iter().for_each(|inbox| inbox.waker().wake());
    }

    /// The server can't go on: tells every thread to end.
    pub(crate) fn fail(&self, why: String) {
        // The first is the one that others follow from.
        let _ = self.failure.set(why);
        self.stop();
    }

    /// Why the server ends before it was asked to, if it does.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// With `-o no_maxconns_fast`, connections too many stay where they are.
    pub(crate) fn must_leave_in_backlog(&self) -> bool {
        !self.settings.refuse_when_full && self.connections.are_all_open()
    }

    /// A connection ended.
    pub(crate) fn closed_connection(&self) {
        // Asked for in one step: the acceptor may take the last one in between, and wait for this to end.
        let were_open = self.connections.current.fetch_sub(1, Ordering::Relaxed);
        if were_open >= self.connections.max && !self.settings.refuse_when_full {
            self.acceptor_waker.wake();
        }
    }

    /// Logs a line if `-v` was given at least `level` times.
    pub(crate) fn log(&self, level: u8, line: impl FnOnce() -> String) {
        if self.verbosity.load(Ordering::Relaxed) >= level {
            debug!("{}", line());
        }
    }

    pub(crate) fn set_verbosity(&self, level: u8) {
        self.verbosity.store(level, Ordering::Relaxed);
    }

    pub(crate) fn verbosity(&self) -> u8 {
        self.verbosity.load(Ordering::Relaxed)
    }
}

/// Counts of connections.
pub(crate) struct Connections {
    pub(crate) current: AtomicU32,
    max: u32,
    pub(crate) accepted: AtomicU64,
    pub(crate) rejected: AtomicU64,
    /// How often connections were left in the backlog: too many are open, or no descriptor was left.
    pub(crate) listen_disabled: AtomicU64,
    /// For how long in all, in microseconds.
    pub(crate) listen_disabled_us: AtomicU64,
}

impl Connections {
    fn new(max: u32) -> Self {
        let (accepted, rejected, listen_disabled, listen_disabled_us) = Default::default();
        let current = AtomicU32::new(0);
        Self { current, max, accepted, rejected, listen_disabled, listen_disabled_us }
    }

    pub(crate) fn are_all_open(&self) -> bool {
        self.current.load(Ordering::Relaxed) >= self.max
    }

    /// Connections were left in the backlog for so long.
    pub(crate) fn add_listen_disabled(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.listen_disabled_us.fetch_add(micros, Ordering::Relaxed);
    }

    /// Counts a new connection, unless there are too many. Called by the acceptor alone.
    pub(crate) fn try_open(&self) -> bool {
        let may = !self.are_all_open();
        if may {
            self.current.fetch_add(1, Ordering::Relaxed);
            self.accepted.fetch_add(1, Ordering::Relaxed);
        }
        may
    }
}

/// `flush_all` with a delay: at its second, everything that was stored before is gone.
///
/// Every worker looks at the time before it serves anybody, and flushes if it is due; no command is
/// executed at or after that second before the flush, nor is anything flushed that was stored by a
/// command after it.
pub(crate) struct DelayedFlush {
    /// Unix time; [`DelayedFlush::NEVER`] if none is planned.
    due: AtomicU32,
    running: Mutex<()>,
}

impl DelayedFlush {
    const NEVER: u32 = u32::MAX;

    /// `due` is that of a flush which was planned before a restart; 0 if none was.
    fn new(due: u32) -> Self {
        let due = if due == 0 { Self::NEVER } else { due };
        Self { due: AtomicU32::new(due), running: Mutex::new(()) }
    }

    /// Plans a flush, in place of one that was planned before.
    ///
    /// # Errors
    /// As [`Cache::plan_flush`].
    pub(crate) fn plan(&self, cache: &Cache, due: u32) -> io::Result<()> {
        let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        self.due.store(due, Ordering::Release);
        cache.plan_flush(due)
    }

    /// Flushes at once, and calls a planned flush off.
    ///
    /// # Errors
    /// As [`Cache::flush_all`].
    pub(crate) fn run_now(&self, cache: &Cache) -> io::Result<()> {
        let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        self.due.store(Self::NEVER, Ordering::Release);
        cache.flush_all()
    }

    /// Flushes if the time has come.
    #[inline]
    pub(crate) fn run_if_due(&self, cache: &Cache, now: u32) {
        if now >= self.due.load(Ordering::Acquire) {
            self.run_once(cache, now);
        }
    }

    #[cold]
    fn run_once(&self, cache: &Cache, now: u32) {
        // Whoever comes second waits here until the flush is done, and then finds nothing due.
        let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= self.due.load(Ordering::Acquire) {
            // Who asked was answered when it was planned; a drive that refuses this is given up.
            let _ = cache.flush_all();
            self.due.store(Self::NEVER, Ordering::Release);
        }
    }
}

/// What the kernel says is resident of this process; 0 if it doesn't say.
pub(crate) fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
