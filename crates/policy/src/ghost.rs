//! What was let go of late: names without values.

/// Names in a bucket.
const LANES: usize = 8;

/// The last names that were let go, first in, first out within buckets of eight; 16 bits each, so that
/// one in 8,000 strangers passes as known. S3-FIFO's ghost queue (Yang et al., SOSP 2023) in the form
/// of a hash table without chains.
pub struct Ghost {
    buckets: Box<[[u16; LANES]]>,
}

impl Ghost {
    /// Remembers about so many names.
    pub fn new(names: usize) -> Self {
        Self { buckets: vec![[0; LANES]; names.div_ceil(LANES).max(1)].into() }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// Remembers a name.
    pub fn note(&mut self, hash: u64) {
        let (bucket, name) = self.place(hash);
        bucket.rotate_right(1);
        bucket[0] = name;
    }

    /// Whether a name was let go of late; it is forgotten then.
    pub fn recall(&mut self, hash: u64) -> bool {
        let (bucket, name) = self.place(hash);
        let found = bucket.iter().position(|&other| other == name);
        if let Some(at) = found {
            bucket[at..].rotate_left(1);
            bucket[LANES - 1] = 0;
        }
        found.is_some()
    }

    fn place(&mut self, hash: u64) -> (&mut [u16; LANES], u16) {
        let mixed = (hash ^ hash >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
        let at = (u128::from(mixed) * self.buckets.len() as u128) >> 64;
        (&mut self.buckets[at as usize], (mixed as u16).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_names_are_known_once_and_old_ones_forgotten() {
        let mut ghost = Ghost::new(8000);
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
