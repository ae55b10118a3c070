//! Merging: what is alive in some segments of a shard moves into fewer new ones, from drive to drive.
//!
//! Records that reclaim puts back one by one take a place in DRAM, a line of the table and a seal; here
//! they are copied in bulk, in hash order, and only the segment numbers of their entries change. The new
//! segments count from one commit on, with which the old ones end ([`crate::word::Word::Follow`]): after
//! a crash every record is in the ones or in the others.

use crate::cache::Engine;
use crate::counters::count;
use crate::crash::crash_point;
use crate::hot;
use crate::key::Name;
use crate::kill_log::Seat;
use crate::layout::{Footer, PAGE, PAGE_ROOM};
use crate::memory::Guard;
use crate::packing::{self, assemble, defer_equal_names, fit};
use crate::reclaim::{self, Unreadable, Victim, spans};
use crate::record::Record;
use crate::segment::{Sealed, SlotId};
use crate::settle;
use crate::shard::{Lane, Locked, Shard};
use std::ops::Range;
use std::sync::atomic::Ordering;
use terrace_device::AlignedBuf;

/// Segments merged at once, at most, and at least where memory is scarce.
const SEGMENTS_MAX: usize = 8;
const SEGMENTS_MIN: usize = 3;
/// New segments that one merge makes, at most.
pub(crate) const OUTPUTS_MAX: u32 = SEGMENTS_MAX as u32 - 1;
/// Records looked at, or handed over, per hold of the shard's lock.
const BATCH: usize = 64;
/// What is filled of a segment at most, in percent of what its records should take on average.
const FILL_PERCENT: u64 = 98;

/// Records that no new segment has room for go through DRAM once more, and take a place again: merging is
/// given up where they are more than this part of what it gains.
const LEFTOVER_PART: u64 = 4;
/// What is written for what is gained may be this much of what it would be without gaps.
const FRUGAL: (u64, u64) = (9, 8);
/// A prime that is larger than the number of records ever is: its multiples, taken modulo that number, are
/// all numbers below it, in no order that matters.
const SCATTER: u64 = 2_654_435_761;

/// A record, and which of the old segments it comes from.
type Item<'b> = packing::Item<'b, u8>;

/// A new segment that was written, and does not count yet.
struct Output<'p, 'b> {
    slot: SlotId,
    footer: Footer,
    items: &'p [Item<'b>],
}

/// The memory that merging works in.
pub(crate) struct Merger {
    inputs: Vec<AlignedBuf>,
    /// Empty between merges; kept since the allocator would get them from the kernel, page by page, every
    /// time.
    parts: Vec<Vec<Item<'static>>>,
    segments_max: usize,
    segment_bytes: usize,
}

impl Merger {
    /// One that takes no more than a thirty-second of `memory` bytes, or a sixteenth for the three segments
    /// that are the least; where that is too little, nothing is merged.
    pub(crate) fn new(memory: u64, segment_bytes: usize) -> Self {
        let segments_max = Self::segments_max(memory, segment_bytes);
        let (inputs, parts) = (Vec::new(), Vec::new());
        Self { inputs, parts, segments_max, segment_bytes }
    }

    fn segments_max(memory: u64, segment_bytes: usize) -> usize {
        let within = |part: usize| memory as usize / part / segment_bytes.max(1);
        if within(16) < SEGMENTS_MIN { 0 } else { within(32).clamp(SEGMENTS_MIN, SEGMENTS_MAX) }
    }

    /// Bytes of DRAM.
    pub(crate) fn bytes_for(memory: u64, segment_bytes: usize) -> u64 {
        (Self::segments_max(memory, segment_bytes) * segment_bytes) as u64
    }

    /// Merges the segment that is to be taken back with others of its shard. `false` if nothing would be
    /// gained, or something is in the way.
    pub(crate) fn merge(
        &mut self,
        engine: &Engine,
        guard: Guard<'_>,
        victim: Victim,
        output: &mut AlignedBuf,
        now: u32,
    ) -> bool {
        let Some((group, outputs)) = choose(engine, guard, victim, self.segments_max) else {
            return false;
        };
        while self.inputs.len() < group.len() {
            self.inputs.push(AlignedBuf::zeroed(self.segment_bytes));
        }
        let inputs = &mut self.inputs[..group.len()];
        let shard = &engine.shards[victim.shard];
        let job = Job { engine, shard, guard, at: victim.shard, group: &group, now };
        shard.lock(&engine.pool, guard).state.leaving = group.clone();
        let mut parts: Vec<_> = self.parts.drain(..).map(emptied).collect();
        parts.resize_with(parts.len().max(outputs), Vec::new);
        let done = job.run(inputs, output, &mut parts[..outputs]).is_some();
        self.parts = parts.into_iter().map(emptied).collect();
        let mut locked = shard.lock(&engine.pool, guard);
        locked.state.leaving.clear();
        locked.state.arriving.clear();
        done
    }
}

/// The memory of a list, for records that lie elsewhere.
fn emptied<'b>(mut items: Vec<Item<'_>>) -> Vec<Item<'b>> {
    items.clear();
    // Collected in place: nothing is moved, and nothing allocated.
    items.into_iter().map_while(|_| None).collect()
}

/// The emptiest segments beside the victim, as many as gain most for what is written, and how many new ones
/// they make.
fn choose(
    engine: &Engine,
    guard: Guard<'_>,
    victim: Victim,
    segments_max: usize,
) -> Option<(Vec<Sealed>, usize)> {
    let shard = &engine.shards[victim.shard];
    let segments = &shard.segments;
    let tier = segments.slot(victim.sealed.number).tier;
    let locked = shard.lock(&engine.pool, guard);
    let may_merge = locked.state.growing.is_none()
        && locked.state.awaited.is_none()
        && !engine.pool.counters.is_full();
    let room = (engine.pool.slots.tiers[usize::from(tier)].free() as usize)
        .min(locked.state.numbers.len());
    drop(locked);
    if !may_merge || room == 0 {
        return None;
    }
    let is_like = |sealed: &Sealed| {
        segments.slot(sealed.number).tier == tier
            && segments.extents(sealed.number).next().is_none()
            && segments.usage(sealed.number).live_records > 0
    };
    // What lives in them changes meanwhile: it is looked at once.
    let like = segments.iter().filter(is_like);
    let mut all: Vec<_> = like.map(|sealed| (segments.usage(sealed.number), sealed)).collect();
    all.sort_unstable_by_key(|(usage, _)| usage.live_bytes);
    all.truncate(segments_max);
    let room_of_one = u64::from(engine.geometry.segment_bytes) * FILL_PERCENT / 100;
    let (mut records, mut bytes) = (0u64, 0u64);
    let mut best: Option<Offer> = None;
    for (n, (usage, _)) in (1..).zip(&all) {
        records += u64::from(usage.live_records);
        bytes += u64::from(usage.live_bytes);
        let pages = bytes.div_ceil(PAGE_ROOM as u64);
        let needed =
            pages * (PAGE as u64 + 4) + Footer::bytes_for(records as usize, 0, false, 0) as u64;
        let outputs = (needed / room_of_one) as usize..=needed.div_ceil(room_of_one) as usize;
        for offer in outputs.filter_map(|outputs| Offer::new(n, outputs, needed, room_of_one)) {
            let is_better = best.is_none_or(|best| offer.is_better_than(best));
            if offer.outputs <= room && is_better {
                best = Some(offer);
            }
        }
    }
    let Offer { segments, outputs, .. } = best?;
    let group: Vec<_> = all.into_iter().take(segments).map(|(_, sealed)| sealed).collect();
    group.contains(&victim.sealed).then_some((group, outputs))
}

/// A merge that may be worth it; all but the first two in bytes.
#[derive(Clone, Copy)]
struct Offer {
    segments: usize,
    outputs: usize,
    /// What finds no room in the new segments.
    left: u64,
    /// With what is left, which is written later.
    written: u64,
    gained: u64,
}

impl Offer {
    /// `None` if it would leave too much, or write much more than records need: half-empty segments are
    /// better taken back one by one, which packs them without a gap.
    fn new(segments: usize, outputs: usize, needed: u64, room_of_one: u64) -> Option<Self> {
        let (all, new) = (segments as u64 * room_of_one, outputs as u64 * room_of_one);
        let left = needed.saturating_sub(new);
        let written = new + left;
        let gained = all.checked_sub(written)?;
        let is_frugal =
            written * (all - needed) * FRUGAL.1 <= needed * gained * FRUGAL.0 && outputs > 0;
        let is_worth_it = is_frugal && gained > 0 && left * LEFTOVER_PART <= gained;
        is_worth_it.then_some(Self { segments, outputs, left, written, gained })
    }

    /// Less work for what is gained; what is left costs twice.
    fn is_better_than(self, other: Self) -> bool {
        (self.written + self.left) * other.gained < (other.written + other.left) * self.gained
    }
}

/// One merge. Steps answer `None` when it can't go on; until the new segments begin nothing has changed.
struct Job<'e> {
    engine: &'e Engine,
    shard: &'e Shard,
    guard: Guard<'e>,
    at: usize,
    group: &'e [Sealed],
    now: u32,
}

impl<'e> Job<'e> {
    /// Fills as many new segments as there are empty `parts`.
    fn run<'b>(
        &self,
        inputs: &'b mut [AlignedBuf],
        output: &mut AlignedBuf,
        parts: &mut [Vec<Item<'b>>],
    ) -> Option<()> {
        let generation = self.lock().state.generation;
        let mut old = Vec::new();
        for (from, input) in inputs.iter_mut().enumerate() {
            let (names, spans) = self.read(self.group[from], input)?;
            self.gather(from, input, &names, &spans, generation, parts)?;
            old.push(names);
        }
        let leftover: Vec<_> = parts.iter_mut().flat_map(|part| self.fit(part)).collect();
        let left: usize = leftover.iter().map(|item| item.bytes.len()).sum();
        let gained = (self.group.len() - parts.len()) * self.engine.geometry.segment_bytes as usize;
        if left as u64 * LEFTOVER_PART > gained as u64 {
            return None;
        }
        let Self { engine, shard, guard, now, .. } = *self;
        for item in &leftover {
            reclaim::reinsert(engine, shard, guard, self.old(item), item.bytes, now).ok()?;
        }
        let outputs = self.write_all(parts, output, generation)?;
        self.publish(&outputs, generation)?;
        self.end(&outputs, &old, generation)
    }

    fn lock(&self) -> Locked<'e> {
        self.shard.lock(&self.engine.pool, self.guard)
    }

    /// The segment that a record comes from.
    fn old(&self, item: &Item<'_>) -> Sealed {
        self.group[usize::from(item.source)]
    }

    /// As [`Job::lock`], unless everything was flushed since.
    fn lock_unless_flushed(&self, generation: u64) -> Option<Locked<'e>> {
        let locked = self.lock();
        (locked.state.generation == generation).then_some(locked)
    }

    /// Reads a segment, decides about its suspended entries, and says what names it has, and where the
    /// record of each lies.
    fn read(
        &self,
        sealed: Sealed,
        input: &mut AlignedBuf,
    ) -> Option<(Vec<Name>, Vec<Range<usize>>)> {
        let (engine, shard) = (self.engine, self.shard);
        input.set_len(engine.geometry.segment_bytes as usize);
        engine.pool.slots.read_tail(shard.segments.slot(sealed.number), input).ok()?;
        let footer = match reclaim::check_footer(engine, shard, sealed, input) {
            Ok(footer) => footer,
            // Who takes the segment back by itself deals with it.
            Err(Unreadable::Device | Unreadable::Corrupt) => return None,
        };
        let stuck = settle::by_footer(engine, shard, self.guard, sealed, &footer);
        // What lies in damaged pages would leave entries behind.
        let spans: Option<Vec<_>> = spans(&shard.segments, sealed, input).into_iter().collect();
        let spans = spans.filter(|spans| stuck.is_empty() && spans.len() == footer.names.len())?;
        // Without extents, records lie in the order of their names.
        Some((footer.names, spans))
    }

    /// Deals the live records of an old segment out, so that those of each new one are spread evenly over
    /// all positions.
    fn gather<'b>(
        &self,
        from: usize,
        input: &'b [u8],
        names: &[Name],
        spans: &[Range<usize>],
        generation: u64,
        parts: &mut [Vec<Item<'b>>],
    ) -> Option<()> {
        let (engine, number) = (self.engine, self.group[from].number);
        let outputs = parts.len();
        let mut turns = (0..outputs).cycle().skip(from % outputs);
        for (names, spans) in names.chunks(BATCH).zip(spans.chunks(BATCH)) {
            let mut locked = self.lock_unless_flushed(generation)?;
            locked.index().prefetch_all(names.iter());
            for (&name, span) in names.iter().zip(spans) {
                if locked.index().get(name, number).is_none() {
                    continue;
                }
                let bytes = &input[span.clone()];
                let (record, _) = Record::decode(bytes)?;
                if record.is_expired(self.now) {
                    locked.unlink(name, number, Some(bytes.len() as u32));
                    count(&engine.pool.counters.expired);
                    continue;
                }
                parts[turns.next()?].push(Item {
                    is_manifest: record.is_manifest,
                    payload_bytes: record.payload_bytes() as u32,
                    expires: record.expires,
                    ..Item::new(name, bytes, from as u8)
                });
            }
        }
        Some(())
    }

    /// Finds places for the records of a new segment; answers those that find none, which are of all
    /// positions too.
    fn fit<'b>(&self, part: &mut Vec<Item<'b>>) -> Vec<Item<'b>> {
        part.sort_unstable_by_key(|item| item.name);
        let count = part.len() as u64;
        let scattered = (0..).map(|n: u64| (n * SCATTER % count.max(1)) as u32);
        part.iter_mut().zip(scattered).for_each(|(item, arrival)| item.arrival = arrival);
        let mut left = defer_equal_names(part, self.shard.index.load(self.guard).bucket_width());
        left.extend(fit(part, self.engine.geometry.segment_bytes as usize));
        left
    }

    fn write_all<'p, 'b>(
        &self,
        parts: &'p [Vec<Item<'b>>],
        output: &mut AlignedBuf,
        generation: u64,
    ) -> Option<Vec<Output<'p, 'b>>> {
        let mut written = Vec::new();
        for items in parts.iter().filter(|items| !items.is_empty()) {
            match self.write(items, output) {
                Ok(output) => written.push(output),
                Err(number) => {
                    let mut locked = self.lock();
                    if locked.state.generation == generation {
                        let numbers =
                            written.iter().map(|output: &Output<'_, '_>| output.footer.number);
                        locked.state.numbers.extend(numbers.chain(number));
                    }
                    written.iter().for_each(|output| self.engine.pool.slots.give(output.slot));
                    return None;
                }
            }
        }
        crash_point("merge: written");
        Some(written)
    }

    /// Writes a new segment; an error is the number that it would have had. A place that can't be written
    /// is not used again.
    fn write<'p, 'b>(
        &self,
        items: &'p [Item<'b>],
        segment: &mut AlignedBuf,
    ) -> Result<Output<'p, 'b>, Option<u16>> {
        let engine = self.engine;
        let tier = self.shard.segments.slot(self.group[0].number).tier;
        let number = self.lock().state.numbers.pop().ok_or(None)?;
        let slot = engine.pool.slots.take_of(tier).ok_or(Some(number))?;
        let mut footer = Footer {
            seq: engine.next_seq(),
            shard: self.at as u16,
            number,
            sealed: self.now,
            buckets: self.shard.index.load(self.guard).buckets() as u32,
            ..packing::describe(items)
        };
        assemble(items, segment, &mut footer);
        engine.pool.slots.write(slot, segment).map_err(|_| Some(number))?;
        Ok(Output { slot, footer, items })
    }

    /// Begins the new segments, and hands them the entries of their records.
    fn publish(&self, outputs: &[Output<'_, '_>], generation: u64) -> Option<()> {
        let (engine, segments) = (self.engine, &self.shard.segments);
        let Some(mut locked) = self.lock_unless_flushed(generation) else {
            // Segment numbers were put back all together.
            outputs.iter().for_each(|output| engine.pool.slots.give(output.slot));
            return None;
        };
        for Output { slot, footer, .. } in outputs {
            let log = &engine.pool.logs[usize::from(slot.tier)];
            log.ensure_room(&engine.pool.slots);
            let seat = Seat { shard: footer.shard, number: footer.number, seq: footer.seq };
            log.begin(engine.pool.slots.index(*slot), seat);
            segments.publish(*slot, footer, footer.names.len() as u32);
            engine.note_segment(segments, footer.number, true);
            locked.state.arriving.push(Sealed { number: footer.number, seq: footer.seq });
        }
        drop(locked);
        crash_point("merge: begun");
        for Output { footer, items, .. } in outputs {
            let to = Sealed { number: footer.number, seq: footer.seq };
            let tier = engine.pool.counters.tier(self.shard.segments.slot(to.number).tier);
            tier.reinserted_records.fetch_add(items.len() as u64, Ordering::Relaxed);
            for batch in items.chunks(BATCH) {
                engine.pool.logs.iter().for_each(|log| log.ensure_room(&engine.pool.slots));
                let mut locked = self.lock_unless_flushed(generation)?;
                locked.index().prefetch_all(batch.iter().map(|item| &item.name));
                batch.iter().for_each(|item| locked.table().prefetch(item.name.pos));
                batch.iter().for_each(|item| self.hand_over(&mut locked, item, to));
                drop(locked);
                crash_point("merge: some handed over");
            }
        }
        Some(())
    }

    fn hand_over(&self, locked: &mut Locked<'_>, item: &Item<'_>, to: Sealed) {
        let from = self.old(item);
        if !locked.index().retarget(item.name, from.number, to.number) {
            // It was changed meanwhile.
            return locked.log_kill(item.name, to.number);
        }
        let bytes = item.bytes.len() as u32;
        let before = self.shard.segments.sub_live(from.number, Some(bytes));
        self.shard.segments.add_live(to.number, bytes);
        // Both are on one tier, which has as many records as it had, and as many bytes but where those of
        // dead ones were guessed.
        if before != bytes {
            let tier = self.engine.pool.counters.tier(self.shard.segments.slot(to.number).tier);
            tier.live_bytes.fetch_add(bytes.into(), Ordering::Relaxed);
            tier.live_bytes.fetch_sub(before.into(), Ordering::Relaxed);
        }
        if locked.lane(Lane::Hot).records > 0 {
            hot::move_origin(locked, item.name, item.bytes, from, to);
        }
        crash_point("merge: a record handed over");
    }

    /// The commit: the new segments count, the old ones end.
    fn end(&self, outputs: &[Output<'_, '_>], old: &[Vec<Name>], generation: u64) -> Option<()> {
        let engine = self.engine;
        let slots = &engine.pool.slots;
        let tier = outputs.first().map(|output| output.slot.tier);
        if let Some(tier) = tier.filter(|_| engine.is_strict) {
            // Where that fails, so will the log.
            let _ = slots.tiers[usize::from(tier)].device.flush();
        }
        let mut locked = self.lock_unless_flushed(generation)?;
        if let Some((leader, followers)) = outputs.split_last() {
            let log = &engine.pool.logs[usize::from(leader.slot.tier)];
            log.ensure_room(slots);
            let leader = slots.index(leader.slot);
            let new = followers.iter().map(|output| output.slot);
            let ending = self.group.iter().map(|sealed| self.shard.segments.slot(sealed.number));
            new.chain(ending).for_each(|slot| log.follow(slots.index(slot), leader));
            crash_point("merge: before the commit");
            log.commit(leader);
            crash_point("merge: committed");
        }
        locked.state.arriving.clear();
        self.group.iter().for_each(|sealed| engine.log_free(&locked, sealed.number));
        drop(locked);
        engine.make_frees_durable();
        for (&sealed, names) in self.group.iter().zip(old) {
            // Nothing is left, but for an entry without a record.
            if self.shard.segments.usage(sealed.number).live_records > 0 {
                reclaim::drop_entries(engine, self.shard, self.guard, sealed, names);
            }
        }
        let mut locked = self.lock_unless_flushed(generation)?;
        for sealed in self.group {
            engine.free_segment(&mut locked, sealed.number);
        }
        Some(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_emptied_list_keeps_its_memory() {
        let bytes = [1, 2, 3];
        let name = Name { pos: 1, fingerprint: 1 };
        let items: Vec<Item<'_>> = (0..100).map(|from| Item::new(name, &bytes, from)).collect();
        let (place, capacity) = (items.as_ptr().addr(), items.capacity());
        let items = emptied(items);
        assert_eq!((items.len(), items.as_ptr().addr(), items.capacity()), (0, place, capacity));
    }
}
