//! Sixteen comparisons at once.

/// A set bit per lane of 16 bits that equals `wanted` under `mask`; the first lane is the lowest of the first word.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn equal(words: [u64; 4], mask: u16, wanted: u16) -> u32 {
    // SAFETY: every processor of this architecture has SSE2.
    unsafe { equal_by_sse2(words, mask, wanted) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn equal_by_sse2(words: [u64; 4], mask: u16, wanted: u16) -> u32 {
    use std::arch::x86_64::{
        _mm_and_si128, _mm_cmpeq_epi16, _mm_movemask_epi8, _mm_packs_epi16, _mm_set_epi64x,
        _mm_set1_epi16,
    };
    let [mask, wanted] = [mask, wanted].map(|lane| _mm_set1_epi16(lane.cast_signed()));
    let equal = |low: u64, high: u64| {
        let lanes = _mm_set_epi64x(high.cast_signed(), low.cast_signed());
        _mm_cmpeq_epi16(_mm_and_si128(lanes, mask), wanted)
    };
    let [a, b, c, d] = words;
    _mm_movemask_epi8(_mm_packs_epi16(equal(a, b), equal(c, d))).cast_unsigned()
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn equal(words: [u64; 4], mask: u16, wanted: u16) -> u32 {
    equal_one_by_one(words, mask, wanted)
}

#[cfg(any(all(test, not(loom)), not(target_arch = "x86_64")))]
fn equal_one_by_one(words: [u64; 4], mask: u16, wanted: u16) -> u32 {
    let is_equal = |at: usize| (words[at / 4] >> (16 * (at % 4))) as u16 & mask == wanted;
    (0..16).fold(0, |found, at| found | u32::from(is_equal(at)) << at)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn comparison_of_sixteen_agrees_with_one_by_one(
            lanes in prop::array::uniform16(prop::sample::select(vec![0u16, 1, 0x7fff, 0x8001, 0xffff])),
            mask in prop::sample::select(vec![0x7fffu16, 0xffff]),
            wanted in prop::sample::select(vec![0u16, 1, 0x7fff, 0x8001]),
        ) {
            let words = std::array::from_fn(|word| {
                (0..4).map(|at| u64::from(lanes[4 * word + at]) << (16 * at)).sum()
            });
            prop_assert_eq!(equal(words, mask, wanted), equal_one_by_one(words, mask, wanted));
        }
    }
}
