//! Copies of hot flash records in DRAM: which are made, and what a copy knows of its original.

use crate::bucket::SEGMENTS_MAX;
use crate::counters::count;
use crate::key::{Key, Name};
use crate::memory::{Addr, Guard, Resident, Stamp, mark};
use crate::segment::Sealed;
use crate::shard::{Asker, Lane, Locked, NoBlock, Pool, Shard};
use std::sync::atomic::Ordering;

/// The sealed original of a hot copy: segment number, and the low bits of the seal sequence, which
/// tell it from a later use of the number. It is only used to take the original's entry out of the
/// index, which the name has to fit too; a copy outlives 2^21 seals only if it is not dropped when
/// its original is, which reclaim sees to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin(u32);

impl Origin {
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
        locked.enter(name.pos, addr, Lane::Hot);
        count(&pool.counters.promotions);
    }
}

/// Keeps a record that is being sealed in DRAM, as a copy.
pub(crate) fn keep(
    locked: &mut Locked<'_>,
    resident: &Resident<'_>,
    sealed: Sealed,
) -> Result<Addr, NoBlock> {
    let stamp = Stamp {
        mark: mark::HOT | mark::FETCHED,
        accessed: resident.header.accessed.load(Ordering::Relaxed),
        origin: Origin::of(sealed).to_bits(),
    };
    let write = |out: &mut [u8]| out.copy_from_slice(resident.bytes);
    locked.append(Lane::Hot, Asker::Request, resident.bytes.len(), stamp, write)
}
