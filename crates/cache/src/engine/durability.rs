//! Durability: superblocks, and logs that are durable before a change is acknowledged.

use crate::config::error::OpenError;
use crate::engine::{Engine, roster, superblocks};
use crate::log::TombstoneLog;
use crate::platform::crash::crash_point;
use crate::platform::lock::lock;
use crate::state::Field;
use crate::tiers::superblock::device_error;
use std::io;
use std::sync::atomic::Ordering;

/// Writes a superblock of an open cache to each member.
fn write_superblocks(engine: &Engine) -> Result<(), OpenError> {
    let roster = lock(engine.current_roster()).roster().clone();
    for tier in members(engine) {
        let device = engine.shared.slots().tiers()[tier].device().as_ref();
        let written = superblocks::write(engine, tier, &roster, false);
        written.map_err(|source| device_error(device, source))?;
        crash_point("superblocks: one is written");
    }
    Ok(())
}

/// The tiers that are in the roster.
fn members(engine: &Engine) -> impl Iterator<Item = usize> {
    (0..engine.members().len()).filter(|&tier| !engine.member(tier).is_out())
}

/// Writes the superblocks while the cache is open. The log of a failed tier fails; in strict mode nothing on that tier
/// is believed after a power loss then.
pub(crate) fn write_while_open(engine: &Engine) -> io::Result<()> {
    for (tier, store) in engine.shared.slots().tiers().iter().enumerate() {
        if store.has_failed() {
            engine.shared.logs()[tier].fail();
        }
    }
    distrust_failed_logs(engine);
    let roster = lock(engine.current_roster()).roster().clone();
    for tier in members(engine).filter(|&tier| !engine.member(tier).is_distrusted()) {
        superblocks::write(engine, tier, &roster, false)?;
        crash_point("superblocks: one is written");
    }
    Ok(())
}

/// Whether a member's log failed, so that the next start does not believe it.
pub(crate) fn has_failed_log(engine: &Engine) -> bool {
    let tiers = engine.shared.logs().iter().zip(engine.shared.slots().tiers());
    tiers.filter(|(_, tier)| !tier.drain().is_removed()).any(|(log, _)| log.has_failed())
}

/// In strict mode a failed log must not be used after a power loss: no change is acknowledged before the member's own
/// superblock says so, or, where its drive refuses that, the roster of the other members.
pub(crate) fn distrust_failed_logs(engine: &Engine) {
    if !engine.is_strict || !has_failed_log(engine) {
        return;
    }
    for (tier, log) in engine.shared.logs().iter().enumerate() {
        if !log.has_failed() || engine.member(tier).is_distrusted() {
            continue;
        }
        let roster = lock(engine.current_roster()).roster().clone();
        // None is left that says something else.
        if superblocks::write_both(engine, tier, &roster, false).is_ok() {
            engine.member(tier).distrust();
        } else {
            expel(engine, tier);
        }
    }
}

/// Has a member leave the roster; it is distrusted once the roster without it is in force.
fn expel(engine: &Engine, tier: usize) {
    if members(engine).all(|member| member == tier) && engine.witness().is_none() {
        return;
    }
    let _ = leave(engine, tier);
}

/// Puts a roster without a member in force; from then on no start believes what the member holds.
pub(super) fn leave(engine: &Engine, tier: usize) -> Result<(), OpenError> {
    engine.member(tier).leave();
    let nonce = engine.next_seq.load(Ordering::Relaxed).rotate_left(32) ^ engine.set.seed;
    roster::renew(engine, nonce)
}

/// With [`Durability::Power`](crate::Durability::Power): makes all words of the logs outlive a power loss, unless
/// superblocks or the roster mark a log as unusable after one.
pub(crate) fn make_durable(engine: &Engine) -> io::Result<()> {
    for (tier, log) in engine.shared.logs().iter().enumerate() {
        match log.has_failed() {
            true if engine.member(tier).is_distrusted() => {}
            true => return Err(io::Error::other("the tombstone log can't be written")),
            false => log.make_durable(engine.shared.slots())?,
        }
    }
    write_strict(engine).map_err(io::Error::other)
}

/// Marks the logs in the superblocks as complete after a power loss, once they are durable. Before that their
/// directories may be from before a run that was not strict.
pub(crate) fn write_strict(engine: &Engine) -> Result<(), OpenError> {
    let mut written = lock(&engine.strict_written);
    if *written {
        return Ok(());
    }
    let sound = |tier: &usize| !engine.shared.logs()[*tier].has_failed();
    members(engine).filter(sound).for_each(|tier| engine.member(tier).note_durable_log());
    write_superblocks(engine)?;
    *written = true;
    Ok(())
}

/// Makes everything durable and marks the superblocks as clean, each of those whose log holds everything. Returns
/// whether that is every member that did not fail before.
pub(crate) fn write_clean(engine: &Engine) -> bool {
    let slots = engine.shared.slots();
    let had_failed: Vec<_> = engine.shared.logs().iter().map(TombstoneLog::has_failed).collect();
    let durable: Vec<_> =
        engine.shared.logs().iter().map(|log| log.make_durable(slots).is_ok()).collect();
    let now = engine.field(Field::Clock).map_or(0, |clock| clock.load(Ordering::Relaxed) as u32);
    engine.shared.admission().ledger().observe(slots, engine.shared.counters().tiers(), now);
    let roster = lock(engine.current_roster()).roster().clone();
    let mut is_clean = members(engine).any(|tier| durable[tier]) || !engine.has_tiers();
    for tier in members(engine).filter(|&tier| !had_failed[tier]) {
        if durable[tier] {
            engine.member(tier).note_durable_log();
        }
        // A damaged one of them costs nothing.
        let written = superblocks::write_both(engine, tier, &roster, durable[tier]);
        is_clean &= durable[tier] && written.is_ok() && !engine.shared.logs()[tier].has_failed();
        crash_point("superblocks: one is written");
    }
    is_clean
}

/// In strict mode: makes the logs durable, so that no slot is reused before its tier has the word that frees it.
pub(crate) fn make_frees_durable(engine: &Engine) {
    if engine.is_strict {
        // If that fails, the tier and its log fail.
        let logs = engine.shared.logs().iter();
        let _: Vec<_> = logs.map(|log| log.make_durable(engine.shared.slots())).collect();
    }
}

/// Records a planned flush. Until the flush that was made is `durable`, the superblocks keep the planned one, which a
/// power loss must be followed by. A crash of the process must not, since the state has the flush that was made.
pub(crate) fn plan_flush(engine: &Engine, durable: io::Result<()>, due: u32) -> io::Result<()> {
    let Some(planned) = engine.field(Field::FlushDue) else { return durable };
    let mut written = lock(&engine.due_written);
    planned.store(due.into(), Ordering::Relaxed);
    if engine.is_strict && (durable.is_err() || *written != Some(due)) {
        // If that fails, some superblocks may have the new time and the rest the old one.
        *written = None;
        durable?;
        write_while_open(engine)?;
        *written = Some(due);
    }
    Ok(())
}
