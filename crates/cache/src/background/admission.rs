//! Decides which of a shard's oldest records are written, and drops the rest; see [`crate::tiers::admission`].

use crate::background::eviction;
use crate::background::pick::Wanted;
use crate::dram::lane::{FullBlock, Lane};
use crate::dram::resident::{Resident, mark};
use crate::engine::{Engine, chunks};
use crate::platform::quiesce::Guard;
use crate::records::key::Name;
use crate::records::record::Record;
use crate::shard::{Locked, Shard};
use std::sync::atomic::Ordering;
use terrace_policy::Past;
use terrace_policy::WritePolicy;

/// Records dropped per hold of the shard's lock.
const BATCH: usize = 64;

/// Blocks compacted per call, at most.
const COMPACTIONS: usize = 4;

/// Whether a tier's write budget allows this many segments.
pub(crate) fn may_write(engine: &Engine, tier: u16, segments: usize) -> bool {
    engine.shared().admission().ledger().allows(tier, segments as u64 * engine.seal_bytes())
}

/// Whether write policies or budgets limit what is written at present.
pub(crate) fn is_choosy(engine: &Engine) -> bool {
    engine.shared().slots().next().is_some_and(|tier| choice(engine, tier).is_some())
}

/// The write policy that decides, and whether its budget allows a segment; `None` where everything is written.
fn choice(engine: &Engine, tier: u16) -> Option<(WritePolicy, bool)> {
    let admission = engine.shared().admission();
    let write_policy = admission.write_policy(tier, engine.shared().counters().is_full());
    let may_write = may_write(engine, tier, 1);
    (engine.evicts() && (write_policy > WritePolicy::AllTwice || !may_write))
        .then_some((write_policy, may_write))
}

/// The decision about a shard's oldest records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sifted {
    /// Nothing is sealed now; `true` if there was anything to do.
    Held(bool),
    /// Records that may be sealed, if they are enough for a segment.
    Due(Wanted),
}

/// Decides which of a shard's oldest records are written.
pub(crate) fn sift(engine: &Engine, guard: Guard<'_>, at: usize, now: u32) -> Sifted {
    // Where no tier takes writes, sealing finds out.
    let next = engine.shared().slots().next();
    let Some((tier, (write_policy, may_write))) =
        next.and_then(|tier| Some((tier, choice(engine, tier)?)))
    else {
        return Sifted::Due(Wanted::Due);
    };
    Sieve { engine, guard, shard: &engine.shards()[at], tier, write_policy, may_write, now }.run()
}

/// One pass over the full fresh blocks of a shard.
struct Sieve<'e> {
    engine: &'e Engine,
    guard: Guard<'e>,
    shard: &'e Shard,
    tier: u16,
    write_policy: WritePolicy,
    may_write: bool,
    now: u32,
}

/// A record to drop.
struct Leaving<'e> {
    name: Name,
    hash: u64,
    resident: Resident<'e>,
}

impl<'e> Sieve<'e> {
    fn run(&self) -> Sifted {
        let blocks: Vec<_> = self
            .shard
            .lock(self.engine.shared(), self.guard)
            .state()
            .fresh()
            .full()
            .iter()
            .copied()
            .collect();
        if (blocks.len() as u64) < self.blocks_due() {
            return Sifted::Held(false);
        }
        let mut admitted = self.sum(&blocks, |resident| match resident.has(mark::ADMITTED) {
            true => resident.bytes.len() as u64,
            false => 0,
        });
        if admitted < self.engine.seal_bytes() {
            let taken = blocks.len() as u64 * self.block_bytes();
            let wasted = taken - self.sum(&blocks, |resident| resident.footprint().into());
            // Else admitted records would take the room in which new ones wait for uses.
            if wasted >= self.engine.seal_bytes() / 4 && self.compact() {
                return Sifted::Held(true);
            }
            let leaving = self.judge(&blocks, &mut admitted);
            self.dropped(&leaving);
        }
        if admitted >= self.engine.seal_bytes() && self.may_write {
            return Sifted::Due(Wanted::Admitted);
        }
        if admitted >= self.engine.seal_bytes() {
            // A segment is ready and waits for the budget; records that come meanwhile are dropped.
            let leaving = self.judge(&blocks, &mut admitted);
            if leaving.is_empty() && !self.compact() {
                self.dropped(&self.oldest(&blocks));
            }
            self.dropped(&leaving);
        }
        Sifted::Held(true)
    }

    fn block_bytes(&self) -> u64 {
        self.engine.geometry().block_bytes().into()
    }

    /// Full blocks from which on a shard's records are judged: half a segment less than it may fill, so that requests
    /// do not wait.
    fn blocks_due(&self) -> u64 {
        let most = self.engine.shared().fresh_max().load(Ordering::Relaxed);
        let half = self.engine.seal_bytes() / 2 / self.block_bytes();
        (most / self.engine.shards().len() as u64).saturating_sub(half).max(1)
    }

    /// Records that are in DRAM only.
    fn records(&self, block: &FullBlock) -> impl Iterator<Item = Resident<'e>> {
        let records = self.engine.shared().arena().records(self.guard, block.id, block.fill);
        records.filter(|resident| !resident.has(mark::VOID | mark::SEALED))
    }

    fn sum(&self, blocks: &[FullBlock], value: impl Fn(&Resident<'_>) -> u64) -> u64 {
        blocks.iter().flat_map(|block| self.records(block)).map(|resident| value(&resident)).sum()
    }

    /// Compacts blocks; `true` if that freed one.
    fn compact(&self) -> bool {
        let mut locked = self.shard.lock(self.engine.shared(), self.guard);
        let before = locked.state().fresh().full().len();
        (0..COMPACTIONS).any(|_| {
            eviction::compact_one(&mut locked, Lane::Fresh, self.now);
            locked.state().fresh().full().len() < before
        })
    }

    /// Admits or rejects the oldest records, until a segment is admitted or half of one is rejected.
    fn judge(&self, blocks: &[FullBlock], admitted: &mut u64) -> Vec<Leaving<'e>> {
        let (mut leaving, mut gained) = (Vec::new(), 0);
        let wanted = self.engine.seal_bytes();
        for resident in blocks.iter().flat_map(|block| self.records(block)) {
            if gained >= wanted / 2 || *admitted >= wanted && self.may_write {
                break;
            }
            if resident.has(mark::ADMITTED) {
                continue;
            }
            let Some((record, one)) = self.named(resident) else { continue };
            if *admitted < wanted && self.admits(&one.resident, &record, one.hash) {
                one.resident.set(mark::ADMITTED);
                *admitted += one.resident.bytes.len() as u64;
            } else {
                gained += u64::from(one.resident.footprint());
                leaving.push(one);
            }
        }
        leaving
    }

    /// Decides about one record. A record from a tier was used there and is admitted; so are the records of large
    /// items, which are only useful as a whole.
    fn admits(&self, resident: &Resident<'_>, record: &Record<'_>, hash: u64) -> bool {
        if record.is_expired(self.now) {
            return false;
        }
        if resident.has(mark::REINSERTED) || record.is_chunk() || record.is_manifest() {
            return true;
        }
        let uses = crate::dram::heat::Warmth::of(resident).uses();
        let returned = self.engine.shared().admission().returned(hash);
        self.write_policy.writes(Past { uses, returned })
    }

    /// All records of the oldest block: admitted ones have no room to be kept together.
    fn oldest(&self, blocks: &[FullBlock]) -> Vec<Leaving<'e>> {
        let records = blocks.iter().take(1).flat_map(|block| self.records(block));
        records.filter_map(|resident| self.named(resident)).map(|(_, one)| one).collect()
    }

    /// A record, with what is needed to drop it.
    fn named(&self, resident: Resident<'e>) -> Option<(Record<'e>, Leaving<'e>)> {
        let (record, _) = Record::decode(resident.bytes)?;
        let hash = self.engine.hasher().key(record.key, record.is_chunk()).hash();
        Some((record, Leaving { name: self.engine.hasher().name(hash), hash, resident }))
    }

    fn dropped(&self, leaving: &[Leaving<'_>]) {
        let shared = self.engine.shared();
        for batch in leaving.chunks(BATCH) {
            shared.make_log_room();
            let mut locked = self.shard.lock(shared, self.guard);
            for Leaving { name, hash, resident } in batch {
                // Overwritten, deleted or flushed meanwhile.
                let Some(at) = locked.table().find_addr(name.pos, resident.addr) else { continue };
                self.count(&locked, *hash, resident);
                locked.log_tombstone_of_origin(*name, resident);
                locked.forget(name.pos, resident, at);
            }
        }
    }

    fn count(&self, locked: &Locked<'_>, hash: u64, resident: &Resident<'_>) {
        let shared = self.engine.shared();
        let Some((record, _)) = Record::decode(resident.bytes) else { return };
        chunks::discard_chunks_of(self.engine, &record);
        if record.is_expired(self.now) {
            locked.note_expired(Lane::Fresh);
            return;
        }
        shared.admission().note_dropped(self.tier, hash, resident.bytes.len());
        eviction::note_evicted(shared, resident);
    }
}
