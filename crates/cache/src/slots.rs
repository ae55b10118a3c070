//! The tiers' devices and their free places for segments.

use crate::OpenError;
use crate::config::Config;
use crate::counters::{TierCounters, count};
use crate::layout::{FirstPage, PAGE, SEGMENTS_AT, Superblock, VERSION};
use crate::lock;
use crate::segment::SlotId;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use terrace_device::{AlignedBuf, Device};

/// Failed writes in a row after which a device is given up.
const WRITE_ERRORS_MAX: u32 = 3;

/// One tier's device.
pub(crate) struct TierStore {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) segments: u32,
    /// Byte offsets of free segments, the longest free first: circular reuse.
    free: Mutex<VecDeque<u64>>,
    free_count: AtomicU32,
    write_errors_in_a_row: AtomicU32,
    failed: AtomicBool,
}

impl TierStore {
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(crate) fn free(&self) -> u32 {
        self.free_count.load(Ordering::Relaxed)
    }
}

/// All tiers.
pub(crate) struct Slots {
    pub(crate) tiers: Vec<TierStore>,
    segment_bytes: u32,
}

impl Slots {
    /// Checks that every device is blank or ours, then writes superblocks.
    pub(crate) fn open(
        config: &Config,
        segment_bytes: u32,
        shards: usize,
        seed: u64,
    ) -> Result<Self, OpenError> {
        for tier in &config.tiers {
            refuse_foreign(tier.device.as_ref())?;
        }
        let mut tiers = Vec::new();
        for (at, tier) in config.tiers.iter().enumerate() {
            let bytes = tier.device.geometry().bytes.saturating_sub(SEGMENTS_AT);
            let segments = (bytes / u64::from(segment_bytes)) as u32;
            let superblock = Superblock {
                version: VERSION,
                set: seed.rotate_left(17),
                seed,
                segment_bytes,
                segments,
                shards: shards as u16,
                tier: at as u16,
            };
            let mut page = AlignedBuf::zeroed(PAGE);
            superblock.encode(&mut page);
            let written = tier.device.write_at(0, &page);
            written.map_err(|source| device_error(tier.device.as_ref(), source))?;
            let offset = |n| SEGMENTS_AT + u64::from(n) * u64::from(segment_bytes);
            tiers.push(TierStore {
                device: Arc::clone(&tier.device),
                segments,
                free: Mutex::new((0..segments).map(offset).collect()),
                free_count: AtomicU32::new(segments),
                write_errors_in_a_row: AtomicU32::new(0),
                failed: AtomicBool::new(false),
            });
        }
        Ok(Self { tiers, segment_bytes })
    }

    /// Takes a free place on the working tier that has most left.
    pub(crate) fn take(&self) -> Option<SlotId> {
        let working = self.tiers.iter().enumerate().filter(|(_, tier)| !tier.has_failed());
        let share =
            |tier: &TierStore| u64::from(tier.free()) * 1000 / u64::from(tier.segments.max(1));
        let (at, tier) = working.max_by_key(|(_, tier)| share(tier))?;
        let offset = lock(&tier.free).pop_front()?;
        tier.free_count.fetch_sub(1, Ordering::Relaxed);
        Some(SlotId { tier: at as u16, offset })
    }

    pub(crate) fn give(&self, slot: SlotId) {
        let tier = &self.tiers[usize::from(slot.tier)];
        lock(&tier.free).push_back(slot.offset);
        tier.free_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Free places on working tiers.
    pub(crate) fn free(&self) -> u32 {
        self.tiers.iter().filter(|tier| !tier.has_failed()).map(TierStore::free).sum()
    }

    /// Places on working tiers.
    pub(crate) fn total(&self) -> u32 {
        self.tiers.iter().filter(|tier| !tier.has_failed()).map(|tier| tier.segments).sum()
    }

    pub(crate) fn write(
        &self,
        slot: SlotId,
        segment: &AlignedBuf,
        counters: &TierCounters,
    ) -> io::Result<()> {
        let tier = &self.tiers[usize::from(slot.tier)];
        let written = tier.device.write_at(slot.offset, segment);
        match &written {
            Ok(()) => {
                tier.write_errors_in_a_row.store(0, Ordering::Relaxed);
                count(&counters.segment_writes);
                counters.written_bytes.fetch_add(segment.len() as u64, Ordering::Relaxed);
            }
            Err(_) => {
                count(&counters.write_errors);
                if tier.write_errors_in_a_row.fetch_add(1, Ordering::Relaxed) + 1
                    >= WRITE_ERRORS_MAX
                {
                    tier.failed.store(true, Ordering::Relaxed);
                }
            }
        }
        written
    }

    /// Reads the last `buf.len()` bytes of a segment.
    pub(crate) fn read_tail(
        &self,
        slot: SlotId,
        buf: &mut AlignedBuf,
        counters: &TierCounters,
    ) -> io::Result<()> {
        let at = slot.offset + u64::from(self.segment_bytes) - buf.len() as u64;
        let read = self.tiers[usize::from(slot.tier)].device.read_at(at, buf);
        count(&counters.background_reads);
        counters.background_read_bytes.fetch_add(buf.len() as u64, Ordering::Relaxed);
        if read.is_err() {
            count(&counters.read_errors);
        }
        read
    }
}

fn refuse_foreign(device: &dyn Device) -> Result<(), OpenError> {
    let mut page = AlignedBuf::zeroed(PAGE);
    device.read_at(0, &mut page).map_err(|source| device_error(device, source))?;
    match Superblock::decode(&page) {
        FirstPage::Foreign => Err(OpenError::Foreign { device: device.label().to_owned() }),
        // Recovery is not part of this version: what an earlier run left is started over.
        FirstPage::Blank | FirstPage::Damaged | FirstPage::Ours(_) => Ok(()),
    }
}

fn device_error(device: &dyn Device, source: io::Error) -> OpenError {
    OpenError::Device { device: device.label().to_owned(), source }
}
