//! Values that tell whose they are: key, serial number, then bytes that follow from both.

use crate::random::Random;
use std::fmt::Write;
use std::rc::Rc;

const POOL_BYTES: usize = 1 << 18;

/// Makes values.
pub(crate) struct Values {
    pool: Vec<u8>,
    serial: u32,
}

impl Values {
    pub(crate) fn new() -> Self {
        let mut random = Random::new(1);
        let pool = (0..POOL_BYTES / 8).flat_map(|_| random.next().to_le_bytes()).collect();
        Self { pool, serial: 0 }
    }

    /// A value that no other is equal to, unless it is too short for that.
    pub(crate) fn next(&mut self, key: u32, bytes: usize) -> Rc<[u8]> {
        self.serial += 1;
        let head = [b'K', key as u8, (key >> 8) as u8, b'S'];
        let start = (self.serial as usize * 97) % (POOL_BYTES / 2);
        let serial = self.serial.to_le_bytes();
        let rest = &self.pool[start..start + bytes.saturating_sub(8)];
        let mut value: Vec<u8> = [&head[..], &serial, rest].concat();
        value.truncate(bytes);
        value.into()
    }

    /// A value that can be calculated with.
    pub(crate) fn number(&mut self) -> Rc<[u8]> {
        self.serial += 1;
        self.serial.to_string().into_bytes().into()
    }
}

/// A value for people to read.
pub(crate) fn describe(value: &[u8]) -> String {
    let mut text = format!("{} bytes", value.len());
    if let [b'K', a, b, b'S', s0, s1, s2, s3, ..] = *value {
        let key = u32::from(a) | u32::from(b) << 8;
        let serial = u32::from_le_bytes([s0, s1, s2, s3]);
        // Writing to a string does not fail.
        let _ = write!(text, ", begins as value {serial} of key {key}");
    } else if value.len() < 24 {
        let _ = write!(text, ", {:?}", String::from_utf8_lossy(value));
    }
    text
}
