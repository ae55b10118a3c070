//! Fullness: whether the cache is full, and how many segment slots of its tiers are kept free.

use crate::config::FULL_PERCENT;
use crate::dram::lane::Lane;
use crate::engine::Engine;
use crate::stats::counters::TierCounters;
use crate::tiers::slots::TierStore;
use std::sync::atomic::Ordering;

/// Percent of DRAM that is left to open blocks and to work in progress, without tiers.
const WORKING_PERCENT: u64 = 4;

/// Segment slots of a tier level that are kept free, so that sealing never waits.
pub(crate) fn places_kept_free(engine: &Engine, level: u16) -> u32 {
    let slots = engine.shared.slots();
    (slots.total_on(level) / 200).max(2) + slots.places_to_move_into(level)
}

/// Free places that a tier keeps, times its share of those of its level, beyond which it can spare some.
const AMPLE: u64 = 4;

/// Whether a tier has at least [`ample_places`]: no segment there needs to be reclaimed for more.
pub(crate) fn has_ample_places(engine: &Engine, tier: &TierStore) -> bool {
    tier.free() >= ample_places(engine, tier)
}

fn ample_places(engine: &Engine, tier: &TierStore) -> u32 {
    let kept = u64::from(places_kept_free(engine, tier.level()));
    let all = u64::from(engine.shared.slots().total_on(tier.level()).max(1));
    ((AMPLE * kept * u64::from(tier.places())).div_ceil(all) as u32).max(2)
}

/// Whether a tier level has the free places that it keeps. While records wait in DRAM those of slow tiers do not count,
/// and it is enough if the fast ones have ample ones: these may be too small to have all that the level keeps.
pub(crate) fn has_places(engine: &Engine, level: u16) -> bool {
    let slots = engine.shared.slots();
    let is_slow = |tier: usize| slots.is_slow(tier as u16);
    if !engine.shared.is_short_of_buffers() || !slots.on(level).any(|(at, _)| is_slow(at)) {
        return has_places_on_any(engine, level);
    }
    let fast = || slots.on(level).filter(|(at, _)| !is_slow(*at)).map(|(_, tier)| tier);
    let ample: u32 = fast().map(|tier| ample_places(engine, tier)).sum();
    spare_places(engine, fast()) >= places_kept_free(engine, level).min(ample)
}

/// As [`has_places`], with those of slow tiers at any time.
pub(crate) fn has_places_on_any(engine: &Engine, level: u16) -> bool {
    let all = engine.shared.slots().on(level).map(|(_, tier)| tier);
    spare_places(engine, all) >= places_kept_free(engine, level)
}

/// Free places of some tiers; those of a tier with ample ones do not make up for what the others lack.
fn spare_places<'t>(engine: &Engine, tiers: impl Iterator<Item = &'t TierStore>) -> u32 {
    tiers.map(|tier| tier.free().min(ample_places(engine, tier))).sum()
}

/// Whether a segment may be sealed that is not sealed to free DRAM. If not, free slots are fewer than
/// [`places_kept_free`], and segments are being reclaimed.
pub(crate) fn may_seal(engine: &Engine) -> bool {
    let slots = engine.shared.slots();
    slots.levels().any(|level| slots.free_on(level) > slots.places_to_move_into(level))
}

/// Decides whether the cache is full, and so may evict records.
pub(crate) fn judge_fullness(engine: &Engine) {
    fill_dram_if_tiers_failed(engine);
    if engine.shared.slots().are_all_silent() {
        // The drives keep their records, and may answer again.
        return;
    }
    let counters = engine.shared.counters();
    let has_tiers = engine.has_working_tiers();
    let crowded = has_tiers && is_full_once_written(engine);
    counters.crowded().store(crowded, Ordering::Relaxed);
    let full = match has_tiers {
        true => engine.shared.slots().levels().all(|level| is_full_on(engine, level)),
        false => is_dram_full(engine),
    };
    if full {
        counters.index_full().store(false, Ordering::Relaxed);
    }
    let full = full || engine.no_room.swap(false, Ordering::Relaxed);
    counters.full().store(full, Ordering::Relaxed);
}

/// Whether the tiers would be full if all fresh records were written. A full tier drops whole segments, and is briefly
/// not full after that: then, too, new records only have room in the place of other ones.
fn is_full_once_written(engine: &Engine) -> bool {
    let slots = engine.shared.slots();
    let (mut live, mut room) = (engine.shared.counters().fresh_bytes().load(Ordering::Relaxed), 0);
    for level in slots.levels() {
        live += sum_on(engine, level, TierCounters::live_place_bytes);
        room += engine.shared.slots().capacity_on(level) * u64::from(engine.full_percent);
    }
    live * 100 >= room
}

/// Whether a SET may remove another key's entry unread: the tiers only have room for one of the two records.
pub(crate) fn may_cost_another_its_place(engine: &Engine) -> bool {
    engine.evicts && engine.shared.counters().crowded().load(Ordering::Relaxed)
}

/// Whether live records may be dropped: the cache is full, and may evict.
pub(crate) fn may_drop(engine: &Engine) -> bool {
    engine.evicts && engine.shared.counters().is_full()
}

/// Bytes of live records on a tier level.
pub(crate) fn live_bytes_on(engine: &Engine, level: u16) -> u64 {
    sum_on(engine, level, |tier| tier.live_bytes().load(Ordering::Relaxed))
}

/// Bytes of keys and values stored on a tier level since the start.
pub(crate) fn stored_bytes_on(engine: &Engine, level: u16) -> u64 {
    sum_on(engine, level, |tier| tier.stored_payload_bytes().load(Ordering::Relaxed))
}

fn sum_on(engine: &Engine, level: u16, bytes: impl Fn(&TierCounters) -> u64) -> u64 {
    let counters = engine.shared.counters();
    engine.shared.slots().on(level).map(|(tier, _)| bytes(counters.tier(tier as u16))).sum()
}

/// Whether live records take at least [`Config::full_percent`](crate::Config::full_percent) of a tier level.
pub(crate) fn is_full_on(engine: &Engine, level: u16) -> bool {
    let live = sum_on(engine, level, TierCounters::live_place_bytes);
    live * 100 >= engine.shared.slots().capacity_on(level) * u64::from(engine.full_percent)
}

/// Whether a tier level has room for this many bytes of live records more, beside all that wait in DRAM.
pub(crate) fn has_room_on(engine: &Engine, level: u16, bytes: u64) -> bool {
    let waiting = engine.shared.counters().fresh_bytes().load(Ordering::Relaxed);
    let live = sum_on(engine, level, TierCounters::live_place_bytes) + waiting + bytes;
    live * 100 < engine.shared.slots().capacity_on(level) * u64::from(engine.full_percent)
}

/// Whether live records take at least [`FULL_PERCENT`] of DRAM, without working tiers.
pub(crate) fn is_dram_full(engine: &Engine) -> bool {
    let counters = engine.shared.counters();
    // Blocks also hold the headers of their records.
    let records = counters.records(Lane::Fresh).load(Ordering::Relaxed);
    let live = counters.fresh_bytes().load(Ordering::Relaxed) + records * 20;
    // With any limit, without overflow.
    live.saturating_mul(100) >= dram_capacity(engine).saturating_mul(u64::from(FULL_PERCENT))
}

/// Gives fresh records all of DRAM while no tier takes writes, until one is added.
fn fill_dram_if_tiers_failed(engine: &Engine) {
    if !engine.has_tiers() {
        return;
    }
    let most = engine.shared.fresh_max();
    if !engine.has_working_tiers() {
        most.store(u64::MAX, Ordering::Relaxed);
        engine.shared.arena().unite();
    } else if most.load(Ordering::Relaxed) == u64::MAX {
        most.store(engine.shared.fresh_max_with_tiers(), Ordering::Relaxed);
    }
}

/// Bytes of DRAM that records can take.
fn dram_capacity(engine: &Engine) -> u64 {
    let tables =
        engine.shared.counters().table_bytes().load(Ordering::Relaxed) + engine.fixed_bytes;
    let blocks = engine.shared.budget().limit().saturating_sub(tables);
    blocks / 100 * (100 - WORKING_PERCENT)
}

/// Records that the index has used its share of memory, whatever room the tiers have.
pub(crate) fn note_index_full(engine: &Engine) {
    note_full(engine);
    engine.shared.counters().index_full().store(true, Ordering::Relaxed);
}

/// Records that slots or blocks are used up, however few bytes the records have.
pub(crate) fn note_full(engine: &Engine) {
    engine.no_room.store(true, Ordering::Relaxed);
    engine.shared.counters().full().store(true, Ordering::Relaxed);
    engine.shared.counters().index_full().store(false, Ordering::Relaxed);
}
