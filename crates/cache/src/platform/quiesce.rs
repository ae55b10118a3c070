//! Quiescent-state based reclamation (McKenney and Slingwine, 1998): when memory that readers may hold can be used
//! again.
//!
//! Memory that was unlinked at epoch *e* is reusable once every reader has passed a quiescent point, at which it holds
//! no reference, at *e* or later.

use crate::platform::lock::lock;
use crate::platform::sync::{AtomicU64, Ordering, fence};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Mutex;

/// A parked reader holds nothing.
const PARKED: u64 = u64::MAX;
/// The slot has no reader.
const VACANT: u64 = u64::MAX - 1;

#[repr(align(64))]
struct Slot(AtomicU64);

/// The slots of readers with the epoch that each has reached.
pub(crate) struct Quiesce {
    epoch: AtomicU64,
    slots: Box<[Slot]>,
    vacant: Mutex<Vec<usize>>,
}

/// The slot of one session or thread; must be returned by [`Quiesce::leave`].
pub(crate) struct Reader {
    number: usize,
    /// Whether the slot holds [`PARKED`].
    is_parked: Cell<bool>,
}

impl Reader {
    /// The number of the slot, which no other reader has at the same time.
    pub(crate) fn number(&self) -> usize {
        self.number
    }
}

/// Proof that its reader is between two quiescent points: published memory that was reached under it stays.
///
/// It borrows the reader, and the quiescent points ([`Quiesce::refresh`], [`Quiesce::park`], [`Quiesce::leave`]) borrow
/// it exclusively, so that none of them is passed while a guard is in use. The two ways around that are unsafe:
/// [`Quiesce::unbound_guard`] and [`Quiesce::park_beside_guards`].
#[derive(Clone, Copy)]
pub(crate) struct Guard<'p>(PhantomData<&'p ()>);

impl Quiesce {
    pub(crate) fn new(sessions_max: usize) -> Self {
        Self {
            epoch: AtomicU64::new(1),
            slots: (0..sessions_max).map(|_| Slot(AtomicU64::new(VACANT))).collect(),
            vacant: Mutex::new((0..sessions_max).rev().collect()),
        }
    }

    /// A parked reader; `None` when all `sessions_max` slots are taken.
    pub(crate) fn join(&self) -> Option<Reader> {
        let index = lock(&self.vacant).pop()?;
        self.slots[index].0.store(PARKED, Ordering::Release);
        Some(Reader { number: index, is_parked: Cell::new(true) })
    }

    /// Returns the slot. Must be the last call with this reader.
    pub(crate) fn leave(&self, reader: &mut Reader) {
        self.slots[reader.number].0.store(VACANT, Ordering::Release);
        lock(&self.vacant).push(reader.number);
    }

    /// Begins or goes on reading. Wakes the reader if it was parked.
    #[inline]
    pub(crate) fn guard<'p>(&self, reader: &'p Reader) -> Guard<'p> {
        if reader.is_parked.replace(false) {
            self.reach_epoch(reader);
        }
        Guard(PhantomData)
    }

    /// As [`Quiesce::guard`], without the borrow.
    ///
    /// # Safety
    /// The guard, and what was reached under it, must not be used after the reader's next quiescent point.
    pub(crate) unsafe fn unbound_guard<'g>(&self, reader: &Reader) -> Guard<'g> {
        self.guard(reader);
        Guard(PhantomData)
    }

    /// A quiescent point: the reader holds nothing now and goes on reading, unless it is parked.
    pub(crate) fn refresh(&self, reader: &mut Reader) {
        if !reader.is_parked.get() {
            self.reach_epoch(reader);
        }
    }

    fn reach_epoch(&self, reader: &Reader) {
        let epoch = self.epoch.load(Ordering::Acquire);
        let slot = &self.slots[reader.number].0;
        if slot.load(Ordering::Relaxed) != epoch {
            slot.store(epoch, Ordering::Release);
            // The store must be seen before any pointer that is loaded from here on.
            fence(Ordering::SeqCst);
        }
    }

    /// The reader holds nothing and reads nothing until its next guard.
    pub(crate) fn park(&self, reader: &mut Reader) {
        self.set_parked(reader);
    }

    /// As [`Quiesce::park`], while guards are kept for later.
    ///
    /// # Safety
    /// Until the reader's next [`Quiesce::guard`], no guard of it may be used. What was reached under one before must
    /// not be used any more.
    pub(crate) unsafe fn park_beside_guards(&self, reader: &Reader) {
        self.set_parked(reader);
    }

    fn set_parked(&self, reader: &Reader) {
        reader.is_parked.set(true);
        self.slots[reader.number].0.store(PARKED, Ordering::Release);
    }

    /// Must be called after the unlinking. Returns the epoch that all readers must reach.
    pub(crate) fn retire(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.epoch.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Memory retired at or before this epoch is reusable.
    pub(crate) fn reached(&self) -> u64 {
        fence(Ordering::SeqCst);
        let epoch = self.epoch.load(Ordering::Acquire);
        let slots = self.slots.iter().map(|slot| slot.0.load(Ordering::Acquire));
        slots.filter(|&at| at < VACANT).fold(epoch, u64::min)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn reclamation_waits_for_active_readers_only() {
        let quiesce = Quiesce::new(2);
        let (mut a, mut b) = (quiesce.join().unwrap(), quiesce.join().unwrap());
        assert!(quiesce.join().is_none());
        quiesce.guard(&a);
        quiesce.guard(&b);
        let tag = quiesce.retire();
        assert!(quiesce.reached() < tag);
        quiesce.refresh(&mut a);
        assert!(quiesce.reached() < tag);
        quiesce.park(&mut b);
        quiesce.refresh(&mut b);
        assert!(quiesce.reached() >= tag, "a parked one stays parked");
        quiesce.leave(&mut b);
        assert!(quiesce.join().is_some());
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;

    /// What a reader holds is not reused: here a pointer (0 or 1) to one of two flags, each set once the memory has
    /// another owner.
    #[test]
    fn loom_memory_is_not_reused_under_a_reader() {
        loom::model(|| {
            let quiesce = Arc::new(Quiesce::new(1));
            let current = Arc::new(AtomicU64::new(0));
            let reused = Arc::new(AtomicBool::new(false));
            let reader = {
                let (quiesce, current, reused) = (quiesce.clone(), current.clone(), reused.clone());
                let mut reader = quiesce.join().unwrap();
                thread::spawn(move || {
                    quiesce.guard(&reader);
                    if current.load(Ordering::Acquire) == 0 {
                        assert!(!reused.load(Ordering::Relaxed), "reused under a reader");
                    }
                    quiesce.park(&mut reader);
                })
            };
            current.store(1, Ordering::Release);
            let epoch = quiesce.retire();
            if quiesce.reached() >= epoch {
                reused.store(true, Ordering::Relaxed);
            }
            reader.join().unwrap();
        });
    }
}
