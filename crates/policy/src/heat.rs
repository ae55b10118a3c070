//! How often a record in DRAM was used of late.

use crate::Sketch;

/// A count to 15 and the epoch that it is of; epochs that passed since halve it when it is next looked
/// at. So nobody has to visit the records when an epoch ends, and a hot record is written to 15 times
/// per epoch at most, however often it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heat(u16);

const COUNT_BITS: u32 = 4;

impl Heat {
    /// Bits that it takes, see [`Heat::to_bits`].
    pub const BITS: u32 = COUNT_BITS + u8::BITS;

    /// Used `count` times (15 if more) as of `epoch`.
    pub fn new(count: u8, epoch: u8) -> Self {
        Self(u16::from(count.min(Sketch::MAX)) | u16::from(epoch) << COUNT_BITS)
    }

    /// The lowest [`Heat::BITS`] of `bits`.
    pub fn from_bits(bits: u16) -> Self {
        Self(bits & ((1 << Self::BITS) - 1))
    }

    /// As many as [`Heat::BITS`].
    pub fn to_bits(self) -> u16 {
        self.0
    }

    /// The count as of `epoch`. Epochs are numbers modulo 256: who was not looked at for so long may
    /// pass as recent once more.
    pub fn count(self, epoch: u8) -> u8 {
        let age = epoch.wrapping_sub((self.0 >> COUNT_BITS) as u8);
        let count = (self.0 as u8) & Sketch::MAX;
        count.checked_shr(age.into()).unwrap_or(0)
    }

    /// Used once more in `epoch`.
    #[must_use]
    pub fn used(self, epoch: u8) -> Self {
        Self::new(self.count(epoch) + 1, epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_up_to_15_and_cools_by_halves() {
        let heat = (0..40).fold(Heat::default(), |heat, _| heat.used(250));
        assert_eq!(heat.count(250), 15);
        assert_eq!(heat.used(250), heat, "nothing to write");
        assert_eq!([251, 252, 253, 254, 255].map(|epoch| heat.count(epoch)), [7, 3, 1, 0, 0]);
        assert_eq!(heat.count(3), 0, "epochs go round");
        assert_eq!(heat.used(252), Heat::new(4, 252));
        assert_eq!(Heat::from_bits(heat.to_bits() | 1 << Heat::BITS), heat);
    }
}
