//! Sizes that follow from the cache, and the chunks of large values.

use terrace_cache::Cache;

/// Chunks of large values are no longer: what is buffered of one is bounded by it.
const CHUNK_BYTES_MAX: usize = 256 << 10;

/// Sizes that never change while a cache is open.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longer values are stored in chunks.
    pub inline_bytes_max: usize,
    /// Bytes per chunk, at most.
    pub chunk_bytes_max: usize,
    /// Longer values are refused.
    pub item_bytes_max: u64,
}

impl Limits {
    /// Those of a cache.
    pub fn of(cache: &Cache) -> Self {
        let inline_bytes_max = cache.inline_bytes_max();
        Self {
            inline_bytes_max,
            chunk_bytes_max: inline_bytes_max.clamp(1, CHUNK_BYTES_MAX),
            item_bytes_max: cache.item_bytes_max(),
        }
    }

    /// Bytes per chunk of a value.
    pub fn chunk_bytes(&self, value_bytes: u64) -> u32 {
        even_chunks(value_bytes, self.chunk_bytes_max as u64) as u32
    }
}

/// Bytes per chunk of a value, at most `most`. No more chunks than it takes, and all of them about as long: a short one
/// at the end would lie in a page, away from the rest, and cost a read of its own.
fn even_chunks(value_bytes: u64, most: u64) -> u64 {
    let chunks = value_bytes.div_ceil(most).max(1);
    value_bytes.div_ceil(chunks).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_a_value_are_about_as_long_and_as_few_as_can_be() {
        assert_eq!([0, 1, 100, 101].map(|bytes| even_chunks(bytes, 100)), [1, 1, 100, 51]);
        for value in 1..2000_u64 {
            let each = even_chunks(value, 100);
            let (chunks, last) = (value.div_ceil(each), (value - 1) % each + 1);
            assert_eq!(chunks, value.div_ceil(100), "{value}");
            assert!(each <= 100 && each - last < chunks, "{value}: {each}, at the end {last}");
        }
    }
}
