//! A record in DRAM: its address, and the header before it.

use crate::platform::getters::getters;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// Where a record lies in DRAM; fits 40 bits (8 TiB in units of 8 bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addr(NonZeroU64);

impl Addr {
    pub(crate) const UNIT: u64 = 8;
    pub(crate) const BITS: u32 = 40;

    pub(crate) fn from_offset(offset: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(offset / Self::UNIT))
    }

    pub(crate) fn offset(self) -> u64 {
        (self.0.get() - 1) * Self::UNIT
    }

    pub(crate) fn to_bits(self) -> u64 {
        self.0.get()
    }

    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        NonZeroU64::new(bits).map(Self)
    }
}

/// The header before every record in DRAM.
#[repr(C)]
pub(crate) struct Header {
    /// See [`mark`].
    pub(super) mark: AtomicU16,
    /// See [`crate::dram::heat::Warmth`]; no part of `mark`, so that counting a use is a plain store.
    pub(super) warmth: AtomicU16,
    /// Unix seconds of the last use.
    pub(super) accessed: AtomicU32,
    /// Length of the encoded record that follows.
    pub(super) bytes: u32,
    /// The sealed original of the same record, which no tombstone names, see [`crate::dram::heat::Origin`]: that of a
    /// copy, or of a fresh record that reclaim took from a segment; else 0.
    pub(super) origin: AtomicU32,
}

getters! {
    Header {
        origin: &AtomicU32,
        accessed: &AtomicU32,
        mark: &AtomicU16,
    }
}

pub(crate) const HEADER_BYTES: u32 = size_of::<Header>() as u32;

/// Bits of [`Header::mark`].
pub(crate) mod mark {
    /// Replaced or removed; the bytes stay until the block is reused.
    pub(crate) const VOID: u16 = 1;
    /// Used since it came or since eviction last passed over it.
    pub(crate) const USED: u16 = 2;
    /// Was read at least once (meta `h`).
    pub(crate) const FETCHED: u16 = 4;
    /// A copy of a sealed record; dropping it loses nothing.
    pub(crate) const HOT: u16 = 8;
    /// Was on a tier before; reclaim reinserted it.
    pub(crate) const REINSERTED: u16 = 16;
    /// Was written to the segment that `origin` names; counts until that seal is committed.
    pub(crate) const SEALED: u16 = 32;
    /// Fresh, and admitted to a tier, see [`crate::tiers::admission`].
    pub(crate) const ADMITTED: u16 = 64;
    /// Replaced a record that was only in DRAM, see [`crate::background::pick`].
    pub(crate) const REWRITTEN: u16 = 128;
    /// Replaced a copy and goes on from its counts, see [`crate::dram::heat`].
    pub(crate) const INHERITED: u16 = 256;
    /// Replaced a sealed record that its request had read, or was [`REWRITTEN`] when eviction passed over it.
    pub(crate) const CHANGED: u16 = 512;
    /// Lies in a block of [`crate::dram::lane::Lane::Protected`].
    pub(crate) const PROTECTED: u16 = 4096;
    /// The key was read or rewritten before this record is sealed.
    pub(crate) const USED_BEFORE: u16 = FETCHED | REWRITTEN | CHANGED;
}

/// A published record.
#[derive(Clone, Copy)]
pub(crate) struct Resident<'a> {
    pub(crate) addr: Addr,
    pub(crate) header: &'a Header,
    pub(crate) bytes: &'a [u8],
}

impl Resident<'_> {
    pub(crate) fn has(&self, bits: u16) -> bool {
        self.header.mark.load(Ordering::Relaxed) & bits != 0
    }

    /// Sets bits; stores only if one changes, since readers share the line.
    pub(crate) fn set(&self, bits: u16) {
        if self.header.mark.load(Ordering::Relaxed) & bits != bits {
            self.header.mark.fetch_or(bits, Ordering::Relaxed);
        }
    }

    /// Bytes that the record takes in its block.
    pub(crate) fn footprint(&self) -> u32 {
        footprint(self.bytes.len())
    }
}

/// Bytes of a block that a record of `bytes` encoded bytes takes.
pub(crate) fn footprint(bytes: usize) -> u32 {
    // Encoded records are at most a block long, far below 4 GiB.
    HEADER_BYTES + (bytes as u32).next_multiple_of(Addr::UNIT as u32)
}
