//! Compaction of segments: the live records of some segments of a shard move into fewer new ones of the same tier.
//!
//! Records that reclaim reinserts one by one take room in DRAM, a line of the table and a seal; here they are copied
//! from segment to segment, see [`crate::background::relocate`].

use crate::background::reclaim::Victim;
use crate::background::relocate::{Job, Space};
use crate::engine::{Engine, fullness};
use crate::platform::quiesce::{Guard, Reader};
use crate::segments::layout::{Footer, PAGE};
use crate::segments::page::PAGE_ROOM;
use crate::segments::segment::{Sealed, Usage};
use crate::shard::Locked;
use crate::tiers::ladder::MOVED_MAX;
use std::iter::repeat_n;
use terrace_device::AlignedBuf;

const SEGMENTS_MIN: usize = 3;
/// Five segments suffice for any part of live records: five that are three fifths full fill three new ones, where two
/// or four would leave a gap in one, or find no room.
const SEGMENTS_ENOUGH: usize = 5;
/// Fill of a new segment, at most, in percent of the average size of its records.
const FILL_PERCENT: u64 = 98;

/// Records without room in the new segments go through DRAM once more, and take a slot again: a compaction is given up
/// if they are more than this part of what it gains.
const LEFTOVER_PART: u64 = 4;
/// Bytes written per byte gained may be this multiple of what they would be without gaps.
const FRUGAL: (u64, u64) = (9, 8);

/// Segments that are relocated at once, at most: they take no more than a thirty-second of `memory` bytes, or a
/// sixteenth for the five that suffice; 0 where that is too little for three.
pub(crate) fn segments_max(memory: u64, segment_bytes: usize) -> usize {
    let within = |part: usize| memory as usize / part / segment_bytes.max(1);
    match within(16) {
        0..SEGMENTS_MIN => 0,
        most => within(32).clamp(most.min(SEGMENTS_ENOUGH), MOVED_MAX),
    }
}

/// Bytes of the pages and footer of a tier's segment that are usually filled.
pub(crate) fn room_of_one(engine: &Engine, tier: u16) -> u64 {
    u64::from(engine.shared().slots().segment_bytes_on(tier)) * FILL_PERCENT / 100
}

/// Compacts the segment to reclaim with other ones of its shard. `false` if that gains nothing, or is not possible now.
pub(crate) fn merge(
    (space, segments_max, reader): (&mut Space, usize, &Reader),
    engine: &Engine,
    guard: Guard<'_>,
    victim: Victim,
    output: &mut AlignedBuf,
    now: u32,
) -> bool {
    let Some((group, outputs)) = choose(engine, guard, victim, segments_max) else {
        return false;
    };
    let job = Job::of(engine, guard, reader, (victim.shard, &group), now);
    // Before any read or write: other relocations need slots, too.
    let Some(places) = engine.shared().slots().reserve(repeat_n(job.tier(), outputs)) else {
        return false;
    };
    let segment_bytes = engine.shared().slots().segment_bytes_on(job.tier());
    let gained = (group.len() - outputs) as u64 * u64::from(segment_bytes);
    let done = job.run(space, |inputs, lists| {
        let generation = job.generation();
        let mut parts = lists.parts(job.tier(), outputs);
        let mut names = Vec::new();
        for (from, input) in inputs.iter_mut().enumerate() {
            // The records of each new segment get evenly distributed positions.
            let mut turn = from;
            let deal = |_: &Locked<'_>, _, item| {
                parts[turn % outputs].items.push(item);
                turn += 1;
            };
            names.push(job.gather(from, input, generation, deal)?);
        }
        job.carry_out((parts, places), lists, output, &names, generation, gained / LEFTOVER_PART)
    });
    done || job.take_back_damaged(space)
}

/// The emptiest segments beside the victim and one that fills the new ones, as many as gain most per byte written; with
/// the number of new ones.
fn choose(
    engine: &Engine,
    guard: Guard<'_>,
    victim: Victim,
    segments_max: usize,
) -> Option<(Vec<Sealed>, usize)> {
    let shard = &engine.shards()[victim.shard];
    let segments = shard.segments();
    let tier = segments.slot(victim.sealed.number).tier;
    let locked = shard.lock(engine.shared(), guard);
    let may_merge = locked.state().growing().is_none()
        && locked.state().recovering().is_none()
        && !fullness::may_drop(engine);
    let room = (engine.shared().slots().tiers()[usize::from(tier)].free() as usize)
        .min(locked.state().numbers().len());
    drop(locked);
    if !may_merge || room == 0 {
        return None;
    }
    let is_like = |sealed: &Sealed| {
        segments.slot(sealed.number).tier == tier
            && segments.extents(sealed.number).next().is_none()
            && segments.usage(sealed.number).live_records() > 0
    };
    // Live records change meanwhile: they are counted once.
    let like = segments.iter().filter(is_like);
    let mut all: Vec<_> = like.map(|sealed| (segments.usage(sealed.number), sealed)).collect();
    all.sort_unstable_by_key(|(usage, _)| usage.live_bytes());
    let usages: Vec<_> = all.iter().map(|&(usage, _)| usage).collect();
    let (offer, last) = best_offer(&usages, segments_max, room, room_of_one(engine, tier))?;
    let group = all[..offer.segments - 1].iter().chain([&all[last]]);
    let group: Vec<_> = group.map(|&(_, sealed)| sealed).collect();
    group.contains(&victim.sealed).then_some((group, offer.outputs))
}

/// The offer that gains most per byte written: the first segments in order of their live bytes, and a last one, which
/// is returned by its index.
fn best_offer(
    usages: &[Usage],
    segments_max: usize,
    room: usize,
    room_of_one: u64,
) -> Option<(Offer, usize)> {
    let (mut records, mut bytes) = (0u64, 0u64);
    let mut best: Option<(Offer, usize)> = None;
    for n in 1..=segments_max.min(usages.len()) {
        let needed_with = |last: &Usage| {
            let records = records + u64::from(last.live_records());
            let pages = (bytes + u64::from(last.live_bytes())).div_ceil(PAGE_ROOM as u64);
            pages * (PAGE as u64 + 4) + Footer::bytes_for(records as usize, 0, false, 0) as u64
        };
        for outputs in 1..n.min(room + 1) {
            // The fullest that still fits leaves no gap. If none fits, the emptiest leaves the fewest records over.
            let fits = |last: &_| needed_with(last) <= outputs as u64 * room_of_one;
            let last = n - 1 + usages[n - 1..].partition_point(fits).saturating_sub(1);
            let offer = Offer::new(n, outputs, needed_with(&usages[last]), room_of_one);
            let is_better = |offer: &Offer| best.is_none_or(|(best, _)| offer.is_better_than(best));
            best = offer.filter(is_better).map(|offer| (offer, last)).or(best);
        }
        records += u64::from(usages[n - 1].live_records());
        bytes += u64::from(usages[n - 1].live_bytes());
    }
    best
}

/// A compaction that may be worth it; all but the first two fields in bytes.
#[derive(Clone, Copy)]
struct Offer {
    segments: usize,
    outputs: usize,
    /// Bytes that find no room in the new segments.
    left: u64,
    /// Bytes to write, including `left`, which is written later.
    written: u64,
    gained: u64,
}

impl Offer {
    /// `None` if it would leave too much, or write much more than the records need: half-empty segments are better
    /// reclaimed one by one, which packs them without a gap.
    fn new(segments: usize, outputs: usize, needed: u64, room_of_one: u64) -> Option<Self> {
        let (all, new) = (segments as u64 * room_of_one, outputs as u64 * room_of_one);
        let left = needed.saturating_sub(new);
        let written = new + left;
        let gained = all.checked_sub(written)?;
        let is_frugal = written * (all - needed) * FRUGAL.1 <= needed * gained * FRUGAL.0;
        let is_worth_it = is_frugal && gained > 0 && left * LEFTOVER_PART <= gained;
        is_worth_it.then_some(Self { segments, outputs, left, written, gained })
    }

    /// Whether it is less work per byte gained; bytes left over cost twice.
    fn is_better_than(self, other: Self) -> bool {
        (self.written + self.left) * other.gained < (other.written + other.left) * self.gained
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ROOM_OF_ONE: u64 = (256 << 10) * FILL_PERCENT / 100;

    /// The usage of a segment that is `percent` full, with records of 111 bytes.
    fn usage(percent: u32) -> Usage {
        let live_records = ROOM_OF_ONE as u32 / 117 * percent / 100;
        Usage::alive(live_records, live_records * 111)
    }

    #[test]
    fn five_segments_can_be_compacted_at_any_fill() {
        for emptiest in 20..70 {
            // As they are when all are overwritten at the same rate.
            let usages: Vec<_> =
                (0..64).map(|at| usage(emptiest + (95 - emptiest) * at / 64)).collect();
            for segments_max in SEGMENTS_MIN..=MOVED_MAX {
                let offer = best_offer(&usages, segments_max, MOVED_MAX, ROOM_OF_ONE);
                assert!(offer.is_some(), "{segments_max} at once, the emptiest {emptiest} % full");
            }
        }
    }

    #[test]
    fn five_equal_segments_are_enough_to_compact() {
        let offers = |segments_max| {
            let offer = move |percent: &u32| {
                best_offer(&[usage(*percent); 64], segments_max, MOVED_MAX, ROOM_OF_ONE).is_some()
            };
            (40..80).filter(offer).count()
        };
        assert_eq!(offers(SEGMENTS_ENOUGH), 40);
        assert!(offers(SEGMENTS_ENOUGH - 1) < 40, "four would be enough");
    }

    #[test]
    fn segments_relocated_at_once_follow_from_memory() {
        let at_once = |segments: u64| segments_max(segments << 20, 1 << 20);
        assert_eq!(
            [47, 48, 79, 80, 191, 192, 255, 256, 999].map(at_once),
            [0, 3, 4, 5, 5, 6, 7, 8, 8]
        );
    }
}
