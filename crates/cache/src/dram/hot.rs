//! Copies of hot flash records in DRAM: which are made, and what a copy knows of its original.

use crate::dram::memory::{Guard, Stamp};
use crate::dram::resident::{Addr, Resident, footprint, mark};
use crate::index::bucket::SEGMENTS_MAX;
use crate::records::key::{Key, Name};
use crate::records::record::Record;
use crate::segments::segment::Sealed;
use crate::shard::{Asker, Lane, Locked, NoBlock, Shard};
use crate::shared::Pool;
use crate::stats::counters::count;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_policy::{Heat, Promotion};

/// Background work frees a block or two more than it must, and readers leave blocks a little later.
const BLOCKS_PASSED: u64 = 8;

/// The sealed original of a hot copy: segment number, and the low bits of the seal sequence, which
/// tell it from a later use of the number. It is only used to take the original's entry out of the
/// index, which the name has to fit too; a copy outlives 2^21 seals only if it is not dropped when
/// its original is, which reclaim sees to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin(u32);

impl Origin {
    /// Stands for a record that is nowhere else.
    pub(crate) const NONE: u32 = 0;

    /// Counts to the next seal sequence, and past those whose segments could have the origin that stands for none:
    /// nothing would tell that their records are replaced.
    pub(crate) fn next_seq(counter: &AtomicU64) -> u64 {
        let is_told = |seq| Self::of(Sealed { number: 0, seq }).to_bits() != Self::NONE;
        loop {
            let seq = counter.fetch_add(1, Ordering::Relaxed);
            if is_told(seq) {
                return seq;
            }
        }
    }

    pub(crate) fn of(sealed: Sealed) -> Self {
        Self(u32::from(sealed.number) | (sealed.seq as u32) << SEGMENTS_MAX.trailing_zeros())
    }

    pub(crate) fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub(crate) fn to_bits(self) -> u32 {
        self.0
    }

    pub(crate) fn number(self) -> u16 {
        (self.0 & (SEGMENTS_MAX - 1)) as u16
    }

    pub(crate) fn is_of(self, sealed: Sealed) -> bool {
        self == Self::of(sealed)
    }
}

/// What a record in DRAM knows of its uses; beside its marks, since it changes with every hit.
/// A plain store may lose a count to another thread's, which an estimate bears.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Warmth(u16);

/// "Twice" stands for more.
const USES_MAX: u16 = 2;

impl Warmth {
    fn new(heat: Heat, uses: u16) -> Self {
        Self(heat.to_bits() | uses.min(USES_MAX) << Heat::BITS)
    }

    pub(crate) fn of(resident: &Resident<'_>) -> Self {
        Self(resident.header.warmth.load(Ordering::Relaxed))
    }

    fn put(self, resident: &Resident<'_>) {
        resident.header.warmth.store(self.0, Ordering::Relaxed);
    }

    /// How often it was used of late.
    pub(crate) fn heat(self) -> Heat {
        Heat::from_bits(self.0)
    }

    /// How often it was used since its key came into DRAM, 2 at most.
    pub(crate) fn uses(self) -> u8 {
        (self.0 >> Heat::BITS).min(USES_MAX) as u8
    }

    fn used(self, epoch: u8) -> Self {
        Self::new(self.heat().used(epoch), u16::from(self.uses()) + 1)
    }
}

/// Counts a use of a record in DRAM. Hot records are counted to the limit soon and then not written to.
pub(crate) fn warm(resident: &Resident<'_>, promotion: &Promotion) {
    let before = Warmth::of(resident);
    let after = before.used(promotion.epoch());
    if after != before {
        after.put(resident);
    }
}

/// A record takes the place of another of the same key in DRAM, and is as hot. One that would deserve a
/// copy counts as used, so that sealing asks [`keep`] for it.
pub(crate) fn hand_on(pool: &Pool, old: &Resident<'_>, new: &Resident<'_>) {
    if pool.slots.tiers.is_empty() {
        return;
    }
    let warmth = Warmth::of(old);
    warmth.put(new);
    if old.has(mark::HOT | mark::INHERITED) {
        new.set(mark::INHERITED);
    }
    if pool.promotion.keeps(warmth.heat(), new.footprint()) {
        new.set(mark::USED);
    }
}

/// A client stored a record in the place of another of the same key in DRAM.
pub(crate) fn note_rewrite(old: &Resident<'_>, new: &Resident<'_>) {
    if !old.has(mark::HOT | mark::SEALED) {
        new.set(mark::REWRITTEN);
    }
}

/// Whether copies can be made without dropping others: beyond the blocks that background work keeps free,
/// and the few by which it passes that.
fn has_room(pool: &Pool) -> bool {
    let available = pool.arena.available(&pool.budget, pool.place_for(Lane::Hot));
    available > pool.spare_blocks() + BLOCKS_PASSED
}

/// Whether a sealed record, which is so hot with this use and had `uses` before, deserves a copy.
///
/// The manifest of a large item does at once: some hundred bytes, where its chunks take as many times that,
/// and none of those can be read before it was. Whether it stays is decided as with all others.
pub(crate) fn deserves_copy(pool: &Pool, heat: Heat, uses: u8, record: &Record<'_>) -> bool {
    let bytes = footprint(record.encoded_bytes as usize);
    record.is_manifest || uses > 0 && pool.promotion.admits(heat, bytes, has_room(pool))
}

/// The original of a copy moved to another segment: a copy that was made of it follows.
pub(crate) fn move_origin(
    locked: &Locked<'_>,
    name: Name,
    record: &[u8],
    from: Sealed,
    to: Sealed,
) {
    let (from, to) = (Origin::of(from).to_bits(), Origin::of(to).to_bits());
    let is_copy = |addr| {
        let resident = locked.pool.arena.view(locked.guard, addr);
        let origin = &resident.header.origin;
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

fn is_of_same_key(one: &[u8], other: &[u8]) -> bool {
    let key = |bytes| Record::decode(bytes).map(|(record, _)| (record.key, record.is_chunk));
    key(one).is_some_and(|one| key(other) == Some(one))
}

/// Copies a sealed record, read before, into DRAM, unless it was changed or copied meanwhile, or no
/// block is to be had without waiting.
pub(crate) fn promote(
    shard: &Shard,
    pool: &Pool,
    guard: Guard<'_>,
    key: &Key<'_>,
    (name, sealed): (Name, Sealed),
    record: &[u8],
    now: u32,
) {
    let Some(mut locked) = shard.try_lock(pool, guard) else { return };
    let is_current = shard.segments.is_current(sealed)
        && locked.index().get(name, sealed.number).is_some()
        && shard.find_resident(pool, guard, key, name.pos).is_none();
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
        let warmth = Warmth::new(pool.promotion.known(key.hash), 0);
        warmth.put(&pool.arena.view(guard, addr));
        locked.enter(name.pos, addr, Lane::Hot);
        count(&pool.counters.promotions);
    }
}

/// How hot a record is that was read on flash before it was stored again, and in DRAM since.
fn since_before(promotion: &Promotion, hash: u64, since: Heat) -> Heat {
    let epoch = promotion.epoch();
    Heat::new(promotion.known(hash).count(epoch) + since.count(epoch), epoch)
}

/// Keeps a record that is being sealed in DRAM, as a copy, if it is hot enough.
pub(crate) fn keep(
    locked: &mut Locked<'_>,
    resident: &Resident<'_>,
    sealed: Sealed,
) -> Result<Addr, NoBlock> {
    let (promotion, bytes) = (&locked.pool.promotion, resident.footprint());
    let mut heat = Warmth::of(resident).heat();
    if !promotion.keeps(heat, bytes) {
        let (record, _) = Record::decode(resident.bytes).ok_or(NoBlock)?;
        let hash = locked.pool.hasher.key(record.key, record.is_chunk).hash;
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
        accessed: resident.header.accessed.load(Ordering::Relaxed),
        origin: Origin::of(sealed).to_bits(),
    };
    let write = |out: &mut [u8]| out.copy_from_slice(resident.bytes);
    let addr = locked.append(Lane::Hot, Asker::Request, resident.bytes.len(), stamp, write)?;
    Warmth::new(heat, 0).put(&locked.pool.arena.view(locked.guard, addr));
    Ok(addr)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Once in 2^21 seals; a copy of such a segment would be taken for a record that is nowhere else.
    #[test]
    fn no_segment_has_the_origin_that_stands_for_none() {
        let none = 7 << 21;
        let counter = AtomicU64::new(none - 2);
        let seqs = [0; 4].map(|_| Origin::next_seq(&counter));
        assert_eq!(seqs, [none - 2, none - 1, none + 1, none + 2]);
    }
}
