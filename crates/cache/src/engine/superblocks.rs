//! Writes the superblocks of members.

use crate::engine::Engine;
use crate::shard::Shard;
use crate::state::{Field, LogField};
use crate::tiers::roster::Roster;
use crate::tiers::superblock::{self, Superblock};
use std::io;
use std::sync::atomic::Ordering;

/// Writes a superblock of a member; `clean` after a clean stop.
pub(super) fn write(engine: &Engine, tier: usize, roster: &Roster, clean: bool) -> io::Result<()> {
    let mut superblock = superblock(engine, tier, roster);
    // After the state was read, which may be lost meanwhile.
    let is_sound = !engine.shared.logs()[tier].has_failed();
    superblock.clean = clean && is_sound;
    superblock.strict = engine.is_strict && engine.member(tier).has_durable_log() && is_sound;
    put(engine, tier, superblock)
}

/// Writes both superblocks of a member, by turns.
pub(super) fn write_both(
    engine: &Engine,
    tier: usize,
    roster: &Roster,
    clean: bool,
) -> io::Result<()> {
    (0..2).try_for_each(|_| write(engine, tier, roster, clean))
}

/// Writes a superblock with a roster that is not in force: until it is, what the member holds is as complete as before.
pub(super) fn propose(engine: &Engine, tier: usize, roster: &Roster) -> io::Result<()> {
    let mut superblock = superblock(engine, tier, roster);
    (superblock.clean, superblock.strict) = engine.member(tier).marks();
    put(engine, tier, superblock)
}

fn put(engine: &Engine, tier: usize, superblock: Superblock) -> io::Result<()> {
    let device = engine.shared.slots().tiers()[tier].device().as_ref();
    // A drive that fails this flush may have dropped pages of the log.
    let flush = || engine.shared.logs()[tier].flush(engine.shared.slots());
    engine.member(tier).write(superblock, |page| superblock::write(device, page, flush))
}

fn superblock(engine: &Engine, tier: usize, roster: &Roster) -> Superblock {
    let get = |field| engine.field(field).map_or(0, |word| word.load(Ordering::Relaxed));
    let next_cas = engine.shards.iter().map(Shard::next_cas_peek);
    Superblock {
        next_seq: engine.next_seq.load(Ordering::Relaxed),
        next_item: engine.next_item.load(Ordering::Relaxed),
        next_cas: next_cas.max().unwrap_or(0),
        clock: get(Field::Clock) as u32,
        flush_due: get(Field::FlushDue) as u32,
        log_pages: engine.shared.logs()[tier].field(LogField::Spilled).load(Ordering::Relaxed),
        balance: engine.shared.admission().ledger().balance(tier),
        segments: engine.shared.slots().tiers()[tier].segments(),
        roster: roster.clone(),
        ..engine.set.clone()
    }
}
