//! Which flash records get a copy in DRAM, and which copies go.

use crate::{Heat, Sketch};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Unit of the edge: a count of 1.
const ONE: u32 = 256;
/// Reads per copy in an epoch, in units of [`ONE`].
const READS_PER_COPY_MIN: u32 = ONE;
const READS_PER_COPY_MAX: u32 = 6 * ONE;
/// The edge is meant to stay between these at the end of an epoch, in units of [`ONE`].
const EDGE_MIN: u32 = 3 * ONE;
const EDGE_MAX: u32 = 10 * ONE;
/// While what is hot changes, copies are cooled twice per as many reads as there are copies.
const UPSET_COOLINGS: u64 = 2;
/// Emptying a block of copies gains one part of it in so many.
const DROPPED_OF: u32 = 12;
/// By how much a candidate must pass the edge, in units of [`ONE`].
const MARGIN: u32 = ONE + ONE / 2;
/// By how much instead, while records on flash are read about alike: what passes then does so by chance.
const MARGIN_OF_EVEN: u32 = 6 * ONE;
/// Records are alike whose counts, met by reads, are on average below so many times those of equals: the
/// laboratory has 0 to 0.7 for loops and uniform requests, and 1.7 or, after an epoch, 3 to 7 where some are
/// popular; just after these change it is 0.8 to 2.
const EVEN: f64 = 1.2;
/// One read in so many also looks at the count of a name that nobody asked for.
const STRAY_PART: u64 = 16;
/// Makes another name of a name.
const STRAY: u64 = 0xa076_1d64_78bd_642f;
/// An epoch has at least so many reads, lest a handful of copies count for much.
const READS_MIN: u64 = 1024;

/// Compares candidates with copies by how often they were used, as TinyLFU does at its door
/// (Einziger, Friedman and Manes, 2017): a record that was read from flash replaces a copy only if it
/// was used more often than the coldest.
///
/// Time is counted in *reads*: hits that flash answered. An epoch is a number of them in proportion to
/// the copies; at its end all counts are halved. While DRAM holds what is hot reads are few and
/// memory is long; when what is hot changes reads are many and the past is forgotten soon.
///
/// The coldest copies are known from making room, which takes the oldest block of copies and keeps its
/// hottest: the *edge* is a moving mean of the counts at which that divides.
pub struct Promotion {
    sketch: Sketch,
    told: Told,
    /// Reads that end the present epoch.
    epoch_reads: AtomicU64,
    epoch: AtomicU32,
    /// Reads per copy in an epoch, in units of [`ONE`].
    reads_per_copy: AtomicU32,
    /// Reads as of the last comparison with hits.
    reads_seen: AtomicU64,
    usual_share: AtomicU32,
    is_upset: AtomicBool,
    is_even: AtomicBool,
    /// The count that a record on flash would have at the beginning of the epoch if all were read
    /// alike, in units of [`ONE`].
    count_of_equals: AtomicU32,
    /// Reads at which copies were last cooled within the epoch.
    cooled_at: AtomicU64,
    /// In units of [`ONE`].
    edge: AtomicU32,
}

/// What requests count. On a cache line of its own: every hit of a copy looks at the epoch, and must
/// not wait for the line of those that flash answers.
#[derive(Default)]
#[repr(align(64))]
struct Told {
    reads: AtomicU64,
    /// Sum of the counts that reads met in this epoch.
    met: AtomicU64,
    /// Sum of the counts that names had which nobody asked for: names share counters.
    stray: AtomicU64,
    /// Hits of copies since the last comparison with reads.
    hits: AtomicU64,
}

/// Bytes of copies by their count.
pub type Weights = [u64; Sketch::MAX as usize + 1];

/// Where a block of copies is divided.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Copies of this count stay as far as there is room, hotter ones stay.
    at: u8,
    /// Bytes of room for them.
    room: u64,
}

impl Promotion {
    /// With a sketch of so many bytes.
    pub fn new(sketch_bytes: usize) -> Self {
        Self {
            sketch: Sketch::new(sketch_bytes),
            told: Told::default(),
            epoch_reads: AtomicU64::new(READS_MIN),
            epoch: AtomicU32::new(0),
            reads_per_copy: AtomicU32::new(4 * ONE),
            reads_seen: AtomicU64::new(0),
            usual_share: AtomicU32::new(ONE * 256),
            is_upset: AtomicBool::new(false),
            is_even: AtomicBool::new(false),
            count_of_equals: AtomicU32::new(0),
            cooled_at: AtomicU64::new(0),
            edge: AtomicU32::new(0),
        }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.sketch.bytes()
    }

    /// The present epoch, modulo 256.
    pub fn epoch(&self) -> u8 {
        self.epoch.load(Ordering::Relaxed) as u8
    }

    /// Counts a hit that flash answered, and says how hot the record is by now.
    pub fn note_read(&self, hash: u64) -> Heat {
        let count = self.sketch.add(hash);
        let reads = self.told.reads.fetch_add(1, Ordering::Relaxed);
        if reads.is_multiple_of(STRAY_PART) {
            let stray = self.sketch.estimate(hash ^ STRAY);
            self.told.stray.fetch_add(stray.into(), Ordering::Relaxed);
        }
        self.told.met.fetch_add(u64::from(count) - 1, Ordering::Relaxed);
        Heat::new(count, self.epoch())
    }

    /// What is known of a record from its reads on flash.
    pub fn known(&self, hash: u64) -> Heat {
        Heat::new(self.sketch.estimate(hash), self.epoch())
    }

    /// A copy goes, or a record leaves DRAM without one: what was counted there counts on. A good one
    /// that went by chance is back sooner.
    pub fn remember(&self, hash: u64, heat: Heat) {
        let count = heat.count(self.epoch());
        if count > 0 {
            self.sketch.raise(hash, count);
        }
    }

    /// Whether a record that was read from flash, and not for the first time, deserves a copy: always,
    /// as long as no copy has to go for it (`has_room`). Else it has to be hotter than the coldest by
    /// more than chance explains, lest records that are all alike push each other out.
    pub fn admits(&self, heat: Heat, has_room: bool) -> bool {
        let edge = self.edge.load(Ordering::Relaxed);
        let margin = if self.is_upset.load(Ordering::Relaxed) {
            ONE
        } else if self.is_even.load(Ordering::Relaxed) {
            MARGIN_OF_EVEN
        } else {
            MARGIN
        };
        has_room || u32::from(heat.count(self.epoch())) * ONE > edge + margin
    }

    /// Whether a record that goes from DRAM to flash stays in DRAM as a copy.
    pub fn keeps(&self, heat: Heat) -> bool {
        let edge = self.edge.load(Ordering::Relaxed);
        u32::from(heat.count(self.epoch())) * ONE > edge.max(ONE / 2)
    }

    /// The count that the coldest copies have, in 256ths.
    pub fn edge(&self) -> u32 {
        self.edge.load(Ordering::Relaxed)
    }

    /// Counts hits that copies answered; may be told late, in batches.
    pub fn note_hits(&self, hits: u64) {
        self.told.hits.fetch_add(hits, Ordering::Relaxed);
    }

    /// Ends the epoch if it is due; `copies` is how many there are in DRAM, `others` how many records
    /// have none. To be called by one thread every so often. Looks at the whole sketch, at some GB/s,
    /// when it does. Says whether it did.
    pub fn turn(&self, copies: u64, others: u64) -> bool {
        let reads = self.told.reads.load(Ordering::Relaxed);
        self.watch(reads, copies);
        let epoch_reads = self.epoch_reads.load(Ordering::Relaxed);
        if reads >= epoch_reads {
            let edge = self.edge.load(Ordering::Relaxed);
            let epoch_reads = copies * u64::from(self.pace(edge)) / u64::from(ONE);
            self.epoch_reads.store(epoch_reads.max(READS_MIN), Ordering::Relaxed);
            self.compare_with_equals(reads, others);
            self.restart_at(reads);
            self.sketch.halve();
            self.cool();
            return true;
        }
        let cooled_at = self.cooled_at.load(Ordering::Relaxed);
        if self.is_upset.load(Ordering::Relaxed) && reads >= cooled_at + copies / UPSET_COOLINGS {
            self.cooled_at.store(reads, Ordering::Relaxed);
            self.cool();
        }
        false
    }

    /// Whether the counts that reads met in this epoch were about those of records that are all read
    /// alike. A record that is read more is met more often, and with a higher count: so the mean is
    /// several times that of equals where some are popular. Not counted is what any name would have, because
    /// names share counters.
    fn compare_with_equals(&self, reads: u64, others: u64) {
        let before = f64::from(self.count_of_equals.load(Ordering::Relaxed)) / f64::from(ONE);
        let each = reads as f64 / others.max(1) as f64;
        let met = self.told.met.swap(0, Ordering::Relaxed);
        let by_chance = self.told.stray.swap(0, Ordering::Relaxed) * STRAY_PART;
        let met = met.saturating_sub(by_chance) as f64 / reads.max(1) as f64;
        self.is_even.store(met < EVEN * (before + each / 2.0), Ordering::Relaxed);
        let after = (before + each) / 2.0 * f64::from(ONE);
        self.count_of_equals.store(after as u32, Ordering::Relaxed);
    }

    /// Halves what copies have.
    fn cool(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        let edge = self.edge.load(Ordering::Relaxed);
        self.edge.store(edge / 2, Ordering::Relaxed);
    }

    fn restart_at(&self, reads: u64) {
        self.told.reads.fetch_sub(reads, Ordering::Relaxed);
        self.cooled_at.store(0, Ordering::Relaxed);
        let seen = self.reads_seen.load(Ordering::Relaxed);
        self.reads_seen.store(seen.wrapping_sub(reads), Ordering::Relaxed);
    }

    /// Compares the share of hits that flash answers with what it was over a longer time.
    fn watch(&self, reads: u64, copies: u64) {
        let hits = self.told.hits.load(Ordering::Relaxed);
        let new_reads = reads.wrapping_sub(self.reads_seen.load(Ordering::Relaxed));
        let all = hits + new_reads;
        if all < (copies / 4).max(READS_MIN) {
            return;
        }
        self.told.hits.fetch_sub(hits, Ordering::Relaxed);
        self.reads_seen.store(reads, Ordering::Relaxed);
        let share = (new_reads * u64::from(ONE) * 256 / all) as u32;
        let usual = self.usual_share.load(Ordering::Relaxed);
        let is_upset = share > usual + usual / 4;
        self.is_upset.store(is_upset, Ordering::Relaxed);
        if share < usual / 2 {
            // Epochs are long now, and this one may have begun with requests of quite another kind.
            self.is_even.store(false, Ordering::Relaxed);
        }
        let moved = usual - usual / 64 + share / 64;
        self.usual_share.store(moved, Ordering::Relaxed);
    }

    /// Makes epochs as long as it takes to count the coldest copies to what 4 bits tell apart well.
    fn pace(&self, edge: u32) -> u32 {
        let before = self.reads_per_copy.load(Ordering::Relaxed);
        let after = match edge {
            edge if edge > EDGE_MAX => before - before / 4,
            edge if edge < EDGE_MIN => before + before / 4,
            _ => before,
        };
        let after = after.clamp(READS_PER_COPY_MIN, READS_PER_COPY_MAX);
        self.reads_per_copy.store(after, Ordering::Relaxed);
        after
    }

    /// How much emptying a block of so many bytes has to gain. The less goes, the better is what stays
    /// chosen, and the more is moved.
    pub fn gain(block_bytes: u32) -> u32 {
        block_bytes.div_ceil(DROPPED_OF)
    }

    /// Divides a block of copies, of which `room` bytes may stay, and moves the edge.
    pub fn cut(&self, copies: &Weights, room: u64) -> Cut {
        let mut left = room;
        let mut at = Sketch::MAX;
        while at > 0 && copies[usize::from(at)] <= left {
            left -= copies[usize::from(at)];
            at -= 1;
        }
        if at == 0 && copies[0] <= left {
            // Nothing has to go; how hot the coldest are is not known from that.
            return Cut { at, room: left };
        }
        let edge = self.edge.load(Ordering::Relaxed);
        let here = u32::from(at) * ONE;
        let moved = if edge == 0 { here } else { edge - edge / 8 + here / 8 };
        self.edge.store(moved.max(1), Ordering::Relaxed);
        Cut { at, room: left }
    }
}

impl Cut {
    /// Whether a copy of this count and size stays; to be asked once for each.
    pub fn keeps(&mut self, count: u8, bytes: u64) -> bool {
        if count == self.at && bytes <= self.room {
            self.room -= bytes;
            return true;
        }
        count > self.at
    }
}
