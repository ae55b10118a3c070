//! Names of the records that were evicted in the last two turnovers: a key that is stored again by then is in use.

use crate::platform::lock::lock;
use std::sync::Mutex;
use terrace_policy::Ghost;

/// Bytes of DRAM per name of one turnover that can be remembered; those of two turnovers take a 64th of DRAM.
const BYTES_PER_NAME: u64 = 512;

/// The names of records that were evicted in this turnover of DRAM and in the one before.
pub(crate) struct Evicted(Mutex<Turnovers>);

struct Turnovers {
    now: Ghost<u32>,
    before: Ghost<u32>,
    /// Bytes of the blocks that were emptied in this turnover.
    bytes: u64,
}

impl Evicted {
    /// For `memory_bytes` of DRAM; 0 remembers hardly any name.
    pub(crate) fn new(memory_bytes: u64) -> Self {
        let ghost = || Ghost::new((memory_bytes / BYTES_PER_NAME) as usize);
        Self(Mutex::new(Turnovers { now: ghost(), before: ghost(), bytes: 0 }))
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        let Turnovers { now, before, .. } = &*lock(&self.0);
        (now.bytes() + before.bytes()) as u64
    }

    /// Remembers a record that is evicted.
    pub(crate) fn note(&self, hash: u64) {
        lock(&self.0).now.note(hash);
    }

    /// Whether a record of this name was evicted in this turnover or the one before; the name is forgotten then.
    pub(crate) fn recall(&self, hash: u64) -> bool {
        let Turnovers { now, before, .. } = &mut *lock(&self.0);
        now.recall(hash) || before.recall(hash)
    }

    /// Counts a block that was emptied; a turnover has `all` bytes.
    pub(crate) fn turn(&self, block_bytes: u64, all: u64) {
        let Turnovers { now, before, bytes } = &mut *lock(&self.0);
        *bytes += block_bytes;
        if *bytes >= all {
            std::mem::swap(now, before);
            now.clear();
            *bytes = 0;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_until_the_end_of_the_next_turnover() {
        let evicted = Evicted::new(1 << 20);
        let turn = || (0..16).for_each(|_| evicted.turn(1 << 16, 1 << 20));
        (0..100).for_each(|hash| evicted.note(hash));
        assert!(evicted.recall(0));
        assert!(!evicted.recall(0), "known once");
        turn();
        assert!(evicted.recall(1));
        evicted.turn(1 << 16, 1 << 20);
        assert!(evicted.recall(2));
        turn();
        assert!((3..100).all(|hash| !evicted.recall(hash)));
        assert!(evicted.bytes() <= 1 << 14);
    }
}
