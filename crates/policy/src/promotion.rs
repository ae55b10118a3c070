//! Which flash records get a copy in DRAM, and which copies go.

use crate::{Heat, Sketch};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Unit of the edge: a count of 1.
const ONE: u32 = 256;
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
    reads: AtomicU64,
    /// Reads that end the present epoch.
    epoch_reads: AtomicU64,
    epoch: AtomicU32,
    /// In units of [`ONE`].
    edge: AtomicU32,
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
    /// Reads per copy in an epoch.
    const READS_PER_COPY: u64 = 4;

    /// With a sketch of so many bytes.
    pub fn new(sketch_bytes: usize) -> Self {
        Self {
            sketch: Sketch::new(sketch_bytes),
            reads: AtomicU64::new(0),
            epoch_reads: AtomicU64::new(READS_MIN),
            epoch: AtomicU32::new(0),
            edge: AtomicU32::new(ONE),
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
        self.reads.fetch_add(1, Ordering::Relaxed);
        Heat::new(self.sketch.add(hash), self.epoch())
    }

    /// What is known of a record from its reads on flash.
    pub fn known(&self, hash: u64) -> Heat {
        Heat::new(self.sketch.estimate(hash), self.epoch())
    }

    /// Whether a record of this heat deserves a copy.
    pub fn admits(&self, heat: Heat) -> bool {
        u32::from(heat.count(self.epoch())) * ONE > self.edge.load(Ordering::Relaxed)
    }

    /// The count that the coldest copies have, in 256ths.
    pub fn edge(&self) -> u32 {
        self.edge.load(Ordering::Relaxed)
    }

    /// Ends the epoch if it is due; `copies` is how many there are in DRAM. To be called by one thread
    /// every so often. Looks at the whole sketch, at some GB/s, when it does. Says whether it did.
    pub fn turn(&self, copies: u64) -> bool {
        if self.reads.load(Ordering::Relaxed) < self.epoch_reads.load(Ordering::Relaxed) {
            return false;
        }
        self.reads.store(0, Ordering::Relaxed);
        self.epoch_reads.store((copies * Self::READS_PER_COPY).max(READS_MIN), Ordering::Relaxed);
        self.sketch.halve();
        self.epoch.fetch_add(1, Ordering::Relaxed);
        let edge = self.edge.load(Ordering::Relaxed);
        self.edge.store((edge / 2).max(ONE), Ordering::Relaxed);
        true
    }

    /// Divides a block of copies, of which `room` bytes may stay, and moves the edge.
    pub fn cut(&self, copies: &Weights, room: u64) -> Cut {
        let mut left = room;
        let mut at = Sketch::MAX;
        while at > 0 && copies[usize::from(at)] <= left {
            left -= copies[usize::from(at)];
            at -= 1;
        }
        let edge = self.edge.load(Ordering::Relaxed);
        let moved = edge - edge / 8 + u32::from(at) * ONE / 8;
        self.edge.store(moved.max(ONE), Ordering::Relaxed);
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
