//! From a record's number and version to its value, and back to a verdict.

use crate::keys::mix;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Number and version in front of the content, as far as the value is long enough.
const STAMP: usize = 12;
/// The part of it that is the number.
const NUMBER: usize = 8;
/// Places in the pool at which content can begin, a power of two.
const PLACES: usize = 1 << 14;
/// Distance between places; a multiple of 8, so that copies stay aligned.
const STEP: usize = 8;

/// Values, each told apart from all others by its content.
///
/// A value is a stamp (number and version) followed by bytes that the two determine, so that an
/// old, torn or foreign value is recognised. The bytes are a window of a pool that is made once:
/// making a value and comparing one cost a copy of memory each.
#[derive(Debug)]
pub struct Values {
    pool: Vec<u8>,
}

impl Values {
    /// Values of at most `bytes` each.
    pub fn new(bytes: usize) -> Self {
        let pool = (0..(PLACES * STEP + bytes).div_ceil(8) as u64).flat_map(|at| {
            // Not the mixer of keys and places, whose outputs would repeat here.
            xxh3_64_with_seed(&at.to_le_bytes(), 1).to_le_bytes()
        });
        Self { pool: pool.collect() }
    }

    /// Appends the value of a record, `bytes` long.
    pub fn append(&self, number: u64, version: u32, bytes: usize, out: &mut Vec<u8>) {
        let stamp = stamp(number, version);
        let stamped = bytes.min(STAMP);
        out.extend_from_slice(&stamp[..stamped]);
        out.extend_from_slice(self.content(number, version, bytes - stamped));
    }

    /// Whether `value` is that of the record, whatever its length; `None` as `version` accepts each
    /// that was ever written, if the value is long enough to say which one it is.
    pub fn fits(&self, number: u64, version: Option<u32>, value: &[u8]) -> bool {
        let Some(version) = version.or_else(|| stamped_version(value)) else {
            // Too short to tell its version, and to have any content.
            let told = value.len().min(NUMBER);
            return value[..told] == number.to_le_bytes()[..told];
        };
        let (stamped, content) = value.split_at(value.len().min(STAMP));
        *stamped == stamp(number, version)[..stamped.len()]
            && *content == *self.content(number, version, content.len())
    }

    fn content(&self, number: u64, version: u32, bytes: usize) -> &[u8] {
        let place = mix(number ^ mix(u64::from(version))) as usize % PLACES;
        &self.pool[place * STEP..place * STEP + bytes]
    }
}

fn stamp(number: u64, version: u32) -> [u8; STAMP] {
    let mut stamp = [0; STAMP];
    stamp[..8].copy_from_slice(&number.to_le_bytes());
    stamp[8..].copy_from_slice(&version.to_le_bytes());
    stamp
}

fn stamped_version(value: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(value.get(8..STAMP)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_fits_its_own_record_and_version_only() {
        let values = Values::new(800);
        for bytes in [12, 80, 800] {
            let mut value = Vec::new();
            values.append(7, 3, bytes, &mut value);
            assert_eq!(value.len(), bytes);
            assert!(values.fits(7, Some(3), &value));
            assert!(values.fits(7, None, &value));
            assert!(!values.fits(7, Some(2), &value), "an old version");
            assert!(!values.fits(8, None, &value), "a foreign record");
            assert!(!values.fits(7, None, &value[1..]), "a cut value");
        }
    }

    #[test]
    fn torn_and_flipped_values_do_not_fit() {
        let values = Values::new(800);
        let (mut old, mut new) = (Vec::new(), Vec::new());
        values.append(7, 0, 800, &mut old);
        values.append(7, 1, 800, &mut new);
        let torn = [&new[..400], &old[400..]].concat();
        assert!(!values.fits(7, None, &torn));
        for at in 0..800 {
            let mut flipped = new.clone();
            flipped[at] ^= 4;
            assert!(!values.fits(7, None, &flipped), "bit of byte {at}");
        }
    }

    #[test]
    fn values_shorter_than_the_stamp() {
        let values = Values::new(STAMP);
        for bytes in 0..STAMP {
            let mut value = Vec::new();
            values.append(1 << 60, 0, bytes, &mut value);
            assert_eq!(value.len(), bytes);
            assert!(values.fits(1 << 60, Some(0), &value));
            assert!(values.fits(1 << 60, None, &value));
            value.clear();
            values.append(1 << 60, 513, bytes, &mut value);
            assert!(values.fits(1 << 60, None, &value), "another version, {bytes} bytes");
            assert_eq!(values.fits(1 << 60, Some(0), &value), bytes <= NUMBER);
        }
    }
}
