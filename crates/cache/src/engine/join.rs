//! Adds a tier to an open cache.

use crate::config::WriteRate;
use crate::config::error::OpenError;
use crate::engine::members::Member;
use crate::engine::{Engine, drain, roster};
use crate::log::TombstoneLog;
use crate::platform::crash::crash_point;
use crate::platform::lock::lock;
use crate::platform::random::Random;
use crate::state::TIERS_MAX;
use crate::tiers::slots::{PLACES_MIN, TierStore, segments_on};
use crate::tiers::superblock::{self, FirstPages, Written, device_error};
use std::io;
use std::sync::Arc;
use terrace_device::Drive;

/// A tier to add.
pub struct NewTier {
    /// Its drive; what is on it is overwritten.
    pub device: Arc<dyn Drive>,
    /// Its write budget, which begins with nothing saved up.
    pub write_rate: WriteRate,
    /// Takes a drive that was a tier before, of whichever cache.
    pub may_overwrite: bool,
}

/// Why a tier was not added; nothing has changed then, unless the error says so.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The sizes of a cache without tiers leave no room for one.
    #[error("the cache has no tier; the first one needs a restart")]
    NoTiers,
    /// Tiers that were removed count as long as the process lives.
    #[error("there were {TIERS_MAX} tiers since the start; a restart makes room for more")]
    TooMany,
    /// A few segments must fit.
    #[error("{label}: too small; give at least {least} MiB")]
    TooSmall {
        /// The drive.
        label: String,
        /// MiB that it needs.
        least: u64,
    },
    /// Segment numbers are set at the start.
    #[error(
        "{label}: all tiers together would be larger than this run can number; give at most {most} MiB, or restart \
         with the tier"
    )]
    TooLarge {
        /// The drive.
        label: String,
        /// MiB that it may have.
        most: u64,
    },
    /// Reads are multiples of the largest blocks at the start.
    #[error(
        "{label}: its blocks of {bytes} bytes are larger than those of the other tiers; restart with the tier"
    )]
    Blocks {
        /// The drive.
        label: String,
        /// Bytes of a block.
        bytes: u32,
    },
    /// Another program's data.
    #[error(
        "{label}: holds something that is not Terrace's; give another one, or erase its first MiB"
    )]
    Foreign {
        /// The drive.
        label: String,
    },
    /// It was a tier.
    #[error("{label}: was a tier before, and what it holds would be lost")]
    Used {
        /// The drive.
        label: String,
    },
    /// The drive can't be read or written, or the roster can't.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The state, which outlives the process, has no room for the tier's log.
    #[error("no room in the state: {0}")]
    State(#[source] io::Error),
}

/// Adds a tier beside those of the last level. `before` gets its number, before anything of it can be read.
///
/// 1. It has its area of the state, and its place in all lists; it gets no segments yet.
/// 2. A roster with it is put in force; each drive is written for that. After a crash before, the next start takes the
///    tier as empty, and after one later it is as right as the others.
/// 3. It gets segments.
pub(crate) fn join(
    engine: &Engine,
    tier: &NewTier,
    before: impl FnOnce(usize),
) -> Result<usize, JoinError> {
    let _one = lock(&engine.drains);
    let device = tier.device.as_ref();
    check_sizes(engine, device)?;
    let written = inspect(device, tier.may_overwrite)?;
    let failed = |source| device_error(device, source);
    device.fence().map_err(failed)?;
    let salt = engine.next_seq();
    let mut random = Random::new(engine.tuning.seed, salt).map_err(OpenError::System)?;
    let member = Member::new(random.next(), written);
    member.leave();
    let Some(state) = engine.shared.state() else { return Err(JoinError::NoTiers) };
    let number = engine.shared.slots().tiers().len();
    let kept = Arc::clone(lock(engine.current_roster()).roster().members());
    state.join(member.id(), &kept).map_err(JoinError::State)?;
    crash_point("join: has an area");
    let level = engine.shared.slots().tiers().iter().map(TierStore::level).max().unwrap_or(0);
    let segment_bytes = engine.geometry.segment_bytes();
    let store = TierStore::joining(&tier.device, level, segment_bytes);
    let log = TombstoneLog::new(
        Arc::clone(state),
        number as u16,
        member.id(),
        store.segments(),
        engine.is_strict,
    );
    let log = log.within(engine.tuning.log_slots);
    engine.shared.budget().force(TombstoneLog::bytes_for(store.segments()));
    before(number);
    let appended = engine.members.append(member).is_ok()
        && engine.shared.append_tier(store, log, tier.write_rate) == Some(number);
    if !appended {
        return Err(JoinError::TooMany);
    }
    device.begin_timing();
    match enroll(engine, number, random.next()) {
        Ok(()) => {
            engine.shared.slots().tiers()[number].drain().end_joining();
            crash_point("join: done");
            Ok(number)
        }
        Err(error) => {
            give_up(engine, number);
            Err(error)
        }
    }
}

/// Puts a roster with the tier in force.
fn enroll(engine: &Engine, tier: usize, nonce: u64) -> Result<(), JoinError> {
    let store = &engine.shared.slots().tiers()[tier];
    let refused = |source| device_error(store.device().as_ref(), source);
    if engine.is_strict {
        engine.shared.logs()[tier].make_durable(engine.shared.slots()).map_err(refused)?;
        engine.member(tier).note_durable_log();
    }
    engine.member(tier).stay();
    roster::renew(engine, nonce)?;
    match store.failure() {
        Some(failure) => Err(refused(io::Error::other(failure.message.clone())).into()),
        None => Ok(()),
    }
}

/// The tier stays in the lists as one that was removed.
fn give_up(engine: &Engine, tier: usize) {
    engine.member(tier).leave();
    drain::take_out_of_use(engine, tier);
}

fn check_sizes(engine: &Engine, device: &dyn Drive) -> Result<(), JoinError> {
    let (slots, geometry) = (engine.shared.slots(), &engine.geometry);
    let segment_bytes = geometry.segment_bytes();
    if segment_bytes == 0 {
        return Err(JoinError::NoTiers);
    }
    if slots.tiers().len() >= TIERS_MAX {
        return Err(JoinError::TooMany);
    }
    let label = device.label().to_owned();
    let bytes = device.geometry().block_bytes;
    if bytes > geometry.read_unit() {
        return Err(JoinError::Blocks { label, bytes });
    }
    let mebibytes = |segments: u64| (segments * u64::from(segment_bytes)) >> 20;
    let segments = segments_on(device, segment_bytes);
    if segments < PLACES_MIN {
        return Err(JoinError::TooSmall { label, least: mebibytes(PLACES_MIN.into()) + 1 });
    }
    let left = geometry.segments_max().saturating_sub(slots.total().into());
    if u64::from(segments) > left {
        return Err(JoinError::TooLarge { label, most: mebibytes(left) });
    }
    Ok(())
}

/// What superblocks a device has, unless it holds what must not be overwritten.
fn inspect(device: &dyn Drive, may_overwrite: bool) -> Result<Written, JoinError> {
    let label = || device.label().to_owned();
    match superblock::read(device).map_err(|source| device_error(device, source))? {
        FirstPages::Blank => Ok(Written::NONE),
        FirstPages::Foreign => Err(JoinError::Foreign { label: label() }),
        FirstPages::Ours(pages) if may_overwrite => Ok(Written::of(&pages)),
        FirstPages::Damaged if may_overwrite => Ok(Written::NONE),
        FirstPages::Ours(_) | FirstPages::Damaged => Err(JoinError::Used { label: label() }),
    }
}
