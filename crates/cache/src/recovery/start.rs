//! Opens a cache: from configuration and devices to an engine, warm if the earlier run can be trusted.
//!
//! The order matters. All devices are inspected before anything is written. The state is complete before the
//! superblocks mark the cache as open, and these are flushed before the first change.

use crate::background::scheduler;
use crate::config::error::OpenError;
use crate::config::{Config, Durability, OnMismatch};
use crate::dram::memory::Arena;
use crate::engine::{Engine, Parts, durability};
use crate::log::TombstoneLog;
use crate::log::find::{Place, find_log, newest_directory};
use crate::log::replay::{Replay, commit_abroad, read_log};
use crate::records::key::Hasher;
use crate::recovery::mount::{Mount, boot_words, refuse_if_asked};
use crate::recovery::sizing::SKETCH_SHARE;
use crate::recovery::surviving::{Division, identity_of_past, layout};
use crate::recovery::{recover, sizing};
use crate::segments::layout::{PACKED_MAX, Superblock};
use crate::shard::Shard;
use crate::shared::geometry::Geometry;
use crate::shared::{Media, Shared, Sizes};
use crate::state::{Field, Header, Identity, LogField, State, StateFile, StateOwner};
use crate::stats::counters::Counters;
use crate::tiers::admission::Admission;
use crate::tiers::ledger::{Carried, Ledger};
use crate::tiers::slots::Slots;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// After a power loss seal sequences continue this far beyond the last one in the log, since there may be segments that
/// the log lacks.
const SEQ_LEAP: u64 = 1 << 20;
/// After a power loss the CAS numbers of each shard continue this much further.
const CAS_LEAP: u64 = 1 << 32;

/// What an earlier run can be recovered from.
enum Past {
    Cold,
    /// The state, which outlived its process.
    Process,
    /// The tiers alone, by the directories of their logs.
    Tiers,
}

/// Inspects the tiers; writes nothing.
pub(crate) fn inspect(config: &Config) -> Result<Mount, OpenError> {
    let mount = Mount::inspect(config).map_err(|error| match error {
        OpenError::TooLittleMemory => sizing::explain(config),
        error => error,
    })?;
    if mount.found.is_none() {
        sizing::check(config, &mount.geometry)?;
    }
    Ok(mount)
}

/// Opens everything and begins recovery.
pub(crate) fn start(config: &Config) -> Result<Engine, OpenError> {
    let mut mount = inspect(config)?;
    let layout = layout(config, &mount.geometry);
    let identity = |mount: &Mount| {
        let set = if config.tiers.is_empty() { StateOwner::NO_TIERS } else { mount.set().set };
        Identity::new(set, boot_words(config.boot), layout)
    };
    let file = match &config.state {
        Some(file) => Some(Arc::clone(file)),
        None if config.tiers.is_empty() => None,
        None => Some(Arc::new(StateFile::volatile()?)),
    };
    let mut past = Past::Cold;
    let mut state = None;
    if let Some(file) = file {
        let wanted = identity(&mount);
        let of_past = identity_of_past(config, &mount, &file, wanted)?;
        let (opened, is_kept) = match State::kept(&file, &of_past)? {
            Some(kept) => (kept, true),
            None => {
                let header = file.header_of_set(&wanted)?;
                let is_ahead = |header: Header| header.is_ahead_of(mount.epochs);
                match mount.found.is_some() && header.is_some_and(is_ahead) {
                    true => mount.go_cold(config, &why_behind(&mount))?,
                    false => refuse_before_erasing(config, &mount, &wanted)?,
                }
                (State::anew(file, &identity(&mount))?, false)
            }
        };
        let (opened, found) = judge(config, &mut mount, opened, is_kept, &identity)?;
        past = found;
        state = Some(Arc::new(opened));
    }
    assemble(config, mount, state, past)
}

/// Refuses a start without the right state before it erases the present one.
fn refuse_before_erasing(
    config: &Config,
    mount: &Mount,
    identity: &Identity,
) -> Result<(), OpenError> {
    let Some(found) = mount.found.filter(|_| config.on_mismatch == OnMismatch::Refuse) else {
        return Ok(());
    };
    let why = match cold_without_state(config, mount, &found) {
        Some(Doubt::Lost(_)) => None,
        Some(Doubt::Mismatch(why)) => Some(why),
        None => {
            // For the replay of the logs, not for records.
            let layout = identity.layout().with_blocks(0, identity.layout().block_bytes());
            let file = Arc::new(StateFile::volatile()?);
            let state = State::anew(file, &identity.with_layout(layout))?;
            find_logs(config, mount, &state, found.clean).err()
        }
    };
    why.map_or(Ok(()), |why| refuse_if_asked(config, &why))
}

/// The message about tiers that are older than the state.
fn why_behind(mount: &Mount) -> String {
    let older = "the tiers hold an older content than the state; give the tiers of the last run";
    mount.missed.clone().unwrap_or_else(|| older.to_owned())
}

/// Decides what can be trusted, and prepares the state for it.
fn judge(
    config: &Config,
    mount: &mut Mount,
    state: State,
    is_kept: bool,
    identity: &dyn Fn(&Mount) -> Identity,
) -> Result<(State, Past), OpenError> {
    // Tiers that were open since, with another state, are newer than this one.
    let is_ready = is_kept
        && state.field(Field::Ready).load(Ordering::Acquire) == 1
        && mount.epochs.1 <= state.field(Field::Epoch).load(Ordering::Relaxed);
    if config.tiers.is_empty() {
        if is_ready {
            return Ok((state, Past::Process));
        }
        let state = if is_kept { state.erase(&identity(mount))? } else { state };
        return Ok((begin_anew(mount, state), Past::Cold));
    }
    let Some(found) = mount.found else {
        let state = if is_kept { state.erase(&identity(mount))? } else { state };
        return Ok((begin_anew(mount, state), Past::Cold));
    };
    if is_ready {
        let failed = |tier| state.log_field(tier, LogField::Failed).load(Ordering::Relaxed) != 0;
        match (0..config.tiers.len()).find(|&tier| failed(tier)) {
            None if !state.header().is_ahead_of(mount.epochs) => {
                // All tiers have at least the oldest epoch; this start may crash before they have its own.
                state.field(Field::EpochOfAll).store(mount.epochs.0, Ordering::Relaxed);
                return Ok((state, Past::Process));
            }
            None => mount.go_cold(config, &why_behind(mount))?,
            Some(tier) => {
                let label = config.tiers[tier].device.label();
                mount.go_cold(
                    config,
                    &format!("{label}: did not take the tombstone log before; replace the drive"),
                )?;
            }
        }
    } else if let Some(doubt) = cold_without_state(config, mount, &found) {
        match doubt {
            Doubt::Lost(why) => mount.give_up(why),
            Doubt::Mismatch(why) => mount.go_cold(config, &why)?,
        }
    } else {
        let state = if is_kept { state.erase(&identity(mount))? } else { state };
        match find_logs(config, mount, &state, found.clean) {
            Ok(seq) => {
                let state = begin_anew(mount, state);
                let (seq, cas) = if found.clean {
                    (found.next_seq, found.next_cas)
                } else {
                    (seq + SEQ_LEAP, found.next_cas + CAS_LEAP * u64::from(found.shards))
                };
                state.field(Field::EpochOfAll).store(mount.epochs.1, Ordering::Relaxed);
                state.field(Field::NextSeq).store(seq.max(1), Ordering::Relaxed);
                state.field(Field::FirstCas).store(cas, Ordering::Relaxed);
                state.field(Field::Clock).store(found.clock.into(), Ordering::Relaxed);
                state.field(Field::FlushDue).store(found.flush_due.into(), Ordering::Relaxed);
                return Ok((state, Past::Tiers));
            }
            Err(why) => mount.go_cold(config, &why)?,
        }
        return Ok((begin_anew(mount, state.erase(&identity(mount))?), Past::Cold));
    }
    Ok((begin_anew(mount, state.erase(&identity(mount))?), Past::Cold))
}

/// Why the tiers can't be trusted.
enum Doubt {
    /// No other start could trust them: this one need not be refused.
    Lost(&'static str),
    Mismatch(String),
}

/// Why the tiers can't be trusted without the state of their last run; `None` if they can.
fn cold_without_state(config: &Config, mount: &Mount, found: &Superblock) -> Option<Doubt> {
    if mount.missed.is_some() || found.has_complete_logs() {
        return mount.missed.clone().map(Doubt::Mismatch);
    }
    Some(match boot_words(config.boot) == found.boot {
        true => Doubt::Mismatch(
            "the state of the last run is missing (see --state), or too large for this -m; stop the server by SIGTERM before \
             its state or its machine goes"
                .to_owned(),
        ),
        false => Doubt::Lost(
            "the machine was restarted without a clean stop; stop the server by SIGTERM before, or write --durability strict",
        ),
    })
}

/// Fills a new state with its first numbers.
fn begin_anew(mount: &mut Mount, state: State) -> State {
    let set = *mount.set();
    state.field(Field::NextSeq).store(set.next_seq.max(1), Ordering::Relaxed);
    // Item numbers begin anew at random, so that none is used twice whatever was lost.
    state.field(Field::NextItem).store(mount.random.next(), Ordering::Relaxed);
    state.field(Field::NextOrder).store(1, Ordering::Relaxed);
    state.field(Field::Seed).store(set.seed, Ordering::Relaxed);
    state
}

/// Finds each tier's log by its directory; returns the highest seal sequence in them.
fn find_logs(config: &Config, mount: &Mount, state: &State, clean: bool) -> Result<u64, String> {
    let mut seq_max = 0;
    for (at, tier) in config.tiers.iter().enumerate() {
        let device = tier.device.as_ref();
        let pages = clean.then(|| mount.pages_of(at)).flatten();
        let (set, segment_bytes) = (mount.set().set, mount.geometry.segment_bytes());
        let found = find_log(&Place::new(device, at, set, segment_bytes), state, pages);
        seq_max = seq_max.max(found.map_err(|why| format!("{}: {why}", device.label()))?.seq_max());
    }
    Ok(seq_max)
}

/// Readers, at most: sessions, a flush, background and recovery threads.
fn readers_max(config: &Config) -> usize {
    config.sessions_max + 1 + scheduler::PARTS_MAX + recover::THREADS_MAX
}

fn assemble(
    config: &Config,
    mut mount: Mount,
    state: Option<Arc<State>>,
    past: Past,
) -> Result<Engine, OpenError> {
    let geometry = mount.geometry;
    let counters =
        Arc::new(Counters::new(config.tiers.len(), geometry.shards(), readers_max(config)));
    let logged = match logged(config, &mount, &state, &past, &counters) {
        Ok(logged) => logged,
        Err(why) => return start_over(config, mount, state, &why),
    };
    let Logged { slots, logs, replays } = logged;
    let seed = match &state {
        Some(state) => state.field(Field::Seed).load(Ordering::Relaxed),
        None => mount.set().seed,
    };
    let hasher = Hasher::new(
        seed,
        geometry.shard_bits(),
        config.tuning.fingerprint_bits.clamp(1, 15),
        geometry.record_bytes_max() as usize >= 2 * PACKED_MAX,
    );
    let arena = arena(config, &geometry, &state)?;
    let surviving = u64::from(arena.surviving());
    let blocks = (config.memory_bytes / u64::from(geometry.block_bytes())).max(1).max(surviving);
    let Division { fresh_max, reserve } = Division::of(&geometry, blocks, surviving);
    let sketch_bytes = match config.tiers.is_empty() {
        true => 0,
        false => (config.memory_bytes / SKETCH_SHARE) as usize,
    };
    let carried = carried(&mount, state.as_deref(), &past);
    let sizes = Sizes {
        memory_bytes: config.memory_bytes,
        shards: geometry.shards(),
        readers: readers_max(config),
        reserve,
        fresh_max,
        sketch_bytes,
    };
    let ledger = Ledger::new(config, &slots, carried, state.clone());
    let admission = Admission::new(config, ledger);
    let shared =
        Shared::new(sizes, Media { arena, slots, logs, state, counters }, hasher, admission);
    // Below 2^28, since some clients read CAS numbers of 32 bits; random, so that a number from before a cold start
    // hardly ever matches again.
    let first_cas = match past {
        Past::Tiers => of_state(shared.state(), Field::FirstCas) / geometry.shards() as u64 + 1,
        _ => mount.random.next() >> 44,
    };
    let buckets = |at| geometry.initial_buckets(at);
    let shards = (0..geometry.shards()).map(|at| Shard::new(at, &geometry, buckets(at), first_cas));
    let shards: Box<[Shard]> = shards.collect();
    restore_cas(&shared, &shards, matches!(past, Past::Process));
    let has_complete_logs = mount.found.is_some_and(|found| found.has_complete_logs());
    let parts = Parts {
        has_durable_logs: has_complete_logs && !matches!(past, Past::Cold),
        geometry,
        fixed_bytes: scheduler::bytes(config, &geometry, shared.slots().levels().count())
            + state_bytes(config, &shared),
        filling_mebibytes: config.least_mebibytes(sizing::RECORD_BYTES_WARNED),
        shared,
        shards,
        set: *mount.set(),
        notes: mount.notes,
    };
    let mut engine = Engine::new(config, parts);
    if !matches!(past, Past::Cold) {
        recover::begin(&mut engine, replays);
    }
    open(config, engine)
}

/// The segment slots of the tiers, and their logs.
struct Logged {
    slots: Slots,
    /// Empty without a state.
    logs: Vec<TombstoneLog>,
    /// The replayed logs, if the start trusts them.
    replays: Vec<Replay>,
}

/// Reads the logs if they are trusted. The error names the tier with an unreadable log; no other part holds the state
/// then.
fn logged(
    config: &Config,
    mount: &Mount,
    state: &Option<Arc<State>>,
    past: &Past,
    counters: &Arc<Counters>,
) -> Result<Logged, String> {
    let make_slots = |used: &dyn Fn(usize) -> HashSet<u32>| {
        let segment_bytes = mount.geometry.segment_bytes();
        Slots::new(&config.tiers, segment_bytes, Arc::clone(counters), used)
    };
    let slots = make_slots(&|_| HashSet::new());
    let mut logs = Vec::new();
    if let Some(state) = state {
        for (at, tier) in slots.tiers().iter().enumerate() {
            let set = mount.set().set;
            let is_strict = config.durability == Durability::Power;
            let log =
                TombstoneLog::new(Arc::clone(state), at as u16, set, tier.segments(), is_strict);
            logs.push(log.within(config.tuning.log_slots));
        }
    }
    if matches!(past, Past::Cold) {
        return Ok(Logged { slots, logs, replays: Vec::new() });
    }
    let mut replays = Vec::new();
    for (log, tier) in logs.iter().zip(&config.tiers) {
        let device = tier.device.as_ref();
        let failed = |why| format!("{}: {why}", device.label());
        let newest = newest_directory(device, mount.set().set).map_err(failed)?;
        newest.iter().for_each(|newest| log.continue_directory(newest));
        replays.push(read_log(log, &slots).map_err(failed)?);
        log.mend_ring(&slots);
    }
    if state.as_ref().is_some_and(|state| state.loss().is_any()) {
        return Err("a part of the state was gone before it was read".to_owned());
    }
    commit_abroad(&mut replays);
    let used = |at: usize| {
        let logged = replays.get(at).into_iter().flat_map(|r: &Replay| r.segments().keys());
        let of_log = logs.get(at).map(|log| log.slots(&slots)).unwrap_or_default();
        logged.copied().chain(of_log).collect::<HashSet<u32>>()
    };
    Ok(Logged { slots: make_slots(&used), logs, replays })
}

fn arena(
    config: &Config,
    geometry: &Geometry,
    state: &Option<Arc<State>>,
) -> Result<Arena, OpenError> {
    let is_all_in_state = config.tiers.is_empty() && state.is_some();
    let bytes_max = if is_all_in_state { 0 } else { config.memory_bytes_max };
    let bytes = (config.memory_bytes, bytes_max);
    let arena = Arena::new(bytes, geometry.block_bytes(), state.clone(), !config.tiers.is_empty())?;
    if config.huge_pages {
        arena.ask_for_huge_pages();
    }
    Ok(arena)
}

/// Bytes of DRAM for state, logs, sketch and ghost list; a part of [`Parts::fixed_bytes`].
fn state_bytes(config: &Config, shared: &Shared) -> u64 {
    let overhead = shared.state().as_ref().map_or(0, |state| state.layout().overhead());
    let set_aside = if config.tiers.is_empty() {
        0
    } else {
        u64::from(shared.arena().surviving()) * u64::from(shared.arena().block_bytes())
    };
    let tiers = shared.slots().tiers().iter();
    let log_bytes = tiers.map(|tier| TombstoneLog::bytes_for(tier.segments())).sum::<u64>();
    overhead
        + set_aside
        + log_bytes
        + shared.promotion().bytes() as u64
        + shared.admission().bytes()
}

/// Marks the state as in use, then opens the tiers, then records in the state that all of these have the new epoch.
fn open(config: &Config, engine: Engine) -> Result<Engine, OpenError> {
    if let Some(state) = engine.shared().state() {
        state.field(Field::Epoch).store(engine.epoch(), Ordering::Relaxed);
        state.field(Field::Ready).store(1, Ordering::Release);
    }
    open_tiers(config, &engine)?;
    if let Some(state) = engine.shared().state() {
        state.field(Field::EpochOfAll).store(engine.epoch(), Ordering::Release);
    }
    Ok(engine)
}

/// Starts cold after a log could not be read: nothing can be trusted.
fn start_over(
    config: &Config,
    mut mount: Mount,
    state: Option<Arc<State>>,
    why: &str,
) -> Result<Engine, OpenError> {
    mount.go_cold(config, why)?;
    let Some(state) = state.and_then(Arc::into_inner) else {
        return assemble(config, mount, None, Past::Cold);
    };
    let layout = *state.layout();
    let identity = Identity::new(mount.set().set, boot_words(config.boot), layout);
    let state = begin_anew(&mut mount, state.erase(&identity)?);
    assemble(config, mount, Some(Arc::new(state)), Past::Cold)
}

/// The balances of the write budgets. If it is unknown what was written since a balance was stored, nothing is saved
/// up, but an overdraft remains.
fn carried(mount: &Mount, state: Option<&State>, past: &Past) -> Carried {
    let time = |state: &State| state.field(Field::Clock).load(Ordering::Relaxed) as u32;
    let of_state = |state: &State, tier| {
        state.log_field(tier, LogField::Balance).load(Ordering::Relaxed).cast_signed()
    };
    let stored = mount.balances.iter().copied();
    let is_clean = mount.found.is_some_and(|found| found.clean);
    match (past, state) {
        (Past::Process, Some(state)) => Carried::new(
            (0..mount.balances.len()).map(|tier| of_state(state, tier)).collect(),
            time(state),
        ),
        (Past::Tiers, Some(state)) if is_clean => Carried::new(stored.collect(), time(state)),
        _ => Carried::new(stored.map(|balance| balance.min(0)).collect(), 0),
    }
}

/// A field of the state; 0 without a state.
fn of_state(state: &Option<Arc<State>>, field: Field) -> u64 {
    state.as_ref().map_or(0, |state| state.field(field).load(Ordering::Relaxed))
}

/// Sets the CAS numbers to those of the last run, or stores the first ones.
fn restore_cas(shared: &Shared, shards: &[Shard], continues: bool) {
    let Some(state) = shared.state() else { return };
    let mut reader = shared.quiesce().join().expect(recover::FIRST_ONE);
    let guard = shared.quiesce().guard(&reader);
    for (at, shard) in shards.iter().enumerate() {
        let next = match continues {
            true => state.next_cas(at).load(Ordering::Relaxed),
            false => shard.next_cas_peek(),
        };
        shard.lock(shared, guard).set_next_cas(next);
    }
    shared.quiesce().leave(&mut reader);
}

/// Marks the cache as open in the superblocks, with its next numbers: after a power loss these must not be used again.
/// The logs are marked as complete once they are durable.
fn open_tiers(config: &Config, engine: &Engine) -> Result<(), OpenError> {
    durability::write_superblocks(engine, false)?;
    if config.durability != Durability::Power {
        return Ok(());
    }
    for (log, tier) in engine.shared().logs().iter().zip(&config.tiers) {
        match log.make_durable(engine.shared().slots()) {
            // Background work makes room; no change is acknowledged before there is some.
            Err(full) if full.kind() == std::io::ErrorKind::StorageFull => return Ok(()),
            durable => durable.map_err(|source| {
                crate::tiers::superblock::device_error(tier.device.as_ref(), source)
            })?,
        }
    }
    durability::write_strict(engine)
}
