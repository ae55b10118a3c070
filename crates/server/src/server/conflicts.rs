//! Which keys a connection's unfinished operations concern. What depends on one of them waits.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Keys that there is room for while there are none; a deeper pipeline makes its own.
const KEPT: usize = 32;

/// Key hashes are evenly spread already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0.rotate_left(8) ^ u64::from(byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[derive(Default)]
struct Unfinished {
    operations: u32,
    writes: u32,
}

/// The keys, by hash: two keys of equal hash are taken for one, which costs a little overlap.
#[derive(Default)]
pub(crate) struct Conflicts {
    keys: HashMap<u64, Unfinished, BuildHasherDefault<AsIs>>,
}

impl Conflicts {
    pub(crate) fn add(&mut self, hash: u64, is_write: bool) {
        let unfinished = self.keys.entry(hash).or_default();
        unfinished.operations += 1;
        unfinished.writes += u32::from(is_write);
    }

    pub(crate) fn remove(&mut self, hash: u64, is_write: bool) {
        let Some(unfinished) = self.keys.get_mut(&hash) else { return };
        unfinished.operations -= 1;
        unfinished.writes -= u32::from(is_write);
        if unfinished.operations == 0 {
            self.keys.remove(&hash);
            if self.keys.is_empty() {
                self.keys.shrink_to(KEPT);
            }
        }
    }

    /// Whether an operation on this key must wait. Reads don't wait for reads.
    pub(crate) fn holds_back(&self, hash: u64, is_write: bool) -> bool {
        !self.keys.is_empty()
            && self.keys.get(&hash).is_some_and(|unfinished| is_write || unfinished.writes > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_overlap_and_writes_do_not() {
        let mut conflicts = Conflicts::default();
        conflicts.add(7, false);
        assert!(!conflicts.holds_back(7, false) && conflicts.holds_back(7, true));
        assert!(!conflicts.holds_back(8, true));
        conflicts.add(7, false);
        conflicts.remove(7, false);
        assert!(conflicts.holds_back(7, true));
        conflicts.remove(7, false);
        assert!(!conflicts.holds_back(7, true));
        conflicts.add(7, true);
        assert!(conflicts.holds_back(7, false));
    }

    #[test]
    fn no_room_for_many_is_kept() {
        let mut conflicts = Conflicts::default();
        (0..500).for_each(|key| conflicts.add(key, false));
        (0..500).for_each(|key| conflicts.remove(key, false));
        assert!(conflicts.keys.capacity() <= 2 * KEPT);
    }
}
