//! The last names that were removed, without values.

/// Names in a bucket.
const LANES: usize = 8;

/// What a [`Ghost`] keeps of a name's hash; zero is no name.
pub trait Trace: Copy + Default + PartialEq {
    /// The lowest bits of a hash.
    fn of(hash: u64) -> Self;
}

impl Trace for u16 {
    fn of(hash: u64) -> Self {
        (hash as Self).max(1)
    }
}

impl Trace for u32 {
    fn of(hash: u64) -> Self {
        (hash as Self).max(1)
    }
}

/// The last names that were removed, first in, first out within buckets of eight. With 16 bits each one in 8,000
/// strangers passes as known, with 32 bits one in 500 million. S3-FIFO's ghost queue (Yang et al., SOSP 2023) in the
/// form of a hash table without chains.
///
/// ```
/// let mut ghost = terrace_policy::Ghost::<u32>::new(1000);
/// ghost.note(7);
/// assert!(ghost.recall(7));
/// assert!(!ghost.recall(7), "it is forgotten then");
/// ```
pub struct Ghost<T: Trace = u16> {
    buckets: Box<[[T; LANES]]>,
}

impl<T: Trace> Ghost<T> {
    /// Remembers about so many names.
    pub fn new(names: usize) -> Self {
        Self { buckets: vec![[T::default(); LANES]; names.div_ceil(LANES).max(1)].into() }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.buckets.fill([T::default(); LANES]);
    }

    /// Remembers a name.
    pub fn note(&mut self, hash: u64) {
        let (bucket, name) = self.place(hash);
        bucket.rotate_right(1);
        bucket[0] = name;
    }

    /// Whether a name is among the last that were removed; it is forgotten then.
    pub fn recall(&mut self, hash: u64) -> bool {
        let (bucket, name) = self.place(hash);
        let found = bucket.iter().position(|&other| other == name);
        if let Some(at) = found {
            bucket[at..].rotate_left(1);
            bucket[LANES - 1] = T::default();
        }
        found.is_some()
    }

    fn place(&mut self, hash: u64) -> (&mut [T; LANES], T) {
        let mixed = (hash ^ hash >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
        let at = (u128::from(mixed) * self.buckets.len() as u128) >> 64;
        (&mut self.buckets[at as usize], T::of(mixed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_names_are_known_once_and_old_ones_forgotten() {
        let mut ghost = Ghost::<u16>::new(8000);
        (0..4000).for_each(|key| ghost.note(key));
        let known = (0..4000).filter(|&key| ghost.recall(key)).count();
        assert!(known > 3800, "{known} of 4000 known");
        assert!((0..4000).filter(|&key| ghost.recall(key)).count() < 10, "known once");
        (0..40_000).for_each(|key| ghost.note(key));
        let old = (0..20_000).filter(|&key| ghost.recall(key)).count();
        assert!(old < 400, "{old} of 20000 old ones known");
        assert_eq!(ghost.bytes(), 16_000);
    }
}
