//! The engine: the state of the cache that requests and background work share. What they do with it is in other
//! folders.

pub(crate) mod census;
pub(crate) mod chunks;
pub(crate) mod drain;
pub(crate) mod durability;
pub(crate) mod fullness;
pub(crate) mod join;
pub(crate) mod limit;
pub(crate) mod lost;
pub(crate) mod members;
pub(crate) mod recovering;
pub(crate) mod roster;
mod superblocks;

use crate::config::note::Note;
use crate::config::witness::Witness;
use crate::config::{Config, Durability, Tuning};
use crate::dram::heat::Origin;
use crate::dram::lane::Lane;
use crate::dram::memory::Place;
use crate::dram::table::DramTable;
use crate::engine::members::{Current, Member, Membership};
use crate::engine::recovering::Recovery;
use crate::index::sealed::SealedIndex;
use crate::platform::appended::Appended;
use crate::platform::getters::getters;
use crate::records::garbage::GarbageChunks;
use crate::records::key::Hasher;
use crate::segments::segment::SegmentTable;
use crate::shard::{Locked, Shard};
use crate::shared::Shared;
use crate::shared::geometry::Geometry;
use crate::state::{Field, TIERS_MAX};
use crate::tiers::superblock::Superblock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The parts of a new engine.
pub(crate) struct Parts {
    pub(crate) geometry: Geometry,
    pub(crate) shared: Shared,
    pub(crate) shards: Box<[Shard]>,
    /// The superblock fields that all tiers have in common.
    pub(crate) set: Superblock,
    /// Lines for the log.
    pub(crate) notes: Vec<Note>,
    /// Bytes of DRAM that do not change: staging buffers, state, logs.
    pub(crate) fixed_bytes: u64,
    /// See [`Engine::filling_mebibytes`].
    pub(crate) filling_mebibytes: Option<u64>,
    pub(crate) membership: Membership,
}

/// The state of an open cache.
pub(crate) struct Engine {
    geometry: Geometry,
    /// See [`Config::full_percent`].
    full_percent: u32,
    tuning: Tuning,
    shared: Shared,
    shards: Box<[Shard]>,
    /// The most that the memory cap can be raised to.
    memory_bytes_max: u64,
    evicts: bool,
    with_cas: bool,
    /// See [`Durability::Power`].
    is_strict: bool,
    /// One for each tier; one that joins comes first.
    members: Appended<Member>,
    current_roster: Mutex<Current>,
    witness: Option<Arc<dyn Witness>>,
    is_cold: bool,
    /// Guards that a tier is left which new segments are written to.
    drains: Mutex<()>,
    /// In strict mode: whether the superblocks mark the logs as complete.
    strict_written: Mutex<bool>,
    /// In strict mode: the time of the next flush in all superblocks; `None` if they may differ.
    due_written: Mutex<Option<u32>>,
    /// The state has copies of these numbers, which may be lost.
    next_seq: AtomicU64,
    next_item: AtomicU64,
    recovery: Recovery,
    notes: Vec<Note>,
    /// The superblock fields that all tiers have in common.
    set: Superblock,
    clock_floor: u32,
    flush_due: u32,
    /// Slots, index or blocks are used up; see [`fullness::note_full`].
    no_room: AtomicBool,
    /// See [`crate::Cache::note_hanging`].
    hangs: AtomicBool,
    /// See [`Engine::note_stuck`].
    is_stuck: AtomicBool,
    /// Bytes of records that reclaim has reinserted beyond its share of each segment.
    kept_ahead: AtomicU64,
    /// Chunks of items that are gone.
    garbage_chunks: Mutex<GarbageChunks>,
    /// Memory in MiB (`-m`) with which records of [`crate::RECORD_BYTES_WARNED`] fill the tiers; `None` if no size
    /// does.
    filling_mebibytes: Option<u64>,
    /// Bytes that do not change: staging buffers, state, logs.
    fixed_bytes: u64,
}

getters! {
    Engine {
        with_cas: bool,
        tuning: &Tuning,
        full_percent: u32,
        fixed_bytes: u64,
        filling_mebibytes: Option<u64>,
        is_strict: bool,
        kept_ahead: &AtomicU64,
        garbage_chunks: &Mutex<GarbageChunks>,
        recovery: &Recovery,
        geometry: &Geometry,
        evicts: bool,
        is_cold: bool,
        current_roster: &Mutex<Current>,
        set: &Superblock,
        shards: &[Shard],
        shared: &Shared,
    }
}

impl Engine {
    #[inline]
    pub(crate) fn hasher(&self) -> Hasher {
        self.shared.hasher()
    }

    /// Assembles the engine from its parts.
    pub(crate) fn new(config: &Config, parts: Parts) -> Self {
        let Parts { geometry, shared, mut shards, set, .. } = parts;
        let index_bytes = shards.iter_mut().map(Shard::initial_index_bytes).sum::<u64>();
        let table_bytes =
            DramTable::bytes_for(DramTable::BUCKET_BITS_MIN) * geometry.shards() as u64;
        shared.counters().index_bytes().store(index_bytes, Ordering::Relaxed);
        shared.counters().table_bytes().store(table_bytes, Ordering::Relaxed);
        shared.budget().force(index_bytes + table_bytes + parts.fixed_bytes);
        let kept = |field, without: u64| {
            let state = shared.state().as_ref();
            AtomicU64::new(state.map_or(without, |s| s.field(field).load(Ordering::Relaxed)))
        };
        let now = |field| kept(field, 0).into_inner() as u32;
        let (is_cold, witness) = (parts.membership.is_cold(), parts.membership.witness());
        let (members, current) = parts.membership.split();
        let is_durable = members.iter().all(Member::has_durable_log);
        let (clock_floor, flush_due) = (now(Field::Clock), now(Field::FlushDue));
        let next_seq = kept(Field::NextSeq, set.next_seq);
        let next_item = kept(Field::NextItem, set.next_item);
        Self {
            geometry,
            full_percent: config.full_percent,
            tuning: config.tuning.clone(),
            shared,
            shards,
            evicts: config.evict,
            memory_bytes_max: config.memory_bytes_max.max(config.memory_bytes),
            with_cas: config.cas,
            is_strict: config.durability == Durability::Power,
            members: Appended::new(members, TIERS_MAX),
            current_roster: Mutex::new(current),
            witness,
            is_cold,
            drains: Mutex::default(),
            strict_written: Mutex::new(is_durable),
            due_written: Mutex::new(Some(flush_due)),
            next_seq,
            next_item,
            recovery: Recovery::none(),
            notes: parts.notes,
            set,
            clock_floor,
            flush_due,
            no_room: AtomicBool::new(false),
            filling_mebibytes: parts.filling_mebibytes,
            hangs: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
            kept_ahead: AtomicU64::new(0),
            garbage_chunks: Mutex::default(),
            fixed_bytes: parts.fixed_bytes,
        }
    }

    fn field(&self, field: Field) -> Option<&AtomicU64> {
        self.shared.state().as_ref().map(|state| state.field(field))
    }

    /// The next seal sequence; never used twice on the same tiers.
    pub(crate) fn next_seq(&self) -> u64 {
        self.keep_next(Field::NextSeq, Origin::next_seq(&self.next_seq))
    }

    /// The number of a new large item; never used twice on the same tiers.
    pub(crate) fn next_item(&self) -> u64 {
        self.keep_next(Field::NextItem, self.next_item.fetch_add(1, Ordering::Relaxed))
    }

    /// Stores in the state, before a number is used, that it is taken.
    fn keep_next(&self, field: Field, taken: u64) -> u64 {
        if let Some(kept) = self.field(field) {
            kept.fetch_max(taken + 1, Ordering::Relaxed);
        }
        taken
    }

    /// Stores the time in the state, for the next start.
    pub(crate) fn note_time(&self, now: u32) {
        if let Some(clock) = self.field(Field::Clock) {
            clock.fetch_max(now.into(), Ordering::Relaxed);
        }
    }

    /// Appends to the log that a segment holds no records any more.
    pub(crate) fn log_free(&self, locked: &Locked<'_>, number: u16) {
        let slot = locked.shard().segments().slot(number);
        let log = &self.shared.logs()[usize::from(slot.tier)];
        log.ensure_room(self.shared.slots());
        log.free(self.shared.slots().index(slot));
    }

    /// Bytes that the indexes of all shards may have together.
    pub(crate) fn index_share(&self) -> u64 {
        self.shared.budget().limit() / 100 * u64::from(self.tuning.index_percent)
    }

    /// The tiers as members of the set.
    pub(crate) fn members(&self) -> &[Member] {
        &self.members[..self.shared.slots().tiers().len()]
    }

    /// A tier as a member of the set.
    pub(crate) fn member(&self, tier: usize) -> &Member {
        &self.members[tier]
    }

    pub(crate) fn witness(&self) -> Option<&dyn Witness> {
        self.witness.as_deref()
    }

    /// Replaces a shard's index by a recovered one.
    pub(crate) fn swap_index(&self, locked: &mut Locked<'_>, index: SealedIndex) {
        let bytes = index.bytes();
        self.shared.arena().release(bytes, self.shared.budget());
        self.shared.budget().force(bytes);
        let old = locked.shard().index().replace(index);
        let old_bytes = old.bytes();
        self.shared.counters().index_bytes().fetch_add(bytes, Ordering::Relaxed);
        self.shared.counters().index_bytes().fetch_sub(old_bytes, Ordering::Relaxed);
        self.shared.discard(old, old_bytes);
    }

    pub(crate) fn has_tiers(&self) -> bool {
        !self.shared.slots().tiers().is_empty()
    }

    pub(crate) fn has_working_tiers(&self) -> bool {
        self.shared
            .slots()
            .tiers()
            .iter()
            .any(|tier| !tier.has_failed() && !tier.drain().is_removed())
    }

    /// Whether a part of the state was lost, and its records with it; see [`lost`].
    pub(crate) fn has_lost_state(&self) -> bool {
        self.shared.arena().loss().is_any()
    }

    /// Encoded bytes of fresh records that fill a segment.
    pub(crate) fn seal_bytes(&self) -> u64 {
        self.geometry.segment_bytes().into()
    }

    /// Whether a new record must be refused (`-M`).
    pub(crate) fn refuses_new(&self) -> bool {
        !self.evicts
            && (self.shared.counters().is_full() || self.shared.admission().ledger().is_overdrawn())
    }

    /// Whether background work can't make room (`-M`, or unresponsive drives), or hangs.
    pub(crate) fn is_out_of_room(&self) -> bool {
        let slots = self.shared.slots();
        // Without tiers changes go on when new keys are refused, as long as compaction can free blocks.
        let is_full = !self.evicts
            && match self.has_working_tiers() {
                true => self.shared.counters().is_full(),
                false => self.no_room.load(Ordering::Relaxed),
            };
        let is_stuck = self.is_stuck.load(Ordering::Relaxed) && slots.is_any_silent();
        is_full || is_stuck || self.hangs.load(Ordering::Relaxed) || slots.are_all_silent()
    }

    /// Sets what must be recovered from an earlier process.
    pub(crate) fn begin_recovery(&mut self, recovery: Recovery) {
        self.recovery = recovery;
    }

    /// Lines for the log: the findings of the start.
    pub(crate) fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Unix seconds that an earlier run acted on.
    pub(crate) fn clock_floor(&self) -> u32 {
        self.clock_floor
    }

    /// Unix seconds of a flush that was planned before the start; 0 if none was.
    pub(crate) fn flush_due(&self) -> u32 {
        self.flush_due
    }

    /// Records whether background work hangs; see [`crate::Cache::note_hanging`].
    pub(crate) fn note_hanging(&self, hangs: bool) {
        // It seldom changes, and all cores read it.
        if self.hangs.load(Ordering::Relaxed) != hangs {
            self.hangs.store(hangs, Ordering::Relaxed);
        }
    }

    /// Records whether a shard can't be sealed before a drive answers: its index is full, and all records that it could
    /// drop are on that drive.
    pub(crate) fn note_stuck(&self, is_stuck: bool) {
        // It seldom changes, and all cores read it.
        if self.is_stuck.load(Ordering::Relaxed) != is_stuck {
            self.is_stuck.store(is_stuck, Ordering::Relaxed);
        }
    }

    /// Whether there are enough free blocks for the next requests.
    pub(crate) fn has_spare_blocks(&self) -> bool {
        if self.shared.budget().excess() > 0 {
            return false;
        }
        let arena = self.shared.arena();
        let place =
            if self.has_tiers() { Place::Passing } else { self.shared.place_for(Lane::Fresh) };
        let available = arena.available(self.shared.budget(), place);
        available + arena.retired() as u64 >= self.spare_blocks()
    }

    /// Blocks that are kept free for the next requests.
    pub(crate) fn spare_blocks(&self) -> u64 {
        self.shared.spare_blocks()
    }

    /// Counts a segment in that is now in use, or out that is about to be dropped.
    pub(crate) fn note_segment(&self, segments: &SegmentTable, number: u16, used: bool) {
        let tables = segments.table_bytes(number);
        let footer = segments.footer_bytes(number) as u64;
        let counters = self.shared.counters();
        let tier = counters.tier(segments.slot(number).tier);
        let changes = [
            (counters.page_table_bytes(), tables),
            (tier.footer_bytes(), footer),
            (tier.filled_bytes(), segments.filled_bytes(number)),
            (tier.sealed_bytes(), segments.usage(number).record_bytes().into()),
            (tier.segments_used(), 1),
        ];
        for (counter, amount) in changes {
            let change = if used { AtomicU64::fetch_add } else { AtomicU64::fetch_sub };
            change(counter, amount, Ordering::Relaxed);
        }
        if used {
            self.shared.budget().force(tables + SegmentTable::ROW_BYTES);
        } else {
            self.shared.budget().give(tables + SegmentTable::ROW_BYTES);
        }
    }

    /// Frees number and slot of a segment; its entries must be gone, and the log must have the word.
    pub(crate) fn free_segment(&self, locked: &mut Locked<'_>, number: u16) {
        let segments = locked.shard().segments();
        locked.drop_deferred(number);
        self.note_segment(segments, number, false);
        let left = segments.usage(number);
        // A reader that saw an entry from before its record was relocated must look again.
        locked.note_move();
        let slot = segments.retract(number);
        let tier = self.shared.counters().tier(slot.tier);
        tier.records().sub(locked.shard().at(), left.live_records().into());
        tier.live_bytes().sub(locked.shard().at(), left.live_bytes().into());
        locked.give_numbers([number]);
        self.shared.slots().give(slot);
    }

    /// Drops all records of a shard.
    pub(crate) fn flush(&self, locked: &mut Locked<'_>, at: usize) {
        locked.begin_generation();
        locked.drop_residents();
        locked.clear_deferred();
        self.swap_index(locked, SealedIndex::new(self.geometry.initial_buckets(at)));
        let segments: Vec<_> = locked.shard().segments().iter().collect();
        for sealed in &segments {
            self.log_free(locked, sealed.number);
            self.free_segment(locked, sealed.number);
        }
        if let Some(recovering) = locked.take_recovering() {
            for (place, slot) in recovering.places() {
                let log = &self.shared.logs()[usize::from(place.tier)];
                log.ensure_room(self.shared.slots());
                log.free(slot);
                self.shared.slots().give(place);
            }
        }
        // A segment that is being written right now has a number that no row shows yet: all numbers must be free again,
        // or this one would be lost.
        let rows = self.geometry.segments_per_shard() as u16;
        locked.free_numbers(rows);
    }
}
