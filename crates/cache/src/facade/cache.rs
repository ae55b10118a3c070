//! The cache as a whole: opening, statistics, and what its parts share.

use crate::background::scheduler::Scheduler;
use crate::config::Config;
use crate::config::error::OpenError;
use crate::config::note::Note;
use crate::engine::limit::LimitError;
use crate::engine::{Engine, durability, limit};
use crate::platform::lock::lock;
use crate::recovery::recover;
use crate::request::session::Session;
use crate::shared::observer::Observer;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The cache; shared by all workers.
pub struct Cache {
    pub(super) engine: Arc<Engine>,
    scheduler: Scheduler,
}

impl Cache {
    /// What lies below, for tests.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Lays out memory and tiers, and reads what an earlier run left in kill logs and state. What it
    /// left in segments comes back by [`Cache::recover`].
    ///
    /// # Errors
    /// See [`OpenError`]; a device that is not ours is not written.
    pub fn open(config: Config) -> Result<Arc<Self>, OpenError> {
        let engine = crate::recovery::start::start(&config)?;
        let scheduler = Scheduler::new(&config, &engine);
        Ok(Arc::new(Self { engine: Arc::new(engine), scheduler }))
    }

    /// Reads the first pages of the tiers, writes nothing, and says what an opening costs that finds tiers which do not
    /// fit, and goes on.
    ///
    /// # Errors
    /// As [`Cache::open`] for what can be seen there.
    pub fn inspect(config: &Config) -> Result<Option<Note>, OpenError> {
        Ok(crate::recovery::start::inspect(config)?.into_cost())
    }

    /// Brings one shard's sealed records back; `false` when all are begun with. To be called in a loop
    /// by as many threads as there are cores to spare, while requests are served.
    pub fn recover(&self) -> bool {
        let Some(mut reader) = self.engine.shared().quiesce().join() else { return false };
        let worked = recover::recover_next(&self.engine, &mut reader);
        self.engine.shared().quiesce().leave(&mut reader);
        worked
    }

    /// Shards whose sealed records are not back yet.
    pub fn recovering(&self) -> usize {
        self.engine.recovery().waiting().load(Ordering::Acquire)
    }

    /// Lines for the log at start: what was found, and why it could not be used where it could not.
    pub fn notes(&self) -> &[Note] {
        self.engine.notes()
    }

    /// The time (unix seconds) that the cache has already acted on: expiry must not go by an earlier
    /// one, or records that were gone could come back.
    pub fn clock_floor(&self) -> u32 {
        self.engine.clock_floor()
    }

    /// The time (unix seconds) that is about to be acted on. To be told before anything is served;
    /// [`Cache::maintain`] keeps telling it.
    pub fn note_time(&self, now: u32) {
        self.engine.note_time(now);
    }

    /// When a `flush_all` that was asked for before the restart is due; 0 if none is.
    pub fn flush_due(&self) -> u32 {
        self.engine.flush_due()
    }

    /// Remembers over restarts when a `flush_all` is due; 0 if none is.
    ///
    /// # Errors
    /// With [`Durability::Power`], if a drive does not take it: a power loss would forget it.
    pub fn plan_flush(&self, due: u32) -> io::Result<()> {
        durability::plan_flush(&self.engine, Ok(()), due)
    }

    /// Stops cleanly: writes all records to the tiers and marks them so, for as long as `goes_on` says
    /// yes. Says whether it came to the end; if not, the next start is as after a crash. No request
    /// may come after this. What it wrote out is not kept in the state any more, which goes but for a page.
    pub fn close(&self, now: u32, goes_on: &dyn Fn() -> bool) -> bool {
        self.engine.note_time(now);
        let all = self.scheduler.seal_all(&self.engine, now, goes_on);
        let is_clean = all && goes_on() && durability::write_clean(&self.engine);
        let is_on_tiers = is_clean && self.engine.has_tiers();
        if let Some(state) = self.engine.shared().state().as_ref().filter(|_| is_on_tiers) {
            // A state that stays is as good, and only takes memory.
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

    /// Does one slice of background work (seal, reclaim, grow, release) and says whether there was
    /// any. To be called in a loop by [`Cache::background_threads`], each of which naps (about 1 ms) when it
    /// returns `false`.
    pub fn maintain(&self, now: u32) -> bool {
        self.scheduler.slice(&self.engine, now)
    }

    /// How many threads find something to do in [`Cache::maintain`] at once: `Config::background_threads`, or fewer
    /// where there is no tier, few shards, or little memory.
    pub fn background_threads(&self) -> usize {
        self.scheduler.parts()
    }

    /// Says whether [`Cache::maintain`] has not come back for longer than anybody should wait, as when a drive
    /// answers nothing. While it has not, what would wait for it is answered by [`crate::Update::Full`].
    pub fn note_hanging(&self, hangs: bool) {
        self.engine.note_hanging(hangs);
    }

    /// Makes every record stored so far invisible, at once, and calls a planned flush off.
    ///
    /// # Errors
    /// With [`Durability::Power`], if a drive does not take it: a power loss would undo it.
    pub fn flush_all(&self) -> io::Result<()> {
        let reader = self.engine.shared().quiesce().join();
        let mut reader = reader.ok_or_else(|| io::Error::other("too many sessions"))?;
        let guard = self.engine.shared().quiesce().guard(&reader);
        // Before the shards: what is doomed from now on may be of items that come after the flush.
        lock(self.engine.doomed()).clear();
        for (at, shard) in self.engine.shards().iter().enumerate() {
            self.engine.flush(&mut shard.lock(self.engine.shared(), guard), at);
        }
        let durable =
            if self.engine.is_strict() { durability::make_durable(&self.engine) } else { Ok(()) };
        self.engine.shared().quiesce().leave(&mut reader);
        durability::plan_flush(&self.engine, durable, 0)
    }

    /// The longest value (bytes) that one record holds; longer ones are chunked, see
    /// [`Session::store_chunk`].
    pub fn inline_bytes_max(&self) -> usize {
        self.engine.geometry().inline_bytes_max() as usize
    }

    /// The longest item (bytes of value) that fits: `Config::item_bytes_max` or an eighth of the
    /// capacity, whichever is less.
    pub fn item_bytes_max(&self) -> u64 {
        self.engine.geometry().item_bytes_max()
    }

    /// Has `observer` told from now on, as long as the cache lives; the first to ask is the one.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        self.engine.shared().told().set(observer);
    }

    /// Whether a part of the state was lost while it was in use, see [`crate::replace_lost`]: what was in DRAM is missed,
    /// and the next start is cold.
    pub fn has_lost_state(&self) -> bool {
        self.engine.has_lost_state()
    }

    /// Changes the cap on everything that grows with data to `bytes`, until the cache is closed: the
    /// next one begins with `Config::memory_bytes` again. Memory beyond a lower cap is given back by
    /// [`Cache::maintain`]; with `Config::evict` unset, only as records go.
    ///
    /// # Errors
    /// If the cap can't be that low, or that high; see [`LimitError`]. It is as it was then.
    pub fn set_memory_limit(&self, bytes: u64) -> Result<(), LimitError> {
        limit::set_memory_limit(&self.engine, bytes)
    }

    /// The cap, in bytes.
    pub fn memory_limit(&self) -> u64 {
        self.engine.shared().budget().limit()
    }

    /// A tier's drive says that it writes so many bytes per byte that it is sent; its write budget and
    /// the years that it will live count them all. Less than 1 counts as 1.
    pub fn set_amplification(&self, tier: usize, factor: f64) {
        self.engine.shared().admission().ledger().set_amplification(tier, factor);
    }
}
