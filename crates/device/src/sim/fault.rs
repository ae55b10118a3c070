//! What goes wrong on a simulated device, where, and how often.

use crate::failure::ErrorClass;
use std::io;
use std::ops::Range;

/// What a device is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush; it covers the whole device.
    Flush,
}

/// What happens instead of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// It fails and does nothing. `StorageFull` on writes is a full device.
    Error(io::ErrorKind),
    /// It fails as drives do whose errors have this class, and does nothing. [`ErrorClass::Unresponsive`] fails at
    /// once, as if the deadline had passed; see [`super::SimDevice::fall_silent`] for more of that.
    Fail(ErrorClass),
    /// A write stores some of its blocks and then fails. Other transfers fail.
    Partial(io::ErrorKind),
    /// It succeeds, but one bit is wrong: of what is read, or of what is stored. Not for flushes.
    Flip,
    /// A write succeeds, but only some of its blocks are stored. For writes only.
    Tear,
    /// A write or a flush succeeds, but does nothing. Not for reads.
    Lose,
    /// A read or a write succeeds, but at this offset in place of its own, so far as the device
    /// reaches. Not for flushes.
    Misdirect(u64),
    /// The power goes: this operation and all later ones fail until
    /// [`super::SimDevice::crash`]. A write is cut off in the middle.
    PowerOff,
}

/// A fault to come: the first that fits an operation takes effect.
#[derive(Clone, Debug)]
pub struct Fault {
    /// What it befalls.
    pub operation: Operation,
    /// Transfers that touch these bytes; flushes always do.
    pub range: Range<u64>,
    /// So many that fit are spared first.
    pub skip: u64,
    /// So many are befallen then.
    pub times: u64,
    /// What happens to them.
    pub effect: Effect,
}

impl Fault {
    /// Befalls the next operation of the kind, once and wherever it goes.
    pub fn next(operation: Operation, effect: Effect) -> Self {
        Self { operation, range: 0..u64::MAX, skip: 0, times: 1, effect }
    }

    /// Befalls every operation of the kind.
    pub fn always(operation: Operation, effect: Effect) -> Self {
        Self { times: u64::MAX, ..Self::next(operation, effect) }
    }

    /// Only on transfers that touch `range`, in bytes.
    pub fn within(self, range: Range<u64>) -> Self {
        Self { range, ..self }
    }

    /// Only after `count` operations that it fits.
    pub fn after(self, count: u64) -> Self {
        Self { skip: count, ..self }
    }

    fn fits(&self, operation: Operation, range: &Range<u64>) -> bool {
        let touches = self.range.start < range.end && range.start < self.range.end;
        self.operation == operation && (touches || operation == Operation::Flush)
    }
}

/// The faults to come.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Which effect an operation on `range` has. Later faults don't see an operation that an
    /// earlier one befell.
    pub(super) fn strike(&mut self, operation: Operation, range: Range<u64>) -> Option<Effect> {
        for fault in self.0.iter_mut().filter(|fault| fault.fits(operation, &range)) {
            if fault.skip > 0 {
                fault.skip -= 1;
            } else if fault.times > 0 {
                fault.times -= 1;
                return Some(fault.effect);
            }
        }
        None
    }
}
