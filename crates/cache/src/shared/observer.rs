//! Telling somebody outside which records are evicted and which segments are taken back.

use crate::dram::resident::{Resident, mark};
use crate::records::listed::Listed;
use crate::records::record::Record;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// Who wants to know what the cache does by itself. It is told in the midst of that, some of it under
/// the lock of a shard: it should take note, and neither wait nor call the cache.
pub trait Observer: Send + Sync {
    /// Whether it wants to hear of evictions at the moment. While it does, every segment that loses
    /// records is read as a whole, since only there stand the keys.
    fn wants_evictions(&self) -> bool;
    /// A record that was not expired lost its place to others.
    fn evicted(&self, record: Listed<'_>);
    /// What becomes of the segment at a place that is wanted back, numbered as in
    /// [`SegmentStats::place`](crate::SegmentStats::place).
    fn reclaims(&self, place: u64, step: Reclaim);
}

/// A step of taking a segment back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// It is begun; segments are numbered anew each time that they are sealed.
    Begun {
        /// The seal's number.
        sequence: u64,
    },
    /// Its place is free.
    Done,
    /// There was no room for the records that are to be kept: it is tried again.
    PutOff,
}

/// Who is told, if anybody is.
#[derive(Default)]
pub(crate) struct Told(OnceLock<Arc<dyn Observer>>);

impl Told {
    /// Has `observer` told from now on; the first to ask is the one.
    pub(crate) fn set(&self, observer: Arc<dyn Observer>) {
        let _ = self.0.set(observer);
    }

    /// The observer, while it wants to hear of evictions.
    pub(crate) fn of_evictions(&self) -> Option<&dyn Observer> {
        self.0.get().map(Arc::as_ref).filter(|observer| observer.wants_evictions())
    }

    /// A record goes that is nowhere but in DRAM.
    pub(crate) fn evicts(&self, resident: &Resident<'_>) {
        let Some(observer) = self.of_evictions() else { return };
        let record = Record::decode(resident.bytes).map(|(record, _)| record);
        if let Some(record) = record.filter(|record| !record.is_chunk()) {
            let accessed = resident.header.accessed().load(Ordering::Relaxed);
            let fetched = resident.has(mark::FETCHED);
            observer.evicted(Listed { record, accessed, fetched, is_sealed: false });
        }
    }

    /// Tells a step of taking the segment back that lies at `place`.
    pub(crate) fn reclaims(&self, place: u64, step: Reclaim) {
        if let Some(observer) = self.0.get() {
            observer.reclaims(place, step);
        }
    }
}
