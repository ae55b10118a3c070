//! Durability: superblocks, and logs that are durable before a change is acknowledged.

use crate::config::error::OpenError;
use crate::engine::Engine;
use crate::log::TombstoneLog;
use crate::platform::crash::crash_point;
use crate::platform::lock::lock;
use crate::segments::layout::Superblock;
use crate::shard::Shard;
use crate::state::{Field, LogField};
use crate::tiers::slots::TierStore;
use crate::tiers::superblock;
use std::io;
use std::sync::atomic::Ordering;

/// Writes the present superblocks to all tiers.
pub(crate) fn write_superblocks(engine: &Engine, clean: bool) -> Result<(), OpenError> {
    (0..engine.shared.slots().tiers().len()).try_for_each(|tier| {
        write_superblock(engine, tier, clean)?;
        crash_point("superblocks: one is written");
        Ok(())
    })
}

fn write_superblock(engine: &Engine, tier: usize, clean: bool) -> Result<(), OpenError> {
    let get = |field| engine.field(field).map_or(0, |word| word.load(Ordering::Relaxed));
    let next_cas = engine.shards.iter().map(Shard::next_cas_peek);
    let device = engine.shared.slots().tiers()[tier].device().as_ref();
    let mut superblock = Superblock {
        next_seq: engine.next_seq.load(Ordering::Relaxed),
        next_item: engine.next_item.load(Ordering::Relaxed),
        next_cas: next_cas.max().unwrap_or(0),
        clock: get(Field::Clock) as u32,
        flush_due: get(Field::FlushDue) as u32,
        log_pages: engine.shared.logs()[tier].field(LogField::Spilled).load(Ordering::Relaxed),
        balance: engine.shared.admission().ledger().balance(tier),
        tier: tier as u16,
        segments: engine.shared.slots().tiers()[tier].segments(),
        ..engine.set
    };
    // After the state was read, which may be lost meanwhile.
    let is_sound = !has_failed_log(engine);
    let is_durable = engine.has_durable_logs.load(Ordering::Relaxed);
    superblock.clean = clean && is_sound;
    superblock.strict = engine.is_strict && is_durable && is_sound;
    // A drive that fails this flush may have dropped pages of the log.
    superblock::write(device, &superblock, || {
        engine.shared.logs()[tier].flush(engine.shared.slots())
    })
}

/// Writes the superblocks while the cache is open. The log of a failed tier fails; in strict mode the superblocks then
/// mark all logs as unusable, and nothing more is written.
pub(crate) fn write_while_open(engine: &Engine) -> io::Result<()> {
    let failed = engine.shared.slots().tiers().iter().map(TierStore::has_failed);
    let logs = engine.shared.logs().iter().zip(failed);
    logs.filter(|(_, failed)| *failed).for_each(|(log, _)| log.fail());
    distrust_failed_logs(engine);
    match engine.is_distrusted.load(Ordering::Acquire) {
        true => Ok(()),
        false => write_superblocks(engine, false).map_err(io::Error::other),
    }
}

pub(crate) fn has_failed_log(engine: &Engine) -> bool {
    engine.shared.logs().iter().any(TombstoneLog::has_failed)
}

/// In strict mode a failed log must not be used after a power loss: no change is acknowledged before a superblock marks
/// the logs as unusable. One superblock is enough, since all must agree at the next start; the drive of the failed log
/// may refuse its own.
pub(crate) fn distrust_failed_logs(engine: &Engine) {
    if engine.is_strict && has_failed_log(engine) && !engine.is_distrusted.load(Ordering::Relaxed) {
        let tiers = 0..engine.shared.slots().tiers().len();
        let written = tiers.filter(|&tier| write_superblock(engine, tier, false).is_ok()).count();
        engine.is_distrusted.store(written > 0, Ordering::Release);
    }
}

/// With [`Durability::Power`](crate::Durability::Power): makes all words of the logs outlive a power loss, unless
/// superblocks mark the logs as unusable after one.
pub(crate) fn make_durable(engine: &Engine) -> io::Result<()> {
    for log in engine.shared.logs() {
        match log.has_failed() {
            true if engine.is_distrusted.load(Ordering::Acquire) => {}
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
    if !*written && !has_failed_log(engine) {
        engine.has_durable_logs.store(true, Ordering::Relaxed);
        write_superblocks(engine, false)?;
        *written = true;
    }
    Ok(())
}

/// Makes everything durable and marks the superblocks as clean.
pub(crate) fn write_clean(engine: &Engine) -> bool {
    let logs = engine.shared.logs().iter();
    let durable = logs.map(|log| log.make_durable(engine.shared.slots())).all(|done| done.is_ok());
    let now = engine.field(Field::Clock).map_or(0, |clock| clock.load(Ordering::Relaxed) as u32);
    engine.shared.admission().ledger().observe(
        engine.shared.slots(),
        engine.shared.counters().tiers(),
        now,
    );
    engine.has_durable_logs.fetch_or(durable, Ordering::Relaxed);
    let sound = || !has_failed_log(engine);
    durable && sound() && write_superblocks(engine, true).is_ok() && sound()
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
