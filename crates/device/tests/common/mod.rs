//! Scratch files that vanish.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(unreachable_pub, reason = "shared by test crates")]
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use terrace_device::{AlignedBuf, Drive, FileDevice};

pub const BLOCK: usize = 4096;

/// A directory of its own for one test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Beside the build, which is on a real file system; /tmp often is not.
        let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = base.join(format!("device-{}-{count}", std::process::id()));
        // Left by another process of that number, which was killed.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A file whose every block says where it is.
pub fn stamped(scratch: &Scratch, blocks: u64) -> Arc<dyn Drive> {
    const AT_ONCE: u64 = 256;
    let device = FileDevice::open(scratch.path("stamped"), Some(blocks * BLOCK as u64)).unwrap();
    let mut buf = AlignedBuf::zeroed(BLOCK * AT_ONCE as usize);
    for first in (0..blocks).step_by(AT_ONCE as usize) {
        let count = AT_ONCE.min(blocks - first);
        buf.set_len(BLOCK * count as usize);
        for (at, block) in buf.chunks_exact_mut(BLOCK).enumerate() {
            stamp(block, first + at as u64);
        }
        device.write_at(first * BLOCK as u64, &buf).unwrap();
    }
    Arc::new(device)
}

/// Fills a block with a pattern that depends on its number everywhere.
pub fn stamp(block: &mut [u8], number: u64) {
    for (at, word) in block.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&word_of(number, at).to_le_bytes());
    }
}

/// Whether `bytes` are the blocks from `number` on.
pub fn is_stamped(bytes: &[u8], number: u64) -> bool {
    bytes.chunks_exact(BLOCK).enumerate().all(|(block, bytes)| {
        let words = bytes.chunks_exact(8).enumerate();
        words.into_iter().all(|(at, word)| word == word_of(number + block as u64, at).to_le_bytes())
    })
}

fn word_of(number: u64, at: usize) -> u64 {
    (number << 16 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
