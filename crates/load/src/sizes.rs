//! How long keys and values are, by the number of their record.

use crate::etc::{self, QUANTILES};
use crate::keys::{self, mix};
use std::sync::Arc;

/// Sizes in bytes; what a record has follows from its number alone.
#[derive(Clone, Debug)]
pub enum Sizes {
    /// All alike.
    Fixed {
        /// Of each key, 16 to 250.
        key: usize,
        /// Of each value.
        value: usize,
    },
    /// Those of Facebook's ETC pool.
    Etc(Arc<Etc>),
    /// Values as listed, record by record.
    Listed {
        /// Of each key, 16 to 250.
        key: usize,
        /// Of the values.
        values: Arc<[u32]>,
    },
}

/// The distributions of ETC's sizes.
#[derive(Debug)]
pub struct Etc {
    keys: Box<[u8]>,
    values: Box<[u32]>,
}

impl Sizes {
    /// Those of Facebook's ETC pool: records of 230 bytes in the mean.
    pub fn etc() -> Self {
        let (keys, values) = (etc::key_sizes(keys::BYTES), etc::value_sizes());
        Self::Etc(Arc::new(Etc { keys, values }))
    }

    /// Of the key of a record.
    #[inline]
    pub fn key(&self, number: u64) -> usize {
        match self {
            Self::Fixed { key, .. } | Self::Listed { key, .. } => *key,
            Self::Etc(etc) => usize::from(etc.keys[place(number, 0)]),
        }
    }

    /// Of the value of a record.
    #[inline]
    pub fn value(&self, number: u64) -> usize {
        match self {
            Self::Fixed { value, .. } => *value,
            Self::Etc(etc) => etc.values[place(number, 1)] as usize,
            Self::Listed { values, .. } => {
                values.get(number as usize).copied().unwrap_or_default() as usize
            }
        }
    }

    /// Of the longest value.
    pub fn value_max(&self) -> usize {
        match self {
            Self::Fixed { value, .. } => *value,
            Self::Etc(etc) => etc.values.iter().copied().max().unwrap_or_default() as usize,
            Self::Listed { values, .. } => {
                values.iter().copied().max().unwrap_or_default() as usize
            }
        }
    }

    /// Bytes of a record, key and value, in the mean over some of the first ones.
    pub(crate) fn mean(&self) -> f64 {
        const SAMPLE: u64 = 10_000;
        let records = match self {
            Self::Listed { values, .. } => SAMPLE.min(values.len() as u64),
            Self::Fixed { .. } | Self::Etc(_) => SAMPLE,
        };
        let bytes: usize = (0..records).map(|number| self.key(number) + self.value(number)).sum();
        bytes as f64 / records.max(1) as f64
    }

    /// Whether all keys are of one length, and all values.
    pub(crate) fn are_fixed(&self) -> bool {
        matches!(self, Self::Fixed { .. })
    }

    pub(crate) fn are_valid(&self) -> bool {
        match self {
            Self::Fixed { key, .. } | Self::Listed { key, .. } => keys::BYTES.contains(key),
            Self::Etc(_) => true,
        }
    }
}

/// A place in a distribution that looks random, of keys (0) and values (1) independently.
fn place(number: u64, which: u32) -> usize {
    (mix(!number) >> (which * 24)) as usize % QUANTILES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_distributions_means() {
        let sizes = Sizes::etc();
        let bytes: usize = (0..200_000).map(|number| sizes.key(number) + sizes.value(number)).sum();
        let mean = bytes as f64 / 200_000.0;
        println!("mean of 200,000 ETC records: {mean:.1} bytes");
        assert!((224.0..236.0).contains(&mean), "{mean}");
        assert_eq!(sizes.key(7), sizes.key(7));
    }

    #[test]
    fn the_mean_is_that_of_listed_records() {
        let sizes = Sizes::Listed { key: 20, values: [100, 300].into() };
        assert_eq!(sizes.mean(), 220.0);
    }
}
