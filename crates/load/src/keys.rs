//! From a record's number to its key.

/// Digits that tell records apart.
const DIGITS: usize = 16;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Keys of one length. Two numbers never have the same key: the digits are a bijection of the
/// number, which looks random so that servers can't gain from neighbours.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    bytes: usize,
}

impl Keys {
    /// Shortest and longest key, in bytes.
    pub const BYTES: std::ops::RangeInclusive<usize> = DIGITS..=250;

    /// Keys of `bytes` each; `None` outside [`Keys::BYTES`].
    pub fn new(bytes: usize) -> Option<Self> {
        Self::BYTES.contains(&bytes).then_some(Self { bytes })
    }

    /// Length of every key, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends the key of a record.
    pub fn append(&self, number: u64, out: &mut Vec<u8>) {
        out.resize(out.len() + self.bytes - DIGITS, b'k');
        let at = out.len();
        out.resize(at + DIGITS, 0);
        write_digits(number, &mut out[at..]);
    }

    /// Turns a key that [`Keys::append`] made into that of another record.
    pub(crate) fn rewrite(&self, number: u64, key: &mut [u8]) {
        let at = key.len() - DIGITS;
        write_digits(number, &mut key[at..]);
    }
}

fn write_digits(number: u64, out: &mut [u8]) {
    let mixed = mix(number);
    for (byte, pair) in mixed.to_be_bytes().into_iter().zip(out.chunks_exact_mut(2)) {
        pair[0] = HEX[usize::from(byte >> 4)];
        pair[1] = HEX[usize::from(byte & 15)];
    }
}

/// A bijection of 64-bit numbers that scatters neighbours (the finalizer of SplitMix64).
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
            let keys = Keys::new(bytes).unwrap();
            let mut seen = HashSet::new();
            for number in (0..1000).chain([u64::MAX]) {
                let mut key = Vec::new();
                keys.append(number, &mut key);
                assert_eq!(key.len(), bytes);
                assert!(key.iter().all(u8::is_ascii_graphic));
                assert!(seen.insert(key));
            }
        }
        assert!(Keys::new(15).is_none() && Keys::new(251).is_none());
    }

    #[test]
    fn a_rewritten_key_is_the_other_records_key() {
        let keys = Keys::new(20).unwrap();
        let (mut key, mut other) = (Vec::new(), Vec::new());
        keys.append(1, &mut key);
        keys.append(2, &mut other);
        keys.rewrite(2, &mut key);
        assert_eq!(key, other);
    }
}
