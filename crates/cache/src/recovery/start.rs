//! Opens a cache: from configuration and devices to an engine, warm if the earlier run can be trusted.
//!
//! The order matters. All devices are inspected before anything is written. The state is complete before the
//! superblocks mark the cache as open, and these are flushed before the first change.

use crate::background::scheduler;
use crate::config::error::OpenError;
use crate::config::{Config, Durability, OnMismatch};
use crate::dram::memory::Arena;
use crate::engine::members::{Member, Membership};
use crate::engine::{Engine, Parts, durability, roster};
use crate::log::TombstoneLog;
use crate::log::find::{Place, find_log, newest_directory};
use crate::log::replay::{Replay, commit_abroad, read_log};
use crate::platform::random::Random;
use crate::records::key::Hasher;
use crate::recovery::membership::Reason;
use crate::recovery::mount::{Mount, Seat, boot_words};
use crate::recovery::sizing::SKETCH_SHARE;
use crate::recovery::surviving::{Division, identity_of_past, layout};
use crate::recovery::{recover, sizing};
use crate::shard::Shard;
use crate::shared::geometry::Geometry;
use crate::shared::{Media, Shared, Sizes};
use crate::state::{Field, Identity, LogField, State, StateFile, StateOwner};
use crate::stats::counters::Counters;
use crate::tiers::admission::Admission;
use crate::tiers::ledger::{Carried, Ledger};
use crate::tiers::slots::Slots;
use crate::tiers::superblock::device_error;
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
    if !mount.has_holders() {
        sizing::check(config, &mount.geometry)?;
    }
    Ok(mount)
}

/// Opens everything and begins recovery.
pub(crate) fn start(config: &Config) -> Result<Engine, OpenError> {
    let mut mount = inspect(config)?;
    let set = if config.tiers.is_empty() { StateOwner::NO_TIERS } else { mount.set().set };
    let layout = layout(config, &mount.geometry);
    let identity = Identity::new(set, boot_words(config.boot), layout);
    let file = match &config.state {
        Some(file) => Some(Arc::clone(file)),
        None if config.tiers.is_empty() => None,
        None => Some(Arc::new(StateFile::volatile()?)),
    };
    let Some(file) = file else { return assemble(config, mount, None, Past::Cold) };
    let of_past = identity_of_past(config, &mount, &file, identity)?;
    let kept = State::kept(&file, &of_past)?.filter(|state| is_usable(state, &mount));
    if let Some(state) = kept {
        if config.tiers.is_empty() || refuse_failed_logs(config, &mut mount, &state)? {
            let state = assign(&mut mount, state)?;
            return assemble(config, mount, Some(Arc::new(state)), Past::Process);
        }
        // Only the state knows that the logs failed, and it is erased: without this, a start after one that dies from
        // here on would believe them.
        mount.believe_none_later();
    } else {
        doubt_without_state(config, &mut mount)?;
    }
    refuse_before_erasing(config, &mut mount, &identity)?;
    let state = State::anew(file, &identity, mount.known)?;
    let state = assign(&mut mount, state)?;
    let past = from_tiers(config, &mut mount, &state)?;
    assemble(config, mount, Some(Arc::new(state)), past)
}

/// Whether a state is complete and of the roster that was in force last.
fn is_usable(state: &State, mount: &Mount) -> bool {
    if state.field(Field::Ready).load(Ordering::Acquire) != 1 {
        return false;
    }
    let last = mount.last.as_ref().map(|last| last.standing().roster());
    mount.seats.is_empty()
        || mount.has_holders() && last.is_some_and(|last| state.standing().holds(last))
}

/// Gives each tier its area of the state. Areas of members that are not here stay until the next roster is in force.
fn assign(mount: &mut Mount, mut state: State) -> Result<State, OpenError> {
    let members = mount.members();
    let kept = mount.last.as_ref().map(|last| Arc::clone(last.members()));
    state.assign(&members, kept.as_deref().unwrap_or_default())?;
    Ok(state)
}

/// No longer believes tiers whose logs failed while the state was in use; returns whether any other is left.
fn refuse_failed_logs(
    config: &Config,
    mount: &mut Mount,
    state: &State,
) -> Result<bool, OpenError> {
    let failed =
        |member| state.field_of(member, LogField::Failed).is_some_and(|failed| failed != 0);
    let holders = mount.holders().filter(|(_, page)| failed(page.owner.member()));
    for tier in holders.map(|(tier, _)| tier).collect::<Vec<_>>() {
        mount.empty(config, tier, Reason::LogFailed)?;
    }
    Ok(mount.has_holders())
}

/// Without the state, believes only tiers whose logs are complete on the tiers.
fn doubt_without_state(config: &Config, mount: &mut Mount) -> Result<(), OpenError> {
    let boot = boot_words(config.boot);
    let incomplete = mount.holders().filter(|(_, page)| !page.has_complete_log());
    let incomplete: Vec<_> = incomplete.map(|(tier, page)| (tier, page.boot == boot)).collect();
    for (tier, is_same_boot) in incomplete {
        let reason = if is_same_boot { Reason::NoState } else { Reason::NotStopped };
        mount.empty(config, tier, reason)?;
    }
    Ok(())
}

/// Refuses a start whose logs can't be found before it erases the present state.
fn refuse_before_erasing(
    config: &Config,
    mount: &mut Mount,
    identity: &Identity,
) -> Result<(), OpenError> {
    if config.on_mismatch == OnMismatch::Cold || !mount.has_holders() {
        return Ok(());
    }
    // For the replay of the logs, not for records.
    let layout = identity.layout().with_blocks(0, identity.layout().block_bytes());
    let file = Arc::new(StateFile::volatile()?);
    let state = assign(mount, State::anew(file, &identity.with_layout(layout), mount.known)?)?;
    find_logs(config, mount, &state).map(|_| ())
}

/// Prepares a new state from what the tiers say.
fn from_tiers(config: &Config, mount: &mut Mount, state: &State) -> Result<Past, OpenError> {
    let seq_max = find_logs(config, mount, state)?;
    if !mount.has_holders() {
        begin_anew(mount, state);
        return Ok(Past::Cold);
    }
    let is_clean = mount.holders().all(|(_, page)| page.clean);
    let set = mount.set().clone();
    let seq = if is_clean { set.next_seq } else { set.next_seq.max(seq_max) + SEQ_LEAP };
    let cas_leap = if is_clean { 0 } else { CAS_LEAP * u64::from(set.shards) };
    begin_anew(mount, state);
    state.field(Field::NextSeq).store(seq.max(1), Ordering::Relaxed);
    state.field(Field::FirstCas).store(set.next_cas + cas_leap, Ordering::Relaxed);
    state.field(Field::Clock).store(set.clock.into(), Ordering::Relaxed);
    state.field(Field::FlushDue).store(set.flush_due.into(), Ordering::Relaxed);
    Ok(Past::Tiers)
}

/// Fills a new state with its first numbers.
fn begin_anew(mount: &mut Mount, state: &State) {
    if !mount.has_holders() {
        mount.begin_anew();
    }
    let set = mount.set();
    state.field(Field::NextSeq).store(set.next_seq.max(1), Ordering::Relaxed);
    state.field(Field::Seed).store(set.seed, Ordering::Relaxed);
    // Item numbers begin anew at random, so that none is used twice whatever was lost.
    state.field(Field::NextItem).store(mount.random.next(), Ordering::Relaxed);
    state.field(Field::NextOrder).store(1, Ordering::Relaxed);
}

/// Finds each believed tier's log by its directory, and no longer believes a tier without one; returns the highest seal
/// sequence in the logs.
fn find_logs(config: &Config, mount: &mut Mount, state: &State) -> Result<u64, OpenError> {
    let mut seq_max = 0;
    let segment_bytes = mount.geometry.segment_bytes();
    for tier in mount.holders().map(|(tier, _)| tier).collect::<Vec<_>>() {
        let Seat::Holder(page) = &mount.seats[tier] else { continue };
        let (key, pages) = (page.owner.log_key(), page.clean.then_some(page.log_pages));
        let device = config.tiers[tier].device.as_ref();
        match find_log(&Place::new(device, tier, key, segment_bytes), state, pages) {
            Ok(found) => seq_max = seq_max.max(found.seq_max()),
            Err(why) => mount.empty(config, tier, Reason::Log(why))?,
        }
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
    mut state: Option<Arc<State>>,
    mut past: Past,
) -> Result<Engine, OpenError> {
    let counters = Counters::new(config.tiers.len(), mount.geometry.shards(), readers_max(config));
    let counters = Arc::new(counters);
    let Logged { slots, logs, mut replays } = loop {
        if !mount.seats.is_empty() && !mount.has_holders() {
            past = Past::Cold;
        }
        match logged(config, &mount, &state, &counters) {
            Ok(logged) => break logged,
            Err((tier, why)) => state = without(config, &mut mount, state, (tier, why))?,
        }
    };
    mount.note_losses(config);
    let mut geometry = mount.geometry;
    geometry.make_room_for(replays.iter().filter_map(Replay::highest_number).max());
    let seed = match &state {
        Some(state) => state.field(Field::Seed).load(Ordering::Relaxed),
        None => mount.set().seed,
    };
    let hasher = Hasher::new(
        seed,
        geometry.shard_bits(),
        config.tuning.fingerprint_bits.clamp(1, 15),
        geometry.keeps_chunks_together(),
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
        evicted_memory_bytes: if config.tiers.is_empty() { config.memory_bytes } else { 0 },
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
    let last = (mount.last.clone(), mount.known, (mount.generations, mount.random.next()));
    let is_cold = matches!(past, Past::Cold);
    let membership = Membership::new(members(&mount), last, config.witness.clone(), is_cold);
    let parts = Parts {
        membership,
        geometry,
        fixed_bytes: scheduler::bytes(config, &geometry, shared.slots().levels().count())
            + state_bytes(config, &shared),
        filling_mebibytes: config.least_mebibytes(sizing::RECORD_BYTES_WARNED),
        shared,
        shards,
        set: mount.set().clone(),
        notes: mount.notes,
    };
    let mut engine = Engine::new(config, parts);
    open(&engine, &past, &mut mount.random)?;
    // What recovery changes in the state counts with this roster only.
    for (tier, replay) in replays.iter_mut().enumerate() {
        if engine.member(tier).is_out() {
            *replay = Replay::default();
        }
    }
    if !matches!(past, Past::Cold) {
        recover::begin(&mut engine, replays);
    }
    if config.durability == Durability::Power {
        make_logs_durable(&engine)?;
    }
    Ok(engine)
}

/// The members that the tiers are.
fn members(mount: &Mount) -> Box<[Member]> {
    let member = |(tier, seat): (usize, &Seat)| match seat {
        Seat::Absent(_) => Member::absent(),
        Seat::Empty(_, id) => Member::new(*id, mount.written[tier]),
        Seat::Holder(page) => Member::holder(page, mount.written[tier]),
    };
    mount.seats.iter().enumerate().map(member).collect()
}

/// No longer believes a tier whose log can't be read: it gets another id, and another area of the state.
fn without(
    config: &Config,
    mount: &mut Mount,
    state: Option<Arc<State>>,
    (tier, why): (usize, String),
) -> Result<Option<Arc<State>>, OpenError> {
    mount.empty(config, tier, Reason::Log(why))?;
    // Nothing else has it by now.
    let Some(mut state) = state.and_then(Arc::into_inner) else { return Ok(None) };
    let is_cold = !mount.has_holders();
    if is_cold {
        let set = mount.set().set;
        let identity = Identity::new(set, boot_words(config.boot), *state.layout());
        // What the state showed to be wrong may look right without it.
        mount.believe_none_later();
        state = state.erase(&identity, mount.known)?;
    }
    let state = assign(mount, state)?;
    if is_cold {
        begin_anew(mount, &state);
    }
    Ok(Some(Arc::new(state)))
}

/// The segment slots of the tiers, and their logs.
struct Logged {
    slots: Slots,
    /// Empty without a state.
    logs: Vec<TombstoneLog>,
    /// The replayed logs, if the start trusts them.
    replays: Vec<Replay>,
}

/// Reads the logs of the tiers that are believed. The error names one whose log can't be read; no other part holds the
/// state then.
fn logged(
    config: &Config,
    mount: &Mount,
    state: &Option<Arc<State>>,
    counters: &Arc<Counters>,
) -> Result<Logged, (usize, String)> {
    let make_slots = |used: &dyn Fn(usize) -> HashSet<u32>| {
        let segment_bytes = mount.geometry.segment_bytes();
        let slots = Slots::new(&config.tiers, segment_bytes, Arc::clone(counters), used);
        for (seat, tier) in mount.seats.iter().zip(slots.tiers()) {
            if let Seat::Absent(error) = seat {
                tier.give_up(error);
            }
        }
        slots
    };
    let slots = make_slots(&|_| HashSet::new());
    let (mut logs, mut replays) = (Vec::new(), Vec::new());
    let Some(state) = state else { return Ok(Logged { slots, logs, replays }) };
    for (tier, seat) in mount.seats.iter().enumerate() {
        let is_strict = config.durability == Durability::Power;
        // Segments and pages of the log may lie where a drive that has shrunk has no place any more.
        let had = if let Seat::Holder(page) = seat { page.segments } else { 0 };
        let places = slots.tiers()[tier].segments().max(had);
        let key = mount.log_key(tier);
        let log = TombstoneLog::new(Arc::clone(state), tier as u16, key, places, is_strict);
        let log = log.within(config.tuning.log_slots);
        let mut replay = Replay::default();
        match seat {
            Seat::Holder(_) => {
                let failed = |why: std::io::Error| (tier, why.to_string());
                let device = config.tiers[tier].device.as_ref();
                let newest = newest_directory(device, key).map_err(failed)?;
                newest.iter().for_each(|newest| log.continue_directory(newest));
                replay = read_log(&log, &slots).map_err(failed)?;
                log.mend_ring(&slots);
            }
            Seat::Empty(..) => {}
            Seat::Absent(_) => log.fail(),
        }
        logs.push(log);
        replays.push(replay);
    }
    if state.loss().is_any()
        && let Some((tier, _)) = mount.holders().next()
    {
        return Err((tier, "a part of the state was gone before it was read".to_owned()));
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

/// Bytes of DRAM for state, logs, sketch and ghost lists; a part of [`Parts::fixed_bytes`].
fn state_bytes(config: &Config, shared: &Shared) -> u64 {
    let overhead = shared.state().as_ref().map_or(0, |state| state.overhead());
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
        + shared.evicted().bytes()
}

/// Marks the state as complete, and puts the roster of this start in force. A state of a cold start must not be used
/// with the roster before.
fn open(engine: &Engine, past: &Past, random: &mut Random) -> Result<(), OpenError> {
    let Some(state) = engine.shared().state() else { return Ok(()) };
    let make_ready = || state.field(Field::Ready).store(1, Ordering::Release);
    if !matches!(past, Past::Cold) {
        make_ready();
    }
    if engine.has_tiers() {
        roster::renew(engine, random.next())?;
    }
    make_ready();
    Ok(())
}

/// The balances of the write budgets. If it is unknown what was written since a balance was stored, nothing is saved
/// up, but an overdraft remains.
fn carried(mount: &Mount, state: Option<&State>, past: &Past) -> Carried {
    let time = |state: &State| state.field(Field::Clock).load(Ordering::Relaxed) as u32;
    let of_state = |state: &State, tier| {
        state.log_field(tier, LogField::Balance).load(Ordering::Relaxed).cast_signed()
    };
    let stored = mount.balances.iter().copied();
    let is_clean = mount.holders().all(|(_, page)| page.clean);
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

/// Has the superblocks say that the logs are complete after a power loss, once they are durable.
fn make_logs_durable(engine: &Engine) -> Result<(), OpenError> {
    for (log, tier) in engine.shared().logs().iter().zip(engine.shared().slots().tiers()) {
        if tier.has_failed() {
            continue;
        }
        match log.make_durable(engine.shared().slots()) {
            // Background work makes room; no change is acknowledged before there is some.
            Err(full) if full.kind() == std::io::ErrorKind::StorageFull => return Ok(()),
            durable => durable.map_err(|source| device_error(tier.device().as_ref(), source))?,
        }
    }
    durability::write_strict(engine)
}
