//! Moves the records of tiers that are drained to other tiers: to those of the same level while these have room, then
//! to lower levels, then to higher ones.
//!
//! Records are relocated from segment to segment; where that is not possible at present, they go through DRAM. A drain
//! leaves other tiers the slots that they keep free, so that it never makes them drop a record. Where these have no
//! more, segments with void records are reclaimed there first. [`DrainMode::DropOldest`] has the oldest segments
//! reclaimed as on full tiers.

use crate::background::admission::may_write;
use crate::background::demote::{LEFTOVER_MAX, deal, needed};
use crate::background::drop_segment::purge;
use crate::background::merge::room_of_one;
use crate::background::reclaim::{self, Keeps, Sources, Victim};
use crate::background::relocate::{Job, Space};
use crate::background::turn::Turn;
use crate::engine::{Engine, fullness};
use crate::platform::quiesce::{Guard, Reader};
use crate::segments::segment::Sealed;
use crate::stats::DrainMode;
use std::iter::repeat_n;
use std::ops::Range;
use std::sync::atomic::Ordering;
use terrace_device::AlignedBuf;

/// A segment is moved if at most an eighth of the segments is older: partitions that wait for each other move less.
const OLDER_PART: usize = 8;

/// What a partition does next for the tiers that are drained.
pub(crate) enum Next {
    Nothing,
    /// Moves the records of a segment, and of other ones with it.
    Move(Victim, Room),
    /// Reclaims a segment of this level, to make room.
    Reclaim(u16, Victim),
}

/// A tier with room, and the segments that may be written there.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    tier: u16,
    segments: usize,
}

/// Where there is room for more records.
enum Found {
    Room(Room),
    /// Once a segment of this level has been reclaimed.
    Soon(u16),
    Nowhere,
}

/// The drains, as one partition works on them.
#[derive(Default)]
pub(crate) struct Drains {
    turn: Turn,
    /// Segments reclaimed on other tiers since a segment of a tier that is drained was.
    reclaimed: u32,
    /// Unix seconds when no room was found; it is looked for once a second.
    no_room_at: Option<u32>,
    /// Bytes stored on other tiers, and live bytes there, when these had no room.
    then: (u64, u64),
}

impl Drains {
    /// The next thing to do for the tiers that are drained, in these shards.
    pub(crate) fn next(
        &mut self,
        engine: &Engine,
        guard: Guard<'_>,
        shards: Range<usize>,
        now: u32,
    ) -> Next {
        if !has_work(engine) {
            *self = Self::default();
            return Next::Nothing;
        }
        if self.no_room_at == Some(now) {
            return Next::Nothing;
        }
        let is_recovered = |at: &usize| {
            let shard = &engine.shards()[*at];
            shard.lock(engine.shared(), guard).state().recovering().is_none()
        };
        let mut all = shards.clone().filter(is_recovered);
        let Some(victim) = all
            .by_ref()
            .filter_map(|at| oldest(engine, at..at + 1, Keeps::All))
            .min_by_key(|victim| age(engine, victim))
        else {
            return Next::Nothing;
        };
        let tier = tier_of(engine, &victim);
        let store = &engine.shared().slots().tiers()[usize::from(tier)];
        let usage = engine.shards()[victim.shard].segments().usage(victim.sealed.number);
        if usage.live_records() == 0 {
            return Next::Move(victim, Room { tier, segments: 0 });
        }
        let may_drop = store.drain().mode() == Some(DrainMode::DropOldest) && engine.evicts();
        match self.find_room(engine, store.level(), usage.live_bytes().into(), may_drop) {
            Found::Room(room) if may_write(engine, room.tier, 1) => {
                store.drain().note_room(true);
                // All partitions end together, so that the time left can be told from the rate so far.
                let mut is_next =
                    |drained: &Sources| self.turn.has_come(engine, drained, victim, OLDER_PART);
                match Sources::drained(engine) {
                    Some(drained) if is_next(&drained) => Next::Move(victim, room),
                    _ => Next::Nothing,
                }
            }
            // Its write budget allows it later.
            Found::Room(_) => Next::Nothing,
            Found::Soon(level) => {
                match reclaim::choose(engine, shards, &Sources::on(engine, level), false) {
                    Some(victim) => {
                        self.reclaimed += 1;
                        Next::Reclaim(level, victim)
                    }
                    // Other partitions have segments there.
                    None => Next::Nothing,
                }
            }
            Found::Nowhere if may_drop => drop_oldest(engine, shards, victim, store.level()),
            Found::Nowhere => {
                store.drain().note_room(false);
                self.no_room_at = Some(now);
                self.look_again(engine);
                Next::Nothing
            }
        }
    }

    /// Has segments reclaimed again if a segment's worth of records came or went since that gained nothing.
    fn look_again(&mut self, engine: &Engine) {
        let sum = |bytes: fn(&Engine, u16) -> u64| {
            let levels = engine.shared().slots().levels();
            levels.map(|level| bytes(engine, level)).sum::<u64>()
        };
        let now = (sum(fullness::stored_bytes_on), sum(fullness::live_bytes_on));
        let (came, went) = (now.0.saturating_sub(self.then.0), self.then.1.saturating_sub(now.1));
        if came.max(went) >= engine.seal_bytes() {
            (self.reclaimed, self.then) = (0, now);
        }
    }

    /// Notes whether the records of a segment were moved.
    pub(crate) fn note(&mut self, moved: bool) {
        if moved {
            *self = Self::default();
        }
    }

    fn find_room(&self, engine: &Engine, own: u16, bytes: u64, may_drop: bool) -> Found {
        let slots = engine.shared().slots();
        let below = slots.levels().filter(|level| *level > own);
        for level in std::iter::once(own).chain(below).chain((0..own).rev()) {
            let has_room = may_drop || fullness::has_room_on(engine, level, bytes);
            let Some(tier) = slots.next_on(level).filter(|_| has_room) else { continue };
            let kept = fullness::places_kept_free(engine, level);
            let segments = slots.free_on(level).saturating_sub(kept);
            if segments > 0 {
                let free = slots.tiers()[usize::from(tier)].free();
                return Found::Room(Room { tier, segments: segments.min(free) as usize });
            }
            if self.reclaimed <= slots.total_on(level) && !reclaim::is_packed(engine, level) {
                return Found::Soon(level);
            }
        }
        Found::Nowhere
    }
}

/// Whether a tier that is drained has segments.
fn has_work(engine: &Engine) -> bool {
    let tiers = engine.shared().slots().tiers().iter();
    let mut drained = tiers.zip(engine.shared().counters().tiers()).filter(|of| of.0.is_drained());
    drained.any(|(_, counters)| counters.segments_used().load(Ordering::Relaxed) > 0)
}

/// The segment to reclaim when records must go: the oldest of the level, or of the tier that is drained.
fn drop_oldest(engine: &Engine, shards: Range<usize>, drained: Victim, level: u16) -> Next {
    let drained = Victim { keeps: Keeps::Used, ..drained };
    let other = reclaim::choose(engine, shards, &Sources::on(engine, level), true);
    let is_older = |other: &Victim| age(engine, other) < age(engine, &drained);
    Next::Reclaim(level, other.filter(is_older).unwrap_or(drained))
}

fn age(engine: &Engine, victim: &Victim) -> u64 {
    engine.shards()[victim.shard].segments().age(victim.sealed.number)
}

fn tier_of(engine: &Engine, victim: &Victim) -> u16 {
    engine.shards()[victim.shard].segments().slot(victim.sealed.number).tier
}

/// A segment without live records on a tier that is drained, or else the oldest one.
pub(crate) fn oldest(engine: &Engine, shards: Range<usize>, keeps: Keeps) -> Option<Victim> {
    let drained = Sources::drained(engine)?;
    let victims = drained.segments(engine, shards);
    let rank = |victim: &Victim| (reclaim::is_alive(engine, *victim), age(engine, victim));
    victims.map(|(shard, sealed)| Victim { shard, sealed, keeps }).min_by_key(rank)
}

/// Moves the records of a segment, and of the next oldest ones of its shard and tier, to the tier with room. `false` if
/// that is not possible now.
pub(crate) fn move_away(
    (space, segments_max, reader): (&mut Space, usize, &Reader),
    engine: &Engine,
    guard: Guard<'_>,
    (victim, to): (Victim, Room),
    output: &mut AlignedBuf,
    now: u32,
) -> bool {
    let shard = &engine.shards()[victim.shard];
    let numbers = {
        let locked = shard.lock(engine.shared(), guard);
        if locked.state().growing().is_some() { 0 } else { locked.state().numbers().len() }
    };
    let mut most = segments_max.min(numbers).min(to.segments);
    while most > 1 && !may_write(engine, to.tier, most) {
        most /= 2;
    }
    let (tier, segments) = (tier_of(engine, &victim), shard.segments());
    let is_like = |sealed: &Sealed| {
        segments.slot(sealed.number).tier == tier
            && segments.usage(sealed.number).live_records() > 0
    };
    let mut group: Vec<_> = segments.iter().filter(is_like).collect();
    group.sort_unstable_by_key(|sealed| segments.age(sealed.number));
    group.truncate(most);
    if !group.contains(&victim.sealed) {
        return false;
    }
    let job = Job::of(engine, guard, reader, (victim.shard, &group), now);
    let done = job.run(space, |inputs, lists| {
        let generation = job.generation();
        let (mut items, mut names) = (lists.take(), Vec::new());
        for (from, input) in inputs.iter_mut().enumerate() {
            names.push(job.gather(from, input, generation, |_, _, item| items.push(item))?);
        }
        let room = room_of_one(engine, to.tier);
        let outputs = ((needed(&items) + room / 2) / room).clamp(1, group.len() as u64) as usize;
        let places = engine.shared().slots().reserve(repeat_n(to.tier, outputs))?;
        let parts = deal(&items, to.tier, outputs, lists);
        lists.give(items);
        let left_max = LEFTOVER_MAX * engine.seal_bytes();
        job.carry_out((parts, places), lists, output, &names, generation, left_max)
    });
    done || job.take_back_damaged(space)
}

/// Frees all segments of a tier; their records are gone.
pub(crate) fn free_all(engine: &Engine, guard: Guard<'_>, tier: usize) {
    for shard in engine.shards() {
        let segments = shard.segments();
        let is_on_it = |sealed: &Sealed| usize::from(segments.slot(sealed.number).tier) == tier;
        let gone: Vec<_> = segments.iter().filter(is_on_it).collect();
        if !gone.is_empty() {
            purge(engine, shard, guard, &gone);
        }
    }
}
