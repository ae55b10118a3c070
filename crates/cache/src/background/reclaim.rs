//! Reclaim: frees a segment's slot. Below *full* every live record is reinserted through the fresh lane; when full,
//! only those that the write policy of its tier keeps.

#[cfg(all(test, not(loom)))]
mod tests;

use crate::background::drop_segment::purge;
use crate::background::footers::{Unreadable, read_footer};
use crate::background::{drop_segment, listing, reconcile};
use crate::dram::lane::Lane;
use crate::dram::memory::Stamp;
use crate::dram::resident::mark;
use crate::engine::{Engine, chunks, fullness};
use crate::index::deferred::Glance;
use crate::platform::quiesce::Guard;
use crate::records::key::Name;
use crate::records::record::Record;
use crate::segments::segment::Sealed;
use crate::segments::spans::each_record;
use crate::shard::{Asker, Locked, NoBlock, Shard};
use crate::shared::observer::Reclaim;
use crate::stats::counters::count;
use crate::tiers::slots::TierStore;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::Ordering;
use terrace_device::{AlignedBuf, is_unanswered};

/// Records checked per hold of the shard's lock.
const BATCH: usize = 64;
/// When full, at most this percentage of the records of all segments is kept, so that reclaim always gains space, ...
pub(crate) const KEEP_PERCENT: usize = 60;
/// ... but more of single segments, up to a quarter of the level's capacity in all: used records may have been stored
/// one after the other.
const KEEP_AHEAD_PART: u64 = 4;

/// A segment to reclaim.
#[derive(Clone, Copy)]
pub(crate) struct Victim {
    pub(super) shard: usize,
    pub(super) sealed: Sealed,
    pub(super) keeps: Keeps,
}

/// The records of a segment to keep. Decided once, when the segment is chosen: the cache may become full meanwhile, or
/// no longer be full.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// All: the segment was chosen because it has few live records.
    All,
    /// Those that its tier's write policy keeps: the cache is full, and the segment is the oldest.
    Used,
    /// As `Used`, without waiting for room.
    UsedThatFits,
}

/// The tiers whose segments are considered. The slot of a segment on a failed drive is no gain, and the segment may
/// still be read; a segment on an unresponsive drive can't be reclaimed, and those of a tier that is drained are moved
/// away ([`crate::background::drain`]).
pub(crate) struct Sources {
    /// By tier.
    is_one: Vec<bool>,
}

impl Sources {
    /// Those of a level.
    pub(crate) fn on(engine: &Engine, level: u16) -> Self {
        Self::of(engine, |_, tier| tier.level() == level)
    }

    /// Those of a level that lack free places; all if none does.
    pub(crate) fn short_on(engine: &Engine, level: u16) -> Self {
        let is_short =
            |tier: &TierStore| tier.level() == level && !fullness::has_ample_places(engine, tier);
        let short = Self::of(engine, |_, tier| is_short(tier));
        if short.is_one.contains(&true) { short } else { Self::on(engine, level) }
    }

    /// One tier.
    pub(crate) fn only(engine: &Engine, tier: usize) -> Self {
        Self::of(engine, |at, _| at == tier)
    }

    fn of(engine: &Engine, is_meant: impl Fn(usize, &TierStore) -> bool) -> Self {
        Self::all(engine, |at, tier| is_meant(at, tier) && tier.takes_segments())
    }

    /// The tiers that are drained; most of the time there is none.
    pub(crate) fn drained(engine: &Engine) -> Option<Self> {
        let is_any = engine.shared().slots().tiers().iter().any(TierStore::is_drained);
        is_any.then(|| Self::all(engine, |_, tier| tier.is_drained()))
    }

    fn all(engine: &Engine, is_one: impl Fn(usize, &TierStore) -> bool) -> Self {
        let tiers = engine.shared().slots().tiers().iter().enumerate();
        Self { is_one: tiers.map(|(at, tier)| is_one(at, tier)).collect() }
    }

    /// The segments of some shards on these tiers, each with the number of its shard.
    pub(crate) fn segments(
        &self,
        engine: &Engine,
        shards: Range<usize>,
    ) -> impl Iterator<Item = (usize, Sealed)> {
        shards.flat_map(move |shard| {
            let segments = engine.shards()[shard].segments();
            let is_on =
                |sealed: &Sealed| self.is_one[usize::from(segments.slot(sealed.number).tier)];
            segments.iter().filter(is_on).map(move |sealed| (shard, sealed))
        })
    }
}

/// The segment to reclaim next: one without live records if there is one; else the oldest when the level is `full`, or
/// the emptiest.
pub(crate) fn choose(
    engine: &Engine,
    shards: Range<usize>,
    sources: &Sources,
    full: bool,
) -> Option<Victim> {
    let rank = |victim: &Victim| {
        let segments = engine.shards()[victim.shard].segments();
        let usage = segments.usage(victim.sealed.number);
        match usage.live_records() {
            0 => (0, victim.sealed.seq),
            _ if full => (1, segments.age(victim.sealed.number)),
            _ => (1, usage.live_bytes().into()),
        }
    };
    let keeps = if full { Keeps::Used } else { Keeps::All };
    sources
        .segments(engine, shards)
        .map(|(shard, sealed)| Victim { shard, sealed, keeps })
        .min_by_key(rank)
}

/// Whether a segment has live records.
pub(crate) fn is_alive(engine: &Engine, victim: Victim) -> bool {
    engine.shards()[victim.shard].segments().usage(victim.sealed.number).live_records() > 0
}

/// Whether no segment of a level has so many void bytes, or so few bytes of records, that reclaiming it frees a slot.
pub(crate) fn is_packed(engine: &Engine, level: u16) -> bool {
    engine.shards().iter().all(|shard| {
        let tier = |sealed: &Sealed| {
            let tier = shard.segments().slot(sealed.number).tier;
            &engine.shared().slots().tiers()[usize::from(tier)]
        };
        let is_on_it =
            |sealed: &Sealed| tier(sealed).level() == level && !tier(sealed).drain().is_any();
        shard.segments().iter().filter(is_on_it).all(|sealed| {
            let segment_bytes = tier(&sealed).segment_bytes();
            let usage = shard.segments().usage(sealed.number);
            let dead = usage.record_bytes().saturating_sub(usage.live_bytes());
            dead < segment_bytes / 10 && usage.record_bytes() > segment_bytes / 2
        })
    })
}

/// Why a segment could not be reclaimed now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PutOff {
    /// There is no room for the records to keep.
    NoRoom,
    /// Its drive does not answer: the records to keep are unknown.
    Unanswered,
}

/// Reclaims a segment.
pub(crate) fn reclaim(
    engine: &Engine,
    guard: Guard<'_>,
    victim: Victim,
    buffer: &mut AlignedBuf,
    now: u32,
) -> Result<(), PutOff> {
    let shard = &engine.shards()[victim.shard];
    let observer = engine.shared().observer();
    let place = engine.shared().slots().place_number(shard.segments().slot(victim.sealed.number));
    observer.reclaims(place, Reclaim::Begun { sequence: victim.sealed.seq });
    shard.lock(engine.shared(), guard).begin_leaving(&[victim.sealed]);
    let done = take_back(engine, guard, victim, buffer, now);
    shard.lock(engine.shared(), guard).end_leaving();
    let step = if done.is_ok() { Reclaim::Done } else { Reclaim::PutOff };
    observer.reclaims(place, step);
    done
}

fn take_back(
    engine: &Engine,
    guard: Guard<'_>,
    victim: Victim,
    buffer: &mut AlignedBuf,
    now: u32,
) -> Result<(), PutOff> {
    let shard = &engine.shards()[victim.shard];
    let number = victim.sealed.number;
    let may_drop = victim.keeps != Keeps::All;
    let is_deferred = shard.lock(engine.shared(), guard).state().deferred().count(number) > 0;
    if shard.segments().usage(number).live_records() > 0 || is_deferred {
        let footer = match read_footer(engine, shard, victim.sealed, buffer) {
            Ok(footer) => footer,
            Err(Unreadable::Unanswered) => return Err(PutOff::Unanswered),
            Err(Unreadable::Device | Unreadable::Corrupt) => {
                purge(engine, shard, guard, &[victim.sealed]);
                return Ok(());
            }
        };
        let stuck = reconcile::by_footer(
            engine,
            shard,
            guard,
            victim.sealed,
            &footer,
            &mut Glance::default(),
        );
        if !stuck.is_empty() && !may_drop {
            // The index must grow first.
            return Err(PutOff::NoRoom);
        }
        let share = footer.names().len() * KEEP_PERCENT / 100;
        let keep_max = match may_drop {
            true => share + records_to_keep_ahead(engine, shard, number),
            false => footer.names().len(),
        };
        let keep = sort_out(engine, shard, guard, victim, (footer.names(), keep_max));
        let live = || shard.segments().usage(number).live_records() as usize;
        if may_drop && keep.len() > share && !shard.segments().has_manifests(number) {
            note_kept(engine, shard, number, keep.len(), share);
            renew(engine, shard, guard, victim.sealed, footer.names());
            return Ok(());
        }
        let live_before = live();
        let mut items_dropped = Vec::new();
        if !keep.is_empty() || shard.segments().has_manifests(number) {
            let dropped = &mut items_dropped;
            let kept =
                reinsert_all(engine, shard, guard, victim.sealed, (&keep, dropped), buffer, now);
            // Records without room wait until there is some.
            match kept {
                Err(PutOff::NoRoom) if victim.keeps == Keeps::UsedThatFits => {}
                Ok(()) => {}
                Err(put_off) => {
                    note_kept(engine, shard, number, live_before.saturating_sub(live()), 0);
                    return Err(put_off);
                }
            }
        }
        if may_drop {
            note_kept(engine, shard, number, live_before.saturating_sub(live()), share);
        }
        drop_segment::end(engine, shard, guard, &[victim.sealed]);
        let left = (victim.shard, victim.sealed);
        listing::show_evicted(engine, guard, left, buffer, now);
        // Usually every record is elsewhere by now.
        if shard.segments().usage(number).live_records() > 0 {
            drop_entries(engine, shard, guard, victim.sealed, footer.names());
        }
        drop_stuck(engine, shard, guard, victim.sealed, &stuck);
        items_dropped
            .iter()
            .for_each(|item| chunks::discard_chunks_of_dropped(engine, shard, guard, item));
    } else {
        drop_segment::end(engine, shard, guard, &[victim.sealed]);
    }
    let mut locked = shard.lock(engine.shared(), guard);
    if shard.segments().is_current(victim.sealed) {
        engine.free_segment(&mut locked, number);
    }
    Ok(())
}

/// Renews a segment with mostly used records: it stays, and counts as new, since writing them again would free no slot.
/// Unused records stay with them: their entries could only be removed with a tombstone each.
fn renew(engine: &Engine, shard: &Shard, guard: Guard<'_>, sealed: Sealed, names: &[Name]) {
    for batch in names.chunks(BATCH) {
        let locked = shard.lock(engine.shared(), guard);
        if !shard.segments().is_current(sealed) {
            return;
        }
        locked.index().prefetch_all(batch.iter().copied());
        for &name in batch {
            locked.index().retarget(name, sealed.number, sealed.number, true);
        }
    }
    shard.segments().set_age(sealed.number, engine.next_seq());
}

/// Removes the remaining entries of a segment from the index.
pub(crate) fn drop_entries(
    engine: &Engine,
    shard: &Shard,
    guard: Guard<'_>,
    sealed: Sealed,
    names: &[Name],
) {
    for batch in names.chunks(BATCH) {
        let mut locked = shard.lock(engine.shared(), guard);
        if !shard.segments().is_current(sealed) {
            return;
        }
        locked.index().prefetch_all(batch.iter().copied());
        let (mut evicted, mut unfetched) = (0, 0);
        for &name in batch {
            let Some(entry) = locked.index().get(name, sealed.number) else { continue };
            locked.unlink(name, sealed.number, None);
            evicted += 1;
            unfetched += u64::from(entry.uses() == 0);
        }
        let counters = engine.shared().counters();
        counters.note_evicted_from_tiers(evicted);
        counters.evicted_unfetched().fetch_add(unfetched, Ordering::Relaxed);
    }
}

/// Drops records that the index has no room for.
fn drop_stuck(engine: &Engine, shard: &Shard, guard: Guard<'_>, sealed: Sealed, names: &[Name]) {
    let mut locked = shard.lock(engine.shared(), guard);
    for &name in names {
        if shard.segments().is_current(sealed) && locked.is_deferred(name, sealed.number) {
            locked.unlink(name, sealed.number, None);
            count(engine.shared().counters().collisions());
            count(engine.shared().counters().evictions());
            count(engine.shared().counters().evictions_index());
        }
    }
}

/// The names of the records to keep.
fn sort_out(
    engine: &Engine,
    shard: &Shard,
    guard: Guard<'_>,
    Victim { sealed, keeps, .. }: Victim,
    (names, keep_max): (&[Name], usize),
) -> HashSet<Name> {
    let tier = shard.segments().slot(sealed.number).tier;
    let mut keep = HashSet::new();
    for batch in names.chunks(BATCH) {
        let locked = shard.lock(engine.shared(), guard);
        if !shard.segments().is_current(sealed) {
            return HashSet::new();
        }
        locked.index().prefetch_all(batch.iter().copied());
        for &name in batch {
            let Some(entry) = locked.index().get(name, sealed.number) else { continue };
            let has_copy = || has_copy(&locked, name, sealed);
            let is_kept = || {
                keeps == Keeps::All
                    || engine.shared().admission().keeps(tier, entry.uses(), has_copy)
            };
            if keep.len() < keep_max && is_kept() {
                keep.insert(name);
            }
        }
    }
    keep
}

/// Whether the record of a name has a copy in DRAM.
pub(crate) fn has_copy(locked: &Locked<'_>, name: Name, sealed: Sealed) -> bool {
    let origin = crate::dram::heat::Origin::of(sealed).to_bits();
    let is_copy = |addr| {
        let resident = locked.shared().arena().view(locked.guard(), addr);
        resident.has(mark::HOT) && resident.header.origin().load(Ordering::Relaxed) == origin
    };
    locked.table().find(name.pos, is_copy).is_some()
}

/// Reads the whole segment and reinserts the records of `keep` into the fresh lane. Adds large items among the rest to
/// `dropped`, since their chunks must be discarded with them.
fn reinsert_all(
    engine: &Engine,
    shard: &Shard,
    guard: Guard<'_>,
    sealed: Sealed,
    (keep, dropped): (&HashSet<Name>, &mut Vec<Vec<u8>>),
    buffer: &mut AlignedBuf,
    now: u32,
) -> Result<(), PutOff> {
    let slot = shard.segments().slot(sealed.number);
    let counters = engine.shared().counters().tier(slot.tier);
    buffer.set_len(engine.shared().slots().segment_bytes_on(slot.tier) as usize);
    if let Err(error) = engine.shared().slots().read_tail(slot, buffer) {
        if is_unanswered(&error) {
            return Err(PutOff::Unanswered);
        }
        purge(engine, shard, guard, &[sealed]);
        return Ok(());
    }
    // Records in damaged pages are lost with the segment.
    each_record(shard.segments(), sealed, buffer, |record| match record {
        Some(bytes) => {
            let Some((record, taken)) = Record::decode(bytes) else { return Ok(()) };
            let key = engine.hasher().key(record.key, record.is_chunk());
            let name = engine.hasher().name(key.hash());
            if keep.contains(&name) {
                return reinsert(engine, shard, guard, sealed, bytes, now);
            }
            if record.is_manifest()
                && shard.lock(engine.shared(), guard).entry(name, sealed.number).is_some()
            {
                dropped.push(bytes[..taken].to_vec());
            }
            Ok(())
        }
        None => {
            count(counters.corrupt_pages());
            chunks::note_lost(engine, shard, sealed);
            Ok(())
        }
    })
}

/// Reinserts a record of a segment into the fresh lane, if it is still the key's.
pub(crate) fn reinsert(
    engine: &Engine,
    shard: &Shard,
    guard: Guard<'_>,
    sealed: Sealed,
    bytes: &[u8],
    now: u32,
) -> Result<(), PutOff> {
    let Some((record, taken)) = Record::decode(bytes) else { return Ok(()) };
    let key = engine.hasher().key(record.key, record.is_chunk());
    let name = engine.hasher().name(key.hash());
    let mut locked = shard.lock(engine.shared(), guard);
    let still_there =
        shard.segments().is_current(sealed) && locked.index().get(name, sealed.number).is_some();
    if !still_there {
        return Ok(());
    }
    if record.is_expired(now) {
        locked.unlink(name, sealed.number, Some(taken as u32));
        count(engine.shared().counters().expired());
        chunks::discard_chunks_of(engine, &record);
        return Ok(());
    }
    if record.is_manifest() {
        shard.items_due().note(record.expires);
    }
    let stamp = Stamp {
        mark: mark::REINSERTED,
        accessed: now,
        origin: crate::dram::heat::Origin::of(sealed).to_bits(),
    };
    let write = |out: &mut [u8]| out.copy_from_slice(&bytes[..taken]);
    let appended = locked.append(Lane::Fresh, Asker::Background, taken, stamp, write);
    let addr = appended.map_err(|NoBlock| PutOff::NoRoom)?;
    locked.commit();
    match shard.find_resident(engine.shared(), guard, &key, name.pos) {
        Some((copy, _, at)) => locked.supersede(name.pos, &copy, at, addr, Lane::Fresh),
        None => locked.enter(name.pos, addr, Lane::Fresh),
    }
    locked.unlink(name, sealed.number, Some(taken as u32));
    Ok(())
}

/// Records of a segment that may be kept beyond [`KEEP_PERCENT`].
fn records_to_keep_ahead(engine: &Engine, shard: &Shard, number: u16) -> usize {
    let level =
        engine.shared().slots().tiers()[usize::from(shard.segments().slot(number).tier)].level();
    let most = engine.shared().slots().capacity_on(level) / KEEP_AHEAD_PART;
    let room = most.saturating_sub(engine.kept_ahead().load(Ordering::Relaxed));
    (room / u64::from(shard.segments().average_bytes(number).max(1))) as usize
}

/// Counts `kept` records of a segment, `share` of which are its share.
fn note_kept(engine: &Engine, shard: &Shard, number: u16, kept: usize, share: usize) {
    let bytes = |records: usize| records as u64 * u64::from(shard.segments().average_bytes(number));
    let add = |ahead: u64| Some((ahead + bytes(kept)).saturating_sub(bytes(share)));
    let _ = engine.kept_ahead().fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
}
