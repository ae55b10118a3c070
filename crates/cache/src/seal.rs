//! Sealing: the oldest fresh records of a shard become a segment in hash order, written in one
//! stream; then index entries take the place of the records in DRAM.

use crate::bucket::USED_EARLIER;
use crate::cache::Engine;
use crate::counters::count;
use crate::crash::crash_point;
use crate::key::Name;
use crate::kill_log::Seat;
use crate::layout::{
    EXTENT_HEADER, EXTENT_UNIT, Extent, Footer, NO_FIRST, PACKED_MAX, PAGE, PAGE_HEADER, PAGE_ROOM,
    WHOLE_MAX, finish_extent, finish_page,
};
use crate::memory::{Guard, Resident, mark};
use crate::pages::Tables;
use crate::record::Record;
use crate::shard::{Locked, Shard};
use std::sync::atomic::Ordering;
use terrace_device::AlignedBuf;

/// Records published per hold of the shard's lock.
const BATCH: usize = 64;

/// A record on its way to a segment.
#[derive(Clone, Copy)]
struct Item<'g> {
    name: Name,
    resident: Resident<'g>,
    /// How many came before it.
    arrival: u32,
    is_manifest: bool,
    at: At,
}

/// Where a record will lie in the segment.
#[derive(Clone, Copy)]
enum At {
    /// Offset in the stream of the pages' rooms.
    Stream(usize),
    /// First unit, from the first extent on.
    Extent(usize),
}

impl Item<'_> {
    fn payload_bytes(&self) -> u32 {
        Record::decode(self.resident.bytes).map_or(0, |(record, _)| record.payload_bytes() as u32)
    }

    fn bytes(&self) -> usize {
        self.resident.bytes.len()
    }
}

/// What became of an attempt to seal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A segment was written.
    Sealed,
    /// The shard has too few records, or none that a segment can take.
    NotDue,
    /// No place, no segment number, or the device refused.
    Blocked,
}

/// Seals one segment of a shard if there are enough records for it, or if there is `any`.
pub(crate) fn seal(
    engine: &Engine,
    guard: Guard<'_>,
    shard_at: usize,
    segment: &mut AlignedBuf,
    now: u32,
    any: bool,
) -> Outcome {
    let shard = &engine.shards[shard_at];
    let Some((mut items, generation)) = gather(engine, shard, guard, any) else {
        return Outcome::NotDue;
    };
    let buckets = {
        let index = shard.index.load(guard);
        defer_equal_names(&mut items, index.bucket_width());
        index.buckets() as u32
    };
    fit(&mut items, engine.geometry.segment_bytes as usize);
    if items.is_empty() {
        return Outcome::NotDue;
    }
    let Some(slot) = engine.pool.slots.take() else { return Outcome::Blocked };
    let mut locked = shard.lock(&engine.pool, guard);
    let Some(number) = locked.state.numbers.pop() else {
        engine.pool.slots.give(slot);
        return Outcome::Blocked;
    };
    drop(locked);
    let seq = engine.next_seq();
    let mut footer = Footer {
        seq,
        shard: shard_at as u16,
        number,
        sealed: now,
        buckets,
        names: items.iter().map(|item| item.name).collect(),
        record_bytes: items.iter().map(|item| item.bytes() as u32).sum(),
        payload_bytes: items.iter().map(Item::payload_bytes).sum(),
        has_manifests: items.iter().any(|item| item.is_manifest),
        ..Footer::default()
    };
    assemble(&items, segment, &mut footer);
    if engine.pool.slots.write(slot, segment).is_err() {
        // The place is not used again; the records stay in DRAM and go to another.
        let mut locked = shard.lock(&engine.pool, guard);
        if locked.state.generation == generation {
            locked.state.numbers.push(number);
        }
        return Outcome::Blocked;
    }
    locked = shard.lock(&engine.pool, guard);
    if locked.state.generation != generation {
        // Everything was flushed meanwhile, segment numbers too.
        engine.pool.slots.give(slot);
        return Outcome::Sealed;
    }
    crash_point("seal: written");
    let log = &engine.pool.logs[usize::from(slot.tier)];
    log.ensure_room(&engine.pool.slots);
    let log_slot = engine.pool.slots.index(slot);
    log.begin(log_slot, Seat { shard: footer.shard, number, seq });
    shard.segments.publish(slot, &footer, footer.names.len() as u32);
    engine.note_segment(&shard.segments, number, true);
    drop(locked);
    crash_point("seal: begun");
    if publish(engine, shard, guard, &items, number, generation) {
        let log_slot = (slot.tier, log_slot);
        leave_dram(engine, shard, guard, &items, log_slot, generation);
    }
    Outcome::Sealed
}

/// Commits the seal, and lets go of what is now in the segment.
fn leave_dram(
    engine: &Engine,
    shard: &Shard,
    guard: Guard<'_>,
    items: &[Item<'_>],
    log_slot: (u16, u32),
    generation: u64,
) {
    let locked = shard.lock(&engine.pool, guard);
    if locked.state.generation != generation {
        return;
    }
    let (tier, slot) = log_slot;
    engine.pool.logs[usize::from(tier)].commit(slot);
    drop(locked);
    crash_point("seal: committed");
    for batch in items.chunks(BATCH) {
        let mut locked = shard.lock(&engine.pool, guard);
        if locked.state.generation != generation {
            return;
        }
        for item in batch.iter().filter(|item| item.resident.has(mark::SEALED)) {
            locked.void_unlisted(&item.resident);
        }
    }
}

/// The oldest live records in full blocks, enough for a segment, in hash order.
fn gather<'g>(
    engine: &'g Engine,
    shard: &'g Shard,
    guard: Guard<'g>,
    any: bool,
) -> Option<(Vec<Item<'g>>, u64)> {
    let (blocks, generation) = {
        let mut locked = shard.lock(&engine.pool, guard);
        if any {
            locked.shelve_open();
        }
        if locked.sealable_bytes() < if any { 1 } else { engine.seal_bytes() } {
            return None;
        }
        (locked.state.fresh.full.clone(), locked.state.generation)
    };
    let wanted = u64::from(engine.geometry.segment_bytes);
    let (mut items, mut bytes) = (Vec::new(), 0);
    // Blocks that are full do not change, and what they hold stays under the guard.
    for block in blocks {
        for resident in engine.pool.arena.records(guard, block.id, block.fill) {
            if bytes >= wanted {
                break;
            }
            let Some((record, _)) = Record::decode(resident.bytes) else { continue };
            if resident.has(mark::VOID | mark::SEALED) {
                continue;
            }
            if !any && engine.pool.admission.leaves(&resident) {
                continue;
            }
            let key = engine.hasher.key(record.key, record.is_chunk);
            let (name, arrival) = (engine.hasher.name(key.hash), items.len() as u32);
            bytes += resident.bytes.len() as u64;
            let is_manifest = record.is_manifest;
            items.push(Item { name, resident, arrival, is_manifest, at: At::Stream(0) });
        }
    }
    items.sort_unstable_by_key(|item| (item.name, item.arrival));
    Some((items, generation))
}

/// Leaves all but the first of records that could come to share bucket and fingerprint for a later
/// segment, so that (name, segment) means one record at every size of the index.
fn defer_equal_names(items: &mut Vec<Item<'_>>, width: u32) {
    let mut kept: Vec<Name> = Vec::with_capacity(items.len());
    items.retain(|item| {
        let near = kept.iter().rev().take_while(|name| item.name.pos - name.pos < width);
        let clashes = near.into_iter().any(|name| name.fingerprint == item.name.fingerprint);
        if !clashes {
            kept.push(item.name);
        }
        !clashes
    });
}

/// Finds places for the items, leaving out the latest arrivals until the rest fits.
fn fit(items: &mut Vec<Item<'_>>, segment_bytes: usize) {
    let mut limit = items.len() as u32;
    loop {
        let needed = place(items);
        if needed <= segment_bytes || items.is_empty() {
            return;
        }
        let excess = (needed - segment_bytes) * items.len() / needed;
        limit = limit.saturating_sub(excess.max(1) as u32).min(items.len() as u32);
        // Arrival numbers have gaps after a deferral, so a round may leave out fewer than counted;
        // the next one goes on.
        items.retain(|item| item.arrival < limit);
    }
}

/// Gives every item its place and says how many bytes the segment needs.
fn place(items: &mut [Item<'_>]) -> usize {
    let (mut stream, mut unit, mut extents, mut straddling) = (0usize, 0usize, 0, false);
    for item in items.iter_mut() {
        let bytes = item.bytes();
        if bytes > PACKED_MAX {
            item.at = At::Extent(unit);
            unit += (EXTENT_HEADER + bytes).div_ceil(EXTENT_UNIT);
            extents += 1;
            continue;
        }
        let offset = stream % PAGE_ROOM;
        let room = if bytes <= WHOLE_MAX { PAGE_ROOM } else { 2 * PAGE_ROOM };
        if offset + bytes > room {
            stream += PAGE_ROOM - offset;
        }
        item.at = At::Stream(stream);
        straddling |= stream % PAGE_ROOM + bytes > PAGE_ROOM;
        stream += bytes;
    }
    let pages = stream.div_ceil(PAGE_ROOM);
    pages * PAGE + unit * EXTENT_UNIT + Footer::bytes_for(items.len(), pages, straddling, extents)
}

/// Writes pages, extents and footer into `segment` and completes `footer`.
fn assemble(items: &[Item<'_>], segment: &mut AlignedBuf, footer: &mut Footer) {
    segment.fill(0);
    let packed: Vec<_> = items
        .iter()
        .filter_map(|item| match item.at {
            At::Stream(at) => Some((at, item)),
            At::Extent(_) => None,
        })
        .collect();
    write_pages(&packed, segment, footer);
    let first_unit = footer.starts.len() * PAGE / EXTENT_UNIT;
    for item in items {
        let At::Extent(unit) = item.at else { continue };
        let (unit, start) = (first_unit + unit, (first_unit + unit) * EXTENT_UNIT);
        let end = start + EXTENT_HEADER + item.bytes();
        segment[start + EXTENT_HEADER..end].copy_from_slice(item.resident.bytes);
        finish_extent(&mut segment[start..end], unit as u32, footer.seq);
        footer.extents.push(Extent {
            pos: item.name.pos,
            unit: unit as u32,
            units: (end - start).div_ceil(EXTENT_UNIT) as u32,
        });
    }
    footer.encode(segment);
}

fn write_pages(packed: &[(usize, &Item<'_>)], segment: &mut [u8], footer: &mut Footer) {
    let end = packed.last().map_or(0, |(at, item)| at + item.bytes());
    let pages = end.div_ceil(PAGE_ROOM);
    let mut heads = vec![(0u16, NO_FIRST); pages];
    let (mut firsts, mut lasts) = (vec![None; pages], vec![0; pages]);
    let mut straddles = vec![false; pages];
    for (at, item) in packed {
        let page = at / PAGE_ROOM;
        let (records, first) = &mut heads[page];
        if *records == 0 {
            *first = (at % PAGE_ROOM) as u16;
            firsts[page] = Some(item.name.pos);
        }
        *records += 1;
        lasts[page] = item.name.pos;
        straddles[page] = at % PAGE_ROOM + item.bytes() > PAGE_ROOM;
        copy_to_stream(segment, *at, item.resident.bytes);
    }
    for (page, (records, first)) in heads.into_iter().enumerate() {
        let bytes = &mut segment[page * PAGE..(page + 1) * PAGE];
        finish_page(bytes, page as u32, footer.seq, records, first);
    }
    // A page in which no record begins is never the one to start reading at: it takes the first
    // position of the page after it.
    let mut next = u32::MAX;
    for page in (0..pages).rev() {
        next = firsts[page].unwrap_or(next);
        lasts[page] = if firsts[page].is_some() { lasts[page] } else { next };
        firsts[page] = Some(next);
    }
    let firsts: Vec<_> = firsts.into_iter().flatten().collect();
    let tables = Tables::encode(&firsts, &lasts, &straddles);
    (footer.shift, footer.starts, footer.straddlers) =
        (tables.shift, tables.starts, tables.straddlers);
}

/// Copies a record to its place in the stream, around page headers.
fn copy_to_stream(segment: &mut [u8], mut at: usize, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let (page, offset) = (at / PAGE_ROOM, at % PAGE_ROOM);
        let (part, rest) = bytes.split_at(bytes.len().min(PAGE_ROOM - offset));
        let start = page * PAGE + PAGE_HEADER + offset;
        segment[start..start + part.len()].copy_from_slice(part);
        (at, bytes) = (at + part.len(), rest);
    }
}

/// Puts index entries in the place of records in DRAM, except for what changed while the segment was
/// written. `false` if all was flushed meanwhile.
fn publish(
    engine: &Engine,
    shard: &Shard,
    guard: Guard<'_>,
    items: &[Item<'_>],
    number: u16,
    generation: u64,
) -> bool {
    items.chunks(BATCH).all(|batch| {
        engine.pool.logs.iter().for_each(|log| log.ensure_room(&engine.pool.slots));
        let mut locked = shard.lock(&engine.pool, guard);
        let goes_on = locked.state.generation == generation;
        if goes_on {
            batch.iter().for_each(|item| locked.table().prefetch(item.name.pos));
            locked.index().prefetch_all(batch.iter().map(|item| &item.name));
            batch.iter().for_each(|item| hand_over(&mut locked, item, number));
        }
        goes_on
    })
}

fn hand_over(locked: &mut Locked<'_>, item: &Item<'_>, number: u16) {
    let (name, resident) = (item.name, &item.resident);
    let Some(at) = locked.table().find_addr(name.pos, resident.addr) else {
        return locked.log_kill(name, number);
    };
    let used = resident.has(mark::USED);
    let uses = if resident.has(mark::FETCHED) { USED_EARLIER } else { 0 };
    if locked.link(name, number, uses, item.bytes() as u32).is_err() {
        // The index is as full as it gets; the record stays in DRAM for a later segment.
        return locked.log_kill(name, number);
    }
    let tier = locked.pool.counters.tier(locked.shard.segments.slot(number).tier);
    if resident.has(mark::REINSERTED) {
        count(&tier.reinserted_records);
    } else if let Some((record, _)) = Record::decode(resident.bytes) {
        count(&tier.stored_records);
        tier.stored_payload_bytes.fetch_add(record.payload_bytes() as u64, Ordering::Relaxed);
    }
    let Some(sealed) = locked.shard.segments.sealed(number) else { return };
    let copy = used.then(|| crate::hot::keep(locked, resident, sealed).ok()).flatten();
    // Reclaim may not have come to the end of the segment that the record was taken from.
    locked.log_kill_origin(name, resident);
    let origin = crate::hot::Origin::of(sealed).to_bits();
    resident.header.origin.store(origin, Ordering::Relaxed);
    resident.header.mark.fetch_or(mark::SEALED, Ordering::Release);
    crash_point("seal: a record handed over");
    locked.unlist_sealed(name.pos, resident, at, copy);
}
