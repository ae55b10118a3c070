//! Reports evicted records and reclaimed segments to an observer outside of the cache.

use crate::dram::resident::{Resident, mark};
use crate::records::listed::Listed;
use crate::records::record::Record;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// Learns what the cache does in the background. It is called in the middle of that, partly under the lock of a shard:
/// it must neither wait nor call the cache.
pub trait Observer: Send + Sync {
    /// Whether it wants evictions at the moment. While it does, the cache reads every segment that loses records as a
    /// whole, since only the segment has their keys.
    fn wants_evictions(&self) -> bool;
    /// A record that was not expired was evicted.
    fn evicted(&self, record: Listed<'_>);
    /// A step in the reclaim of the segment at a place, numbered as in
    /// [`SegmentStats::place`](crate::SegmentStats::place).
    fn reclaims(&self, place: u64, step: Reclaim);
}

/// A step in the reclaim of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// It begins; a segment has a new sequence each time that it is sealed.
    Begun {
        /// The seal sequence.
        sequence: u64,
    },
    /// The segment's slot is free.
    Done,
    /// There was no room for the records to keep: it will be tried again.
    PutOff,
}

/// The observer, if there is one.
#[derive(Default)]
pub(crate) struct ObserverSlot(OnceLock<Arc<dyn Observer>>);

impl ObserverSlot {
    /// Sets the observer, unless there is one.
    pub(crate) fn set(&self, observer: Arc<dyn Observer>) {
        let _ = self.0.set(observer);
    }

    /// The observer, while it wants to hear of evictions.
    pub(crate) fn of_evictions(&self) -> Option<&dyn Observer> {
        self.0.get().map(Arc::as_ref).filter(|observer| observer.wants_evictions())
    }

    /// Reports that a record is evicted from DRAM.
    pub(crate) fn evicts(&self, resident: &Resident<'_>) {
        let Some(observer) = self.of_evictions() else { return };
        let record = Record::decode(resident.bytes).map(|(record, _)| record);
        if let Some(record) = record.filter(|record| !record.is_chunk()) {
            let accessed = resident.header.accessed().load(Ordering::Relaxed);
            let fetched = resident.has(mark::FETCHED);
            observer.evicted(Listed { record, accessed, fetched, is_sealed: false });
        }
    }

    /// Reports a step in the reclaim of the segment at `place`.
    pub(crate) fn reclaims(&self, place: u64, step: Reclaim) {
        if let Some(observer) = self.0.get() {
            observer.reclaims(place, step);
        }
    }
}
