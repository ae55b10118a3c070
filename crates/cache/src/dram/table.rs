//! The DRAM table: the exact address of each record in DRAM.
//!
//! A bucket is one cache line: seven slots, and a count of the entries that went past it (linear probing by bucket). A
//! slot is one word, so that readers need no lock: 24 hash bits, which give the bucket at any size, and the record's
//! address. The key of the record confirms a hit.

use crate::dram::resident::Addr;
use crate::platform::sync::{AtomicU64, Ordering, Table, table};

const SLOTS: usize = 7;
/// Hash bits in a slot, the topmost of `Name::pos`; also the most bits a bucket number can have.
const TAG_BITS: u32 = 24;

const _: () = assert!(TAG_BITS + Addr::BITS == 64);

#[repr(align(64))]
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
struct Bucket {
    slots: [AtomicU64; SLOTS],
    /// Entries with this bucket or an earlier one as home, in a later bucket.
    passed: AtomicU64,
}

#[cfg(loom)]
impl crate::platform::sync::Zeros for Bucket {
    fn empty() -> Self {
        let slots = std::array::from_fn(|_| AtomicU64::new(0));
        Self { slots, passed: AtomicU64::new(0) }
    }
}

/// The position of an entry; valid until the table is next changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotAt {
    bucket: usize,
    slot: usize,
}

/// One shard's table. Changed under the shard's lock, read without.
pub(crate) struct DramTable {
    buckets: Table<Bucket>,
    bucket_bits: u32,
    entries: AtomicU64,
}

impl DramTable {
    pub(crate) const BUCKET_BITS_MIN: u32 = 3;

    pub(crate) fn new(bucket_bits: u32) -> Self {
        let bucket_bits = bucket_bits.clamp(Self::BUCKET_BITS_MIN, TAG_BITS);
        let buckets = table(1 << bucket_bits);
        Self { buckets, bucket_bits, entries: AtomicU64::new(0) }
    }

    /// Bytes of DRAM of a table with this many bucket bits.
    pub(crate) fn bytes_for(bucket_bits: u32) -> u64 {
        (size_of::<Bucket>() as u64) << bucket_bits
    }

    pub(crate) fn bytes(&self) -> u64 {
        Self::bytes_for(self.bucket_bits)
    }

    pub(crate) fn bucket_bits(&self) -> u32 {
        self.bucket_bits
    }

    pub(crate) fn len(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Whether one more entry would make probes long: the caller should grow the table first if there is memory.
    pub(crate) fn is_crowded(&self) -> bool {
        self.len() * 4 >= (self.buckets.len() * SLOTS) as u64 * 3
    }

    /// Whether no further entry fits without growing.
    pub(crate) fn is_full(&self) -> bool {
        self.len() * 20 >= (self.buckets.len() * SLOTS) as u64 * 19
    }

    fn home(&self, tag: u64) -> usize {
        (tag >> (TAG_BITS - self.bucket_bits)) as usize
    }

    /// The first entry with `pos`'s tag for which `is_it` holds.
    #[inline(always)]
    pub(crate) fn find(
        &self,
        pos: u32,
        mut is_it: impl FnMut(Addr) -> bool,
    ) -> Option<(Addr, SlotAt)> {
        let tag = tag(pos);
        let mut bucket = self.home(tag);
        for _ in 0..self.buckets.len() {
            let line = &self.buckets[bucket];
            for (slot, word) in line.slots.iter().enumerate() {
                let word = word.load(Ordering::Acquire);
                if word >> Addr::BITS != tag {
                    continue;
                }
                if let Some(addr) = address(word).filter(|&addr| is_it(addr)) {
                    return Some((addr, SlotAt { bucket, slot }));
                }
            }
            if line.passed.load(Ordering::Acquire) == 0 {
                return None;
            }
            bucket = (bucket + 1) & (self.buckets.len() - 1);
        }
        None
    }

    /// The entry that points to `addr`.
    pub(crate) fn find_addr(&self, pos: u32, addr: Addr) -> Option<SlotAt> {
        self.find(pos, |candidate| candidate == addr).map(|(_, at)| at)
    }

    /// Adds an entry. The key must have none, and the table must not be full.
    pub(crate) fn insert(&self, pos: u32, addr: Addr) {
        self.insert_word(tag(pos) << Addr::BITS | addr.to_bits());
    }

    fn insert_word(&self, word: u64) {
        let mut bucket = self.home(word >> Addr::BITS);
        loop {
            let line = &self.buckets[bucket];
            if let Some(slot) = line.slots.iter().find(|s| s.load(Ordering::Relaxed) == 0) {
                slot.store(word, Ordering::Release);
                self.count(1);
                return;
            }
            line.passed.fetch_add(1, Ordering::Release);
            bucket = (bucket + 1) & (self.buckets.len() - 1);
        }
    }

    /// Points an entry to another record of the same key.
    pub(crate) fn replace(&self, pos: u32, at: SlotAt, addr: Addr) {
        let word = tag(pos) << Addr::BITS | addr.to_bits();
        self.buckets[at.bucket].slots[at.slot].store(word, Ordering::Release);
    }

    pub(crate) fn remove(&self, pos: u32, at: SlotAt) {
        self.buckets[at.bucket].slots[at.slot].store(0, Ordering::Release);
        let mut bucket = self.home(tag(pos));
        while bucket != at.bucket {
            self.buckets[bucket].passed.fetch_sub(1, Ordering::Release);
            bucket = (bucket + 1) & (self.buckets.len() - 1);
        }
        self.count(1u64.wrapping_neg());
    }

    /// Under the shard's lock too, so a plain store will do.
    fn count(&self, change: u64) {
        self.entries.store(self.len().wrapping_add(change), Ordering::Relaxed);
    }

    /// A table of `bucket_bits` with the same entries. Reads no record.
    pub(crate) fn resized(&self, bucket_bits: u32) -> Self {
        let resized = Self::new(bucket_bits);
        let words = self.buckets.iter().flat_map(|bucket| &bucket.slots);
        words.map(|word| word.load(Ordering::Relaxed)).filter(|&word| word != 0).for_each(|word| {
            resized.insert_word(word);
        });
        resized
    }

    /// The most likely record at `pos`: the first entry with its tag in the home bucket.
    pub(crate) fn likely(&self, pos: u32) -> Option<Addr> {
        let tag = tag(pos);
        let words = self.buckets[self.home(tag)].slots.iter().map(|s| s.load(Ordering::Relaxed));
        words.filter(|word| word >> Addr::BITS == tag).find_map(address)
    }

    /// Prefetches the line that a lookup begins with.
    pub(crate) fn prefetch(&self, pos: u32) {
        let line = &self.buckets[self.home(tag(pos))];
        crate::platform::prefetch::line(line);
    }
}

fn tag(pos: u32) -> u64 {
    u64::from(pos >> (32 - TAG_BITS))
}

fn address(word: u64) -> Option<Addr> {
    Addr::from_bits(word & ((1 << Addr::BITS) - 1))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn addr(n: u64) -> Addr {
        Addr::from_bits(n + 1).expect("not zero")
    }

    proptest! {
        /// Positions from a small set make long probe runs; the table is compared with a map.
        #[test]
        fn agrees_with_a_map(ops in prop::collection::vec((0u8..3, 0u32..60), 1..400)) {
            let mut table = DramTable::new(3);
            let mut model = HashMap::new();
            let pos = |key: u32| (key % 7) << 29 | (key / 7) << 8;
            for (n, (op, key)) in (0u64..).zip(ops) {
                let known = model.get(&key).copied();
                let found = known.map(|a| table.find_addr(pos(key), a).expect("is there"));
                match (op, found) {
                    (0, None) => {
                        if table.is_crowded() {
                            table = table.resized(table.bucket_bits() + 1);
                        }
                        table.insert(pos(key), addr(n));
                        model.insert(key, addr(n));
                    }
                    (1, Some(at)) => {
                        table.replace(pos(key), at, addr(n));
                        model.insert(key, addr(n));
                    }
                    (2, Some(at)) => {
                        table.remove(pos(key), at);
                        model.remove(&key);
                    }
                    _ => {}
                }
                prop_assert_eq!(table.len(), model.len() as u64);
            }
            for (key, at) in &model {
                prop_assert!(table.find_addr(pos(*key), *at).is_some());
            }
            prop_assert!(table.find(pos(61), |_| false).is_none());
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// A reader finds the old or the new record of a key that is being replaced, with a neighbour
    /// coming and going.
    #[test]
    fn loom_a_replaced_record_is_always_found() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let addr = |n| Addr::from_bits(n).unwrap();
            let table = Arc::new(DramTable::new(1));
            table.insert(5 << 8, addr(1));
            let reader = {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    table.find(5 << 8, |a| a == addr(1) || a == addr(2)).is_some()
                })
            };
            let (_, at) = table.find(5 << 8, |a| a == addr(1)).unwrap();
            table.insert(5 << 8, addr(7));
            table.replace(5 << 8, at, addr(2));
            let neighbour = table.find_addr(5 << 8, addr(7)).unwrap();
            table.remove(5 << 8, neighbour);
            assert!(reader.join().unwrap(), "invisible");
        });
    }
}
