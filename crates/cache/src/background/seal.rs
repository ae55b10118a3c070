//! Sealing: the oldest fresh records of a shard become a segment in hash order, in one sequential write; then index
//! entries replace the records in DRAM.

use crate::background::buffers;
use crate::background::pick::{Fresh, Pick, Wanted};
use crate::dram::lane::Lane;
use crate::dram::resident::{Resident, mark};
use crate::engine::Engine;
use crate::index::bucket::USED_EARLIER;
use crate::log::Seat;
use crate::platform::crash::crash_point;
use crate::platform::mapped::stage;
use crate::platform::prefetch;
use crate::platform::quiesce::Guard;
use crate::segments::packing::{assemble, defer_equal_names, fit};
use crate::segments::segment::Sealed;
use crate::segments::{order, packing};
use crate::shard::{Locked, Shard};
use crate::stats::counters::count;
use std::sync::atomic::Ordering;
use terrace_device::AlignedBuf;

/// Records published per hold of the shard's lock.
const BATCH: usize = 64;

/// A fresh record that will be written to a segment.
type Item<'g> = packing::Item<'g, Resident<'g>>;

/// The result of an attempt to seal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A segment was written.
    Sealed,
    /// The shard has too few records, or none that a segment can take.
    NotDue,
    /// There is no free slot, no segment number, or the device refused the write.
    Blocked,
}

/// Seals one segment of a shard if it has enough records; if all are wanted, one is enough.
pub(crate) fn seal(
    engine: &Engine,
    guard: Guard<'_>,
    shard_at: usize,
    segment: &mut AlignedBuf,
    now: u32,
    wanted: Wanted,
) -> Outcome {
    let shard = &engine.shards()[shard_at];
    let loss = engine.shared().arena().loss();
    let stage_before = loss.stage();
    let Some((mut items, generation)) = gather(engine, shard, guard, now, wanted) else {
        return Outcome::NotDue;
    };
    let buckets = {
        let index = shard.index().load(guard);
        defer_equal_names(&mut items, index.bucket_width());
        index.buckets() as u32
    };
    if items.is_empty() {
        return Outcome::NotDue;
    }
    let Some(slot) = engine.shared().slots().take() else { return Outcome::Blocked };
    let segment_bytes = engine.shared().slots().segment_bytes_on(slot.tier) as usize;
    fit(&mut items, segment_bytes);
    let mut locked = shard.lock(engine.shared(), guard);
    // After a flush the records are gone, and all numbers are free.
    let is_current = locked.state().generation() == generation;
    let Some(number) = is_current.then(|| locked.take_number()).flatten() else {
        engine.shared().slots().give(slot);
        return Outcome::Blocked;
    };
    drop(locked);
    let seq = engine.next_seq();
    let described = packing::describe(&items);
    let mut footer = described.of_seal(shard_at as u16, number, seq, now).under(buckets);
    segment.set_len(segment_bytes);
    assemble(&items, segment, &mut footer);
    // Zeros in the place of lost bytes would get a correct checksum here.
    let is_intact = stage_before != stage::FOUND && loss.stage_after_reads() == stage_before;
    if !is_intact {
        engine.shared().slots().give(slot);
    }
    if !is_intact || engine.shared().slots().write(slot, segment).is_err() {
        // The records stay in DRAM and are written to another slot later.
        let mut locked = shard.lock(engine.shared(), guard);
        if locked.state().generation() == generation {
            locked.give_numbers([number]);
        }
        return Outcome::Blocked;
    }
    let log = &engine.shared().logs()[usize::from(slot.tier)];
    log.ensure_room(engine.shared().slots());
    locked = shard.lock(engine.shared(), guard);
    if locked.state().generation() != generation {
        // Everything was flushed meanwhile, and all segment numbers are free.
        engine.shared().slots().give(slot);
        return Outcome::Sealed;
    }
    crash_point("seal: written");
    let log_slot = engine.shared().slots().index(slot);
    log.begin(log_slot, Seat { shard: footer.shard(), number, seq });
    shard.segments().publish(slot, &footer, footer.names().len() as u32, seq);
    engine.note_segment(shard.segments(), number, true);
    shard.segments().set_items_due(number, packing::items_due(&items));
    locked.set_sealing(Some(Sealed { number, seq }));
    drop(locked);
    crash_point("seal: begun");
    let is_there = publish(engine, shard, guard, &items, number, generation);
    shard.lock(engine.shared(), guard).set_sealing(None);
    if is_there {
        let log_slot = (slot.tier, log_slot);
        leave_dram(engine, shard, guard, &items, log_slot, generation);
    }
    Outcome::Sealed
}

/// Commits the seal, and drops the records that are now in the segment from DRAM.
fn leave_dram(
    engine: &Engine,
    shard: &Shard,
    guard: Guard<'_>,
    items: &[Item<'_>],
    log_slot: (u16, u32),
    generation: u64,
) {
    let locked = shard.lock(engine.shared(), guard);
    if locked.state().generation() != generation {
        return;
    }
    let (tier, slot) = log_slot;
    engine.shared().logs()[usize::from(tier)].commit(slot);
    drop(locked);
    crash_point("seal: committed");
    for batch in items.chunks(BATCH) {
        let mut locked = shard.lock(engine.shared(), guard);
        if locked.state().generation() != generation {
            return;
        }
        batch.iter().for_each(|item| prefetch::line(item.source().header));
        for item in batch.iter().filter(|item| item.source().has(mark::SEALED)) {
            locked.void_unlisted(item.source());
        }
    }
}

/// Records in full blocks, enough for a segment, in hash order; see [`crate::background::pick`].
fn gather<'g>(
    engine: &'g Engine,
    shard: &'g Shard,
    guard: Guard<'g>,
    now: u32,
    wanted: Wanted,
) -> Option<(Vec<Item<'g>>, u64)> {
    let any = wanted == Wanted::All;
    let (blocks, generation, since, least) = {
        let mut locked = shard.lock(engine.shared(), guard);
        if any {
            locked.shelve_open(Lane::Fresh);
        }
        let least = if any { 1 } else { buffers::least_to_seal(engine, &locked) };
        if locked.sealable_bytes() < least {
            return None;
        }
        let since = locked.note_gathered(now);
        (locked.state().fresh().full().clone(), locked.state().generation(), since, least)
    };
    let picked = Pick { engine, shard, guard, now, since, wanted }.run(&blocks);
    let bytes: u64 = picked.iter().map(|fresh| fresh.resident.bytes.len() as u64).sum();
    if bytes < least {
        // Some had expired; the rest waits until there is enough again.
        return None;
    }
    let item = |(arrival, fresh): (usize, Fresh<'g>)| {
        let mut item = Item::new(fresh.name, fresh.resident.bytes, fresh.resident)
            .with_manifest(fresh.is_manifest)
            .with_payload(fresh.payload_bytes, fresh.expires);
        item.set_arrival(arrival as u32);
        item
    };
    let mut items: Vec<_> = picked.into_iter().enumerate().map(item).collect();
    // Records of one name stay in the order of arrival.
    order::sort(&mut items);
    Some((items, generation))
}

/// Replaces records in DRAM by index entries, except those that changed while the segment was written. `false` if
/// everything was flushed meanwhile.
fn publish(
    engine: &Engine,
    shard: &Shard,
    guard: Guard<'_>,
    items: &[Item<'_>],
    number: u16,
    generation: u64,
) -> bool {
    items.chunks(BATCH).all(|batch| {
        engine.shared().make_log_room();
        let mut locked = shard.lock(engine.shared(), guard);
        let goes_on = locked.state().generation() == generation;
        if goes_on {
            batch.iter().for_each(|item| prefetch::line(item.source().header));
            batch.iter().for_each(|item| locked.table().prefetch(item.name().pos));
            locked.index().prefetch_all(batch.iter().map(|item| item.name()));
            batch.iter().for_each(|item| hand_over(&mut locked, item, number));
            if engine.shared().arena().loss().stage_after_reads() == stage::FOUND {
                // Their headers may no longer show their originals.
                batch.iter().for_each(|item| locked.forget_sealed(item.name()));
            }
        }
        goes_on
    })
}

fn hand_over(locked: &mut Locked<'_>, item: &Item<'_>, number: u16) {
    let (name, resident) = (item.name(), item.source());
    let Some(at) = locked.table().find_addr(name.pos, resident.addr) else {
        return locked.log_tombstone(name, number);
    };
    let used = resident.has(mark::USED);
    let uses = if resident.has(mark::USED_BEFORE) { USED_EARLIER } else { 0 };
    if locked.link(name, number, uses, item.bytes().len() as u32).is_err() {
        // The index is full; the record stays in DRAM for a later segment.
        return locked.log_tombstone(name, number);
    }
    let tier = locked.shared().counters().tier(locked.shard().segments().slot(number).tier);
    if resident.has(mark::REINSERTED) {
        count(tier.reinserted_records());
    } else {
        tier.stored_records().add(locked.shard().at(), 1);
        tier.stored_payload_bytes().add(locked.shard().at(), item.payload_bytes().into());
    }
    let Some(sealed) = locked.shard().segments().sealed(number) else { return };
    let copy = used.then(|| crate::shard::promotion::keep(locked, resident, sealed).ok()).flatten();
    // Reclaim may not have ended the segment that the record was reinserted from.
    locked.log_tombstone_of_origin(name, resident);
    let origin = crate::dram::heat::Origin::of(sealed).to_bits();
    resident.header.origin().store(origin, Ordering::Relaxed);
    resident.header.mark().fetch_or(mark::SEALED, Ordering::Release);
    crash_point("seal: a record handed over");
    locked.unlist_sealed(name.pos, resident, at, copy);
}
