//! What a record looks like: key and value of its number.

use crate::{Sizes, Values, keys};
use std::sync::Arc;

/// The records of a run. Keys and values follow from a number alone, so that no memory of what was
/// stored is needed to tell a right value from an old, torn or foreign one.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    pub(crate) sizes: Sizes,
    values: Arc<Values>,
}

impl Records {
    /// `sizes` must be valid.
    pub(crate) fn new(sizes: &Sizes) -> Self {
        Self { sizes: sizes.clone(), values: Arc::new(Values::new(sizes.value_max())) }
    }

    #[inline]
    pub(crate) fn append_key(&self, number: u64, out: &mut Vec<u8>) {
        keys::append(number, self.sizes.key(number), out);
    }

    #[inline]
    pub(crate) fn append_value(&self, number: u64, version: u32, out: &mut Vec<u8>) {
        self.values.append(number, version, self.sizes.value(number), out);
    }

    /// Whether `value`, which is of the right length, is the record's.
    #[inline]
    pub(crate) fn fits(&self, number: u64, version: Option<u32>, value: &[u8]) -> bool {
        self.values.fits(number, version, value)
    }
}
