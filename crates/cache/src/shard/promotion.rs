//! Promotion: copies of hot records of tiers in DRAM.

use crate::dram::heat::{Origin, Warmth, is_of_same_key};
use crate::dram::lane::Lane;
use crate::dram::memory::Stamp;
use crate::dram::resident::{Addr, Resident, footprint, mark};
use crate::records::key::{Key, Name};
use crate::records::record::Record;
use crate::segments::segment::Sealed;
use crate::shard::{Asker, Guard, Locked, NoBlock, Shard};
use crate::shared::Shared;
use crate::stats::counters::count;
use std::sync::atomic::Ordering;
use terrace_policy::Heat;
use terrace_policy::Promotion;

/// Background work frees a block or two more than it must, and readers release blocks a little later.
const BLOCKS_PASSED: u64 = 8;

/// Whether there is room for a copy without dropping another one: beyond the blocks that background work keeps free,
/// and the few more that it frees.
fn has_room(shared: &Shared) -> bool {
    let available = shared.arena().available(shared.budget(), shared.place_for(Lane::Hot));
    available > shared.spare_blocks() + BLOCKS_PASSED
}

/// Whether a sealed record deserves a copy; `heat` includes this use, `uses` does not.
///
/// The manifest of a large item does at once: it takes some hundred bytes, its chunks as many times that, and none of
/// them can be read before it. The policy decides whether it stays, as for all copies.
pub(crate) fn deserves_copy(shared: &Shared, heat: Heat, uses: u8, record: &Record<'_>) -> bool {
    let bytes = footprint(record.encoded_bytes() as usize);
    record.is_manifest() || uses > 0 && shared.promotion().admits(heat, bytes, has_room(shared))
}

/// Sets the origin of a copy after its original was relocated to another segment.
pub(crate) fn move_origin(
    locked: &Locked<'_>,
    name: Name,
    record: &[u8],
    from: Sealed,
    to: Sealed,
) {
    let (from, to) = (Origin::of(from).to_bits(), Origin::of(to).to_bits());
    let is_copy = |addr| {
        let resident = locked.shared.arena().view(locked.guard, addr);
        let origin = &resident.header.origin();
        let is_copy = resident.has(mark::HOT)
            && origin.load(Ordering::Relaxed) == from
            && is_of_same_key(resident.bytes, record);
        if is_copy {
            origin.store(to, Ordering::Relaxed);
        }
        is_copy
    };
    locked.table().find(name.pos, is_copy);
}

/// Copies a sealed record, read before, into DRAM, unless it was changed or copied meanwhile, the lock is taken, or no
/// block is available.
pub(crate) fn promote(
    shard: &Shard,
    shared: &Shared,
    guard: Guard<'_>,
    key: &Key<'_>,
    (name, sealed): (Name, Sealed),
    record: &[u8],
    now: u32,
) {
    let Some(mut locked) = shard.try_lock(shared, guard) else { return };
    let is_current = shard.segments.is_current(sealed)
        && locked.index().get(name, sealed.number).is_some()
        && shard.find_resident(shared, guard, key, name.pos).is_none();
    if !is_current {
        return;
    }
    let stamp = Stamp {
        mark: mark::HOT | mark::FETCHED,
        accessed: now,
        origin: Origin::of(sealed).to_bits(),
    };
    let write = |out: &mut [u8]| out.copy_from_slice(record);
    if let Ok(addr) = locked.append(Lane::Hot, Asker::Request, record.len(), stamp, write) {
        let warmth = Warmth::new(shared.promotion().known(key.hash()), 0);
        warmth.put(&shared.arena().view(guard, addr));
        locked.enter(name.pos, addr, Lane::Hot);
        count(shared.counters().promotions());
    }
}

/// The frequency of a record that was read on a tier before it was stored again, and in DRAM since.
fn since_before(promotion: &Promotion, hash: u64, since: Heat) -> Heat {
    let epoch = promotion.epoch();
    Heat::new(promotion.known(hash).count(epoch) + since.count(epoch), epoch)
}

/// Copies a record that is being sealed into the hot lane, if it is hot enough.
pub(crate) fn keep(
    locked: &mut Locked<'_>,
    resident: &Resident<'_>,
    sealed: Sealed,
) -> Result<Addr, NoBlock> {
    let (promotion, bytes) = (locked.shared.promotion(), resident.footprint());
    let mut heat = Warmth::of(resident).heat();
    if !promotion.keeps(heat, bytes) {
        let (record, _) = Record::decode(resident.bytes).ok_or(NoBlock)?;
        let hash = locked.shared.hasher().key(record.key, record.is_chunk()).hash();
        if !resident.has(mark::INHERITED) {
            heat = since_before(promotion, hash, heat);
        }
        if !promotion.keeps(heat, bytes) {
            promotion.remember(hash, heat);
            return Err(NoBlock);
        }
    }
    let stamp = Stamp {
        mark: mark::HOT | mark::FETCHED,
        accessed: resident.header.accessed().load(Ordering::Relaxed),
        origin: Origin::of(sealed).to_bits(),
    };
    let write = |out: &mut [u8]| out.copy_from_slice(resident.bytes);
    let addr = locked.append(Lane::Hot, Asker::Request, resident.bytes.len(), stamp, write)?;
    Warmth::new(heat, 0).put(&locked.shared.arena().view(locked.guard, addr));
    Ok(addr)
}
