//! What a simulated device holds: what is durable, and what was written since the last flush.

use super::random::Random;
use std::collections::VecDeque;

/// What a power loss does to writes that were not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// All survive: the process ended, not the power; or the drive saves its cache.
    KeepAll,
    /// None survives.
    LoseAll,
    /// Each block of each write survives or not, by chance: writes are lost, torn, and survive in
    /// another order than they were made.
    Scramble,
}

/// A write that the next flush makes durable.
#[derive(Clone)]
struct Unflushed {
    offset: usize,
    bytes: Vec<u8>,
}

/// The content of a device. Offsets and lengths were checked by the device.
#[derive(Clone)]
pub(super) struct Image {
    block_bytes: usize,
    /// What is read.
    current: Vec<u8>,
    /// What a power loss leaves for certain.
    durable: Vec<u8>,
    /// In the order they were made. Invariant: `durable` with these applied is `current`.
    unflushed: VecDeque<Unflushed>,
    unflushed_bytes: usize,
    /// The oldest writes become durable by themselves when there are more of them, as in a drive's
    /// cache.
    unflushed_bytes_max: usize,
}

impl Image {
    pub(super) fn zeroed(bytes: usize, block_bytes: usize, unflushed_bytes_max: usize) -> Self {
        Self {
            block_bytes,
            current: vec![0; bytes],
            durable: vec![0; bytes],
            unflushed: VecDeque::new(),
            unflushed_bytes: 0,
            unflushed_bytes_max,
        }
    }

    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) {
        let offset = offset as usize;
        buf.copy_from_slice(&self.current[offset..offset + buf.len()]);
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let offset = offset as usize;
        self.current[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.unflushed.push_back(Unflushed { offset, bytes: bytes.to_vec() });
        self.unflushed_bytes += bytes.len();
        while self.unflushed_bytes > self.unflushed_bytes_max {
            self.destage();
        }
    }

    /// Stores those blocks of a write that chance spares.
    pub(super) fn write_some(&mut self, offset: u64, bytes: &[u8], random: &mut Random) {
        let blocks = bytes.chunks(self.block_bytes);
        let spared: Vec<_> = blocks.enumerate().filter(|_| random.coin()).collect();
        for (at, block) in spared {
            self.write(offset + (at * self.block_bytes) as u64, block);
        }
    }

    pub(super) fn flush(&mut self) {
        while !self.unflushed.is_empty() {
            self.destage();
        }
    }

    /// Makes the oldest write durable.
    fn destage(&mut self) {
        let Some(Unflushed { offset, bytes }) = self.unflushed.pop_front() else { return };
        self.durable[offset..offset + bytes.len()].copy_from_slice(&bytes);
        self.unflushed_bytes -= bytes.len();
    }

    /// Changes what is stored behind the writer's back, for good.
    pub(super) fn tamper(&mut self, change: impl FnOnce(&mut [u8])) {
        self.flush();
        change(&mut self.current);
        self.durable.copy_from_slice(&self.current);
    }

    /// The content after a crash; as [`Image::crash`] on a copy, and cheaper where nothing is lost.
    pub(super) fn crashed(&self, how: Crash, random: &mut Random) -> Self {
        if how != Crash::KeepAll {
            let mut copy = self.clone();
            copy.crash(how, random);
            return copy;
        }
        Self {
            current: self.current.clone(),
            durable: self.current.clone(),
            unflushed: VecDeque::new(),
            unflushed_bytes: 0,
            ..*self
        }
    }

    /// Loses the power and gets it back.
    pub(super) fn crash(&mut self, how: Crash, random: &mut Random) {
        let lost = std::mem::take(&mut self.unflushed);
        self.unflushed_bytes = 0;
        for Unflushed { offset, bytes } in lost {
            for (at, block) in bytes.chunks(self.block_bytes).enumerate() {
                let survives = match how {
                    Crash::KeepAll => true,
                    Crash::LoseAll => false,
                    Crash::Scramble => random.coin(),
                };
                if survives {
                    let at = offset + at * self.block_bytes;
                    self.durable[at..at + block.len()].copy_from_slice(block);
                }
            }
        }
        self.current.copy_from_slice(&self.durable);
    }
}
