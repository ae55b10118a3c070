//! Which keys a connection's unfinished operations and large values concern. What depends on one of them waits.

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
    /// Large values that are being sent. What they are was settled when they began.
    streams: u32,
}

/// The keys, by hash: two keys of equal hash are taken for one, which costs a little overlap.
#[derive(Default)]
pub(crate) struct Conflicts {
    keys: HashMap<u64, Unfinished, BuildHasherDefault<AsIs>>,
}

impl Conflicts {
    pub(crate) fn add(&mut self, hash: u64) {
        self.keys.entry(hash).or_default().operations += 1;
    }

    pub(crate) fn remove(&mut self, hash: u64) {
        self.reduce(hash, |unfinished| unfinished.operations -= 1);
    }

    pub(crate) fn add_stream(&mut self, hash: u64) {
        self.keys.entry(hash).or_default().streams += 1;
    }

    pub(crate) fn remove_stream(&mut self, hash: u64) {
        self.reduce(hash, |unfinished| unfinished.streams -= 1);
    }

    fn reduce(&mut self, hash: u64, by_one: impl FnOnce(&mut Unfinished)) {
        let Some(unfinished) = self.keys.get_mut(&hash) else { return };
        by_one(unfinished);
        if unfinished.operations == 0 && unfinished.streams == 0 {
            self.keys.remove(&hash);
            if self.keys.is_empty() {
                self.keys.shrink_to(KEPT);
            }
        }
    }

    /// Whether an operation on this key must wait: for every other operation on it, since a drive answers in any
    /// order, and of two reads the later might see what was there before the earlier. Of streams only writes wait.
    pub(crate) fn holds_back(&self, hash: u64, is_write: bool) -> bool {
        !self.keys.is_empty()
            && self.keys.get(&hash).is_some_and(|unfinished| is_write || unfinished.operations > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_on_one_key_wait_for_each_other() {
        let mut conflicts = Conflicts::default();
        conflicts.add(7);
        assert!(conflicts.holds_back(7, false) && conflicts.holds_back(7, true));
        assert!(!conflicts.holds_back(8, false) && !conflicts.holds_back(8, true));
        conflicts.remove(7);
        assert!(!conflicts.holds_back(7, true));
    }

    #[test]
    fn reads_do_not_wait_for_streams() {
        let mut conflicts = Conflicts::default();
        conflicts.add_stream(7);
        assert!(!conflicts.holds_back(7, false) && conflicts.holds_back(7, true));
        conflicts.add(7);
        assert!(conflicts.holds_back(7, false));
        conflicts.remove(7);
        assert!(!conflicts.holds_back(7, false) && conflicts.holds_back(7, true));
        conflicts.remove_stream(7);
        assert!(!conflicts.holds_back(7, true));
    }

    #[test]
    fn no_room_for_many_is_kept() {
        let mut conflicts = Conflicts::default();
        (0..500).for_each(|key| conflicts.add(key));
        (0..500).for_each(|key| conflicts.remove(key));
        assert!(conflicts.keys.capacity() <= 2 * KEPT);
    }
}
