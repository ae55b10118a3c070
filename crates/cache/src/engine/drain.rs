//! Begins and cancels drains of tiers, and takes a tier out of the set.

use crate::config::error::OpenError;
use crate::engine::{Engine, durability};
use crate::platform::crash::crash_point;
use crate::platform::lock::lock;
use crate::stats::{DrainMode, DrainStats, TierState};
use crate::tiers::slots::TierStore;
use std::sync::atomic::Ordering;

/// Why a tier is not drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrainError {
    /// There is no tier of this number.
    #[error("there is no such tier")]
    NoSuchTier,
    /// It was removed.
    #[error("the tier was removed")]
    Removed,
    /// It was given up after errors: its records are read as long as the drive can.
    #[error("the tier has failed")]
    Failed,
    /// No other tier would take new records.
    #[error("it is the last tier that takes records")]
    LastTier,
}

/// What to do with the records of a tier that is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remove {
    /// It is not removed if it has any.
    IfEmpty,
    /// They are dropped with it.
    WithRecords,
}

/// Why a tier is not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// There is no tier of this number.
    #[error("there is no such tier")]
    NoSuchTier,
    /// It was removed before.
    #[error("the tier was removed")]
    Removed,
    /// No other tier takes new records.
    #[error("it is the last tier that takes records")]
    LastTier,
    /// It has records.
    #[error("the tier has records")]
    HasRecords,
    /// What an earlier run left is being recovered.
    #[error("the cache is still recovering")]
    Recovering,
    /// The set's roster without it could not be written; the tier remains.
    #[error("the tier can't leave its set: {0}")]
    Roster(#[source] OpenError),
    /// More sessions live than the cache was opened for.
    #[error("too many sessions")]
    Busy,
}

/// Whether another tier takes new segments, once its drive answers.
fn has_another(engine: &Engine, tier: usize) -> bool {
    let mut tiers = engine.shared.slots().tiers().iter().enumerate();
    tiers.any(|(at, other)| at != tier && other.is_in_use())
}

/// Begins to drain a tier, or changes the mode of its drain.
pub(crate) fn begin(
    engine: &Engine,
    tier: usize,
    mode: DrainMode,
    now: u32,
) -> Result<(), DrainError> {
    let _one = lock(&engine.drains);
    let store = engine.shared.slots().tiers().get(tier).ok_or(DrainError::NoSuchTier)?;
    if store.drain().is_removed() {
        return Err(DrainError::Removed);
    }
    if store.has_failed() {
        return Err(DrainError::Failed);
    }
    if !has_another(engine, tier) {
        return Err(DrainError::LastTier);
    }
    store.drain().begin(mode, now, live_bytes(engine, tier));
    Ok(())
}

/// Cancels the drain of a tier; `false` if there was none.
pub(crate) fn cancel(engine: &Engine, tier: usize) -> bool {
    let _one = lock(&engine.drains);
    engine.shared.slots().tiers().get(tier).is_some_and(|store| store.drain().end())
}

/// Cancels all drains.
pub(crate) fn cancel_all(engine: &Engine) {
    (0..engine.shared.slots().tiers().len()).for_each(|tier| _ = cancel(engine, tier));
}

/// Cancels all drains if no tier is left that takes new segments: others may have failed meanwhile.
pub(crate) fn keep_a_tier(engine: &Engine) {
    let tiers = engine.shared.slots().tiers();
    if tiers.iter().any(|tier| tier.drain().mode().is_some())
        && !tiers.iter().any(TierStore::is_in_use)
    {
        cancel_all(engine);
    }
}

/// Takes a tier out of the set. No background work must go on meanwhile; `free_all` frees all of its segments.
///
/// 1. No new segment is written to the tier. What was moved away from it is durable elsewhere, in strict mode.
/// 2. A roster without it is put in force. After a crash from here on the tier is empty for the next start.
/// 3. Its segments are freed, and its records are misses.
/// 4. Its log gets no more words.
pub(crate) fn remove(
    engine: &Engine,
    tier: usize,
    remove: Remove,
    free_all: impl FnOnce(),
) -> Result<(), RemoveError> {
    let _one = lock(&engine.drains);
    let store = engine.shared.slots().tiers().get(tier).ok_or(RemoveError::NoSuchTier)?;
    if store.drain().is_removed() {
        return Err(RemoveError::Removed);
    }
    if !has_another(engine, tier) {
        return Err(RemoveError::LastTier);
    }
    if engine.recovery.waiting().load(Ordering::Acquire) > 0 {
        return Err(RemoveError::Recovering);
    }
    if remove == Remove::IfEmpty && segments_used(engine, tier) > 0 {
        return Err(RemoveError::HasRecords);
    }
    durability::make_frees_durable(engine);
    crash_point("remove: before the roster");
    if !engine.member(tier).is_out() {
        durability::leave(engine, tier).map_err(|error| {
            engine.member(tier).stay();
            RemoveError::Roster(error)
        })?;
    }
    crash_point("remove: after the roster");
    free_all();
    take_out_of_use(engine, tier);
    crash_point("remove: done");
    Ok(())
}

/// Ends all use of a tier that is in no roster and has no segments: of its log and of its drive.
pub(super) fn take_out_of_use(engine: &Engine, tier: usize) {
    let store = &engine.shared.slots().tiers()[tier];
    store.drain().set_removed();
    engine.shared.logs()[tier].fail();
    store.device().close();
}

fn segments_used(engine: &Engine, tier: usize) -> u64 {
    engine.shared.counters().tiers()[tier].segments_used().load(Ordering::Relaxed)
}

fn live_bytes(engine: &Engine, tier: usize) -> u64 {
    engine.shared.counters().tiers()[tier].live_bytes().load(Ordering::Relaxed)
}

/// What a tier is doing, and how far its drain is.
pub(crate) fn state(engine: &Engine, tier: usize) -> (TierState, Option<DrainStats>) {
    let store = &engine.shared.slots().tiers()[tier];
    if store.drain().is_removed() {
        return (TierState::Removed, None);
    }
    if store.has_failed() {
        return (TierState::Failed, None);
    }
    let Some(mode) = store.drain().mode() else { return (TierState::Working, None) };
    let (began, began_with) = store.drain().began();
    let (segments_left, bytes_left) = (segments_used(engine, tier), live_bytes(engine, tier));
    let is_recovered = engine.recovery.waiting().load(Ordering::Acquire) == 0;
    let state = match segments_left {
        0 if is_recovered => TierState::Drained,
        _ if store.drain().waits_for_room() => TierState::NoRoom,
        _ => TierState::Draining,
    };
    let lasted = store.drain().lasted();
    (state, Some(DrainStats { mode, began, lasted, began_with, segments_left, bytes_left }))
}
