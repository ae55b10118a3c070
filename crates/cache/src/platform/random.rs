//! Numbers that must not repeat from one opening to the next.

use std::io;

/// A stream of draws, from the system, or from a seed where a test wants the same ones again.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: Option<u64>, epoch: u64) -> io::Result<Self> {
        let Some(seed) = seed else { return system_seed().map(Self) };
        Ok(Self(seed ^ epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// The next draw (SplitMix64; Steele, Lea and Flood, OOPSLA 2014).
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

fn system_seed() -> io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(bytes))
}
