//! One partition of the background work, in slices: makes room in DRAM, grows indexes, reclaims, seals.

use crate::background::admission::Sifted;
use crate::background::buffers::Relief;
use crate::background::census::Walk;
use crate::background::drain::{Drains, Next};
use crate::background::eviction::Compaction;
use crate::background::expiry::Expiry;
use crate::background::gain::Round;
use crate::background::grow::{Growth, Pressure, Refused};
use crate::background::pick::Wanted;
use crate::background::reclaim::{Keeps, PutOff, Sources, Victim};
use crate::background::reconcile::Reconciliation;
use crate::background::relocate::Space;
use crate::background::round::round;
use crate::background::seal::Outcome;
use crate::background::turn::{OLDER_PART, Turn};
use crate::background::{
    self, admission, buffers, chunks, demote, eviction, grow, merge, reclaim, seal,
};
use crate::dram::lane::Lane;
use crate::engine::{Engine, drain, durability, fullness, limit, lost};
use crate::platform::quiesce::{Guard, Reader};
use crate::tiers::ladder::OUTPUTS_MAX;
use crate::tiers::slots::TierStore;
use std::ops::Range;
use terrace_device::AlignedBuf;

/// Whether a shard that has enough for a segment is sealed at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    None,
    /// The longer records wait, the more of them are overwritten or expire before they are written.
    WhileThereIsRoom,
}

/// The result of an attempt to seal a shard.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sealing {
    Worked,
    NotNow,
    /// A segment of the shard must be reclaimed first.
    NoRoom,
    /// As `NoRoom`, since the shard's index can't grow before a drive answers.
    NoIndex,
}

impl Sealing {
    fn of(worked: bool) -> Self {
        if worked { Sealing::Worked } else { Sealing::NotNow }
    }
}

/// Whether live records may leave a tier level; `is_crowded` if keeping them gains nothing.
fn is_full(engine: &Engine, level: u16, is_crowded: bool) -> bool {
    match engine.shared().slots().below(level) {
        Some(_) => is_crowded || fullness::is_full_on(engine, level),
        None => fullness::may_drop(engine),
    }
}

/// Segments that are written before a drain moves some records, while buffers are short.
const SEALS_PER_DRAIN: u32 = 16;

/// The state of a partition from one slice to the next.
pub(crate) struct Maintenance {
    reader: Reader,
    /// The shards of this partition; no other one works on them.
    shards: Range<usize>,
    /// A buffer for the segment to write.
    segment: AlignedBuf,
    /// A buffer for the segment to read.
    reading: AlignedBuf,
    compaction: Compaction,
    /// The shard that was last served by sealing.
    seal_turn: usize,
    /// Whether this partition reclaims next, or another one.
    turn: Turn,
    growth: Option<Growth>,
    reconciliation: Reconciliation,
    expiry: Expiry,
    walk: Walk,
    space: Space,
    /// Segments that are relocated at once, at most; 0 where there is no memory to compact segments.
    segments_max: usize,
    rounds: Vec<Round>,
    drains: Drains,
    /// Segments written since buffers became short, without a pause.
    sealed: u32,
    /// Deadlines of the drives are on.
    is_timing: bool,
}

impl Maintenance {
    /// For these shards; relocates at most `segments_max` segments at once, or does not compact segments if 0.
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
            drains: Drains::default(),
            sealed: 0,
            is_timing: false,
            shards,
        }
    }

    /// Does one slice; `false` if there was nothing to do.
    pub(crate) fn slice(&mut self, engine: &Engine, now: u32) -> bool {
        let quiesce = engine.shared().quiesce();
        // SAFETY: the reader passes its next quiescent point after the last use of the guard, except in relocations,
        // which park it while they wait for a drive, see `Job::while_parked`.
        let guard = unsafe { quiesce.unbound_guard(&self.reader) };
        if engine.has_lost_state() {
            lost::handle(engine, guard);
        }
        // Must come before anything expires by this time.
        engine.note_time(now);
        engine.shared().admission().ledger().observe(
            engine.shared().slots(),
            engine.shared().counters().tiers(),
            now,
        );
        let is_first = self.shards.start == 0;
        let mut worked = is_first && self.look_after_all(engine, guard, now);
        if !is_first && engine.shared().slots().is_any_silent() {
            // The first partition may be waiting for that drive.
            fullness::judge_fullness(engine);
        }
        if engine.has_tiers() {
            worked |= self.keep_growing(engine, guard);
            worked |= self.reconciliation.step(engine, guard, now);
            worked |= self.expiry.step(engine, guard, &mut self.reading, now);
            worked |= self.keep_places_free(engine, guard, now);
            worked |= self.keep_logs_short(engine, guard, now);
            let sealed = self.seal_next(engine, guard, now);
            worked |= sealed;
            // Requests wait for buffers; a drain does not, but must come to its end.
            self.sealed =
                if sealed && engine.shared().is_short_of_buffers() { self.sealed + 1 } else { 0 };
            if self.sealed.is_multiple_of(SEALS_PER_DRAIN) {
                worked |= self.drain_some(engine, guard, now);
            }
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

    /// Work that is not divided by shards; must come before the rest.
    fn look_after_all(&mut self, engine: &Engine, guard: Guard<'_>, now: u32) -> bool {
        drain::keep_a_tier(engine);
        fullness::judge_fullness(engine);
        let collected = engine.shared().collect();
        let made_room = eviction::make_room(engine, guard, &mut self.compaction, now);
        limit::shrink_to_limit(engine) || made_room || collected
    }

    fn maintain_logs(&mut self, engine: &Engine, guard: Guard<'_>) -> bool {
        let may_clean = engine.recovery().is_done();
        if may_clean && !std::mem::replace(&mut self.is_timing, true) {
            // Recovery reads with many threads, and waits without a deadline: a record that it can't read is lost.
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

    /// Begins with the last level, since demoted records need slots there.
    fn keep_places_free(&mut self, engine: &Engine, guard: Guard<'_>, now: u32) -> bool {
        let mut levels = engine.shared().slots().levels().rev();
        levels.any(|level| self.keep_places_free_on(level, engine, guard, now))
    }

    /// Reclaims a segment before its slot is needed if a log has slots for few more tombstones: these count until their
    /// segment is reclaimed; and on a tier where no slot is left for its log, however many others of its level have.
    fn keep_logs_short(&mut self, engine: &Engine, guard: Guard<'_>, now: u32) -> bool {
        let slots = engine.shared().slots();
        let is_starved = |tier: &TierStore| tier.takes_segments() && tier.has_used_log_reserve();
        let mut tiers = slots.tiers().iter().zip(engine.shared().logs()).enumerate();
        let found =
            tiers.find(|(_, (tier, log))| is_starved(tier) || tier.works() && log.is_long(slots));
        let Some((at, (tier, _))) = found else { return false };
        let sources = match is_starved(tier) {
            true => Sources::only(engine, at),
            false => Sources::on(engine, tier.level()),
        };
        self.take_back_oldest((tier.level(), &sources, false), engine, guard, now)
    }

    fn keep_places_free_on(
        &mut self,
        level: u16,
        engine: &Engine,
        guard: Guard<'_>,
        now: u32,
    ) -> bool {
        let slots = engine.shared().slots();
        if slots.on(level).next().is_none() {
            // No segment there can be reclaimed.
            return false;
        }
        self.rounds.resize(self.rounds.len().max(usize::from(level) + 1), Round::default());
        let round = &mut self.rounds[usize::from(level)];
        let is_enough = fullness::has_places(engine, level);
        round.turn(engine, level, is_enough);
        if is_enough {
            return false;
        }
        let is_fruitless = round.is_over(engine, level) || reclaim::is_packed(engine, level);
        if is_fruitless && !engine.recovery().is_done() {
            // Shards that are not recovered yet may have segments that free a slot.
            round.restart();
            return false;
        }
        round.count();
        if is_fruitless && slots.below(level).is_none() {
            if fullness::has_places_on_any(engine, level) {
                // Only the fast tiers are full: slow ones take what comes.
                return false;
            }
            if !engine.shared().counters().is_full() {
                fullness::note_full(engine);
            }
            if !engine.evicts() {
                // No record may be evicted, and relocating all of them would free no slot.
                return false;
            }
        }
        let sources = Sources::short_on(engine, level);
        self.take_back_oldest((level, &sources, is_fruitless), engine, guard, now)
    }

    /// Reclaims a segment of some shards, on the last level where they have one.
    fn take_back(
        &mut self,
        engine: &Engine,
        guard: Guard<'_>,
        shards: Range<usize>,
        now: u32,
    ) -> bool {
        let mut levels = engine.shared().slots().levels().rev();
        let has_taken_back = levels.any(|level| {
            let is_full = is_full(engine, level, false);
            // Where the index has no room, demoting live records would free none.
            let goes = is_full || fullness::may_drop(engine);
            let sources = Sources::on(engine, level);
            let victim = reclaim::choose(engine, shards.clone(), &sources, goes);
            victim.is_some_and(|victim| {
                self.take_back_one((level, is_full), engine, guard, victim, now)
            })
        });
        // What a shard has on tiers that are drained takes room in its index, too.
        has_taken_back || {
            let keeps = if fullness::may_drop(engine) { Keeps::Used } else { Keeps::All };
            let victim = background::drain::oldest(engine, shards, keeps);
            victim.is_some_and(|victim| self.take_back_one((0, false), engine, guard, victim, now))
        }
    }

    /// Moves some records off a tier that is drained.
    fn drain_some(&mut self, engine: &Engine, guard: Guard<'_>, now: u32) -> bool {
        match self.drains.next(engine, guard, self.shards.clone(), now) {
            Next::Nothing => false,
            Next::Move(victim, to) => {
                let space = (&mut self.space, self.segments_max, &self.reader);
                let moved = background::drain::move_away(
                    space,
                    engine,
                    guard,
                    (victim, to),
                    &mut self.segment,
                    now,
                ) || self.take_back_one((0, false), engine, guard, victim, now);
                self.drains.note(moved);
                moved
            }
            Next::Reclaim(level, victim) => {
                let is_full = victim.keeps != Keeps::All;
                self.take_back_one((level, is_full), engine, guard, victim, now)
            }
        }
    }

    /// Reclaims a segment of a tier level, unless another partition has older ones; `is_crowded` if keeping live
    /// records there gains nothing.
    fn take_back_oldest(
        &mut self,
        (level, sources, is_crowded): (u16, &Sources, bool),
        engine: &Engine,
        guard: Guard<'_>,
        now: u32,
    ) -> bool {
        let is_full = is_full(engine, level, is_crowded);
        let victim = reclaim::choose(engine, self.shards.clone(), sources, is_full);
        let Some(victim) = victim else { return false };
        if is_full
            && reclaim::is_alive(engine, victim)
            && !self.turn.has_come(engine, sources, victim, OLDER_PART)
        {
            return false;
        }
        self.take_back_one((level, is_full), engine, guard, victim, now)
    }

    fn take_back_one(
        &mut self,
        (level, is_full): (u16, bool),
        engine: &Engine,
        guard: Guard<'_>,
        victim: Victim,
        now: u32,
    ) -> bool {
        let below = engine.shared().slots().below(level);
        let tier = engine.shards()[victim.shard].segments().slot(victim.sealed.number).tier;
        // No record is moved to another segment of a tier that is drained.
        let is_drained = engine.shared().slots().tiers()[usize::from(tier)].drain().is_any();
        let is_alive = reclaim::is_alive(engine, victim) && !is_drained;
        let space = (&mut self.space, self.segments_max, &self.reader);
        if let Some(below) = below.filter(|_| is_alive && is_full) {
            // If that is not possible now, sealed records are written to the level below meanwhile.
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
        // If there is no room for the records to keep, their shard must be sealed first.
        if self.try_seal(engine, guard, victim.shard, now, Patience::None) == Sealing::Worked
            || eviction::drop_hot_block(engine, guard, now)
        {
            return true;
        }
        // Nothing else would make room, unless retired blocks are free in a moment.
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
            // The shard may have too little, or its index must grow first.
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
            // Overwritten records leave sparse blocks: compacting these costs no write to a tier.
            let worked = buffers::wastes_blocks(engine, &locked)
                && eviction::compact_one(&mut locked, Lane::Fresh, now);
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
                            // Dropped blocks are free once no reader holds them.
                            return Sealing::NotNow;
                        }
                        // Copies have nothing left to give: the records to seal have the rest.
                    }
                    fullness::note_index_full(engine);
                    // Entries must be removed, if any may.
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

    /// Grows a shard's index for one more segment, if it must and can. Returns the records of that segment if there may
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

    /// Seals all fresh records of its shards, until `goes_on` returns `false`. No other thread may work in the
    /// background meanwhile.
    pub(crate) fn seal_all(&mut self, engine: &Engine, now: u32, goes_on: &dyn Fn() -> bool) {
        self.discard_all(engine, goes_on);
        for at in self.shards.clone() {
            self.seal_all_of(at, engine, now, goes_on);
        }
        // The chunks of items that were dropped meanwhile.
        self.discard_all(engine, goes_on);
        engine.shared().quiesce().park(&mut self.reader);
    }

    /// Removes the chunks of items that are gone: the next start does not know of them.
    fn discard_all(&mut self, engine: &Engine, goes_on: &dyn Fn() -> bool) {
        engine.shared().quiesce().refresh(&mut self.reader);
        let guard = engine.shared().quiesce().guard(&self.reader);
        while goes_on() && chunks::discard_some(engine, guard) {}
    }

    /// Seals all fresh records of a shard. Slots for it are reclaimed from the same shard: the reinserted records are
    /// sealed with it, while those of a shard that was done would have to be sealed again.
    fn seal_all_of(&mut self, at: usize, engine: &Engine, now: u32, goes_on: &dyn Fn() -> bool) {
        let segments = engine.shards()[at].segments().iter().count();
        let (mut taken_back, mut is_crowded) = (0, false);
        while goes_on() {
            engine.shared().quiesce().refresh(&mut self.reader);
            // SAFETY: as in `slice`; the next quiescent point is that of the next turn of the loop.
            let guard = unsafe { engine.shared().quiesce().unbound_guard(&self.reader) };
            let slots = engine.shared().slots();
            if engine.shared().logs().iter().any(|log| log.is_short_of_slots(slots)) {
                // The words appended from here on need slots, too.
                self.maintain_logs(engine, guard);
            }
            let crowd = self.make_index_room(engine, guard, at, now);
            // Records that were sealed in vain may be the first to be reclaimed.
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
                    // The logs must be durable in the end, which needs slots, too.
                    engine.shared().spill_logs();
                    if (taken_back > segments || is_crowded) && engine.recovery().is_done() {
                        // Keeping live records gains nothing.
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

    /// Seals the remaining records. `None` if the index took hardly any of them, or of a `crowd` for which there may be
    /// no room: they would be sealed again and again, until there is no slot.
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
