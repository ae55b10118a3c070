//! The search for chunks without an owner: its progress, and the items that it has found.

use crate::dram::budget::Budget;
use crate::platform::lock::lock;
use crate::records::large::Large;
use crate::records::manifest::{ItemId, Run};
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The table of items takes at most a 64th of the memory.
const MEMORY_SHARE: u64 = 64;

/// Bytes per item: its entry, and the spare room of a table that grows.
const ITEM_BYTES: u64 = 64;

/// The search for chunks without an owner.
#[derive(Default)]
pub(crate) struct Census {
    /// Another search must be made.
    is_due: AtomicBool,
    is_under_way: AtomicBool,
    /// Shards that the pass has yet to search.
    waiting: AtomicUsize,
    orphaned_chunks: AtomicU64,
    pass: Mutex<Pass>,
}

/// One pass through all shards.
#[derive(Default)]
struct Pass {
    /// Number of this pass.
    number: u64,
    /// By shard: whether it was searched.
    done: Vec<bool>,
    /// Items that have a chunk or an owner; at most `items_max`.
    items: HashMap<ItemId, Item>,
    items_max: usize,
    /// Bytes that the table has taken from the budget.
    bytes: u64,
    /// The items that this pass notes.
    sample: Sample,
    /// The samples of later passes.
    samples: Vec<Sample>,
    /// Uploads in progress when the pass began.
    uploads: HashSet<ItemId>,
    /// The number of the first item that began later.
    next_item: u64,
    /// Segments without a manifest are read, too: there are large items on the tiers.
    reads_all: bool,
}

/// What is known of an item.
#[derive(Clone, Copy, Default)]
struct Item {
    /// The highest chunk that was found, plus one.
    chunks: u32,
    has_owner: bool,
}

/// The items with scattered numbers that begin with some bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sample {
    bits: u32,
    value: u64,
}

impl Sample {
    fn holds(self, item: ItemId) -> bool {
        // Numbers follow each other; a multiple of 2^64 divided by the golden ratio scatters them.
        let scattered = item.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        scattered.checked_shr(u64::BITS - self.bits).unwrap_or(0) == self.value
    }

    fn halves(self) -> [Self; 2] {
        [0, 1].map(|bit| Self { bits: self.bits + 1, value: self.value << 1 | bit })
    }
}

/// The inputs of a pass.
pub(crate) struct Plan {
    pub(super) shards: usize,
    /// The memory cap of the whole cache, in bytes.
    pub(super) memory_bytes: u64,
    /// Uploads in progress, and the number of the next item.
    pub(super) uploads: (HashSet<ItemId>, u64),
    /// Large items may be on the tiers.
    pub(super) reads_all: bool,
}

impl Plan {
    /// For `shards` shards and a memory cap of `memory_bytes`. `uploads` are those in progress, and the number of the
    /// next item.
    pub(crate) fn new(
        shards: usize,
        memory_bytes: u64,
        uploads: (HashSet<ItemId>, u64),
        reads_all: bool,
    ) -> Self {
        Self { shards, memory_bytes, uploads, reads_all }
    }
}

impl Census {
    /// Makes the search begin as soon as all shards are recovered.
    pub(crate) fn ask(&self) {
        self.is_due.store(true, Ordering::Release);
    }

    /// Whether a search must begin.
    pub(crate) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Acquire) && !self.is_under_way.load(Ordering::Acquire)
    }

    /// Whether a search is in progress or about to begin.
    pub(crate) fn is_running(&self) -> bool {
        self.is_due.load(Ordering::Acquire) || self.is_under_way.load(Ordering::Acquire)
    }

    pub(crate) fn shards_waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Chunks without an owner that were found since the start.
    pub(crate) fn orphaned_chunks(&self) -> u64 {
        self.orphaned_chunks.load(Ordering::Relaxed)
    }

    /// Begins a search. Its table takes its bytes from `budget`.
    pub(crate) fn begin(&self, plan: Plan, budget: &Budget) {
        let mut pass = lock(&self.pass);
        pass.samples = vec![Sample::default()];
        self.begin_next(&mut pass, plan, budget);
        self.is_due.store(false, Ordering::Release);
    }

    /// Begins the next pass, or ends the search.
    fn begin_next(&self, pass: &mut Pass, plan: Plan, budget: &Budget) {
        pass.clear(budget);
        let Some(sample) = pass.samples.pop() else {
            return self.is_under_way.store(false, Ordering::Release);
        };
        pass.sample = sample;
        (pass.uploads, pass.next_item) = plan.uploads;
        pass.items_max = (plan.memory_bytes / MEMORY_SHARE / ITEM_BYTES).max(1) as usize;
        pass.done = vec![false; plan.shards];
        pass.reads_all = plan.reads_all;
        pass.number += 1;
        self.waiting.store(plan.shards, Ordering::Relaxed);
        self.is_under_way.store(true, Ordering::Release);
    }

    /// The number of the present pass, and whether it reads segments without a manifest.
    pub(crate) fn pass(&self) -> Option<(u64, bool)> {
        let pass = self.is_under_way.load(Ordering::Acquire).then(|| lock(&self.pass))?;
        Some((pass.number, pass.reads_all))
    }

    /// Adds what the pass of this number found.
    pub(crate) fn note(&self, number: u64, found: Vec<Large>, budget: &Budget) {
        let mut pass = lock(&self.pass);
        if pass.number == number {
            found.into_iter().for_each(|large| pass.note(large, budget));
        }
    }

    /// Marks shard `at` as searched in the pass of this number. After the last shard, returns the chunks without an
    /// owner and begins the next pass with `plan`.
    pub(crate) fn finish(
        &self,
        (number, at): (u64, usize),
        plan: impl FnOnce() -> Plan,
        budget: &Budget,
    ) -> Vec<Run> {
        let mut pass = lock(&self.pass);
        if pass.number != number || std::mem::replace(&mut pass.done[at], true) {
            return Vec::new();
        }
        if self.waiting.fetch_sub(1, Ordering::Relaxed) > 1 {
            return Vec::new();
        }
        let plan = plan();
        let orphans = match !pass.reads_all && plan.reads_all {
            // Large items were sealed meanwhile, and some may have left their block before it was searched.
            true => {
                let sample = pass.sample;
                pass.samples.push(sample);
                Vec::new()
            }
            false => pass.orphans(plan.uploads.1),
        };
        let chunks: u64 = orphans.iter().map(|run| u64::from(run.chunks)).sum();
        self.orphaned_chunks.fetch_add(chunks, Ordering::Relaxed);
        self.begin_next(&mut pass, plan, budget);
        orphans
    }
}

impl Pass {
    fn clear(&mut self, budget: &Budget) {
        self.items = HashMap::new();
        self.uploads = HashSet::new();
        budget.give(std::mem::take(&mut self.bytes));
    }

    fn note(&mut self, large: Large, budget: &Budget) {
        match large {
            Large::Chunk(item, index) => self.note_item(item, index.saturating_add(1), false),
            Large::Manifest(manifest) => {
                manifest.runs.iter().for_each(|run| self.note_item(run.item, 0, true));
            }
        }
        let bytes = self.items.len() as u64 * ITEM_BYTES;
        budget.force(bytes.saturating_sub(self.bytes));
        self.bytes = self.bytes.max(bytes);
    }

    fn note_item(&mut self, number: ItemId, chunks: u32, has_owner: bool) {
        if !self.sample.holds(number) {
            return;
        }
        let item = self.items.entry(number).or_default();
        item.chunks = item.chunks.max(chunks);
        item.has_owner |= has_owner;
        while self.items.len() > self.items_max && self.sample.bits + 1 < u64::BITS {
            let [sample, later] = self.sample.halves();
            self.sample = sample;
            self.samples.push(later);
            self.items.retain(|&item, _| sample.holds(item));
        }
    }

    /// The chunks of items without an owner, in the order of their numbers; `next_item` is the number of the next item.
    fn orphans(&self, next_item: u64) -> Vec<Run> {
        let begun = next_item.wrapping_sub(self.next_item);
        let is_new = |item: ItemId| {
            self.uploads.contains(&item) || item.0.wrapping_sub(self.next_item) < begun
        };
        let orphans =
            self.items.iter().filter(|(number, item)| !item.has_owner && !is_new(**number));
        let run = |(&item, &Item { chunks, .. }): (&ItemId, &Item)| Run {
            item,
            chunks,
            chunk_bytes: 0,
            last_bytes: 0,
        };
        let mut orphans: Vec<_> = orphans.map(run).collect();
        orphans.sort_unstable_by_key(|run| run.item.0);
        orphans
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn full_table_leaves_half_of_the_items_to_a_later_pass() {
        let mut pass = Pass { items_max: 100, ..Pass::default() };
        (0..1000).for_each(|item| pass.note_item(ItemId(item), 1, false));
        assert!(pass.items.len() <= 100);
        assert!(pass.items.keys().all(|&item| pass.sample.holds(item)));
        let samples: Vec<_> = pass.samples.iter().chain([&pass.sample]).collect();
        for item in (0..1000).map(ItemId) {
            assert_eq!(samples.iter().filter(|sample| sample.holds(item)).count(), 1);
        }
        let noted = (0..1000).filter(|&item| pass.sample.holds(ItemId(item))).count();
        assert_eq!(pass.orphans(0).len(), noted, "all that are of this pass");
    }

    #[test]
    fn items_with_an_owner_and_new_items_are_no_orphans() {
        let (items_max, next_item) = (100, 50);
        let uploads = HashSet::from([ItemId(7)]);
        let mut pass = Pass { items_max, next_item, uploads, ..Pass::default() };
        for item in [3, 7, 9, 11, 49, 50, 59, 60] {
            pass.note_item(ItemId(item), item as u32, false);
        }
        pass.note_item(ItemId(9), 0, true);
        let orphans: Vec<_> = pass.orphans(60).iter().map(|run| (run.item.0, run.chunks)).collect();
        assert_eq!(orphans, [(3, 3), (11, 11), (49, 49), (60, 60)]);
    }
}
