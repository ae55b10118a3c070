//! Makes room in DRAM: drops the coldest copies, compacts sparse blocks, and without tiers evicts the oldest unused
//! records.

use crate::background::promote::Promote;
use crate::background::sweep::Sweep;
use crate::dram::heat;
use crate::dram::lane::{FullBlock, Lane};
use crate::dram::memory::Stamp;
use crate::dram::resident::{Addr, Resident, footprint, mark};
use crate::dram::table::DramTable;
use crate::engine::{Engine, chunks, fullness};
use crate::platform::quiesce::Guard;
use crate::platform::striped::Striped;
use crate::records::record::Record;
use crate::shard::{Asker, Locked, NoBlock};
use crate::shared::Shared;
use crate::stats::counters::{TierCounters, count};
use arrayvec::ArrayVec;
use std::sync::atomic::Ordering;
use terrace_policy::{Promotion, Weights};

/// Blocks freed per call, at most, so that other background work gets its turn.
const BLOCKS_PER_SLICE: usize = 8;
/// Records of a block that are removed together.
const BATCH: usize = 32;
/// Blocks compared to find a sparse one.
const SAMPLE: usize = 64;
/// A block with a larger part of live bytes, in percent, is not worth compacting.
const SPARSE_PERCENT: u64 = 95;

/// Bytes of the table per record above which it is halved: it is then three fifths full, and grows again when it is
/// three quarters full.
const ROOMY_BYTES: u64 = 30;

/// If none of 16 compactions frees a block, ...
const ROUNDS: u32 = 16;
/// ... the next 64 are skipped.
const REST: u32 = 64;

/// Turnovers of DRAM after which a protected record is looked at again at the latest, and evicted if it was not used.
const PROTECTED_TURNOVERS: u64 = 256;

/// Eviction may keep more than half of a block, if it keeps less of later ones, up to a quarter of all blocks: used
/// records may lie in consecutive blocks, as the chunks of a large item do.
const USED_PART: u64 = 4;
/// Tenths of DRAM that records without a use keep while others are protected, without tiers: more than a quarter, so
/// that a record that is used four times per turnover is protected in time.
const PROBATION_TENTHS: u64 = 3;
/// An open block of fresh records is closed once a 25th of all blocks was taken since, so that the records of one block
/// were stored within that time.
const OPEN_PART: u64 = 25;

/// Whether compaction frees blocks. Records of half a block or a third leave gaps that no record fits into: then it
/// could go on for ever. Where nothing may be evicted, expired records make room.
#[derive(Default)]
pub(crate) struct Compaction {
    rounds: u32,
    gained: bool,
    rest: u32,
    sweep: Sweep,
    /// The next shard to search for sparse blocks.
    turn: usize,
    /// Bytes that eviction has kept beyond half of each block.
    ahead: u64,
}

/// The decision about a live record of a block that is being emptied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EvictAction {
    /// Moves it, as it is.
    Move,
    /// Moves it to this lane, as not used since.
    Pass(Lane),
    Drop,
    /// Writes a copy to a higher tier level than its original is on.
    Promote,
}

/// Frees blocks until requests find some without waiting. Returns whether there was anything to do.
pub(crate) fn make_room(
    engine: &Engine,
    guard: Guard<'_>,
    compaction: &mut Compaction,
    now: u32,
) -> bool {
    let counters = engine.shared().counters();
    let copies = counters.records(Lane::Hot).load(Ordering::Relaxed);
    let sum = |of: fn(&TierCounters) -> &Striped| -> u64 {
        counters.tiers().iter().map(|tier| of(tier).load(Ordering::Relaxed)).sum()
    };
    let (sealed, bytes) = (sum(|tier| tier.records()), sum(|tier| tier.live_bytes()));
    let mean_bytes = bytes.checked_div(sealed).map_or(0, |mean| footprint(mean as usize));
    engine.shared().promotion().note_mean(mean_bytes);
    engine.shared().promotion().turn(copies, sealed.saturating_sub(copies));
    let is_stuck = !engine.evicts() && !engine.has_working_tiers() && counters.is_full();
    let sweep = &mut compaction.sweep;
    let mut worked = (is_stuck || sweep.is_under_way()) && sweep.step(engine, guard, now);
    for _ in 0..BLOCKS_PER_SLICE {
        if engine.has_spare_blocks() || !free_one(engine, guard, compaction, now) {
            break;
        }
        worked = true;
    }
    worked
}

fn free_one(engine: &Engine, guard: Guard<'_>, compaction: &mut Compaction, now: u32) -> bool {
    let counters = engine.shared().counters();
    // Copies are dropped first, even if no tier takes writes any more: fresh records need their room.
    let has_copies = counters.blocks(Lane::Hot).load(Ordering::Relaxed) > 0;
    if has_copies && drop_hot_block(engine, guard, now) {
        return true;
    }
    if engine.has_working_tiers() {
        return false;
    }
    // While nothing is evicted, blocks come from gaps between records. A full cache that must not evict has no other
    // source: changed records leave their old versions there.
    let may_evict = engine.evicts() && counters.is_full();
    if !may_evict
        && compaction.is_worth_trying()
        && let Some(gained) = compact_sparsest(engine, guard, &mut compaction.turn, now)
    {
        compaction.note(gained);
        return true;
    }
    if !engine.evicts() {
        // Records that leave gaps fill DRAM before their bytes add up to it. Retired blocks that readers may still hold
        // are free in a moment.
        if engine.shared().arena().retired() == 0 {
            fullness::note_full(engine);
        }
        return false;
    }
    evict_oldest(engine, guard, &mut compaction.ahead, now)
}

impl Compaction {
    fn is_worth_trying(&mut self) -> bool {
        let is_tired = self.rest > 0;
        self.rest = self.rest.saturating_sub(1);
        !is_tired
    }

    fn note(&mut self, gained: bool) {
        self.gained |= gained;
        self.rounds += 1;
        if self.rounds == ROUNDS {
            let rest = if self.gained { 0 } else { REST };
            (self.rounds, self.gained, self.rest) = (0, false, rest);
        }
    }
}

/// Empties a block of copies in the shard that has the oldest one: a block that overwritten copies left sparse, or that
/// oldest; its hottest copies are moved, and the rest is dropped.
pub(crate) fn drop_hot_block(engine: &Engine, guard: Guard<'_>, now: u32) -> bool {
    let gain = match is_short_of_blocks(engine) {
        true => engine.geometry().block_bytes() / 2,
        false => Promotion::gain(engine.geometry().block_bytes()),
    };
    in_oldest_shard(engine, guard, Lane::Hot, |locked| {
        let Some(block) = choose_hot_block(locked, gain) else { return false };
        let live = locked.shared().arena().live(block.id);
        // Void bytes of the block are gained already.
        let room = live.saturating_sub(gain.saturating_sub(block.dead(locked.shared().arena())));
        let epoch = engine.shared().promotion().epoch();
        let mut cut = engine.shared().promotion().cut(&weigh(locked, block, epoch), room.into());
        let segments = locked.shard().segments();
        let mut promote = Promote::new(engine);
        empty(locked, Lane::Hot, block, now, |resident, _, _| {
            let (count, bytes) = (count_of(resident, epoch), resident.footprint());
            if cut.keeps(engine.shared().promotion().rank(count, bytes), bytes.into()) {
                EvictAction::Move
            } else if count > 0 && promote.takes(segments, resident) {
                EvictAction::Promote
            } else {
                EvictAction::Drop
            }
        });
        shrink_table(locked);
        true
    })
}

/// Halves a table that was made for more records than fit now, so that copies get its memory.
fn shrink_table(locked: &mut Locked<'_>) {
    let table = locked.table();
    let Some(bits) = table.bucket_bits().checked_sub(1) else { return };
    let bytes = DramTable::bytes_for(bits);
    let is_roomy = table.len() * ROOMY_BYTES < table.bytes();
    if bits >= DramTable::BUCKET_BITS_MIN && is_roomy && locked.shared().budget().take(bytes) {
        locked.swap_table(table.resized(bits));
    }
}

/// Whether moving many copies to gain a little could take the last blocks.
fn is_short_of_blocks(engine: &Engine) -> bool {
    let shared = engine.shared();
    shared.arena().available(shared.budget(), shared.place_for(Lane::Hot)) <= shared.reserve()
}

fn choose_hot_block(locked: &Locked<'_>, gain: u32) -> Option<FullBlock> {
    let full = locked.state().hot().full();
    let arena = locked.shared().arena();
    let sparsest = full.iter().max_by_key(|block| block.dead(arena));
    sparsest.filter(|block| block.dead(arena) >= gain).or(full.front()).copied()
}

/// Recent uses of a copy.
fn count_of(resident: &Resident<'_>, epoch: u8) -> u8 {
    heat::Warmth::of(resident).heat().count(epoch)
}

/// Bytes of the live copies of a block by their rank.
fn weigh(locked: &Locked<'_>, block: FullBlock, epoch: u8) -> Weights {
    let mut weights = Weights::default();
    for resident in locked.shared().arena().records(locked.guard(), block.id, block.fill) {
        if !resident.has(mark::VOID) {
            let bytes = resident.footprint();
            let rank = locked.shared().promotion().rank(count_of(&resident, epoch), bytes);
            weights[usize::from(rank)] += u64::from(bytes);
        }
    }
    weights
}

/// Without tiers: empties the oldest block of the fresh lane, or, once that has [`PROBATION_TENTHS`] of all, of the
/// protected one (segmented LRU; Karedla, Love and Wherry, 1994). Of fresh records those that were used go on to the
/// protected lane, as do those that were stored again soon after they were evicted (S3-FIFO; Yang and others, 2023).
/// Protected records that were used since stay (CLOCK; Corbató, 1968). The rest is evicted. However much was used, about
/// a third of the bytes moved is freed; `ahead` counts the bytes moved beyond that.
fn evict_oldest(engine: &Engine, guard: Guard<'_>, ahead: &mut u64, now: u32) -> bool {
    let shared = engine.shared();
    let has_none = shared.arena().available(shared.budget(), shared.place_for(Lane::Fresh)) == 0;
    if has_none && shared.arena().retired() > 0 {
        // Blocks that readers may still hold are free in a moment: used records need not be evicted for lack of one.
        return false;
    }
    let fresh = shared.counters().blocks(Lane::Fresh).load(Ordering::Relaxed);
    let blocks = shared.counters().blocks_only_in_dram();
    // With few blocks, too, each shard may fill one.
    let open_max = (blocks / OPEN_PART).max(2 * engine.shards().len() as u64);
    close_old_blocks(engine, guard, Lane::Fresh, open_max);
    let protected_max = blocks * PROTECTED_TURNOVERS;
    close_old_blocks(engine, guard, Lane::Protected, protected_max);
    let taken_since = |order| shared.arena().next_order().saturating_sub(order);
    let is_due = |order| taken_since(order) > protected_max;
    let is_probation_short = fresh * 10 <= blocks * PROBATION_TENTHS;
    let lanes = match is_probation_short
        || shared.ages().oldest_order(Lane::Protected).is_some_and(is_due)
    {
        true => [Lane::Protected, Lane::Fresh],
        false => [Lane::Fresh, Lane::Protected],
    };
    let mut evict = |lane| evict_from(engine, guard, (lane, blocks), ahead, now);
    if lanes.into_iter().any(&mut evict) {
        return true;
    }
    // All that may go is in open blocks.
    close_old_blocks(engine, guard, Lane::Protected, 0);
    evict(Lane::Protected)
}

/// Empties the oldest block of a lane, of `blocks` in all; `false` if it has none.
fn evict_from(
    engine: &Engine,
    guard: Guard<'_>,
    (lane, blocks): (Lane, u64),
    ahead: &mut u64,
    now: u32,
) -> bool {
    let block_bytes = u64::from(engine.geometry().block_bytes());
    let most = block_bytes / 2 + blocks * block_bytes / USED_PART;
    let evicted = engine.shared().evicted();
    let keep = match engine.has_tiers() {
        // Used records go on waiting for a tier that works.
        true => EvictAction::Pass(Lane::Fresh),
        // A search for the owners of chunks looks at fresh records only.
        false if engine.recovery().census().is_running() => EvictAction::Move,
        false => EvictAction::Pass(Lane::Protected),
    };
    // A record that was rewritten is new in the fresh lane, and its key in use.
    let uses = match lane {
        Lane::Fresh if !engine.has_tiers() => mark::USED | mark::REWRITTEN,
        _ => mark::USED,
    };
    in_oldest_shard(engine, guard, lane, |locked| {
        let Some(&block) = locked.blocks_of(lane).full().front() else { return false };
        *ahead = ahead.saturating_sub(block_bytes / 4 * 3);
        // The chunks of evicted items are discarded with them.
        let drop = |record: &Record<'_>| {
            chunks::discard_chunks_of(engine, record);
            EvictAction::Drop
        };
        let keep_if_used = |resident: &Resident<'_>, record: &Record<'_>, hash| {
            let after = *ahead + u64::from(resident.footprint());
            let is_used = resident.has(uses) || lane == Lane::Fresh && evicted.recall(hash);
            if record.is_expired(now) || after > most || !is_used {
                if lane == Lane::Fresh && !record.is_chunk() {
                    evicted.note(hash);
                }
                return drop(record);
            }
            *ahead = after;
            keep
        };
        if !empty(locked, lane, block, now, keep_if_used) {
            // There is no block to move to; emptying this one frees the first.
            empty(locked, lane, block, now, |_, record, _| drop(record));
        }
        if lane == Lane::Fresh {
            evicted.turn(block_bytes, engine.shared().budget().limit());
        }
        true
    })
}

/// Closes the open blocks of a lane that were opened before the last `open_max` that were taken: a shard that receives
/// few records would keep its block open for longer.
fn close_old_blocks(engine: &Engine, guard: Guard<'_>, lane: Lane, open_max: u64) {
    let shared = engine.shared();
    let Some(before) = shared.arena().next_order().checked_sub(open_max) else { return };
    while let Some(at) = shared.ages().opened_before(lane, before) {
        engine.shards()[at].lock(shared, guard).shelve_open(lane);
    }
}

/// Compacts the sparsest of some blocks; loses no record. `true` if that freed a block, `None` if there was nothing to
/// do.
fn compact_sparsest(engine: &Engine, guard: Guard<'_>, turn: &mut usize, now: u32) -> Option<bool> {
    let mut best: Option<(u32, usize, Lane)> = None;
    let mut seen = 0;
    for _ in 0..engine.shards().len() {
        let at = *turn % engine.shards().len();
        *turn += 1;
        let locked = engine.shards()[at].lock(engine.shared(), guard);
        for lane in [Lane::Fresh, Lane::Protected] {
            let Some(block) = sparsest(&locked, lane) else { continue };
            let live = engine.shared().arena().live(block.id);
            if best.is_none_or(|(least, ..)| live < least) {
                best = Some((live, at, lane));
            }
            seen += locked.blocks_of(lane).full().len();
        }
        if seen >= SAMPLE {
            break;
        }
    }
    let dense = u64::from(engine.geometry().block_bytes()) * SPARSE_PERCENT;
    let (_, at, lane) = best.filter(|(live, ..)| u64::from(*live) * 100 < dense)?;
    let mut locked = engine.shards()[at].lock(engine.shared(), guard);
    // Blocks of this shard only: requests take blocks in other shards meanwhile.
    let blocks = |locked: &Locked<'_>| locked.blocks_of(lane).full().len();
    let before = blocks(&locked);
    compact_one(&mut locked, lane, now).then(|| blocks(&locked) < before)
}

/// The full block of a shard's lane with the fewest live bytes.
pub(crate) fn sparsest(locked: &Locked<'_>, lane: Lane) -> Option<FullBlock> {
    let arena = locked.shared().arena();
    locked.blocks_of(lane).full().iter().min_by_key(|block| arena.live(block.id)).copied()
}

/// Empties a full block of a shard's lane into its open block.
pub(crate) fn compact(locked: &mut Locked<'_>, lane: Lane, block: FullBlock, now: u32) -> bool {
    empty(locked, lane, block, now, |_, _, _| EvictAction::Move)
}

/// Empties the sparsest full block of a shard's lane.
pub(crate) fn compact_one(locked: &mut Locked<'_>, lane: Lane, now: u32) -> bool {
    sparsest(locked, lane).is_some_and(|block| compact(locked, lane, block, now))
}

/// Removes every live record from a block: moves it to the lane's open block, or drops it. The block returns to the
/// pool with the last of them. `false` if there was no room to move to; a copy is dropped then.
fn empty(
    locked: &mut Locked<'_>,
    lane: Lane,
    block: FullBlock,
    now: u32,
    mut action: impl FnMut(&Resident<'_>, &Record<'_>, u64) -> EvictAction,
) -> bool {
    let (guard, arena, hasher) =
        (locked.guard(), locked.shared().arena(), &locked.shared().hasher());
    let mut records = arena.records(guard, block.id, block.fill).filter_map(|resident| {
        let (record, _) = Record::decode(resident.bytes).filter(|_| !resident.has(mark::VOID))?;
        let hash = hasher.key(record.key, record.is_chunk()).hash();
        Some((resident, record, hash))
    });
    loop {
        let batch: ArrayVec<_, BATCH> = records.by_ref().take(BATCH).collect();
        // Prefetched, so that their lines of the table arrive together.
        batch.iter().for_each(|(.., hash)| locked.table().prefetch(hasher.name(*hash).pos));
        if lane.is_only_in_dram() {
            locked.shared().make_log_room();
        }
        if !batch.iter().all(|found| take_out(locked, lane, found, now, &mut action)) {
            return false;
        }
        if !batch.is_full() {
            return true;
        }
    }
}

/// Removes one record, with this hash, from its block.
fn take_out(
    locked: &mut Locked<'_>,
    lane: Lane,
    (resident, record, hash): &(Resident<'_>, Record<'_>, u64),
    now: u32,
    action: &mut impl FnMut(&Resident<'_>, &Record<'_>, u64) -> EvictAction,
) -> bool {
    let name = locked.shared().hasher().name(*hash);
    let Some(at) = locked.table().find_addr(name.pos, resident.addr) else { return true };
    // A manifest must not be dropped without its chunks. That is done before it is written, or when the segment of the
    // original is reclaimed.
    let has_chunks = record.is_manifest();
    if record.is_expired(now) && !has_chunks {
        locked.note_expired(lane);
        locked.unlink_origin(name, resident);
        locked.forget(name.pos, resident, at);
        return true;
    }
    let marks = resident.header.mark().load(Ordering::Relaxed);
    let moved = match action(resident, record, *hash) {
        EvictAction::Move => relocate(locked, lane, resident, marks).map(|addr| (addr, lane)),
        EvictAction::Pass(to) => {
            relocate(locked, to, resident, marks & !mark::USED).map(|addr| (addr, to))
        }
        EvictAction::Promote => {
            let to = Lane::Fresh;
            relocate(locked, to, resident, marks & !mark::USED).map(|addr| (addr, to))
        }
        EvictAction::Drop => {
            // No restart may bring the original back: a later delete of its key finds no record to void.
            if lane.is_only_in_dram() {
                locked.log_tombstone_of_origin(name, resident);
            }
            note_drop(locked, lane, resident, *hash);
            locked.forget(name.pos, resident, at);
            return true;
        }
    };
    match moved {
        Ok((addr, to)) => {
            locked.supersede(name.pos, resident, at, addr, to);
            if lane == Lane::Hot && to != lane {
                locked.unlink_origin(name, resident);
            }
        }
        // A lower limit may leave no block to move to; emptying this one frees the first.
        Err(_) if lane == Lane::Hot => {
            note_drop(locked, lane, resident, *hash);
            locked.forget(name.pos, resident, at);
        }
        Err(_) => return false,
    }
    true
}

fn note_drop(locked: &Locked<'_>, lane: Lane, resident: &Resident<'_>, hash: u64) {
    let counters = locked.shared().counters();
    match lane {
        Lane::Hot => {
            count(counters.demotions());
            locked.shared().promotion().remember(hash, heat::Warmth::of(resident).heat());
        }
        Lane::Fresh | Lane::Protected => note_evicted(locked.shared(), resident),
    }
}

/// Counts a record that was only in DRAM as evicted, and reports it.
pub(crate) fn note_evicted(shared: &Shared, resident: &Resident<'_>) {
    let counters = shared.counters();
    count(counters.evictions());
    count(counters.evictions_dram());
    shared.observer().evicts(resident);
    if !resident.has(mark::FETCHED) {
        count(counters.evicted_unfetched());
    }
}

/// Copies a record to a lane's open block, with these marks, except those that depend on the lane.
fn relocate(
    locked: &mut Locked<'_>,
    lane: Lane,
    resident: &Resident<'_>,
    marks: u16,
) -> Result<Addr, NoBlock> {
    let marks = match lane {
        Lane::Hot => marks | mark::HOT,
        Lane::Fresh if resident.has(mark::HOT) => marks & !mark::HOT | mark::REINSERTED,
        Lane::Fresh => marks & !mark::PROTECTED,
        Lane::Protected => marks | mark::PROTECTED,
    } & !mark::VOID;
    let stamp = Stamp {
        mark: marks,
        accessed: resident.header.accessed().load(Ordering::Relaxed),
        origin: resident.header.origin().load(Ordering::Relaxed),
    };
    let write = |out: &mut [u8]| out.copy_from_slice(resident.bytes);
    let addr = locked.append(lane, Asker::Background, resident.bytes.len(), stamp, write)?;
    match lane {
        Lane::Fresh => locked.commit(),
        Lane::Protected => locked.commit_protected(),
        Lane::Hot => (),
    }
    Ok(addr)
}

/// Calls `act` with the shard that has the oldest full block of a lane; again if that block has gone meanwhile.
fn in_oldest_shard(
    engine: &Engine,
    guard: Guard<'_>,
    lane: Lane,
    mut act: impl FnMut(&mut Locked<'_>) -> bool,
) -> bool {
    (0..engine.shards().len()).any(|_| {
        let oldest = engine.shared().ages().oldest(lane);
        oldest.is_some_and(|at| act(&mut engine.shards()[at].lock(engine.shared(), guard)))
    })
}
