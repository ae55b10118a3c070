//! Demotion: a full tier level moves the least used records of its oldest segments to the next level.
//!
//! Records that were used since they were written stay, in new segments of the same tier. The rest moves to the next
//! level if its write policy admits them and its write budget allows it, and is dropped otherwise. An upper level drops
//! nothing while the next one has room.

use crate::background::admission::may_write;
use crate::background::merge::room_of_one;
use crate::background::reclaim;
use crate::background::reclaim::{KEEP_PERCENT, Victim};
use crate::background::relocate::{Item, Job, Lists, Part, Space};
use crate::engine::{Engine, chunks};
use crate::index::bucket::since_seal;
use crate::platform::quiesce::{Guard, Reader};
use crate::records::record::Record;
use crate::segments::layout::{EXTENT_HEADER, EXTENT_UNIT, Footer, PACKED_MAX, PAGE};
use crate::segments::page::PAGE_ROOM;
use crate::segments::segment::Sealed;
use crate::shard::Locked;
use std::iter::repeat_n;
use terrace_device::AlignedBuf;
use terrace_policy::WritePolicy;

/// Segments' worth of records that may go through DRAM once more because they fill no segment.
pub(crate) const LEFTOVER_MAX: u64 = 2;
/// Below this many segments the demoted records fill none; they are written nevertheless.
const FEW: usize = 3;

/// The plan of a demotion.
struct Plan {
    /// The oldest segments of a tier.
    group: Vec<Sealed>,
    /// The write policy of that tier, which decides what stays.
    write_policy: WritePolicy,
    /// New segments of the same tier, at most; 0 where its write budget does not allow them.
    stay_max: usize,
    may_stay: bool,
    /// The tier below, and its write policy; `None` where its write budget does not allow the demoted segments.
    below: u16,
    takes: Option<WritePolicy>,
}

/// The decision about a record.
enum EvictAction {
    Stay,
    Down,
    Go,
}

/// Reclaims the segment, which is on a level above the level `below`, with other ones of its shard. `false` if that is
/// not possible now.
pub(crate) fn demote(
    (space, segments_max, reader): (&mut Space, usize, &Reader),
    engine: &Engine,
    guard: Guard<'_>,
    (victim, below): (Victim, u16),
    output: &mut AlignedBuf,
    now: u32,
) -> bool {
    let Some(plan) = choose(engine, guard, victim, below, segments_max) else { return false };
    let (shard, at) = (&engine.shards()[victim.shard], victim.shard);
    let job = Job::of(engine, guard, reader, (at, &plan.group), now);
    let job = Job { forgets_uses: true, ..job };
    let done = job.run(space, |inputs, lists| {
        let generation = job.generation();
        let mut sorter = Sorter::new(engine, &plan, &job);
        let (mut stay, mut down, mut names) = (lists.take(), lists.take(), Vec::new());
        let mut items_dropped = Vec::new();
        for (from, input) in inputs.iter_mut().enumerate() {
            let sealed = plan.group[from];
            let sort = |locked: &Locked<'_>, uses, item| match sorter
                .action(locked, uses, &item, sealed)
            {
                EvictAction::Stay => stay.push(item),
                EvictAction::Down => down.push(item),
                EvictAction::Go if item.is_manifest() => items_dropped.push(item.bytes()),
                EvictAction::Go => {}
            };
            names.push(job.gather(from, input, generation, sort)?);
        }
        let room = room_of_one(engine, job.tier());
        let stay_at = (job.tier(), (needed(&stay) / room).min(plan.stay_max as u64));
        let room = room_of_one(engine, plan.below);
        let few = u64::from(plan.group.len() < FEW);
        let down_at = (plan.below, ((needed(&down) + room / 2) / room).max(few));
        let left_max = LEFTOVER_MAX * engine.seal_bytes();
        let tiers = [stay_at, down_at].into_iter();
        let tiers = tiers.flat_map(|(tier, outputs)| repeat_n(tier, outputs as usize));
        let places = engine.shared().slots().reserve(tiers)?;
        let mut parts = Vec::new();
        for (items, (tier, outputs)) in [(stay, stay_at), (down, down_at)] {
            match outputs {
                0 => job.put_back(&items, left_max)?,
                _ => parts.extend(deal(&items, tier, outputs as usize, lists)),
            }
            lists.give(items);
        }
        job.carry_out((parts, places), lists, output, &names, generation, left_max)?;
        items_dropped
            .iter()
            .for_each(|item| chunks::discard_chunks_of_dropped(engine, shard, guard, item));
        Some(())
    });
    done || job.take_back_damaged(space)
}

fn choose(
    engine: &Engine,
    guard: Guard<'_>,
    victim: Victim,
    below: u16,
    segments_max: usize,
) -> Option<Plan> {
    let (shard, shared) = (&engine.shards()[victim.shard], engine.shared());
    let tier = shard.segments().slot(victim.sealed.number).tier;
    let below = shared.slots().next_on(below)?;
    let numbers = {
        let locked = shard.lock(shared, guard);
        let is_busy = locked.state().growing().is_some() || locked.state().recovering().is_some();
        if is_busy { 0 } else { locked.state().numbers().len() }
    };
    let free = |tier: u16| shared.slots().tiers()[usize::from(tier)].free() as usize;
    let admission = shared.admission();
    let mut most = segments_max.max(1).min(numbers).min(free(below));
    while most > 1 && !may_write(engine, below, most) {
        most /= 2;
    }
    let mut group: Vec<_> = shard
        .segments()
        .iter()
        .filter(|sealed| {
            shard.segments().slot(sealed.number).tier == tier
                && shard.segments().usage(sealed.number).live_records() > 0
        })
        .collect();
    group.sort_unstable_by_key(|sealed| shard.segments().age(sealed.number));
    group.truncate(most);
    let stay_max = free(tier).min(group.len() * KEEP_PERCENT / 100);
    let may_descend = may_write(engine, below, group.len());
    let is_possible = group.contains(&victim.sealed) && (may_descend || engine.evicts());
    is_possible.then(|| Plan {
        write_policy: admission.write_policy(tier, true),
        may_stay: may_write(engine, tier, stay_max + 1),
        stay_max,
        below,
        takes: may_descend.then(|| match engine.evicts() {
            true => admission.write_policy(below, shared.counters().is_full()),
            false => WritePolicy::AllOnce,
        }),
        group,
    })
}

/// Decides about one record after the other.
struct Sorter<'e> {
    engine: &'e Engine,
    plan: &'e Plan,
    /// Records and bytes that may still stay.
    records: usize,
    bytes: usize,
}

impl<'e> Sorter<'e> {
    fn new(engine: &'e Engine, plan: &'e Plan, job: &Job<'e>) -> Self {
        let live =
            |sealed: &Sealed| job.shard.segments().usage(sealed.number).live_records() as usize;
        let records = plan.group.iter().map(live).sum::<usize>() * KEEP_PERCENT / 100;
        let bytes =
            (plan.stay_max + 1) * engine.shared().slots().segment_bytes_on(job.tier()) as usize;
        let bytes = if plan.may_stay { bytes } else { 0 };
        Self { engine, plan, records, bytes }
    }

    fn action(
        &mut self,
        locked: &Locked<'_>,
        uses: u8,
        item: &Item<'_>,
        sealed: Sealed,
    ) -> EvictAction {
        let may_stay = self.records > 0 && self.bytes >= item.bytes().len();
        let has_copy = reclaim::has_copy(locked, item.name(), sealed);
        if may_stay && (has_copy || self.plan.write_policy.keeps(since_seal(uses), false)) {
            self.records -= 1;
            self.bytes -= item.bytes().len();
            return EvictAction::Stay;
        }
        let Some((record, _)) = Record::decode(item.bytes()) else { return EvictAction::Go };
        let is_taken = |write_policy| {
            // A large item is only useful as a whole.
            write_policy <= WritePolicy::AllTwice
                || uses > 0
                || record.is_chunk()
                || record.is_manifest()
        };
        if self.plan.takes.is_some_and(is_taken) {
            return EvictAction::Down;
        }
        if has_copy {
            // Else the copy in DRAM would become the only record, and would be written again.
            return EvictAction::Stay;
        }
        let hash = self.engine.hasher().key(record.key, record.is_chunk()).hash();
        self.engine.shared().admission().note_dropped(self.plan.below, hash, item.bytes().len());
        EvictAction::Go
    }
}

/// Deals records out to new segments, so that each gets evenly distributed positions.
pub(crate) fn deal<'b>(
    items: &[Item<'b>],
    tier: u16,
    outputs: usize,
    lists: &mut Lists<'b>,
) -> Vec<Part<'b>> {
    let mut parts = lists.parts(tier, outputs);
    for (n, item) in items.iter().enumerate() {
        parts[n % outputs].items.push(*item);
    }
    parts
}

/// Bytes of segments that these records take on average, footers included.
pub(crate) fn needed(items: &[Item<'_>]) -> u64 {
    let (mut small, mut large, mut extents) = (0, 0, 0);
    for bytes in items.iter().map(|item| item.bytes().len()) {
        if bytes > PACKED_MAX {
            large += (EXTENT_HEADER + bytes).next_multiple_of(EXTENT_UNIT);
            extents += 1;
        } else {
            small += bytes;
        }
    }
    let pages = small.div_ceil(PAGE_ROOM) * (PAGE + 4);
    (pages + large + Footer::bytes_for(items.len(), 0, false, extents)) as u64
}
