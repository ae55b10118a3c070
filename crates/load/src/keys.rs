//! From a record's number to its key.

/// Digits that tell records apart.
const DIGITS: usize = 16;
const HEX: &[u8; 16] = b"0123456789abcdef";
const FILL: [u8; 250 - DIGITS] = [b'k'; 250 - DIGITS];

/// Shortest and longest key, in bytes.
pub(crate) const BYTES: std::ops::RangeInclusive<usize> = DIGITS..=250;

/// Appends the key of a record, `bytes` long, which must lie in [`BYTES`]. Two numbers never have the
/// same key: the digits are a bijection of the number, which looks random so that servers can't gain
/// from neighbours.
#[inline]
pub(crate) fn append(number: u64, bytes: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&FILL[..bytes - DIGITS]);
    out.extend_from_slice(&digits(number));
}

/// Turns a key that [`append`] made into that of another record.
#[inline]
pub(crate) fn rewrite(number: u64, key: &mut [u8]) {
    let at = key.len() - DIGITS;
    key[at..].copy_from_slice(&digits(number));
}

#[inline]
fn digits(number: u64) -> [u8; DIGITS] {
    let mut digits = [0; DIGITS];
    for (byte, pair) in mix(number).to_be_bytes().into_iter().zip(digits.as_chunks_mut().0) {
        *pair = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
    }
    digits
}

/// A bijection of 64-bit numbers that scatters neighbours (the finalizer of SplitMix64).
#[inline]
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_are_distinct_printable_and_of_their_length() {
        for bytes in [16, 20, 250] {
            let mut seen = HashSet::new();
            for number in (0..1000).chain([u64::MAX]) {
                let mut key = Vec::new();
                append(number, bytes, &mut key);
                assert_eq!(key.len(), bytes);
                assert!(key.iter().all(u8::is_ascii_graphic));
                assert!(seen.insert(key));
            }
        }
    }

    #[test]
    fn a_rewritten_key_is_the_other_records_key() {
        let (mut key, mut other) = (Vec::new(), Vec::new());
        append(1, 20, &mut key);
        append(2, 20, &mut other);
        rewrite(2, &mut key);
        assert_eq!(key, other);
    }
}
