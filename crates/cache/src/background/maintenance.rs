//! Background work in slices: make room in DRAM, take segments back, grow the index, seal.

use crate::background::admission::Sifted;
use crate::background::buffers::Relief;
use crate::background::census::Walk;
use crate::background::eviction::Compaction;
use crate::background::expiry::Expiry;
use crate::background::grow::{Growth, Pressure, Refused};
use crate::background::pick::Wanted;
use crate::background::reclaim::{Keeps, PutOff, Victim};
use crate::background::reconcile::Reconciliation;
use crate::background::relocate::Space;
use crate::background::round::round;
use crate::background::seal::Outcome;
use crate::background::turn::Turn;
use crate::background::{admission, buffers, chunks, demote, eviction, grow, merge, reclaim, seal};
use crate::engine::{Engine, durability, fullness, limit, lost};
use crate::platform::quiesce::{Guard, Reader};
use crate::tiers::ladder::OUTPUTS_MAX;
use std::ops::Range;
use std::sync::atomic::Ordering;
use terrace_device::AlignedBuf;

/// A round over as many segments as a rung has gains something if so much is stored there meanwhile: one part of the
/// rung in so many.
const ROUND_LETS_IN: u64 = 32;

/// Whether a shard that has enough for a segment is sealed at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    None,
    /// The longer records wait, the more of them are overwritten or expire before they are written.
    WhileThereIsRoom,
}

/// What came of trying to seal a shard.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sealing {
    Worked,
    NotNow,
    /// A segment of the shard has to be taken back first.
    NoRoom,
    /// So it has, since its index can't grow before a drive answers.
    NoIndex,
}

impl Sealing {
    fn of(worked: bool) -> Self {
        if worked { Sealing::Worked } else { Sealing::NotNow }
    }
}

/// What was done on a rung since something was gained. Enough free places are no gain by themselves: what was taken back
/// may wait in DRAM, and takes the same places once it is sealed.
#[derive(Clone, Copy, Default)]
struct Round {
    /// Segments taken back.
    segments: u32,
    /// Bytes that were alive there and in the write buffers, at most.
    live: u64,
    /// Bytes that had been stored there when it began.
    stored: u64,
}

impl Round {
    /// Begins a new one where this one has gained something.
    fn turn(&mut self, engine: &Engine, rung: u16, is_enough: bool) {
        let waiting = engine.shared().counters().fresh_bytes().load(Ordering::Relaxed);
        let (live, stored) = (
            fullness::live_bytes_on(engine, rung) + waiting,
            fullness::stored_bytes_on(engine, rung),
        );
        self.live = self.live.max(live);
        let has_died = !engine.evicts() && live + engine.seal_bytes() <= self.live;
        // Who sets without a pause takes each place that is gained at once.
        let has_let_in =
            stored >= self.stored + fullness::capacity_of(engine, rung) / ROUND_LETS_IN;
        let has_gained = if self.is_over(engine, rung) { is_enough } else { has_let_in };
        if has_died || has_gained {
            *self = Self { segments: 0, live, stored };
        }
    }

    /// Long records leave gaps that nothing fits into. Who has taken back as many segments as there are and
    /// gained nothing would go round for ever.
    fn is_over(&self, engine: &Engine, rung: u16) -> bool {
        self.segments > engine.shared().slots().total_on(rung)
    }
}

/// Whether what is alive on a rung may leave it; `is_crowded` if nothing is gained by keeping it.
fn is_full(engine: &Engine, rung: u16, is_crowded: bool) -> bool {
    match engine.shared().slots().below(rung) {
        Some(_) => is_crowded || fullness::is_full_on(engine, rung),
        None => fullness::may_drop(engine),
    }
}

/// What background work keeps from one slice to the next.
pub(crate) struct Maintenance {
    reader: Reader,
    /// Those that nobody else works on in the background.
    shards: Range<usize>,
    /// One segment, to write.
    segment: AlignedBuf,
    /// One segment, to read.
    reading: AlignedBuf,
    compaction: Compaction,
    /// The shard that had its turn to seal last.
    seal_turn: usize,
    /// Whether segments are taken back by this part or another.
    turn: Turn,
    growth: Option<Growth>,
    reconciliation: Reconciliation,
    expiry: Expiry,
    walk: Walk,
    space: Space,
    /// Segments that are moved at once, at most; 0 where there is no memory to merge.
    segments_max: usize,
    rounds: Vec<Round>,
    /// Drives were told that they need not be waited for.
    is_timing: bool,
}

impl Maintenance {
    /// Of such shards; moves so many segments at once, at most, or does not merge at all.
    pub(crate) fn new(
        reader: Reader,
        shards: Range<usize>,
        segments_max: usize,
        segment_bytes: usize,
    ) -> Self {
        Self {
            reader,
            segment: AlignedBuf::zeroed(segment_bytes),
            reading: AlignedBuf::zeroed(segment_bytes),
            compaction: Compaction::default(),
            seal_turn: shards.start,
            turn: Turn::default(),
            growth: None,
            reconciliation: Reconciliation::new(shards.clone()),
            expiry: Expiry::new(shards.clone()),
            walk: Walk::new(shards.clone()),
            space: Space::new(segment_bytes),
            segments_max,
            rounds: Vec::new(),
            is_timing: false,
            shards,
        }
    }

    /// Does one slice and says whether there was anything to do.
    pub(crate) fn slice(&mut self, engine: &Engine, now: u32) -> bool {
        let quiesce = engine.shared().quiesce();
        // SAFETY: the participant passes its next quiescent point after the last use of the guard, but for moves that
        // park it while they wait for a drive, see `Job::while_parked`.
        let guard = unsafe { quiesce.unbound_guard(&self.reader) };
        if engine.has_lost_state() {
            lost::settle(engine, guard);
        }
        // Before anything expires by it.
        engine.note_time(now);
        engine.shared().admission().ledger().observe(
            engine.shared().slots(),
            engine.shared().counters().tiers(),
            now,
        );
        let is_first = self.shards.start == 0;
        let mut worked = is_first && self.look_after_all(engine, guard, now);
        if !is_first && engine.shared().slots().is_any_silent() {
            // The first part may be waiting for that drive.
            fullness::judge_fullness(engine);
        }
        if engine.has_tiers() {
            worked |= self.keep_growing(engine, guard);
            worked |= self.reconciliation.step(engine, guard, now);
            worked |= self.expiry.step(engine, guard, &mut self.reading, now);
            worked |= self.keep_places_free(engine, guard, now);
            worked |= self.keep_logs_short(engine, guard, now);
            worked |= self.seal_next(engine, guard, now);
        }
        if is_first {
            worked |= self.maintain_logs(engine, guard);
            durability::distrust_failed_logs(engine);
        }
        worked |= chunks::discard_some(engine, guard);
        worked |= self.walk.step(engine, &mut self.reader, &mut self.reading, now);
        quiesce.park(&mut self.reader);
        worked
    }

    /// What does not go shard by shard, ahead of what does.
    fn look_after_all(&mut self, engine: &Engine, guard: Guard<'_>, now: u32) -> bool {
        fullness::judge_fullness(engine);
        let collected = engine.shared().collect();
        let made_room = eviction::make_room(engine, guard, &mut self.compaction, now);
        limit::shrink_to_limit(engine) || made_room || collected
    }

    fn maintain_logs(&mut self, engine: &Engine, guard: Guard<'_>) -> bool {
        let may_clean = engine.recovery().is_done();
        if may_clean && !std::mem::replace(&mut self.is_timing, true) {
            // Recovery reads by many threads, and waits: what it can't read is lost.
            engine.shared().slots().tiers().iter().for_each(|tier| tier.device().begin_timing());
        }
        let locked = |shard: usize, act: &dyn Fn()| {
            let _locked = engine.shards()[shard].lock(engine.shared(), guard);
            act();
        };
        let mut worked = false;
        for log in engine.shared().logs() {
            worked |= log.maintain(engine.shared().slots(), may_clean, &locked);
        }
        worked
    }

    fn keep_growing(&mut self, engine: &Engine, guard: Guard<'_>) -> bool {
        let Some(growth) = &mut self.growth else { return false };
        if !growth.step(engine, guard, &mut self.reading) {
            self.growth = None;
        }
        true
    }

    /// From below, since what an upper rung lets go needs a place there.
    fn keep_places_free(&mut self, engine: &Engine, guard: Guard<'_>, now: u32) -> bool {
        let mut rungs = engine.shared().slots().rungs().rev();
        rungs.any(|rung| self.keep_places_free_on(rung, engine, guard, now))
    }

    /// Kills count for as long as their segment is there: where a log has no slots for many more, segments are
    /// taken back before their places are needed.
    fn keep_logs_short(&mut self, engine: &Engine, guard: Guard<'_>, now: u32) -> bool {
        let slots = engine.shared().slots();
        let mut logs = engine.shared().logs().iter().zip(slots.tiers());
        let long = logs.find(|(log, tier)| tier.works() && log.is_long(slots));
        let Some((_, tier)) = long else { return false };
        self.take_back_oldest((tier.rung(), false), engine, guard, now)
    }

    fn keep_places_free_on(
        &mut self,
        rung: u16,
        engine: &Engine,
        guard: Guard<'_>,
        now: u32,
    ) -> bool {
        let slots = engine.shared().slots();
        if slots.on(rung).next().is_none() {
            // Nothing there can be taken back.
            return false;
        }
        self.rounds.resize(self.rounds.len().max(usize::from(rung) + 1), Round::default());
        let round = &mut self.rounds[usize::from(rung)];
        let is_enough = slots.free_on(rung) >= fullness::places_kept_free(engine, rung);
        round.turn(engine, rung, is_enough);
        if is_enough {
            return false;
        }
        let is_fruitless = round.is_over(engine, rung) || reclaim::is_packed(engine, rung);
        if is_fruitless && !engine.recovery().is_done() {
            // Shards that are not back yet may have what a place is gained by.
            round.segments = 0;
            return false;
        }
        round.segments = round.segments.saturating_add(1);
        if is_fruitless && slots.below(rung).is_none() {
            if !engine.shared().counters().is_full() {
                fullness::note_full(engine);
            }
            if !engine.evicts() {
                // As nothing may go, writing it all anew would gain no place.
                return false;
            }
        }
        self.take_back_oldest((rung, is_fruitless), engine, guard, now)
    }

    /// Takes back a segment of some shards, of the lowest rung where they have one.
    fn take_back(
        &mut self,
        engine: &Engine,
        guard: Guard<'_>,
        shards: Range<usize>,
        now: u32,
    ) -> bool {
        let mut rungs = engine.shared().slots().rungs().rev();
        rungs.any(|rung| {
            let is_full = is_full(engine, rung, false);
            // Where the index has no room, moving what is alive to a lower rung would gain none.
            let goes = is_full || fullness::may_drop(engine);
            let victim = reclaim::choose(engine, shards.clone(), rung, goes);
            victim.is_some_and(|victim| {
                self.take_back_one((rung, is_full), engine, guard, victim, now)
            })
        })
    }

    /// Takes back a segment of a rung, unless a part has older ones; `is_crowded` if nothing is gained by keeping there
    /// what is alive.
    fn take_back_oldest(
        &mut self,
        (rung, is_crowded): (u16, bool),
        engine: &Engine,
        guard: Guard<'_>,
        now: u32,
    ) -> bool {
        let is_full = is_full(engine, rung, is_crowded);
        let victim = reclaim::choose(engine, self.shards.clone(), rung, is_full);
        let Some(victim) = victim else { return false };
        if is_full && reclaim::is_alive(engine, victim) && !self.turn.has_come(engine, rung, victim)
        {
            return false;
        }
        self.take_back_one((rung, is_full), engine, guard, victim, now)
    }

    fn take_back_one(
        &mut self,
        (rung, is_full): (u16, bool),
        engine: &Engine,
        guard: Guard<'_>,
        victim: Victim,
        now: u32,
    ) -> bool {
        let below = engine.shared().slots().below(rung);
        let is_alive = reclaim::is_alive(engine, victim);
        let tier = engine.shards()[victim.shard].segments().slot(victim.sealed.number).tier;
        let space = (&mut self.space, self.segments_max, &self.reader);
        if let Some(below) = below.filter(|_| is_alive && is_full) {
            // Where that can't be done now, what is sealed goes below meanwhile.
            let victim = (victim, below);
            return demote::demote(space, engine, guard, victim, &mut self.segment, now);
        }
        if is_alive
            && admission::may_write(engine, tier, OUTPUTS_MAX as usize)
            && merge::merge(space, engine, guard, victim, &mut self.segment, now)
        {
            return true;
        }
        let Err(put_off) = reclaim::reclaim(engine, guard, victim, &mut self.reading, now) else {
            return true;
        };
        // When there is no room for the records to keep, their shard has to be sealed first.
        if self.try_seal(engine, guard, victim.shard, now, Patience::None) == Sealing::Worked
            || eviction::drop_hot_block(engine, guard, now)
        {
            return true;
        }
        // Nothing else would make some, unless blocks that were given back are free in a moment.
        put_off == PutOff::NoRoom
            && victim.keeps == Keeps::Used
            && engine.shared().arena().retired() == 0
            && {
                let victim = Victim { keeps: Keeps::UsedThatFits, ..victim };
                reclaim::reclaim(engine, guard, victim, &mut self.reading, now).is_ok()
            }
    }

    /// Seals the next shard that has enough for a segment.
    fn seal_next(&mut self, engine: &Engine, guard: Guard<'_>, now: u32) -> bool {
        if !fullness::may_seal(engine) {
            return false;
        }
        match buffers::relieve(engine, guard, (&self.shards, &mut self.seal_turn), now) {
            Relief::Compacted => return true,
            Relief::Write(at) if self.seal(engine, guard, at, now, Patience::None) => return true,
            // There may be too little in it, or its index has to grow first.
            Relief::Write(_) | Relief::NotDue => {}
        }
        round(&self.shards, self.seal_turn).any(|at| {
            self.seal_turn = at;
            self.seal(engine, guard, at, now, Patience::WhileThereIsRoom)
        })
    }

    fn seal(
        &mut self,
        engine: &Engine,
        guard: Guard<'_>,
        at: usize,
        now: u32,
        patience: Patience,
    ) -> bool {
        match self.try_seal(engine, guard, at, now, patience) {
            Sealing::NotNow => false,
            Sealing::NoRoom => self.take_back(engine, guard, at..at + 1, now),
            Sealing::NoIndex => {
                let gained = self.take_back(engine, guard, at..at + 1, now);
                engine.note_stuck(!gained);
                gained
            }
            Sealing::Worked => {
                engine.note_stuck(false);
                true
            }
        }
    }

    fn try_seal(
        &mut self,
        engine: &Engine,
        guard: Guard<'_>,
        at: usize,
        now: u32,
        patience: Patience,
    ) -> Sealing {
        let shard = &engine.shards()[at];
        if shard.lock(engine.shared(), guard).state().recovering().is_some() {
            return Sealing::NotNow;
        }
        let wanted = match admission::sift(engine, guard, at, now) {
            Sifted::Held(worked) => return Sealing::of(worked),
            Sifted::Due(wanted) => wanted,
        };
        let mut locked = shard.lock(engine.shared(), guard);
        if locked.sealable_bytes() < buffers::least_to_seal(engine, &locked) {
            // Overwritten records leave sparse blocks behind, which cost DRAM and no flash write.
            let worked =
                buffers::wastes_blocks(engine, &locked) && eviction::compact_one(&mut locked, now);
            return Sealing::of(worked);
        }
        let is_urgent = patience == Patience::None || wanted == Wanted::Admitted;
        if !is_urgent && buffers::may_wait(engine, &locked) {
            return Sealing::NotNow;
        }
        let coming = buffers::records_per_segment(engine, &locked);
        let is_out_of_numbers = locked.state().numbers().is_empty();
        drop(locked);
        if is_out_of_numbers {
            return Sealing::NoRoom;
        }
        let pressure = grow::pressure(shard, guard, coming);
        if pressure > Pressure::None && self.growth.is_none() {
            match grow::start(engine, guard, at, coming) {
                Ok(growth) => self.growth = Some(growth),
                Err(refused) if pressure == Pressure::Needed => {
                    if refused == Refused::NoMemory {
                        if eviction::drop_hot_block(engine, guard, now) {
                            return Sealing::Worked;
                        }
                        if engine.shared().arena().retired() > 0 {
                            // What was dropped is free once nobody looks at it any more.
                            return Sealing::NotNow;
                        }
                        // Nothing is left to give: what waits to be sealed has the rest.
                    }
                    fullness::note_index_full(engine);
                    // Entries have to go, if any may.
                    return match refused {
                        _ if !engine.evicts() => Sealing::NotNow,
                        Refused::Unanswered => Sealing::NoIndex,
                        _ => Sealing::NoRoom,
                    };
                }
                Err(_) => {}
            }
        }
        if pressure == Pressure::Needed {
            return Sealing::NotNow;
        }
        let outcome = seal::seal(engine, guard, at, &mut self.segment, now, wanted);
        Sealing::of(outcome == Outcome::Sealed)
    }

    /// Grows a shard's index, if it must and can, for one more segment; how many records that has, if there may
    /// not be room for all.
    fn make_index_room(
        &mut self,
        engine: &Engine,
        guard: Guard<'_>,
        at: usize,
        now: u32,
    ) -> Option<u64> {
        while self.keep_growing(engine, guard) {}
        let shard = &engine.shards()[at];
        let coming = buffers::records_per_segment(engine, &shard.lock(engine.shared(), guard));
        let is_needed = || grow::pressure(shard, guard, coming) == Pressure::Needed;
        while is_needed() {
            match grow::start(engine, guard, at, coming) {
                Ok(growth) => {
                    self.growth = Some(growth);
                    while self.keep_growing(engine, guard) {}
                    break;
                }
                Err(Refused::NoMemory) if eviction::drop_hot_block(engine, guard, now) => {}
                Err(_) => break,
            }
            engine.shared().collect();
        }
        is_needed().then_some(coming)
    }

    /// Seals everything of its shards that is in DRAM only, until `goes_on` says no, while nobody else works in the
    /// background.
    pub(crate) fn seal_all(&mut self, engine: &Engine, now: u32, goes_on: &dyn Fn() -> bool) {
        self.discard_all(engine, goes_on);
        for at in self.shards.clone() {
            self.seal_all_of(at, engine, now, goes_on);
        }
        // Those of items that had to go meanwhile.
        self.discard_all(engine, goes_on);
        engine.shared().quiesce().park(&mut self.reader);
    }

    /// Removes the chunks of items that are gone: after the next start nobody knows of them any more.
    fn discard_all(&mut self, engine: &Engine, goes_on: &dyn Fn() -> bool) {
        engine.shared().quiesce().refresh(&mut self.reader);
        let guard = engine.shared().quiesce().guard(&self.reader);
        while goes_on() && chunks::discard_some(engine, guard) {}
    }

    /// Places for it are taken back from the shard itself: what is put back into DRAM for that is sealed with it, and
    /// would have to be once more in a shard that was done with before.
    fn seal_all_of(&mut self, at: usize, engine: &Engine, now: u32, goes_on: &dyn Fn() -> bool) {
        let segments = engine.shards()[at].segments().iter().count();
        let (mut taken_back, mut is_crowded) = (0, false);
        while goes_on() {
            engine.shared().quiesce().refresh(&mut self.reader);
            // SAFETY: as in `slice`; the next quiescent point is that of the next round.
            let guard = unsafe { engine.shared().quiesce().unbound_guard(&self.reader) };
            let slots = engine.shared().slots();
            if engine.shared().logs().iter().any(|log| log.is_short_of_slots(slots)) {
                // What is said from here on takes some, too.
                self.maintain_logs(engine, guard);
            }
            let crowd = self.make_index_room(engine, guard, at, now);
            // What was sealed in vain may be what is taken back first.
            let may_take_back = taken_back < 2 * segments + 2;
            let outcome = match is_crowded && crowd.is_some() && may_take_back {
                true => None,
                false => self.seal_left(engine, guard, at, now, crowd),
            };
            is_crowded = outcome.is_none();
            match outcome {
                Some(Outcome::Sealed) => {}
                None | Some(Outcome::Blocked) if may_take_back => {
                    taken_back += 1;
                    // The logs have to be durable in the end, which takes places, too.
                    engine.shared().spill_logs();
                    if (taken_back > segments || is_crowded) && engine.recovery().is_done() {
                        // Nothing is gained by keeping what is alive.
                        match is_crowded {
                            true => fullness::note_index_full(engine),
                            false => fullness::note_full(engine),
                        }
                    }
                    fullness::judge_fullness(engine);
                    self.take_back(engine, guard, at..at + 1, now);
                }
                _ => return,
            }
            engine.shared().collect();
        }
    }

    /// Seals what is left. `None` if the index took hardly any of it, or of a `crowd` for which there may be no room:
    /// that would be sealed again and again, until there is no place.
    fn seal_left(
        &mut self,
        engine: &Engine,
        guard: Guard<'_>,
        at: usize,
        now: u32,
        crowd: Option<u64>,
    ) -> Option<Outcome> {
        let left = || engine.shards()[at].lock(engine.shared(), guard).state().fresh().records();
        let before = left();
        let outcome = seal::seal(engine, guard, at, &mut self.segment, now, Wanted::All);
        let least = crowd.map_or(1, |coming| (coming.min(before) / 4).max(1));
        let is_in_vain = outcome == Outcome::Sealed && before.saturating_sub(left()) < least;
        (!is_in_vain).then_some(outcome)
    }
}
