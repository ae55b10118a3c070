//! Which flash records get a copy in DRAM, and which copies go.

use crate::worth::Worth;
use crate::{Heat, Sketch};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Unit of the edge: a count of 1.
const ONE: u32 = 256;
/// Unit of shares: all hits.
const ALL: u32 = 1 << 16;
/// Reads per copy in an epoch, in units of [`ONE`].
const READS_PER_COPY_MIN: u32 = ONE;
const READS_PER_COPY_MAX: u32 = 6 * ONE;
/// The edge is meant to stay between these at the end of an epoch, in units of [`ONE`].
const EDGE_MIN: u32 = 3 * ONE;
const EDGE_MAX: u32 = 10 * ONE;
/// While what is hot changes, copies are cooled twice per as many reads as there are copies.
const UPSET_COOLINGS: u64 = 2;
/// Copies have lost what they were for when they answer less than one hit in so many that they did ...
const LOST_PART: u32 = 3;
/// ... and they did answer so many of all, in units of [`ALL`].
const LOST_FROM: u32 = ALL / 8;
/// Halvings that leave nothing of a count.
const COOLINGS_TO_NOTHING: u32 = Sketch::MAX.count_ones();
/// Emptying a block of copies gains one part of it in so many.
const DROPPED_OF: u32 = 12;
/// By how much a candidate must pass the edge, in units of [`ONE`].
const MARGIN: u32 = ONE + ONE / 2;
/// While what is hot changes.
const MARGIN_OF_UPSET: u32 = ONE;
/// While all is counted anew, and a count of two is all that is known of most that is hot.
const MARGIN_OF_NEW: u32 = ONE / 2;
/// By how much instead, while records on flash are read about alike: what passes then does so by chance.
const MARGIN_OF_EVEN: u32 = 6 * ONE;
/// Records are alike whose counts, met by reads, are on average below so many times those of equals: the
/// laboratory has 0 to 0.7 for loops and uniform requests, and 1.7 or, after an epoch, 3 to 7 where some are
/// popular; just after these change it is 0.8 to 2.
const EVEN: f64 = 1.2;
/// So many reads of one worker are told together, lest all workers share a line for each. The last of them also looks
/// at the count of a name that nobody asked for.
const TOLD_TOGETHER: u32 = 16;
/// Makes another name of a name.
const STRAY: u64 = 0xa076_1d64_78bd_642f;
/// An epoch has at least so many reads, lest a handful of copies count for much.
const READS_MIN: u64 = 1024;
/// And at least one per so many bytes of the sketch: its end looks at all of them, however few copies there are.
const SKETCH_BYTES_PER_READ: u64 = 64;

/// Compares candidates with copies by how often they were used, as TinyLFU does at its door
/// (Einziger, Friedman and Manes, 2017): a record that was read from flash replaces a copy only if it
/// was used more often than the coldest. Uses of short records count for more than those of long ones, as far as
/// counts go: a full one says only that there were more, so that no length makes it less.
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
    /// Of hits that flash answers, in units of [`ALL`].
    usual_share: AtomicU32,
    /// The same when it was last looked at.
    last_share: AtomicU32,
    is_upset: AtomicBool,
    /// All was forgotten at the beginning of this epoch, and hits are not yet what they were.
    is_new: AtomicBool,
    is_even: AtomicBool,
    /// The count that a record on flash would have at the beginning of the epoch if all were read
    /// alike, in units of [`ONE`].
    count_of_equals: AtomicU32,
    /// Reads at which copies were last cooled within the epoch.
    cooled_at: AtomicU64,
    /// In units of [`ONE`].
    edge: AtomicU32,
    /// Bytes that a record takes in the mean, 0 if that is not known.
    mean_bytes: AtomicU32,
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

/// Reads of one worker that were not told yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Untold {
    reads: u32,
    /// Sum of the counts that they met.
    met: u32,
}

/// Bytes of copies by their rank.
pub type Weights = [u64; Sketch::MAX as usize + 1];

/// Where a block of copies is divided.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Copies of this rank stay as far as there is room, those above stay.
    at: u8,
    /// Bytes of room for them.
    room: u64,
}

impl Promotion {
    /// With a sketch of so many bytes.
    pub fn new(sketch_bytes: usize) -> Self {
        let promotion = Self {
            sketch: Sketch::new(sketch_bytes),
            told: Told::default(),
            epoch_reads: AtomicU64::new(0),
            epoch: AtomicU32::new(0),
            reads_per_copy: AtomicU32::new(4 * ONE),
            reads_seen: AtomicU64::new(0),
            usual_share: AtomicU32::new(ALL),
            last_share: AtomicU32::new(ALL),
            is_upset: AtomicBool::new(false),
            is_new: AtomicBool::new(false),
            is_even: AtomicBool::new(false),
            count_of_equals: AtomicU32::new(0),
            cooled_at: AtomicU64::new(0),
            edge: AtomicU32::new(0),
            mean_bytes: AtomicU32::new(0),
        };
        promotion.set_epoch(0, 0);
        promotion
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.sketch.bytes()
    }

    /// The present epoch, modulo 256.
    pub fn epoch(&self) -> u8 {
        self.epoch.load(Ordering::Relaxed) as u8
    }

    /// Counts a hit that flash answered, and says how hot the record is by now. `untold` is the caller's own.
    pub fn note_read(&self, hash: u64, untold: &mut Untold) -> Heat {
        let count = self.sketch.add(hash);
        untold.reads += 1;
        untold.met += u32::from(count) - 1;
        if untold.reads == TOLD_TOGETHER {
            let Untold { reads, met } = std::mem::take(untold);
            let stray = self.sketch.estimate(hash ^ STRAY);
            self.told.reads.fetch_add(reads.into(), Ordering::Relaxed);
            self.told.met.fetch_add(met.into(), Ordering::Relaxed);
            self.told.stray.fetch_add(stray.into(), Ordering::Relaxed);
        }
        Heat::new(count, self.epoch())
    }

    /// The memory that [`Promotion::note_read`] of this hash looks at, to be asked for ahead.
    pub fn line_of(&self, hash: u64) -> *const u8 {
        self.sketch.line_of(hash)
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

    /// A record would take so many bytes in DRAM in the mean.
    pub fn note_mean(&self, bytes: u32) {
        self.mean_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What `count` uses, less `margin`, of a record that takes `bytes` are worth, in units of [`ONE`].
    fn worth(&self, count: u8, margin: u32, bytes: u32) -> u32 {
        let uses = (u32::from(count) * ONE).saturating_sub(margin);
        let worth = Worth::of(bytes, self.mean_bytes.load(Ordering::Relaxed)).times(uses);
        if count == Sketch::MAX { worth.max(uses) } else { worth }
    }

    /// Where a copy that was used `count` times and takes `bytes` stands among others, for [`Promotion::cut`]; 0 if
    /// it was not used.
    pub fn rank(&self, count: u8, bytes: u32) -> u8 {
        let rank = self.worth(count, 0, bytes) / ONE;
        (rank as u8).clamp(count.min(1), Sketch::MAX)
    }

    /// Whether a record that was read from flash, and not for the first time, and would take `bytes`, deserves a
    /// copy: always, as long as no copy has to go for it (`has_room`). Else it has to be hotter than the coldest by
    /// more than chance explains, lest records that are all alike push each other out.
    pub fn admits(&self, heat: Heat, bytes: u32, has_room: bool) -> bool {
        if has_room {
            return true;
        }
        let edge = self.edge.load(Ordering::Relaxed);
        let margin = if self.is_new.load(Ordering::Relaxed) {
            MARGIN_OF_NEW
        } else if self.is_upset.load(Ordering::Relaxed) {
            MARGIN_OF_UPSET
        } else if self.is_even.load(Ordering::Relaxed) {
            MARGIN_OF_EVEN
        } else {
            MARGIN
        };
        self.worth(heat.count(self.epoch()), margin, bytes) > edge
    }

    /// Whether a record that goes from DRAM to flash, and takes `bytes`, stays in DRAM as a copy.
    pub fn keeps(&self, heat: Heat, bytes: u32) -> bool {
        self.worth(heat.count(self.epoch()), 0, bytes) > self.edge.load(Ordering::Relaxed)
    }

    /// The rank that the coldest copies have, in 256ths.
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
        if self.watch(reads, copies) {
            self.begin_anew(reads, copies);
            return true;
        }
        if reads >= self.epoch_reads.load(Ordering::Relaxed)
            || self.is_in_vain(reads, copies, others)
        {
            self.end_epoch(reads, copies, others);
            return true;
        }
        let is_upset =
            self.is_upset.load(Ordering::Relaxed) && !self.is_new.load(Ordering::Relaxed);
        let cooled_at = self.cooled_at.load(Ordering::Relaxed);
        if is_upset && reads >= cooled_at + copies / UPSET_COOLINGS {
            self.cooled_at.store(reads, Ordering::Relaxed);
            self.cool();
        }
        false
    }

    fn end_epoch(&self, reads: u64, copies: u64, others: u64) {
        let edge = self.edge.load(Ordering::Relaxed);
        self.set_epoch(copies, self.pace(edge));
        let is_even = self.looks_even(reads, others);
        self.is_even.store(is_even, Ordering::Relaxed);
        let after = (self.before() + reads as f64 / others.max(1) as f64) / 2.0 * f64::from(ONE);
        self.count_of_equals.store(after as u32, Ordering::Relaxed);
        if self.is_new.swap(false, Ordering::Relaxed) {
            // Hits are not what they were, and won't be: this is how things are now.
            let share = self.last_share.load(Ordering::Relaxed);
            self.usual_share.store(share, Ordering::Relaxed);
        }
        self.restart_at(reads);
        self.sketch.halve();
        self.cool();
    }

    fn set_epoch(&self, copies: u64, reads_per_copy: u32) {
        let reads = copies * u64::from(reads_per_copy) / u64::from(ONE);
        self.epoch_reads.store(reads.max(self.epoch_reads_min()), Ordering::Relaxed);
    }

    fn epoch_reads_min(&self) -> u64 {
        READS_MIN.max(self.sketch.bytes() as u64 / SKETCH_BYTES_PER_READ)
    }

    /// Another set of records is hot: what was counted is forgotten, and all is counted from nothing until
    /// hits are what they were, for as long as the longest epoch. What is hot now is known from its second
    /// read, which epochs that are short would put off, since they forget the first; and copies that nobody
    /// asked for since are told from those that were made since.
    fn begin_anew(&self, reads: u64, copies: u64) {
        self.set_epoch(copies, READS_PER_COPY_MAX);
        self.count_of_equals.store(0, Ordering::Relaxed);
        self.is_even.store(false, Ordering::Relaxed);
        self.is_new.store(true, Ordering::Relaxed);
        self.restart_at(reads);
        self.sketch.clear();
        self.epoch.fetch_add(COOLINGS_TO_NOTHING, Ordering::Relaxed);
        self.edge.store(0, Ordering::Relaxed);
    }

    /// Whether all is counted anew, and nothing seems to be hot.
    fn is_in_vain(&self, reads: u64, copies: u64, others: u64) -> bool {
        self.is_new.load(Ordering::Relaxed)
            && reads >= copies.max(self.epoch_reads_min())
            && self.looks_even(reads, others)
    }

    /// Whether the counts that reads met in this epoch are about those of records that are all read
    /// alike. A record that is read more is met more often, and with a higher count: so the mean is
    /// several times that of equals where some are popular. Not counted is what any name would have, because
    /// names share counters.
    fn looks_even(&self, reads: u64, others: u64) -> bool {
        let each = reads as f64 / others.max(1) as f64;
        let by_chance = self.told.stray.load(Ordering::Relaxed) * u64::from(TOLD_TOGETHER);
        let met = self.told.met.load(Ordering::Relaxed).saturating_sub(by_chance);
        (met as f64 / reads.max(1) as f64) < EVEN * (self.before() + each / 2.0)
    }

    /// The count that a record on flash would have had at the beginning of the epoch if all were read alike.
    fn before(&self) -> f64 {
        f64::from(self.count_of_equals.load(Ordering::Relaxed)) / f64::from(ONE)
    }

    /// Halves what copies have.
    fn cool(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        let edge = self.edge.load(Ordering::Relaxed);
        self.edge.store(edge / 2, Ordering::Relaxed);
    }

    fn restart_at(&self, reads: u64) {
        self.told.reads.fetch_sub(reads, Ordering::Relaxed);
        self.told.met.store(0, Ordering::Relaxed);
        self.told.stray.store(0, Ordering::Relaxed);
        self.cooled_at.store(0, Ordering::Relaxed);
        let seen = self.reads_seen.load(Ordering::Relaxed);
        self.reads_seen.store(seen.wrapping_sub(reads), Ordering::Relaxed);
    }

    /// Compares the share of hits that flash answers with what it was over a longer time. Says whether
    /// copies have all but lost what they were for.
    fn watch(&self, reads: u64, copies: u64) -> bool {
        let hits = self.told.hits.load(Ordering::Relaxed);
        let new_reads = reads.wrapping_sub(self.reads_seen.load(Ordering::Relaxed));
        let all = hits + new_reads;
        if all < (copies / 4).max(READS_MIN) {
            return false;
        }
        self.told.hits.fetch_sub(hits, Ordering::Relaxed);
        self.reads_seen.store(reads, Ordering::Relaxed);
        let share = (new_reads * u64::from(ALL) / all) as u32;
        self.last_share.store(share, Ordering::Relaxed);
        let usual = self.usual_share.load(Ordering::Relaxed);
        let is_upset = share > usual + usual / 4;
        self.is_upset.store(is_upset, Ordering::Relaxed);
        if share < usual / 2 {
            // Epochs are long now, and this one may have begun with requests of quite another kind.
            self.is_even.store(false, Ordering::Relaxed);
        }
        if share <= usual + usual / 8 {
            self.is_new.store(false, Ordering::Relaxed);
        } else if self.is_new.load(Ordering::Relaxed) {
            return false;
        }
        let moved = usual - usual / 64 + share / 64;
        self.usual_share.store(moved, Ordering::Relaxed);
        let usual_hits = ALL.saturating_sub(usual);
        usual_hits >= LOST_FROM && (ALL - share) * LOST_PART < usual_hits
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
        if self.is_new.load(Ordering::Relaxed) {
            // All that nobody asked for since goes at once, lest it be moved again and again.
            left = left.min(copies[1..].iter().sum());
        }
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
    /// Whether a copy of this rank and size stays; to be asked once for each.
    pub fn keeps(&mut self, rank: u8, bytes: u64) -> bool {
        if rank == self.at && bytes <= self.room {
            self.room -= bytes;
            return true;
        }
        rank > self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads until an epoch ends, of records that are all read alike.
    fn reads_of_an_epoch(promotion: &Promotion, copies: u64) -> u64 {
        let mut untold = Untold::default();
        let reads = (1..).find(|&read| {
            promotion.note_read(read, &mut untold);
            promotion.turn(copies, 1 << 30)
        });
        reads.unwrap_or(0)
    }

    #[test]
    fn an_epoch_is_as_long_as_copies_are_many() {
        let promotion = Promotion::new(1 << 10);
        assert_eq!(reads_of_an_epoch(&promotion, 100_000), READS_MIN);
        let reads = reads_of_an_epoch(&promotion, 100_000);
        assert!((100_000..=600_000).contains(&reads), "{reads}");
    }

    #[test]
    fn short_records_need_fewer_uses_than_long_ones_and_no_length_undoes_a_full_count() {
        let promotion = Promotion::new(1 << 10);
        // Room for those of rank 6 and above, and for none of rank 5.
        promotion.cut(&[8; 16], 80);
        assert_eq!(promotion.edge(), 5 * ONE);
        let least = |bytes| {
            (0..=Sketch::MAX).find(|&count| promotion.admits(Heat::new(count, 0), bytes, false))
        };
        assert_eq!([1, 100, 10_000].map(least), [Some(7); 3], "the mean is not known");
        promotion.note_mean(100);
        assert_eq!([25, 50, 100].map(least), [Some(3), Some(5), Some(7)]);
        assert_eq!([200, 10_000].map(least), [Some(12), Some(15)]);
        let ranks = |bytes| [0, 1, 4, 14, 15].map(|count| promotion.rank(count, bytes));
        assert_eq!(ranks(100), [0, 1, 4, 14, 15]);
        assert_eq!(ranks(25), [0, 4, 15, 15, 15]);
        assert_eq!(ranks(400), [0, 1, 1, 3, 15]);
        assert!(promotion.keeps(Heat::new(2, 0), 25) && !promotion.keeps(Heat::new(5, 0), 100));
    }

    #[test]
    fn few_copies_do_not_have_a_large_sketch_looked_at_again_and_again() {
        let promotion = Promotion::new(4 << 20);
        for _ in 0..4 {
            assert_eq!(reads_of_an_epoch(&promotion, 10), (4 << 20) / SKETCH_BYTES_PER_READ);
        }
    }
}
