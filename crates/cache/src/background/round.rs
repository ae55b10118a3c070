//! The order in which a partition of the background goes through its shards.

use std::ops::Range;

/// The shards of a partition, from the one after `last` round to that.
pub(crate) fn round(shards: &Range<usize>, last: usize) -> impl Iterator<Item = usize> + use<> {
    let (first, count) = (shards.start, shards.len());
    (1..=count).map(move |step| first + (last - first + step) % count)
}
