//! Relocation: records move from some segments of a shard to new ones, from tier to tier.
//!
//! They are copied in bulk, in hash order, and only the segment numbers of their entries change. One commit begins the
//! new segments and ends the old ones ([`crate::log::word::Word::Follow`]): a crash leaves every record in the old ones
//! or in the new ones. That commit is in the log of the old ones' tier, for new segments on another tier, too, which
//! has its own log.

use crate::background::reclaim::{Keeps, Victim};
use crate::background::{footers, listing, reclaim, reconcile};
use crate::dram::lane::Lane;
use crate::engine::{Engine, chunks, durability};
use crate::index::deferred::Glance;
use crate::log::Seat;
use crate::platform::crash::crash_point;
use crate::platform::quiesce::{Guard, Reader};
use crate::records::key::Name;
use crate::records::record::Record;
use crate::segments::layout::Footer;
use crate::segments::packing::{assemble, defer_equal_names, fit};
use crate::segments::segment::{Sealed, SlotId};
use crate::segments::spans::spans;
use crate::segments::{order, packing};
use crate::shard::{Locked, Shard, promotion};
use crate::stats::counters::count;
use crate::tiers::slots::Places;
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::Ordering;
use terrace_device::AlignedBuf;

/// Records checked, or handed over, per hold of the shard's lock.
const BATCH: usize = 64;
/// Bytes of segments that are read at the same time, at most, or one segment if that is longer: with more, reads of
/// requests would wait too long for the drive.
const READ_AT_ONCE: usize = 2 << 20;
/// A prime larger than any number of records: its multiples modulo that number are all numbers below it, in a scattered
/// order.
const SCATTER: u64 = 2_654_435_761;

/// A record, with the index of its old segment.
pub(crate) type Item<'b> = packing::Item<'b, u8>;

/// The contents of a new segment on a tier.
pub(crate) struct Part<'b> {
    pub(super) tier: u16,
    pub(super) items: Vec<Item<'b>>,
}

/// A new segment that was written, and is not committed yet.
struct Output<'p, 'b> {
    slot: SlotId,
    footer: Footer,
    items: &'p [Item<'b>],
}

/// A record in an old segment: its name, and its bytes within the segment.
type Spot = (Name, Range<usize>);

/// The memory of relocations.
pub(crate) struct Space {
    inputs: Vec<AlignedBuf>,
    /// Empty between relocations; kept, since the allocator would get them from the kernel, page by page, every time.
    lists: Vec<Vec<Item<'static>>>,
    segment_bytes: usize,
}

impl Space {
    pub(crate) fn new(segment_bytes: usize) -> Self {
        Self { inputs: Vec::new(), lists: Vec::new(), segment_bytes }
    }
}

/// Lists of records that keep their memory from one relocation to the next.
pub(crate) struct Lists<'b>(Vec<Vec<Item<'b>>>);

impl<'b> Lists<'b> {
    /// An empty list.
    pub(crate) fn take(&mut self) -> Vec<Item<'b>> {
        self.0.pop().unwrap_or_default()
    }

    /// `count` new segments of a tier, without records.
    pub(crate) fn parts(&mut self, tier: u16, count: usize) -> Vec<Part<'b>> {
        (0..count).map(|_| Part { tier, items: self.take() }).collect()
    }

    pub(crate) fn give(&mut self, list: Vec<Item<'b>>) {
        self.0.push(emptied(list));
    }
}

/// The memory of a list, for records that lie elsewhere.
fn emptied<'b>(mut items: Vec<Item<'_>>) -> Vec<Item<'b>> {
    items.clear();
    // Collected in place: nothing is moved, and nothing allocated.
    items.into_iter().map_while(|_| None).collect()
}

/// One relocation. Its steps return `None` when it can't go on; before the new segments begin nothing has changed.
pub(crate) struct Job<'e> {
    pub(super) engine: &'e Engine,
    pub(super) shard: &'e Shard,
    pub(super) guard: Guard<'e>,
    /// The reader of the thread; it must not hold memory back while the thread waits for a drive.
    pub(super) reader: &'e Reader,
    /// The shard's number.
    pub(super) at: usize,
    /// The old segments, all on one tier.
    pub(super) group: &'e [Sealed],
    /// Records count as unused from now on.
    pub(super) forgets_uses: bool,
    /// Unix seconds.
    pub(super) now: u32,
    /// The old segment that could not be read as a whole, if that stopped the relocation: it can be reclaimed by
    /// itself.
    pub(super) damaged: Cell<Option<Sealed>>,
    /// Deferred entries of the old segments.
    pub(super) glance: Cell<Glance>,
}

impl<'e> Job<'e> {
    /// A relocation of segments of the shard `at`. Records keep their uses.
    pub(crate) fn of(
        engine: &'e Engine,
        guard: Guard<'e>,
        reader: &'e Reader,
        (at, group): (usize, &'e [Sealed]),
        now: u32,
    ) -> Self {
        let (damaged, glance) = (Cell::default(), Cell::default());
        let shard = &engine.shards()[at];
        let forgets_uses = false;
        Self { engine, shard, guard, reader, at, group, forgets_uses, now, damaged, glance }
    }

    /// Calls `work` with a buffer for each old segment; `true` if it succeeded.
    pub(crate) fn run(
        &self,
        space: &mut Space,
        work: impl for<'b> FnOnce(&'b mut [AlignedBuf], &mut Lists<'b>) -> Option<()>,
    ) -> bool {
        while space.inputs.len() < self.group.len() {
            space.inputs.push(AlignedBuf::zeroed(space.segment_bytes));
        }
        let mut locked = self.lock();
        // From here on none of their entries is deferred.
        locked.begin_leaving(self.group);
        let numbers = self.group.iter().map(|sealed| sealed.number);
        self.glance.set(locked.state().deferred().glance(numbers));
        drop(locked);
        let mut lists = Lists(space.lists.drain(..).map(emptied).collect());
        let inputs = &mut space.inputs[..self.group.len()];
        self.read_all(inputs);
        let done = work(inputs, &mut lists).is_some();
        space.lists = lists.0.into_iter().map(emptied).collect();
        let mut locked = self.lock();
        locked.end_leaving();
        locked.end_arriving();
        done
    }

    /// Reads the old segments, a few at the same time. The buffer of one that can't be read is left empty.
    fn read_all(&self, inputs: &mut [AlignedBuf]) {
        let segment_bytes = self.engine.shared().slots().segment_bytes_on(self.tier()) as usize;
        let at_once = (READ_AT_ONCE / segment_bytes.max(1)).max(1);
        for (group, inputs) in self.group.chunks(at_once).zip(inputs.chunks_mut(at_once)) {
            inputs.iter_mut().for_each(|input| input.set_len(segment_bytes));
            let read =
                self.while_parked(|| footers::read_tails(self.engine, self.shard, group, inputs));
            let failed = inputs.iter_mut().zip(read).filter(|(_, read)| read.is_err());
            failed.for_each(|(input, _)| input.set_len(0));
        }
    }

    /// Waits for a drive. The relocation has its own memory, so the thread reads nothing in DRAM meanwhile.
    fn while_parked<T>(&self, wait: impl FnOnce() -> T) -> T {
        let quiesce = self.engine.shared().quiesce();
        // SAFETY: `wait` reads or writes a drive, from and to buffers of the relocation; records in DRAM are looked up
        // again under the guard after it.
        unsafe { quiesce.park_beside_guards(self.reader) };
        let done = wait();
        quiesce.guard(self.reader);
        done
    }

    /// Reclaims the segment that stopped the relocation, so that it stops no other one: its remaining records go
    /// through DRAM. `true` if there was one, and room.
    pub(crate) fn take_back_damaged(&self, space: &mut Space) -> bool {
        let Some(buffer) = space.inputs.first_mut() else { return false };
        let Some(sealed) = self.damaged.take() else { return false };
        let victim = Victim { shard: self.at, sealed, keeps: Keeps::All };
        reclaim::reclaim(self.engine, self.guard, victim, buffer, self.now).is_ok()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.lock().state().generation()
    }

    /// The tier of the old segments.
    pub(crate) fn tier(&self) -> u16 {
        self.shard.segments().slot(self.group[0].number).tier
    }

    fn lock(&self) -> Locked<'e> {
        self.shard.lock(self.engine.shared(), self.guard)
    }

    /// The old segment of a record.
    fn old(&self, item: &Item<'_>) -> Sealed {
        self.group[usize::from(*item.source())]
    }

    /// As [`Job::lock`], or `None` if everything was flushed since.
    fn lock_unless_flushed(&self, generation: u64) -> Option<Locked<'e>> {
        let locked = self.lock();
        (locked.state().generation() == generation).then_some(locked)
    }

    /// Shows the live records of an old segment that was read, with the uses in their entries. Returns all names of the
    /// segment.
    pub(crate) fn gather<'b>(
        &self,
        from: usize,
        input: &'b mut AlignedBuf,
        generation: u64,
        mut show: impl FnMut(&Locked<'_>, u8, Item<'b>),
    ) -> Option<Vec<Name>> {
        let (names, spots) = self.read(self.group[from], input)?;
        let (input, number): (&'b [u8], _) = (input, self.group[from].number);
        for batch in spots.chunks(BATCH) {
            let mut locked = self.lock_unless_flushed(generation)?;
            locked.index().prefetch_all(batch.iter().map(|(name, _)| *name));
            for (name, span) in batch {
                let Some(entry) = locked.index().get(*name, number) else { continue };
                let bytes = &input[span.clone()];
                let (record, _) = Record::decode(bytes)?;
                if record.is_expired(self.now) {
                    locked.unlink(*name, number, Some(bytes.len() as u32));
                    count(self.engine.shared().counters().expired());
                    chunks::discard_chunks_of(self.engine, &record);
                    continue;
                }
                let item = Item::new(*name, bytes, from as u8)
                    .with_manifest(record.is_manifest())
                    .with_payload(record.payload_bytes() as u32, record.expires);
                show(&locked, entry.uses(), item);
            }
        }
        Some(names)
    }

    /// Decides the deferred entries of a segment; returns its names, and where the record of each lies.
    fn read(&self, sealed: Sealed, input: &mut AlignedBuf) -> Option<(Vec<Name>, Vec<Spot>)> {
        let found = self.read_whole(sealed, input);
        if found.is_none() {
            self.damaged.set(Some(sealed));
        }
        let (footer, spots) = found?;
        let mut glance = self.glance.take();
        let Self { engine, shard, guard, .. } = *self;
        let stuck = reconcile::by_footer(engine, shard, guard, sealed, &footer, &mut glance);
        self.glance.set(glance);
        stuck.is_empty().then_some((footer.into_names(), spots))
    }

    /// `None` unless all of it can be read: records in damaged pages would leave entries behind.
    fn read_whole(&self, sealed: Sealed, input: &mut AlignedBuf) -> Option<(Footer, Vec<Spot>)> {
        let (engine, segments) = (self.engine, self.shard.segments());
        if input.is_empty() {
            return None;
        }
        let footer = footers::check_footer(engine, self.shard, sealed, input).ok()?;
        let spans: Option<Vec<_>> = spans(segments, sealed, input).into_iter().collect();
        let spans = spans.filter(|spans| spans.len() == footer.names().len())?;
        let spots = match segments.extents(sealed.number).next() {
            // Records are in the order of their names.
            None => footer.names().iter().copied().zip(spans).collect(),
            Some(_) => {
                spans.into_iter().map(|span| self.spot(input, span)).collect::<Option<_>>()?
            }
        };
        Some((footer, spots))
    }

    fn spot(&self, input: &[u8], span: Range<usize>) -> Option<Spot> {
        let (record, _) = Record::decode(&input[span.clone()])?;
        let hasher = &self.engine.hasher();
        Some((hasher.name(hasher.key(record.key, record.is_chunk()).hash()), span))
    }

    /// Writes every part as a new segment in one of `places`, and ends the old ones, which have these `names`. Records
    /// without room go through DRAM once more; gives up if they have more than `left_max` bytes.
    pub(crate) fn carry_out<'b>(
        &self,
        (mut parts, mut places): (Vec<Part<'b>>, Places<'_>),
        lists: &mut Lists<'b>,
        output: &mut AlignedBuf,
        names: &[Vec<Name>],
        generation: u64,
        left_max: u64,
    ) -> Option<()> {
        let done = self.replace((&mut parts, &mut places), output, names, generation, left_max);
        parts.into_iter().for_each(|part| lists.give(part.items));
        done
    }

    fn replace(
        &self,
        (parts, places): (&mut [Part<'_>], &mut Places<'_>),
        output: &mut AlignedBuf,
        names: &[Vec<Name>],
        generation: u64,
        left_max: u64,
    ) -> Option<()> {
        let leftover: Vec<_> = parts.iter_mut().flat_map(|part| self.fit(part)).collect();
        self.put_back(&leftover, left_max)?;
        let outputs = self.write_all((parts, places), output, generation)?;
        self.publish(&outputs, generation)?;
        self.end(&outputs, generation)?;
        self.leave(names, output, generation)
    }

    /// Reinserts records into DRAM, unless they have more than `bytes_max` bytes.
    pub(crate) fn put_back(&self, items: &[Item<'_>], bytes_max: u64) -> Option<()> {
        let bytes: usize = items.iter().map(|item| item.bytes().len()).sum();
        if bytes as u64 > bytes_max {
            return None;
        }
        let Self { engine, shard, guard, now, .. } = *self;
        let put = |item: &Item<'_>| {
            reclaim::reinsert(engine, shard, guard, self.old(item), item.bytes(), now)
        };
        items.iter().try_for_each(put).ok()
    }

    /// Finds room for the records of a new segment; returns those without room, which are scattered over all positions,
    /// too.
    fn fit<'b>(&self, part: &mut Part<'b>) -> Vec<Item<'b>> {
        let segment_bytes = self.engine.shared().slots().segment_bytes_on(part.tier);
        let part = &mut part.items;
        order::sort(part);
        let count = part.len() as u64;
        let (step, mut arrival) = (SCATTER % count.max(1), 0);
        for item in part.iter_mut() {
            item.set_arrival(arrival as u32);
            arrival += step;
            arrival -= if arrival < count { 0 } else { count };
        }
        let mut left = defer_equal_names(part, self.shard.index().load(self.guard).bucket_width());
        left.extend(fit(part, segment_bytes as usize));
        left
    }

    fn write_all<'p, 'b>(
        &self,
        (parts, places): (&'p [Part<'b>], &mut Places<'_>),
        output: &mut AlignedBuf,
        generation: u64,
    ) -> Option<Vec<Output<'p, 'b>>> {
        let mut written = Vec::new();
        for part in parts.iter().filter(|part| !part.items.is_empty()) {
            match self.write((part, places), output, generation) {
                Ok(output) => written.push(output),
                Err(number) => {
                    let mut locked = self.lock();
                    if locked.state().generation() == generation {
                        let numbers =
                            written.iter().map(|output: &Output<'_, '_>| output.footer.number());
                        locked.give_numbers(numbers.chain(number));
                    }
                    written
                        .iter()
                        .for_each(|output| self.engine.shared().slots().give(output.slot));
                    return None;
                }
            }
        }
        crash_point("merge: written");
        Some(written)
    }

    /// Writes a new segment; an error is the segment number that it would have had.
    fn write<'p, 'b>(
        &self,
        (part, places): (&'p Part<'b>, &mut Places<'_>),
        segment: &mut AlignedBuf,
        generation: u64,
    ) -> Result<Output<'p, 'b>, Option<u16>> {
        let engine = self.engine;
        let locked = self.lock_unless_flushed(generation);
        let number = locked.and_then(|mut locked| locked.take_number()).ok_or(None)?;
        let slot = places.take(part.tier).ok_or(Some(number))?;
        let seq = engine.next_seq();
        let buckets = self.shard.index().load(self.guard).buckets() as u32;
        let described = packing::describe(&part.items);
        let mut footer = described.of_seal(self.at as u16, number, seq, self.now).under(buckets);
        segment.set_len(engine.shared().slots().segment_bytes_on(slot.tier) as usize);
        assemble(&part.items, segment, &mut footer);
        let written = self.while_parked(|| engine.shared().slots().write(slot, segment));
        written.map_err(|_| Some(number))?;
        Ok(Output { slot, footer, items: &part.items })
    }

    /// Begins the new segments, and gives them the entries of their records.
    fn publish(&self, outputs: &[Output<'_, '_>], generation: u64) -> Option<()> {
        let (engine, segments) = (self.engine, self.shard.segments());
        let log_of =
            |output: &Output<'_, '_>| &engine.shared().logs()[usize::from(output.slot.tier)];
        outputs.iter().for_each(|output| log_of(output).ensure_room(engine.shared().slots()));
        let Some(mut locked) = self.lock_unless_flushed(generation) else {
            // All segment numbers were freed together.
            outputs.iter().for_each(|output| engine.shared().slots().give(output.slot));
            return None;
        };
        let ages = self.group.iter().map(|sealed| segments.age(sealed.number));
        let age = ages.max().unwrap_or(0);
        for output @ Output { slot, footer, items } in outputs {
            let seat = Seat { shard: footer.shard(), number: footer.number(), seq: footer.seq() };
            log_of(output).begin(engine.shared().slots().index(*slot), seat);
            // Records that a demotion keeps because they were used count as new.
            let is_kept = self.forgets_uses && slot.tier == self.tier();
            let age = if is_kept { footer.seq() } else { age };
            segments.publish(*slot, footer, footer.names().len() as u32, age);
            segments.set_items_due(footer.number(), packing::items_due(items));
            engine.note_segment(segments, footer.number(), true);
            locked.begin_arriving(Sealed { number: footer.number(), seq: footer.seq() });
        }
        drop(locked);
        crash_point("merge: begun");
        for Output { slot, footer, items } in outputs {
            let to = Sealed { number: footer.number(), seq: footer.seq() };
            let tier = engine.shared().counters().tier(slot.tier);
            let level = |tier: u16| engine.shared().slots().tiers()[usize::from(tier)].level();
            let moved = match level(slot.tier) <= level(self.tier()) {
                true => &tier.reinserted_records(),
                false => &tier.demoted_records(),
            };
            moved.fetch_add(items.len() as u64, Ordering::Relaxed);
            for batch in items.chunks(BATCH) {
                engine.shared().make_log_room();
                let mut locked = self.lock_unless_flushed(generation)?;
                locked.index().prefetch_all(batch.iter().map(|item| item.name()));
                batch.iter().for_each(|item| locked.table().prefetch(item.name().pos));
                batch.iter().for_each(|item| self.hand_over(&mut locked, item, to));
                drop(locked);
                crash_point("merge: some handed over");
            }
        }
        Some(())
    }

    fn hand_over(&self, locked: &mut Locked<'_>, item: &Item<'_>, to: Sealed) {
        let from = self.old(item);
        if !locked.index().retarget(item.name(), from.number, to.number, self.forgets_uses) {
            // It was changed meanwhile.
            return locked.log_tombstone(item.name(), to.number);
        }
        let segments = self.shard.segments();
        let bytes = item.bytes().len() as u32;
        let before = segments.sub_live(from.number, Some(bytes));
        segments.add_live(to.number, bytes);
        let [from_tier, to_tier] = [from, to].map(|sealed| segments.slot(sealed.number).tier);
        // Usually the counts of a tier stay the same, except bytes if those of void records were estimated.
        if before != bytes || from_tier != to_tier {
            let counters = self.engine.shared().counters();
            counters.tier(to_tier).add_live(self.at, bytes);
            counters.tier(from_tier).sub_live(self.at, before);
        }
        if locked.lane(Lane::Hot).records() > 0 {
            promotion::move_origin(locked, item.name(), item.bytes(), from, to);
        }
        crash_point("merge: a record handed over");
    }

    /// Commits: the new segments count, the old ones end.
    fn end(&self, outputs: &[Output<'_, '_>], generation: u64) -> Option<()> {
        let (engine, slots) = (self.engine, self.engine.shared().slots());
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            outputs.iter().partition(|output| output.slot.tier == self.tier());
        for output in outputs.iter().filter(|_| engine.is_strict()) {
            let log = &engine.shared().logs()[usize::from(output.slot.tier)];
            // A segment must have begun in one log before the other ends the old one. A flush that fails fails the log.
            let _ = match output.slot.tier == self.tier() {
                true => log.flush(slots),
                false => log.make_durable(slots),
            };
        }
        let mut locked = self.lock_unless_flushed(generation)?;
        self.commit(&here, &elsewhere);
        locked.end_leaving();
        if !elsewhere.is_empty() && engine.is_strict() {
            drop(locked);
            // Else a power loss could bring back both the records committed there and those not ended here.
            let _ = engine.shared().logs()[usize::from(self.tier())].make_durable(slots);
            locked = self.lock_unless_flushed(generation)?;
        }
        if !elsewhere.is_empty() {
            crash_point("demotion: committed at the upper level");
        }
        for output in elsewhere {
            let log = &engine.shared().logs()[usize::from(output.slot.tier)];
            log.ensure_room(slots);
            log.commit(slots.index(output.slot));
        }
        self.group.iter().for_each(|sealed| engine.log_free(&locked, sealed.number));
        locked.end_arriving();
        drop(locked);
        durability::make_frees_durable(engine);
        Some(())
    }

    /// Frees the slots of the old segments, which have these `names`.
    fn leave(&self, names: &[Vec<Name>], buffer: &mut AlignedBuf, generation: u64) -> Option<()> {
        let Self { engine, shard, guard, at, now, .. } = *self;
        for (&sealed, names) in self.group.iter().zip(names) {
            // Entries of records that were not kept, and entries without a record.
            if shard.segments().usage(sealed.number).live_records() > 0 {
                let left = (at, sealed);
                listing::show_evicted(engine, guard, left, buffer, now);
                reclaim::drop_entries(engine, shard, guard, sealed, names);
            }
        }
        let mut locked = self.lock_unless_flushed(generation)?;
        for sealed in self.group {
            engine.free_segment(&mut locked, sealed.number);
        }
        Some(())
    }

    /// Appends the commit: from then on the new segments count, all at once, and the old ones do not.
    fn commit(&self, here: &[&Output<'_, '_>], elsewhere: &[&Output<'_, '_>]) {
        let slots = self.engine.shared().slots();
        let log = &self.engine.shared().logs()[usize::from(self.tier())];
        let ending: Vec<_> =
            self.group.iter().map(|sealed| self.shard.segments().slot(sealed.number)).collect();
        let begun = here.iter().map(|output| output.slot);
        let mut changing: Vec<_> = begun.clone().chain(ending.iter().copied()).collect();
        // A new segment leads; where there is none, one that ends, even if it is the only one.
        let leader = slots.index(changing[0]);
        if !here.is_empty() {
            changing.swap_remove(0);
        }
        log.ensure_room(slots);
        changing.into_iter().for_each(|slot| log.follow(slots.index(slot), leader));
        elsewhere.iter().for_each(|output| log.follow_abroad(output.footer.seq(), leader));
        crash_point("merge: before the commit");
        log.commit(leader);
        begun.for_each(|slot| log.note_commit(slots.index(slot)));
        ending.into_iter().for_each(|slot| log.note_end(slots.index(slot)));
        crash_point("merge: committed");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn emptied_list_keeps_its_memory() {
        let bytes = [1, 2, 3];
        let name = Name { pos: 1, fingerprint: 1 };
        let items: Vec<Item<'_>> = (0..100).map(|from| Item::new(name, &bytes, from)).collect();
        let (place, capacity) = (items.as_ptr().addr(), items.capacity());
        let items = emptied(items);
        assert_eq!((items.len(), items.as_ptr().addr(), items.capacity()), (0, place, capacity));
    }
}
