//! A drive that another program has, and where it is read.

use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use terrace_device::{AlignedBuf, Drive, Geometry, Reads};

pub(crate) const SHORT: u64 = 4 << 10;
pub(crate) const LONG: u64 = 2 * SHORT;

/// Where reads go.
pub(crate) struct Places {
    pub(crate) bytes: u64,
    pub(crate) long_percent: u64,
}

impl Places {
    /// Offset and length of a read.
    pub(crate) fn of(&self, number: usize) -> (u64, u64) {
        let random = mix(number as u64);
        let len = if random % 100 < self.long_percent { LONG } else { SHORT };
        let places = (self.bytes - len) / SHORT + 1;
        (mix(random) % places * SHORT, len)
    }
}

/// A file that another program has, only to be read.
pub(crate) struct Shared {
    file: File,
    bytes: u64,
}

impl Shared {
    pub(crate) fn open(path: &str, bytes: u64) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        Ok(Self { file, bytes })
    }
}

impl Drive for Shared {
    fn label(&self) -> &str {
        "a drive"
    }

    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.bytes, block_bytes: SHORT as u32 }
    }

    fn read_at(&self, _: u64, _: &mut AlignedBuf) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_at(&self, _: u64, _: &AlignedBuf) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn flush(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn reads(&self) -> Reads<'_> {
        Reads::Ring(self.file.as_fd())
    }
}

/// Numbers that look random, the same for the same `number`: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
