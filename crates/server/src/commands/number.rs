//! Numbers as bytes.

/// The decimal digits of a number, without an allocation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Digits {
    bytes: [u8; 20],
}

impl Digits {
    /// Writes `number` and returns its digits.
    pub(crate) fn set(&mut self, mut number: u64) -> &[u8] {
        let mut at = self.bytes.len();
        loop {
            at -= 1;
            self.bytes[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return &self.bytes[at..];
            }
        }
    }
}

/// The number that a stored value begins with, as memcached's `incr` reads it (`strtoull`): blanks, a plus, and
/// digits up to the end or the next blank, which it pads with itself.
pub(crate) fn parse_value(value: &[u8]) -> Option<u64> {
    let word = value.trim_ascii_start();
    let word = word.split(u8::is_ascii_whitespace).next().unwrap_or(word);
    let digits = word.strip_prefix(b"+").unwrap_or(word);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_back() {
        for number in [0, 1, 9, 10, 99, 12_345, u64::MAX] {
            let mut digits = Digits::default();
            let text = digits.set(number);
            assert_eq!(text, number.to_string().as_bytes());
            assert_eq!(parse_value(text), Some(number));
        }
        for nine in [&b"9 "[..], b" 9", b"+9", b"9 2", b"09\t"] {
            assert_eq!(parse_value(nine), Some(9));
        }
        for wrong in [&b""[..], b" ", b"+", b"1x", b"-1", b"+-1", b"18446744073709551616"] {
            assert_eq!(parse_value(wrong), None, "{wrong:?}");
        }
    }
}
