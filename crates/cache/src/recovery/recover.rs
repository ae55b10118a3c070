//! Recovers the records of an earlier process from its state and tiers.
//!
//! At opening the tombstone logs are read and the fresh records put back; both are small. The sealed index follows
//! shard by shard, from the segments' footers, while requests are served. A shard that waits has no sealed records yet,
//! so that lookups miss them. Every change in it is appended to the log for all of its segments
//! ([`Locked::log_change`]).

use crate::dram::heat::Origin;
use crate::dram::lane::{FullBlock, Lane};
use crate::dram::resident::{Resident, mark};
use crate::engine::Engine;
use crate::engine::recovering::{Recovery, bytes_of};
use crate::index::bucket::SLOTS;
use crate::index::sealed::{PLANNED_PERMILLE, SealedIndex};
use crate::log::Seat;
use crate::log::replay::{Logged, Replay};
use crate::platform::crash::crash_point;
use crate::platform::quiesce::{Guard, Reader};
use crate::records::key::Name;
use crate::records::record::Record;
use crate::segments::layout::{FOOTER_HEADER, Footer, PAGE};
use crate::segments::segment::{Sealed, SlotId};
use crate::shard::Locked;
use crate::shard::recovering::Recovering;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use terrace_device::AlignedBuf;

/// Threads that may recover at the same time.
pub(crate) const THREADS_MAX: usize = 64;
/// Expected bytes of a footer; a longer one is read again as a whole.
const FOOTER_GUESS: usize = 16 << 10;

/// A recovered index may have twice its shard's part of the memory share: all shards together have that share, and each
/// grows in steps.
const BEYOND_SHARE_PERCENT: usize = 200;

/// Why joining can't fail at a start.
pub(super) const FIRST_ONE: &str = "there is no other participant yet";

/// Puts the fresh records back, and gives every shard the segments that must be recovered. Must be called before any
/// other thread has the engine.
pub(crate) fn begin(engine: &mut Engine, mut replays: Vec<Replay>) {
    let mut reader = engine.shared().quiesce().join().expect(FIRST_ONE);
    let guard = engine.shared().quiesce().guard(&reader);
    let taken = put_unsealed_back(engine, guard, &replays);
    let mut recovering: Vec<Recovering> =
        engine.shards().iter().map(|_| Recovering::default()).collect();
    for (shard, name) in taken {
        recovering[shard].add_change(name);
    }
    for (tier, replay) in replays.iter_mut().enumerate() {
        let log = &engine.shared().logs()[tier];
        let slots = engine.shared().slots();
        let fits = |slot: u32, logged: &Logged| {
            logged.is_committed()
                && usize::from(logged.seat().shard) < engine.shards().len()
                && usize::from(logged.seat().number) < engine.geometry().segments_per_shard()
                && slot < slots.tiers()[tier].segments()
        };
        replay.retain(|slot, logged| {
            let keep = fits(slot, logged);
            if !keep {
                // Its records are still in DRAM, or it was never complete.
                log.ensure_room(slots);
                log.free(slot);
                slots.give_back(tier as u16, slot);
            }
            keep
        });
        replay.seat_all(log);
        for (&slot, _) in replay.segments().iter().filter(|(_, logged)| logged.is_to_be_relogged())
        {
            log.ensure_room(slots);
            log.relog(slot);
        }
        for (slot, logged) in replay.take_segments() {
            let place = SlotId { tier: tier as u16, offset: slots.offset(tier as u16, slot) };
            recovering[usize::from(logged.seat().shard)].add_segment(place, slot, logged);
        }
    }
    for (shard, mut recovering) in engine.shards().iter().zip(recovering) {
        let mut locked = shard.lock(engine.shared(), guard);
        let taken = recovering.sort();
        locked.await_segments(recovering, &taken);
    }
    engine.shared().quiesce().leave(&mut reader);
    // Copies get that memory once all shards are recovered.
    engine.shared().budget().force(bytes_of(&replays));
    engine.begin_recovery(Recovery::of(replays, engine.shards().len()));
    engine.recovery().census().ask();
}

/// Puts back the records of surviving blocks, in order of arrival. Returns the names of those with originals in
/// segments that count: the replays, read before, lack their new tombstones.
fn put_unsealed_back(engine: &Engine, guard: Guard<'_>, replays: &[Replay]) -> Vec<(usize, Name)> {
    let mut taken = Vec::new();
    let arena = engine.shared().arena();
    let mut blocks: Vec<_> = (0..arena.surviving())
        .filter_map(|id| arena.recovered(id).map(|(order, shard, fill)| (order, shard, fill, id)))
        .filter(|&(_, shard, ..)| shard < engine.shards().len())
        .collect();
    blocks.sort_unstable();
    let seals = Seals::of(engine, replays);
    for (order, shard, fill, id) in blocks {
        let fill = fill.min(arena.block_bytes());
        let mut locked = engine.shards()[shard].lock(engine.shared(), guard);
        let live: u32 = arena
            .records(guard, id, fill)
            .filter(|resident| !resident.has(mark::VOID))
            .map(|resident| resident.footprint())
            .sum();
        arena.adopt(id, live, engine.shared().budget());
        engine.shared().counters().blocks(Lane::Fresh).fetch_add(1, Ordering::Relaxed);
        locked.adopt_block(FullBlock { id, fill, order });
        if live == 0 {
            locked.retire_full(Lane::Fresh, id);
            continue;
        }
        // A voided record leaves the block, and the last one frees the block.
        let records: Vec<_> = arena.records(guard, id, fill).collect();
        for resident in records.iter().filter(|resident| !resident.has(mark::VOID)) {
            let name = put_back(engine, &mut locked, shard, resident, &seals, replays);
            taken.extend(name.map(|name| (shard, name)));
        }
    }
    taken
}

/// Puts a record back; returns its name if it was reinserted from a segment that counts.
fn put_back(
    engine: &Engine,
    locked: &mut Locked<'_>,
    shard: usize,
    resident: &Resident<'_>,
    seals: &Seals,
    replays: &[Replay],
) -> Option<Name> {
    let Some((record, _)) = Record::decode(resident.bytes) else {
        locked.void_unlisted(resident);
        return None;
    };
    let mut taken = None;
    let key = engine.hasher().key(record.key, record.is_chunk());
    let name = engine.hasher().name(key.hash());
    let origin = Origin::from_bits(resident.header.origin().load(Ordering::Relaxed));
    let sealed = seals.find(shard, origin);
    if resident.has(mark::SEALED) {
        // If the seal counts, the record is in the segment. If not, it is still here, unless a tombstone names it. No
        // index ever had fewer buckets.
        let width = SealedIndex::width_of(engine.geometry().initial_buckets(shard));
        let is_ours = sealed.is_some_and(|(tier, slot, logged)| {
            !logged.is_committed()
                && !replays[tier].tombstones(slot, logged, width).void(name.short())
        });
        if !is_ours {
            locked.void_unlisted(resident);
            return None;
        }
        // In this order: a record that is marked as sealed without an origin would be lost.
        resident.header.mark().fetch_and(!mark::SEALED, Ordering::Release);
        crash_point("recovery: a record is unsealed again");
        resident.header.origin().store(0, Ordering::Release);
    } else if let Some((tier, slot, logged)) = sealed {
        // Reinserted from a segment that still exists: the log must have a tombstone from now on.
        engine.shared().make_log_room();
        if logged.is_committed() {
            engine.shared().logs()[tier].tombstone(slot, name);
        } else {
            // The original was being relocated there; its old segment is unknown.
            engine
                .shared()
                .logs()
                .iter()
                .for_each(|log| log.tombstone_in_shard(shard as u16, name));
        }
        taken = Some(name);
        resident.header.origin().store(0, Ordering::Relaxed);
    }
    if resident.has(mark::PROTECTED) {
        // All recovered blocks are of the fresh lane. As a used record it is protected again.
        resident.set(mark::USED);
        resident.header.mark().fetch_and(!mark::PROTECTED, Ordering::Relaxed);
    }
    locked.adopt_bytes(resident.bytes.len() as u64);
    let shard = locked.shard();
    match shard.find_resident(engine.shared(), locked.guard(), &key, name.pos) {
        // Blocks come in order of arrival, so this record is the newer one.
        Some((older, _, at)) => locked.supersede(name.pos, &older, at, resident.addr, Lane::Fresh),
        None => locked.enter(name.pos, resident.addr, Lane::Fresh),
    }
    taken
}

/// Segments by shard and origin, as records in DRAM have it.
struct Seals(HashMap<(usize, u32), (usize, u32, Logged)>);

impl Seals {
    fn of(engine: &Engine, replays: &[Replay]) -> Self {
        let mut seals = HashMap::new();
        for (tier, replay) in replays.iter().enumerate() {
            for (&slot, &logged) in replay.segments() {
                let Seat { shard, number, seq } = logged.seat();
                if usize::from(number) < engine.geometry().segments_per_shard() {
                    let origin = Origin::of(Sealed { number, seq }).to_bits();
                    seals.insert((usize::from(shard), origin), (tier, slot, logged));
                }
            }
        }
        Self(seals)
    }

    fn find(&self, shard: usize, origin: Origin) -> Option<(usize, u32, &Logged)> {
        let (tier, slot, logged) = self.0.get(&(shard, origin.to_bits()))?;
        Some((*tier, *slot, logged))
    }
}

/// A segment with its footer, without the names.
struct Found {
    slot: SlotId,
    footer: Footer,
    records: u32,
    live: u32,
    live_bytes: u32,
}

/// An index entry as a number that sorts by position: position 32 bits | fingerprint 15 | segment 11.
fn packed(name: Name, number: u16) -> u64 {
    u64::from(name.pos) << 26 | u64::from(name.fingerprint) << 11 | u64::from(number)
}

fn unpacked(bits: u64) -> (Name, u16) {
    let name = Name { pos: (bits >> 26) as u32, fingerprint: (bits >> 11) as u16 & 0x7fff };
    (name, bits as u16 & 0x7ff)
}

/// Recovers the next shard; `false` when none is left to begin with.
pub(crate) fn recover_next(engine: &Engine, reader: &mut Reader) -> bool {
    let Some(at) = engine.recovery().next_shard(engine.shards().len()) else { return false };
    let bytes = (engine.geometry().segment_bytes() as usize).max(FOOTER_GUESS);
    let mut buffer = engine.recovery().take_buffer(bytes);
    recover_shard(engine, reader, at, &mut buffer);
    engine.recovery().put_buffer(buffer);
    engine.recovery().finish_one(engine.shared().budget());
    true
}

fn recover_shard(engine: &Engine, reader: &mut Reader, at: usize, buffer: &mut AlignedBuf) {
    let (shard, quiesce) = (&engine.shards()[at], engine.shared().quiesce());
    let (segments, generation) = {
        let locked = shard.lock(engine.shared(), quiesce.guard(reader));
        // After a flush there is nothing to recover, and records sealed since are in the index.
        let Some(recovering) = locked.state().recovering() else { return };
        (recovering.segments().to_vec(), locked.state().generation())
    };
    // The drive may be slow, and no memory must wait for it.
    quiesce.park(reader);
    let (entries_max, buckets_max) = (entries_max(engine), buckets_max(engine));
    let (mut found, mut entries, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    let mut buckets_min = 0;
    let mut unlogged = Vec::new();
    let replays = engine.recovery().replays();
    for (place, slot, logged) in segments {
        let footer = read_footer(engine, place, buffer).filter(|footer| {
            footer.seq() == logged.seat().seq
                && footer.number() == logged.seat().number
                && footer.shard() == logged.seat().shard
        });
        let Some(mut footer) = footer else {
            lost.push((place, slot, logged));
            continue;
        };
        let names = footer.names();
        if entries.len() + names.len() > entries_max || footer.buckets() as usize > buckets_max {
            // The oldest segments have no room in the index, or this one was sealed under an index that has none. In an
            // index with fewer, wider buckets, a `TombstoneByPrefix` would void less after the next start than was
            // meant.
            lost.push((place, slot, logged));
            continue;
        }
        buckets_min = buckets_min.max(footer.buckets() as usize);
        let before = entries.len();
        let width = SealedIndex::width_of(footer.buckets() as usize);
        let tombstones = replays[usize::from(place.tier)].tombstones(slot, &logged, width);
        for name in names.iter().copied() {
            if !tombstones.void(name.short()) {
                entries.push(packed(name, footer.number()));
            } else if !tombstones.void_for_good(name.short()) {
                unlogged.push((place.tier, slot, name));
            }
        }
        let some = entries[before..].iter().map(|&entry| unpacked(entry).0.pos);
        let live_bytes = footer.bytes_of_some(some);
        // Names take much memory, and are in the entries now.
        let records = footer.take_names().len() as u32;
        let live = (entries.len() - before) as u32;
        found.push(Found { slot: place, footer, records, live, live_bytes });
    }
    entries.sort_unstable();
    let index = build(&entries, buckets_min);
    let guard = quiesce.guard(reader);
    let mut locked = shard.lock(engine.shared(), guard);
    if locked.state().generation() != generation {
        // Everything was flushed meanwhile.
        return;
    }
    for (place, slot, logged) in lost {
        engine.shared().logs()[usize::from(place.tier)].ensure_room(engine.shared().slots());
        engine.shared().logs()[usize::from(place.tier)].free(slot);
        engine.shared().slots().give(place);
        locked.give_numbers([logged.seat().number]);
    }
    // Names that were changed in an earlier start, before the shard was recovered, have a tombstone for all segments of
    // the shard, which cleaning drops.
    for (tier, slot, name) in unlogged {
        engine.shared().logs()[usize::from(tier)].ensure_room(engine.shared().slots());
        engine.shared().logs()[usize::from(tier)].tombstone(slot, name);
    }
    put_in_place(engine, &mut locked, found, index, &entries);
    crash_point("recovery: a shard is back");
}

/// Publishes the recovered segments, and replaces the shard's index.
fn put_in_place(
    engine: &Engine,
    locked: &mut Locked<'_>,
    found: Vec<Found>,
    index: SealedIndex,
    entries: &[u64],
) {
    let segments = locked.shard().segments();
    for Found { slot, footer, records, live, live_bytes } in found {
        segments.publish(slot, &footer, records, footer.seq());
        segments.set_live(footer.number(), live, live_bytes);
        let tier = engine.shared().counters().tier(slot.tier);
        tier.records().add(locked.shard().at(), live.into());
        tier.live_bytes().add(locked.shard().at(), live_bytes.into());
        engine.note_segment(segments, footer.number(), true);
    }
    engine.swap_index(locked, index);
    let changed =
        locked.take_recovering().map(|recovering| recovering.into_changed()).unwrap_or_default();
    for name in changed {
        let first = packed(name, 0);
        let from = entries.partition_point(|&entry| entry < first);
        let same = entries[from..].iter().map(|&entry| unpacked(entry));
        for (name, number) in same.take_while(|(other, _)| *other == name) {
            let slot = segments.slot(number);
            engine.shared().logs()[usize::from(slot.tier)].ensure_room(engine.shared().slots());
            locked.log_tombstone(name, number);
            locked.unlink(name, number, None);
        }
    }
}

/// Records that a shard's index may have within its share of memory.
fn entries_max(engine: &Engine) -> usize {
    (buckets_of_share(engine) * SLOTS as u64 * PLANNED_PERMILLE / 1000) as usize
}

/// Buckets of a recovered index, at most: with a much lower `-m`, or with wrong numbers from a drive, it could take all
/// memory.
fn buckets_max(engine: &Engine) -> usize {
    let least = engine.geometry().initial_buckets(engine.shards().len());
    (buckets_of_share(engine) as usize * BEYOND_SHARE_PERCENT / 100).max(least)
}

fn buckets_of_share(engine: &Engine) -> u64 {
    engine.index_share() / engine.shards().len() as u64 / SealedIndex::bytes_for(1)
}

/// An index of these entries, which must be in order of position, with at least `buckets_min` buckets.
fn build(entries: &[u64], buckets_min: usize) -> SealedIndex {
    let mut buckets =
        (entries.len() * 1000 / PLANNED_PERMILLE as usize / SLOTS + 2).max(buckets_min);
    loop {
        let index = SealedIndex::new(buckets);
        let all = entries.iter().map(|&entry| unpacked(entry));
        if all.into_iter().all(|(name, number)| index.insert(name, number, 0).is_ok()) {
            return index;
        }
        buckets += buckets / 16 + 1;
    }
}

fn read_footer(engine: &Engine, place: SlotId, buffer: &mut AlignedBuf) -> Option<Footer> {
    let segment_bytes = engine.shared().slots().segment_bytes_on(place.tier) as usize;
    buffer.set_len(FOOTER_GUESS.min(segment_bytes));
    engine.shared().slots().read_tail(place, buffer).ok()?;
    let bytes = Footer::bytes_of(&buffer[buffer.len().checked_sub(FOOTER_HEADER)?..])?;
    if bytes > buffer.len() {
        buffer.set_len(bytes.next_multiple_of(PAGE).min(segment_bytes));
        engine.shared().slots().read_tail(place, buffer).ok()?;
    }
    Footer::decode(buffer)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::config::{Config, Tier, Tuning};
    use crate::dram::memory::Stamp;
    use crate::facade::cache::Cache;
    use crate::platform::crash::set_crash_hook;
    use crate::records::access::Access;
    use crate::records::record::{NewRecord, NewValue};
    use crate::request::session::Lookup;
    use crate::request::update::{Change, Update};
    use crate::shard::Asker;
    use crate::state::StateFile;
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::Arc;
    use terrace_device::sim::{Crash, SimDevice};

    const NOW: u32 = 1_000_000;

    fn open(drive: &Arc<SimDevice>, state: &Arc<StateFile>) -> Arc<Cache> {
        let (shards, segment_bytes) = (Some(1), Some(64 << 10));
        Cache::open(Config {
            tuning: Tuning { seed: Some(1), shards, segment_bytes, ..Tuning::default() },
            tiers: vec![Tier::new(Arc::clone(drive) as Arc<_>)],
            state: Some(Arc::clone(state)),
            ..Config::new(2 << 20)
        })
        .expect("opens")
    }

    fn is_there(cache: &Arc<Cache>) -> bool {
        let session = cache.session();
        let lookup = session.get(session.key(b"key"), NOW, Access::Use, None);
        !matches!(lookup, Lookup::Miss)
    }

    fn change(cache: &Arc<Cache>, change: Change<'_>) {
        let session = cache.session();
        let update = session.update(session.key(b"key"), NOW, None, true, |_| change);
        assert!(matches!(update, Update::Done { .. }));
    }

    /// A cache with one record, which is sealed and also in DRAM, reinserted from its segment or being sealed into one
    /// that does not count yet.
    fn with_one_in_two_places(drive: &Arc<SimDevice>, state: &Arc<StateFile>, mark: u16) {
        let cache = open(drive, state);
        let (client_flags, expires, cas) = (0, 0, None);
        let value = NewValue::Inline(b"value", &[]);
        let (stale, win_sent) = (false, false);
        let record = NewRecord { value, client_flags, expires, cas, stale, win_sent };
        change(&cache, Change::Store(record));
        let engine = &cache.engine();
        let reader = engine.shared().quiesce().join().expect("a place");
        let guard = engine.shared().quiesce().guard(&reader);
        let key = engine.hasher().key(b"key", false);
        let name = engine.hasher().name(key.hash());
        let found = engine.shards()[0].find_resident(engine.shared(), guard, &key, name.pos);
        let bytes = found.expect("just stored").0.bytes.to_vec();
        assert!(cache.close(NOW, &|| true), "comes to the end");

        let seat = Seat { shard: 0, number: 7, seq: engine.next_seq() };
        let place = engine.shared().slots().take_on(0).expect("a place");
        engine.shared().logs()[0].begin(engine.shared().slots().index(place), seat);
        let origin = Origin::of(Sealed { number: seat.number, seq: seat.seq }).to_bits();
        let stamp = Stamp { mark, origin, ..Stamp::default() };
        let mut locked = engine.shards()[0].lock(engine.shared(), guard);
        let write = |out: &mut [u8]| out.copy_from_slice(&bytes);
        let appended = locked.append(Lane::Fresh, Asker::Background, bytes.len(), stamp, write);
        appended.map_err(|_| "no block").expect("memory");
        locked.commit();
    }

    fn hardware() -> (Arc<SimDevice>, Arc<StateFile>) {
        (Arc::new(SimDevice::new(8 << 20, 1)), Arc::new(StateFile::volatile().expect("memory")))
    }

    /// A copy may be promoted to the tier above while its original moves from one segment to another.
    #[test]
    fn deleted_record_with_an_original_in_relocation_stays_deleted() {
        let (drive, state) = hardware();
        with_one_in_two_places(&drive, &state, 0);
        let cache = open(&drive, &state);
        assert!(is_there(&cache));
        change(&cache, Change::Remove);
        assert_eq!(cache.recovering(), 1, "the original is not back yet");
        drop(cache);
        let cache = open(&drive, &state);
        while cache.recover() {}
        assert!(cache.notes().is_empty());
        assert!(!is_there(&cache), "back from the dead");
    }

    /// A start may be interrupted when it has begun to take a record back from an interrupted seal.
    #[test]
    fn record_of_an_interrupted_seal_outlives_an_interrupted_start() {
        let (drive, state) = hardware();
        with_one_in_two_places(&drive, &state, mark::SEALED);
        let left = Rc::new(RefCell::new(None));
        let (copy, originals) = (Rc::clone(&left), (Arc::clone(&drive), Arc::clone(&state)));
        set_crash_hook(Some(Box::new(move |name| {
            if name == "recovery: a record is unsealed again" {
                let drive = originals.0.crashed_copy(Crash::KeepAll, 1);
                *copy.borrow_mut() = Some((drive, originals.1.snapshot().expect("memory")));
            }
        })));
        drop(open(&drive, &state));
        set_crash_hook(None);
        let (drive, state) = left.take().expect("it comes by");
        assert!(is_there(&open(&Arc::new(drive), &Arc::new(state))));
    }
}
