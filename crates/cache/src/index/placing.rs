//! Which of its two buckets an entry of the sealed index stands in, and how other entries make room for it.

use crate::index::bucket::{Entry, SLOTS};
use crate::index::sealed::SealedIndex;

impl SealedIndex {
    /// Puts an entry into its home, or as a guest into its alternate.
    pub(super) fn place(&self, home_at: usize, entry: Entry) -> bool {
        let mut home = self.load(home_at);
        if let Some(slot) = home.free_home_slot() {
            home.set(slot, Some(entry));
            self.store(home_at, &home);
            return true;
        }
        let other_at = self.alternate(home_at, entry.fingerprint);
        if other_at == home_at {
            return false;
        }
        let mut other = self.load(other_at);
        if !other.add_guest(entry) {
            return false;
        }
        home.sent_away();
        self.store_both((other_at, other), (home_at, home));
        true
    }

    /// Moves one entry out of either bucket of `entry`, to its own other bucket.
    pub(super) fn make_room(&self, home_at: usize, entry: Entry) -> bool {
        let other_at = self.alternate(home_at, entry.fingerprint);
        [home_at, other_at].into_iter().any(|at| (0..SLOTS).any(|slot| self.move_away(at, slot)))
    }

    /// Moves the entry in a slot to its other bucket, if that has room.
    pub(super) fn move_away(&self, at: usize, slot: usize) -> bool {
        let mut bucket = self.load(at);
        let Some(entry) = bucket.entry(slot) else { return false };
        let other_at = self.alternate(at, entry.fingerprint);
        if other_at == at {
            return false;
        }
        if bucket.is_guest(slot) {
            return self.bring_home(at, slot, entry);
        }
        let mut other = self.load(other_at);
        if !other.add_guest(entry) {
            return false;
        }
        bucket.sent_away();
        bucket.remove(slot);
        self.store_both((at, bucket), (other_at, other));
        true
    }

    /// Moves the guest in a slot to its home, as `entry`, if there is room.
    pub(super) fn bring_home(&self, at: usize, slot: usize, entry: Entry) -> bool {
        let home_at = self.alternate(at, entry.fingerprint);
        let (mut bucket, mut home) = (self.load(at), self.load(home_at));
        let Some(free) = home.free_home_slot() else { return false };
        home.set(free, Some(entry));
        home.came_back();
        bucket.remove(slot);
        self.store_both((at, bucket), (home_at, home));
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::index::sealed::tests::random;
    use crate::records::key::{CHUNKS_TOGETHER, Name};

    /// Chunks of large items come in groups that are at home in one bucket.
    #[test]
    fn index_reports_when_groups_of_chunks_fill_it() {
        for seed in 7..12 {
            let (index, mut seed) = (SealedIndex::new(4001), seed);
            let mut group = || {
                let r = random(&mut seed);
                let fingerprint = (r >> 32) as u16 & 0x7ffc;
                let name = move |member| Name {
                    pos: r as u32 & !(CHUNKS_TOGETHER - 1) | member,
                    fingerprint: (fingerprint | member as u16).max(1),
                };
                (0..CHUNKS_TOGETHER).map(name)
            };
            while group().all(|name| index.insert(name, 3, 0).is_ok()) {
                assert!(!index.refuses(index.len() + 1));
            }
            let load = index.len() as f64 / index.slots() as f64;
            assert!(load > 0.8, "first failure at a load of {load:.3}");
            assert!(index.refuses(index.len() + 1));
        }
    }
}
