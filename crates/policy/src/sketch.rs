//! How often each of many keys was seen of late, approximately, in half a byte per counter.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a key; the least of them is the estimate.
const ROWS: usize = 4;
/// Words of a line that a row may use.
const WORDS: usize = 2;
/// Counters in a word.
const COUNTERS: u64 = 16;

/// One cache line: 128 counters of 4 bits, a quarter for each row.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; ROWS * WORDS]);

/// A count-min sketch (Cormode and Muthukrishnan, 2005) of 4-bit counters that are halved now and
/// then, as TinyLFU does (Einziger, Friedman and Manes, 2017). Only the least counters of a key grow
/// (Estan and Varghese, 2002). All counters of a key lie in one cache line, so that counting costs one
/// line. Shared by threads; a count that races with another may be lost, which an estimate bears.
pub struct Sketch {
    lines: Box<[Line]>,
}

impl Sketch {
    /// The largest estimate.
    pub const MAX: u8 = 15;

    /// Of `bytes` of memory, rounded down to lines of 64 and one at least.
    pub fn new(bytes: usize) -> Self {
        let lines = (bytes / size_of::<Line>()).max(1);
        Self { lines: (0..lines).map(|_| Line::default()).collect() }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    /// Counts the key of this hash once more, and returns its estimate, this time included.
    pub fn add(&self, hash: u64) -> u8 {
        let (line, places) = self.places(hash);
        let counts = places.map(|place| line.count(place));
        let least = counts.into_iter().min().unwrap_or(0);
        if least == Self::MAX {
            return least;
        }
        for (place, count) in places.into_iter().zip(counts) {
            if count == least {
                line.increment(place);
            }
        }
        least + 1
    }

    /// Sees to it that the key of this hash counts for `count` at least.
    pub fn raise(&self, hash: u64, count: u8) {
        let (line, places) = self.places(hash);
        for place in places {
            (line.count(place)..count.min(Self::MAX)).for_each(|_| line.increment(place));
        }
    }

    /// How often the key of this hash was seen of late: no less than it was, as long as counts were
    /// neither halved nor lost.
    pub fn estimate(&self, hash: u64) -> u8 {
        let (line, places) = self.places(hash);
        places.map(|place| line.count(place)).into_iter().min().unwrap_or(0)
    }

    /// The memory that [`Sketch::add`] of this hash changes, to be asked for ahead.
    pub fn line_of(&self, hash: u64) -> *const u8 {
        std::ptr::from_ref(self.places(hash).0).cast()
    }

    /// Halves all counters.
    pub fn halve(&self) {
        const LOWER_BITS: u64 = 0x7777_7777_7777_7777;
        for word in self.lines.iter().flat_map(|line| &line.0) {
            let counts = word.load(Ordering::Relaxed);
            if counts != 0 {
                word.store(counts >> 1 & LOWER_BITS, Ordering::Relaxed);
            }
        }
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.lines
            .iter()
            .flat_map(|line| &line.0)
            .for_each(|word| word.store(0, Ordering::Relaxed));
    }

    fn places(&self, hash: u64) -> (&Line, [Place; ROWS]) {
        // Shards and buckets are picked by other parts of the same hash; mixed, it serves here too.
        let mixed = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let line = (u128::from(mixed) * self.lines.len() as u128) >> 64;
        let places = std::array::from_fn(|row| {
            let bits = mixed >> (row as u32 * 5);
            let word = row * WORDS + (bits % WORDS as u64) as usize;
            Place { word, shift: (bits / WORDS as u64 % COUNTERS * 4) as u32 }
        });
        (&self.lines[line as usize], places)
    }
}

#[derive(Clone, Copy)]
struct Place {
    word: usize,
    shift: u32,
}

impl Line {
    fn count(&self, place: Place) -> u8 {
        (self.0[place.word].load(Ordering::Relaxed) >> place.shift & 15) as u8
    }

    /// Exchanged rather than added, lest two threads push a full counter into its neighbour.
    fn increment(&self, place: Place) {
        let word = &self.0[place.word];
        let before = word.load(Ordering::Relaxed);
        if before >> place.shift & 15 < u64::from(Sketch::MAX) {
            let after = before + (1 << place.shift);
            let _ = word.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn never_less_than_the_truth(keys in prop::collection::vec(0u64..200, 1..2000)) {
            let sketch = Sketch::new(1024);
            let mut truth = HashMap::new();
            for key in keys {
                let count: &mut u8 = truth.entry(key).or_default();
                *count = (*count + 1).min(Sketch::MAX);
                prop_assert!(sketch.add(key) >= *count);
            }
            for (key, count) in truth {
                prop_assert!(sketch.estimate(key) >= count);
            }
        }
    }

    #[test]
    fn mostly_exact_with_eight_counters_per_key_and_halved_on_request() {
        let sketch = Sketch::new(4 * 10_000);
        for _ in 0..6 {
            (0..10_000).for_each(|key| _ = sketch.add(key));
        }
        let exact = (0..10_000).filter(|&key| sketch.estimate(key) == 6).count();
        assert!(exact > 9_500, "{exact} of 10000");
        sketch.halve();
        let halved = (0..10_000).filter(|&key| sketch.estimate(key) == 3).count();
        assert!(halved >= exact, "{halved} after {exact}");
    }

    #[test]
    fn nothing_is_left_of_what_was_forgotten() {
        let sketch = Sketch::new(1024);
        (0..10_000).for_each(|key| _ = sketch.add(key));
        sketch.clear();
        assert!((0..10_000).all(|key| sketch.estimate(key) == 0));
    }

    #[test]
    fn a_key_is_raised_and_never_lowered() {
        let sketch = Sketch::new(1024);
        for (count, after) in [(5, 5), (3, 5), (40, Sketch::MAX)] {
            sketch.raise(1, count);
            assert_eq!(sketch.estimate(1), after);
        }
        assert_eq!(sketch.estimate(2), 0);
    }

    #[test]
    fn threads_do_not_spoil_neighbours() {
        let sketch = Sketch::new(64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| _ = sketch.add(1)));
            }
        });
        assert_eq!(sketch.estimate(1), Sketch::MAX);
        let untouched = (2..100).filter(|&key| sketch.estimate(key) == 0).count();
        assert!(untouched > 90, "{untouched}");
    }
}
