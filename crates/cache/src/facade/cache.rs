//! The cache as a whole: opening, statistics, and what its parts share.

use crate::background::scheduler;
use crate::background::scheduler::Crew;
use crate::config::error::OpenError;
use crate::config::note::Note;
use crate::config::{Config, Durability, Tuning};
use crate::dram::hot::Origin;
use crate::dram::memory::Place;
use crate::dram::table::DramTable;
use crate::index::sealed::SealedIndex;
use crate::log::KillLog;
use crate::platform::crash::crash_point;
use crate::platform::lock::lock;
use crate::records::key::Hasher;
use crate::recovery::mount::{Mount, write_superblock};
use crate::recovery::recover::Recovery;
use crate::recovery::start::Parts;
use crate::recovery::{recover, sizing};
use crate::request::chunks::Doomed;
use crate::request::session::Session;
use crate::segments::layout::Superblock;
use crate::segments::segment::SegmentTable;
use crate::shard::{Lane, Locked, Shard};
use crate::shared::Pool;
use crate::shared::geometry::Geometry;
use crate::state::{Field, LogField};
use crate::stats::CacheStats;
use crate::tiers::slots::TierStore;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The cache; shared by all workers.
pub struct Cache {
    pub(crate) engine: Engine,
    crew: Crew,
}

/// What the parts of the cache share.
pub(crate) struct Engine {
    pub(crate) geometry: Geometry,
    /// See [`Config::full_percent`].
    pub(crate) full_percent: u32,
    pub(crate) tuning: Tuning,
    pub(crate) hasher: Hasher,
    pub(crate) pool: Pool,
    pub(crate) shards: Box<[Shard]>,
    /// How far the memory cap may be raised.
    pub(crate) memory_bytes_max: u64,
    pub(crate) evicts: bool,
    pub(crate) with_cas: bool,
    /// See [`Durability::Power`].
    pub(crate) is_strict: bool,
    /// The superblocks say that the logs are not to be believed after a power loss.
    is_distrusted: AtomicBool,
    /// In strict mode: the logs on the tiers hold all that was ever acknowledged.
    has_durable_logs: AtomicBool,
    /// Whether the superblocks say so.
    told_strict: Mutex<bool>,
    /// In strict mode: when a flush is due, as all superblocks say; `None` where they may say something else.
    told_due: Mutex<Option<u32>>,
    /// The state has the same numbers, and may lose them.
    next_seq: AtomicU64,
    pub(crate) next_item: AtomicU64,
    pub(crate) recovery: Recovery,
    notes: Vec<Note>,
    mount: Mount,
    clock_floor: u32,
    flush_due: u32,
    /// Index or blocks are used up; see [`Engine::note_full`].
    pub(crate) no_room: AtomicBool,
    /// See [`Cache::note_hanging`].
    hangs: AtomicBool,
    /// See [`Engine::note_stuck`].
    is_stuck: AtomicBool,
    /// Bytes of records that reclaim has kept beyond its share of each segment.
    pub(crate) kept_ahead: AtomicU64,
    /// Chunks whose item is gone.
    pub(crate) doomed: Mutex<Doomed>,
    /// `-m` with which records of [`sizing::RECORD_BYTES_WARNED`] fill the tiers, if any is enough.
    pub(crate) filling_mebibytes: Option<u64>,
    /// Bytes that do not change: staging buffers, state, logs.
    pub(crate) fixed_bytes: u64,
}

impl Cache {
    /// Lays out memory and tiers, and reads what an earlier run left in kill logs and state. What it
    /// left in segments comes back by [`Cache::recover`].
    ///
    /// # Errors
    /// See [`OpenError`]; a device that is not ours is not written.
    pub fn open(config: Config) -> Result<Arc<Self>, OpenError> {
        let engine = crate::recovery::start::start(&config)?;
        let crew = Crew::new(&config, &engine);
        Ok(Arc::new(Self { engine, crew }))
    }

    /// Reads the first pages of the tiers, writes nothing, and says what an opening costs that finds tiers which do not
    /// fit, and goes on.
    ///
    /// # Errors
    /// As [`Cache::open`] for what can be seen there.
    pub fn inspect(config: &Config) -> Result<Option<Note>, OpenError> {
        Ok(crate::recovery::start::inspect(config)?.cost)
    }

    /// Brings one shard's sealed records back; `false` when all are begun with. To be called in a loop
    /// by as many threads as there are cores to spare, while requests are served.
    pub fn recover(&self) -> bool {
        let Some(mut participant) = self.engine.pool.quiesce.join() else { return false };
        let worked = recover::recover_next(&self.engine, &mut participant);
        self.engine.pool.quiesce.leave(&mut participant);
        worked
    }

    /// Shards whose sealed records are not back yet.
    pub fn recovering(&self) -> usize {
        self.engine.recovery.waiting.load(Ordering::Acquire)
    }

    /// Lines for the log at start: what was found, and why it could not be used where it could not.
    pub fn notes(&self) -> &[Note] {
        &self.engine.notes
    }

    /// The time (unix seconds) that the cache has already acted on: expiry must not go by an earlier
    /// one, or records that were gone could come back.
    pub fn clock_floor(&self) -> u32 {
        self.engine.clock_floor
    }

    /// The time (unix seconds) that is about to be acted on. To be told before anything is served;
    /// [`Cache::maintain`] keeps telling it.
    pub fn note_time(&self, now: u32) {
        self.engine.note_time(now);
    }

    /// When a `flush_all` that was asked for before the restart is due; 0 if none is.
    pub fn flush_due(&self) -> u32 {
        self.engine.flush_due
    }

    /// Remembers over restarts when a `flush_all` is due; 0 if none is.
    ///
    /// # Errors
    /// With [`Durability::Power`], if a drive does not take it: a power loss would forget it.
    pub fn plan_flush(&self, due: u32) -> io::Result<()> {
        self.plan_flush_once(Ok(()), due)
    }

    /// Until the flush that was made is `durable`, the superblocks go on telling of the one that was planned: a power
    /// loss must be followed by it. A crash of the process must not, since the state has what was made.
    fn plan_flush_once(&self, durable: io::Result<()>, due: u32) -> io::Result<()> {
        let engine = &self.engine;
        let Some(planned) = engine.field(Field::FlushDue) else { return durable };
        let mut told = lock(&engine.told_due);
        planned.store(due.into(), Ordering::Relaxed);
        if engine.is_strict && (durable.is_err() || *told != Some(due)) {
            // Where that fails some may have it, and others what they had.
            *told = None;
            durable?;
            engine.tell_all_tiers()?;
            *told = Some(due);
        }
        Ok(())
    }

    /// Stops cleanly: writes all records to the tiers and marks them so, for as long as `goes_on` says
    /// yes. Says whether it came to the end; if not, the next start is as after a crash. No request
    /// may come after this. What it wrote out is not kept in the state any more, which goes but for a page.
    pub fn close(&self, now: u32, goes_on: &dyn Fn() -> bool) -> bool {
        self.engine.note_time(now);
        let all = self.crew.seal_all(&self.engine, now, goes_on);
        let is_clean = all && goes_on() && self.engine.write_clean();
        let is_on_tiers = is_clean && self.engine.has_tiers();
        if let Some(state) = self.engine.pool.state.as_ref().filter(|_| is_on_tiers) {
            // A state that stays is as good, and only takes memory.
            let _ = state.retire();
        }
        is_clean
    }

    /// A session for one worker thread.
    ///
    /// # Panics
    /// If more than `Config::sessions_max` live at once.
    pub fn session(self: &Arc<Self>) -> Session {
        let participant = self.engine.pool.quiesce.join();
        let participant = participant.expect("no more sessions than Config::sessions_max");
        Session::new(Arc::clone(self), participant)
    }

    /// Does one slice of background work (seal, reclaim, grow, release) and says whether there was
    /// any. To be called in a loop by [`Cache::background_threads`], each of which naps (about 1 ms) when it
    /// returns `false`.
    pub fn maintain(&self, now: u32) -> bool {
        self.crew.slice(&self.engine, now)
    }

    /// How many threads find something to do in [`Cache::maintain`] at once: `Config::background_threads`, or fewer
    /// where there is no tier, few shards, or little memory.
    pub fn background_threads(&self) -> usize {
        self.crew.parts()
    }

    /// Says whether [`Cache::maintain`] has not come back for longer than anybody should wait, as when a drive
    /// answers nothing. While it has not, what would wait for it is answered by [`crate::Update::Full`].
    pub fn note_hanging(&self, hangs: bool) {
        if self.engine.hangs.load(Ordering::Relaxed) != hangs {
            self.engine.hangs.store(hangs, Ordering::Relaxed);
        }
    }

    /// Makes every record stored so far invisible, at once, and calls a planned flush off.
    ///
    /// # Errors
    /// With [`Durability::Power`], if a drive does not take it: a power loss would undo it.
    pub fn flush_all(&self) -> io::Result<()> {
        let participant = self.engine.pool.quiesce.join();
        let mut participant = participant.ok_or_else(|| io::Error::other("too many sessions"))?;
        let guard = self.engine.pool.quiesce.guard(&participant);
        // Before the shards: what is doomed from now on may be of items that come after the flush.
        lock(&self.engine.doomed).clear();
        for (at, shard) in self.engine.shards.iter().enumerate() {
            self.engine.flush(&mut shard.lock(&self.engine.pool, guard), at);
        }
        let durable = if self.engine.is_strict { self.engine.make_durable() } else { Ok(()) };
        self.engine.pool.quiesce.leave(&mut participant);
        self.plan_flush_once(durable, 0)
    }

    /// The longest value (bytes) that one record holds; longer ones are chunked, see
    /// [`Session::store_chunk`].
    pub fn inline_bytes_max(&self) -> usize {
        self.engine.geometry.inline_bytes_max() as usize
    }

    /// The longest item (bytes of value) that fits: `Config::item_bytes_max` or an eighth of the
    /// capacity, whichever is less.
    pub fn item_bytes_max(&self) -> u64 {
        self.engine.geometry.item_bytes_max
    }

    /// A consistent-enough picture for `stats`, `stats tiers` and metrics.
    pub fn stats(&self) -> CacheStats {
        self.engine.stats()
    }

    /// Lines for the log at start: sizes, shards, segments, limits.
    pub fn describe(&self) -> Vec<Note> {
        self.engine.describe()
    }
}

impl Engine {
    /// Puts the parts together; `parts` come from [`crate::recovery::start`].
    pub(crate) fn new(config: &Config, parts: Parts) -> Self {
        let Parts { geometry, hasher, pool, mut shards, mount, clock_floor, flush_due, .. } = parts;
        let index_bytes = shards.iter_mut().map(Shard::initial_index_bytes).sum::<u64>();
        let table_bytes = DramTable::bytes_for(DramTable::BUCKET_BITS_MIN) * geometry.shards as u64;
        let fixed_bytes =
            scheduler::bytes(config, &geometry, pool.slots.rungs().count()) + parts.state_bytes;
        pool.counters.index_bytes.store(index_bytes, Ordering::Relaxed);
        pool.counters.table_bytes.store(table_bytes, Ordering::Relaxed);
        pool.budget.force(index_bytes + table_bytes + fixed_bytes);
        let kept = |field, without: u64| {
            let state = pool.state.as_ref();
            AtomicU64::new(state.map_or(without, |s| s.field(field).load(Ordering::Relaxed)))
        };
        let next_seq = kept(Field::NextSeq, mount.set().next_seq);
        let next_item = kept(Field::NextItem, mount.set().next_item);
        Self {
            geometry,
            full_percent: config.full_percent,
            tuning: config.tuning.clone(),
            hasher,
            pool,
            shards,
            evicts: config.evict,
            memory_bytes_max: config.memory_bytes_max.max(config.memory_bytes),
            with_cas: config.cas,
            is_strict: config.durability == Durability::Power,
            is_distrusted: AtomicBool::new(false),
            has_durable_logs: AtomicBool::new(parts.has_durable_logs),
            told_strict: Mutex::new(parts.has_durable_logs),
            told_due: Mutex::new(Some(flush_due)),
            next_seq,
            next_item,
            recovery: Recovery::none(),
            notes: mount.notes.clone(),
            mount,
            clock_floor,
            flush_due,
            no_room: AtomicBool::new(false),
            filling_mebibytes: config.least_mebibytes(sizing::RECORD_BYTES_WARNED),
            hangs: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
            kept_ahead: AtomicU64::new(0),
            doomed: Mutex::default(),
            fixed_bytes,
        }
    }

    fn field(&self, field: Field) -> Option<&AtomicU64> {
        self.pool.state.as_ref().map(|state| state.field(field))
    }

    /// The next seal sequence; never used twice on the same tiers.
    pub(crate) fn next_seq(&self) -> u64 {
        self.keep_next(Field::NextSeq, Origin::next_seq(&self.next_seq))
    }

    /// The number of a new large item; none is used twice on the same tiers.
    pub(crate) fn next_item(&self) -> u64 {
        self.keep_next(Field::NextItem, self.next_item.fetch_add(1, Ordering::Relaxed))
    }

    /// Notes where it outlives the process that a number is taken, before it is used.
    fn keep_next(&self, field: Field, taken: u64) -> u64 {
        if let Some(kept) = self.field(field) {
            kept.fetch_max(taken + 1, Ordering::Relaxed);
        }
        taken
    }

    /// Remembers the time over restarts.
    pub(crate) fn note_time(&self, now: u32) {
        if let Some(clock) = self.field(Field::Clock) {
            clock.fetch_max(now.into(), Ordering::Relaxed);
        }
    }

    /// Says in the log that a segment holds nothing any more.
    pub(crate) fn log_free(&self, locked: &Locked<'_>, number: u16) {
        let slot = locked.shard.segments.slot(number);
        let log = &self.pool.logs[usize::from(slot.tier)];
        log.ensure_room(&self.pool.slots);
        log.free(self.pool.slots.index(slot));
    }

    /// Bytes that the indexes of all shards may have together.
    pub(crate) fn index_share(&self) -> u64 {
        self.pool.budget.limit() / 100 * u64::from(self.tuning.index_percent)
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.mount.set().epoch
    }

    /// The superblocks as of now.
    pub(crate) fn write_superblocks(&self, clean: bool) -> Result<(), OpenError> {
        (0..self.pool.slots.tiers.len()).try_for_each(|tier| {
            self.write_superblock(tier, clean)?;
            crash_point("superblocks: a tier was told");
            Ok(())
        })
    }

    fn write_superblock(&self, tier: usize, clean: bool) -> Result<(), OpenError> {
        let get = |field| self.field(field).map_or(0, |word| word.load(Ordering::Relaxed));
        let next_cas = self.shards.iter().map(Shard::next_cas_peek);
        let device = self.pool.slots.tiers[tier].device.as_ref();
        let mut superblock = Superblock {
            next_seq: self.next_seq.load(Ordering::Relaxed),
            next_item: self.next_item.load(Ordering::Relaxed),
            next_cas: next_cas.max().unwrap_or(0),
            clock: get(Field::Clock) as u32,
            flush_due: get(Field::FlushDue) as u32,
            log_pages: self.pool.logs[tier].field(LogField::Spilled).load(Ordering::Relaxed),
            balance: self.pool.admission.ledger.balance(tier),
            ..self.mount.superblock(tier, device)
        };
        // After the state was read, which may be lost meanwhile.
        let is_sound = !self.has_failed_log();
        let is_durable = self.has_durable_logs.load(Ordering::Relaxed);
        superblock.clean = clean && is_sound;
        superblock.strict = self.is_strict && is_durable && is_sound;
        // A drive that fails this flush may have dropped pages of the log.
        write_superblock(device, &superblock, || self.pool.logs[tier].flush(&self.pool.slots))
    }

    /// Writes the superblocks while the cache is open. A drive that was given up is not to be believed
    /// any more, instead.
    fn tell_all_tiers(&self) -> io::Result<()> {
        let failed = self.pool.slots.tiers.iter().map(TierStore::has_failed);
        let logs = self.pool.logs.iter().zip(failed);
        logs.filter(|(_, failed)| *failed).for_each(|(log, _)| log.fail());
        self.distrust_failed_logs();
        match self.is_distrusted.load(Ordering::Acquire) {
            true => Ok(()),
            false => self.write_superblocks(false).map_err(io::Error::other),
        }
    }

    pub(crate) fn has_failed_log(&self) -> bool {
        self.pool.logs.iter().any(KillLog::has_failed)
    }

    /// In strict mode a log that failed must not be believed after a power loss: until a superblock
    /// says so, nothing is acknowledged. One is enough, since all must agree at the next start; the
    /// drive whose log failed may take none.
    pub(crate) fn distrust_failed_logs(&self) {
        if self.is_strict && self.has_failed_log() && !self.is_distrusted.load(Ordering::Relaxed) {
            let tiers = 0..self.pool.slots.tiers.len();
            let told = tiers.filter(|&tier| self.write_superblock(tier, false).is_ok()).count();
            self.is_distrusted.store(told > 0, Ordering::Release);
        }
    }

    /// With [`Durability::Power`]: everything that the logs say outlives a power loss, or none of it
    /// will be believed.
    pub(crate) fn make_durable(&self) -> io::Result<()> {
        for log in &self.pool.logs {
            match log.has_failed() {
                true if self.is_distrusted.load(Ordering::Acquire) => {}
                true => return Err(io::Error::other("the tombstone log can't be written")),
                false => log.make_durable(&self.pool.slots)?,
            }
        }
        self.tell_strict().map_err(io::Error::other)
    }

    /// Has the superblocks say that the logs on the tiers, which are durable by now, are to be believed after a
    /// power loss. Before that their directories may be those of a time before a run that was not strict.
    pub(crate) fn tell_strict(&self) -> Result<(), OpenError> {
        let mut told = lock(&self.told_strict);
        if !*told && !self.has_failed_log() {
            self.has_durable_logs.store(true, Ordering::Relaxed);
            self.write_superblocks(false)?;
            *told = true;
        }
        Ok(())
    }

    /// Makes everything durable and says so in the superblocks.
    fn write_clean(&self) -> bool {
        let logs = self.pool.logs.iter();
        let durable = logs.map(|log| log.make_durable(&self.pool.slots)).all(|done| done.is_ok());
        let now = self.field(Field::Clock).map_or(0, |clock| clock.load(Ordering::Relaxed) as u32);
        self.pool.admission.ledger.observe(&self.pool.slots, self.pool.counters.tiers(), now);
        self.has_durable_logs.fetch_or(durable, Ordering::Relaxed);
        let sound = || !self.has_failed_log();
        durable && sound() && self.write_superblocks(true).is_ok() && sound()
    }

    /// Puts a recovered index in the place of a shard's.
    pub(crate) fn swap_index(&self, locked: &mut Locked<'_>, index: SealedIndex) {
        let bytes = index.bytes();
        self.pool.arena.release(bytes, &self.pool.budget);
        self.pool.budget.force(bytes);
        let old = locked.shard.index.replace(index);
        let old_bytes = old.bytes();
        self.pool.counters.index_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.pool.counters.index_bytes.fetch_sub(old_bytes, Ordering::Relaxed);
        self.pool.discard(old, old_bytes);
    }

    pub(crate) fn has_tiers(&self) -> bool {
        !self.pool.slots.tiers.is_empty()
    }

    pub(crate) fn has_working_tiers(&self) -> bool {
        self.pool.slots.tiers.iter().any(|tier| !tier.has_failed())
    }

    /// Whether a new record must be refused (`-M`).
    pub(crate) fn refuses_new(&self) -> bool {
        !self.evicts && (self.pool.counters.is_full() || self.pool.admission.ledger.is_overdrawn())
    }

    /// Whether there is no room that background work could make (`-M`, or drives don't answer), or it hangs.
    pub(crate) fn is_out_of_room(&self) -> bool {
        let slots = &self.pool.slots;
        // In DRAM alone changes go on when new keys are refused, as long as there are holes to put together.
        let is_full = !self.evicts
            && match self.has_working_tiers() {
                true => self.pool.counters.is_full(),
                false => self.no_room.load(Ordering::Relaxed),
            };
        let is_stuck = self.is_stuck.load(Ordering::Relaxed) && slots.is_any_silent();
        is_full || is_stuck || self.hangs.load(Ordering::Relaxed) || slots.are_all_silent()
    }

    /// Says whether a shard can't be sealed before a drive answers: its index has no room, and all that it names is on
    /// that drive.
    pub(crate) fn note_stuck(&self, is_stuck: bool) {
        // Most often it is as it was, and all cores read it.
        if self.is_stuck.load(Ordering::Relaxed) != is_stuck {
            self.is_stuck.store(is_stuck, Ordering::Relaxed);
        }
    }

    /// Whether requests find enough blocks for the next moments.
    pub(crate) fn has_spare_blocks(&self) -> bool {
        if self.pool.budget.excess() > 0 {
            return false;
        }
        let arena = &self.pool.arena;
        let place =
            if self.has_tiers() { Place::Passing } else { self.pool.place_for(Lane::Fresh) };
        let available = arena.available(&self.pool.budget, place);
        available + arena.retired() as u64 >= self.spare_blocks()
    }

    /// Blocks that are kept free for the next moments.
    pub(crate) fn spare_blocks(&self) -> u64 {
        self.pool.spare_blocks()
    }

    /// Accounts for a segment that came into use, or is about to go out of it.
    pub(crate) fn note_segment(&self, segments: &SegmentTable, number: u16, used: bool) {
        let tables = segments.table_bytes(number);
        let footer = segments.footer_bytes(number) as u64;
        let counters = &self.pool.counters;
        let tier = counters.tier(segments.slot(number).tier);
        let changes = [
            (&counters.page_table_bytes, tables),
            (&tier.footer_bytes, footer),
            (&tier.filled_bytes, segments.filled_bytes(number)),
            (&tier.sealed_bytes, segments.usage(number).record_bytes.into()),
            (&tier.segments_used, 1),
        ];
        for (counter, amount) in changes {
            let change = if used { AtomicU64::fetch_add } else { AtomicU64::fetch_sub };
            change(counter, amount, Ordering::Relaxed);
        }
        if used {
            self.pool.budget.force(tables + SegmentTable::ROW_BYTES);
        } else {
            self.pool.budget.give(tables + SegmentTable::ROW_BYTES);
        }
    }

    /// Gives number and place of a segment back; its entries are gone already, and the log says so.
    pub(crate) fn free_segment(&self, locked: &mut Locked<'_>, number: u16) {
        let segments = &locked.shard.segments;
        locked.drop_suspended(number);
        self.note_segment(segments, number, false);
        let left = segments.usage(number);
        // Who saw an entry from before its record moved on looks again.
        locked.note_move();
        let slot = segments.retract(number);
        let tier = self.pool.counters.tier(slot.tier);
        tier.records.sub(locked.shard.at, left.live_records.into());
        tier.live_bytes.sub(locked.shard.at, left.live_bytes.into());
        locked.state.numbers.push(number);
        self.pool.slots.give(slot);
    }

    /// Drops everything of a shard.
    fn flush(&self, locked: &mut Locked<'_>, at: usize) {
        locked.state.generation += 1;
        locked.drop_residents();
        locked.clear_suspended();
        self.swap_index(locked, SealedIndex::new(self.geometry.initial_buckets(at)));
        let segments: Vec<_> = locked.shard.segments.iter().collect();
        for sealed in &segments {
            self.log_free(locked, sealed.number);
            self.free_segment(locked, sealed.number);
        }
        if let Some(awaited) = locked.state.awaited.take() {
            for (place, slot) in awaited.places() {
                let log = &self.pool.logs[usize::from(place.tier)];
                log.ensure_room(&self.pool.slots);
                log.free(slot);
                self.pool.slots.give(place);
            }
        }
        // A segment that is being written right now holds a number that no row shows yet: it is
        // lost to the list unless all numbers are put back.
        let rows = self.geometry.segments_per_shard as u16;
        locked.state.numbers = (0..rows).rev().collect();
    }
}
