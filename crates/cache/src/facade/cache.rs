//! The public face of a cache: opening, recovery, background work, limits, and closing.

use crate::background::scheduler::Scheduler;
use crate::config::Config;
use crate::config::error::OpenError;
use crate::config::note::Note;
use crate::engine::drain::{DrainError, Remove, RemoveError};
use crate::engine::join::{JoinError, NewTier};
use crate::engine::limit::LimitError;
use crate::engine::{Engine, drain, durability, join, limit};
use crate::platform::lock::lock;
use crate::recovery::recover;
use crate::request::session::Session;
use crate::shared::observer::Observer;
use crate::stats::DrainMode;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The cache; shared by all workers.
pub struct Cache {
    pub(super) engine: Arc<Engine>,
    scheduler: Scheduler,
}

impl Cache {
    /// The engine, for tests.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Lays out memory and tiers, and reads the tombstone logs and the state of an earlier run. [`Cache::recover`]
    /// brings its segments back.
    ///
    /// # Errors
    /// See [`OpenError`]; a foreign device is not written.
    pub fn open(config: Config) -> Result<Arc<Self>, OpenError> {
        let engine = crate::recovery::start::start(&config)?;
        let scheduler = Scheduler::new(&config, &engine);
        Ok(Arc::new(Self { engine: Arc::new(engine), scheduler }))
    }

    /// Reads the first pages of the tiers and writes nothing. If the tiers do not fit, returns what an opening would
    /// erase.
    ///
    /// # Errors
    /// As [`Cache::open`], as far as the first pages show it.
    pub fn inspect(config: &Config) -> Result<Option<Note>, OpenError> {
        Ok(crate::recovery::start::inspect(config)?.into_cost())
    }

    /// Recovers one shard's sealed records; `false` when no shard is left to begin with. Should be called in a loop by
    /// as many threads as there are idle cores, while requests are served.
    pub fn recover(&self) -> bool {
        let Some(mut reader) = self.engine.shared().quiesce().join() else { return false };
        let worked = recover::recover_next(&self.engine, &mut reader);
        self.engine.shared().quiesce().leave(&mut reader);
        worked
    }

    /// Shards with sealed records that are not recovered yet.
    pub fn recovering(&self) -> usize {
        self.engine.recovery().waiting().load(Ordering::Acquire)
    }

    /// Whether nothing of an earlier run was believed, so that the cache began empty.
    pub fn is_cold(&self) -> bool {
        self.engine.is_cold()
    }

    /// Lines for the log at start: what was found, and why it could not be used.
    pub fn notes(&self) -> &[Note] {
        self.engine.notes()
    }

    /// Unix seconds that an earlier run has acted on. Expiry must never use an earlier time, or expired records could
    /// come back.
    pub fn clock_floor(&self) -> u32 {
        self.engine.clock_floor()
    }

    /// Records the time (unix seconds) that requests will use. Must be called before the first request;
    /// [`Cache::maintain`] does it from then on.
    pub fn note_time(&self, now: u32) {
        self.engine.note_time(now);
    }

    /// Unix seconds of a `flush_all` that was planned before the restart; 0 if none was.
    pub fn flush_due(&self) -> u32 {
        self.engine.flush_due()
    }

    /// Records over restarts the unix seconds of a planned `flush_all`; 0 if none is.
    ///
    /// # Errors
    /// With [`Durability::Power`](crate::Durability::Power), if a drive refuses the write: a power loss would forget
    /// it.
    pub fn plan_flush(&self, due: u32) -> io::Result<()> {
        durability::plan_flush(&self.engine, Ok(()), due)
    }

    /// Stops cleanly: writes all records to the tiers and marks them as complete, while `goes_on` returns `true`.
    /// Returns whether that succeeded; if not, the next start is as after a crash. No request must follow. After
    /// success the state is reduced to one page. Drains end: their tiers take what is still to be written.
    pub fn close(&self, now: u32, goes_on: &dyn Fn() -> bool) -> bool {
        drain::cancel_all(&self.engine);
        self.engine.note_time(now);
        let all = self.scheduler.seal_all(&self.engine, now, goes_on);
        let is_clean = all && goes_on() && durability::write_clean(&self.engine);
        let is_on_tiers = is_clean && self.engine.has_tiers();
        if let Some(state) = self.engine.shared().state().as_ref().filter(|_| is_on_tiers) {
            // A state that remains does no harm; it only takes memory.
            let _ = state.retire();
        }
        is_clean
    }

    /// A session for one worker thread.
    ///
    /// # Panics
    /// If more than `Config::sessions_max` live at once.
    pub fn session(&self) -> Session {
        self.try_session().expect("no more sessions than Config::sessions_max")
    }

    /// A session for one worker thread; `None` if `Config::sessions_max` of them live.
    pub fn try_session(&self) -> Option<Session> {
        let reader = self.engine.shared().quiesce().join()?;
        Some(Session::new(Arc::clone(&self.engine), reader))
    }

    /// With [`Durability::Power`](crate::Durability::Power): sees to it that no power loss can undo the changes made so
    /// far through any session. Blocks for a flush of the drives. Without it: nothing.
    ///
    /// # Errors
    /// A drive does not take it; the changes must not be acknowledged.
    pub fn make_durable(&self) -> io::Result<()> {
        match self.engine.is_strict() {
            true => durability::make_durable(&self.engine),
            false => Ok(()),
        }
    }

    /// Does one slice of background work (seal, reclaim, grow, release); `false` if there was none. Should be called in
    /// a loop by [`Cache::background_threads`] threads, each of which sleeps for about 1 ms after `false`.
    pub fn maintain(&self, now: u32) -> bool {
        self.scheduler.slice(&self.engine, now)
    }

    /// Threads that find work in [`Cache::maintain`] at the same time: `Config::background_threads`, or fewer where
    /// there is no tier, few shards, or little memory.
    pub fn background_threads(&self) -> usize {
        self.scheduler.parts()
    }

    /// Records whether [`Cache::maintain`] has not returned for too long, for example because a drive does not answer.
    /// While it hangs, requests that would wait for it return [`crate::Update::Full`].
    pub fn note_hanging(&self, hangs: bool) {
        self.engine.note_hanging(hangs);
    }

    /// Makes every record stored so far invisible at once, and cancels a planned flush.
    ///
    /// # Errors
    /// With [`Durability::Power`](crate::Durability::Power), if a drive refuses the write: a power loss would undo the
    /// flush.
    pub fn flush_all(&self) -> io::Result<()> {
        let reader = self.engine.shared().quiesce().join();
        let mut reader = reader.ok_or_else(|| io::Error::other("too many sessions"))?;
        let guard = self.engine.shared().quiesce().guard(&reader);
        // Before the shards: chunks added from now on may belong to items that come after the flush.
        lock(self.engine.garbage_chunks()).clear();
        for (at, shard) in self.engine.shards().iter().enumerate() {
            self.engine.flush(&mut shard.lock(self.engine.shared(), guard), at);
        }
        let durable =
            if self.engine.is_strict() { durability::make_durable(&self.engine) } else { Ok(()) };
        self.engine.shared().quiesce().leave(&mut reader);
        durability::plan_flush(&self.engine, durable, 0)
    }

    /// Bytes of the longest value in one record; longer ones are divided into chunks, see [`Session::store_chunk`].
    pub fn inline_bytes_max(&self) -> usize {
        self.engine.geometry().inline_bytes_max() as usize
    }

    /// Bytes of the longest value of an item: `Config::item_bytes_max` or an eighth of the capacity, whichever is less.
    pub fn item_bytes_max(&self) -> u64 {
        self.engine.geometry().item_bytes_max()
    }

    /// Reports evictions and reclaims to `observer` from now on, as long as the cache lives. A second observer is
    /// ignored.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        self.engine.shared().observer().set(observer);
    }

    /// Whether a part of the state was lost while it was in use, see [`crate::replace_lost`]: the records in DRAM were
    /// dropped, and the next start is cold.
    pub fn has_lost_state(&self) -> bool {
        self.engine.has_lost_state()
    }

    /// Changes the cap on everything that grows with data to `bytes`, until the cache is closed: the next one begins
    /// with `Config::memory_bytes` again. [`Cache::maintain`] releases memory beyond a lower cap; with `Config::evict`
    /// unset, only as records are removed.
    ///
    /// # Errors
    /// If the cap can't be that low, or that high; see [`LimitError`]. It is unchanged then.
    pub fn set_memory_limit(&self, bytes: u64) -> Result<(), LimitError> {
        limit::set_memory_limit(&self.engine, bytes)
    }

    /// The cap, in bytes.
    pub fn memory_limit(&self) -> u64 {
        self.engine.shared().budget().limit()
    }

    /// Begins to move all records of a tier, numbered as in `Config::tiers`, to other tiers; [`Cache::maintain`] does
    /// it. Until [`Cache::cancel_drain`] the tier takes no new records; a restart ends the drain, too. A second call
    /// changes the mode. `now` is in unix seconds.
    ///
    /// # Errors
    /// No other tier would take new records, or the tier is out of use.
    pub fn drain(&self, tier: usize, mode: DrainMode, now: u32) -> Result<(), DrainError> {
        drain::begin(&self.engine, tier, mode, now)
    }

    /// Ends the drain of a tier, which takes new records again; `false` if there was none.
    pub fn cancel_drain(&self, tier: usize) -> bool {
        drain::cancel(&self.engine, tier)
    }

    /// Takes a tier out of the set: nothing is read from its drive or written to it from now on, and a later start
    /// with the drive finds it empty. Waits for background work in progress, and for writes of superblocks.
    ///
    /// # Errors
    /// See [`RemoveError`]; the tier remains then.
    pub fn remove(&self, tier: usize, remove: Remove) -> Result<(), RemoveError> {
        self.scheduler.remove_tier(&self.engine, tier, remove)
    }

    /// Adds a tier beside those of the last level, as if it stood behind them in `Config::tiers`, and returns its
    /// number. What is on its drive is overwritten. `before` gets the number, which is not used for another one whatever
    /// comes of it, before a request can be told to read from the tier.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join(&self, tier: &NewTier, before: impl FnOnce(usize)) -> Result<usize, JoinError> {
        join::join(&self.engine, tier, before)
    }

    /// Records that a tier's drive writes `factor` bytes per byte that it is sent, as it reports; its write budget and
    /// its expected lifetime count them all. Less than 1 counts as 1.
    pub fn set_amplification(&self, tier: usize, factor: f64) {
        self.engine.shared().admission().ledger().set_amplification(tier, factor);
    }
}
