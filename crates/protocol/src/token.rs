//! Words and numbers of a line.

/// The words of a line, separated by spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    /// Those of `line`.
    pub fn new(line: &'a [u8]) -> Self {
        Self { rest: line }
    }

    /// What was not looked at yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes one space and a number of at most nine digits, if that is all that the next word is.
    #[inline]
    pub(crate) fn plain_number(&mut self) -> Option<u32> {
        const DIGITS_MAX: usize = 9;
        let digits = self.rest.strip_prefix(b" ")?;
        let (mut number, mut count) = (0, 0);
        while let Some(&byte) = digits.get(count)
            && byte.is_ascii_digit()
            && count < DIGITS_MAX
        {
            number = number * 10 + u32::from(byte - b'0');
            count += 1;
        }
        let rest = &digits[count..];
        let is_word = count > 0 && matches!(rest, [] | [b' ', ..]);
        self.rest = rest;
        is_word.then_some(number)
    }

    /// No further word follows.
    pub(crate) fn is_blank(&self) -> bool {
        self.rest.iter().all(|&byte| byte == b' ')
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let mut rest = self.rest;
        while let [b' ', tail @ ..] = rest {
            rest = tail;
        }
        if rest.is_empty() {
            self.rest = rest;
            return None;
        }
        let (word, tail) = rest.split_at(word_end(rest));
        self.rest = tail;
        Some(word)
    }
}

/// A byte in each of eight.
const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = 0x80 * ONES;

/// Where the first space is, or the end.
#[inline]
fn word_end(bytes: &[u8]) -> usize {
    const SPACES: u64 = b' ' as u64 * ONES;
    // The top bit of the first byte that is a space, and perhaps of bytes behind it.
    let spaces = |eight: u64| (eight ^ SPACES).wrapping_sub(ONES) & !(eight ^ SPACES) & TOPS;
    find(bytes, spaces, |byte| byte == b' ')
}

/// Where the first byte is that is a space or comes before it, such as the end of a line; or the end.
#[inline]
pub(crate) fn plain_end(bytes: &[u8]) -> usize {
    const FIRST: u8 = b' ' + 1;
    // As above: a byte from `FIRST` on borrows nothing from its top bit.
    let others = |eight: u64| eight.wrapping_sub(u64::from(FIRST) * ONES) & !eight & TOPS;
    find(bytes, others, |byte| byte < FIRST)
}

/// Where the first byte is for which `is_it` holds, or the end; `marks` is the same for eight bytes, of which
/// it marks the first, at least. Most words are so short that calling a search for long ones takes longer than
/// to look at eight bytes at a time here.
#[inline]
fn find(bytes: &[u8], marks: impl Fn(u64) -> u64, is_it: impl Fn(u8) -> bool) -> usize {
    let mut at = 0;
    while let Some((eight, _)) = bytes[at..].split_first_chunk() {
        let found = marks(u64::from_le_bytes(*eight));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    if let Some(eight) = bytes.last_chunk() {
        // Some of these were looked at before, and are none.
        let found = marks(u64::from_le_bytes(*eight));
        let behind = if found == 0 { 8 } else { found.trailing_zeros() as usize / 8 };
        return bytes.len() - 8 + behind;
    }
    bytes.iter().position(|&byte| is_it(byte)).unwrap_or(bytes.len())
}

/// An unsigned number, digits only; as many of them as memcached reads.
pub fn number_u64(word: &[u8]) -> Option<u64> {
    const DIGITS_MAX: usize = 22;
    if word.is_empty() || word.len() > DIGITS_MAX {
        return None;
    }
    digits(word)
}

/// An unsigned number of 32 bits.
pub fn number_u32(word: &[u8]) -> Option<u32> {
    short(word).and_then(number_u64)?.try_into().ok()
}

/// A signed number of 32 bits.
pub fn number_i32(word: &[u8]) -> Option<i32> {
    let (negative, digits) = sign(short(word)?, b"-");
    let number = i64::try_from(number_u64(digits)?).ok()?;
    if negative { -number } else { number }.try_into().ok()
}

/// The length of a value in a line, if its block can be read.
pub(crate) fn value_bytes(word: &[u8]) -> Option<u32> {
    let bytes = u32::try_from(number_i32(word)?).ok()?;
    (bytes <= i32::MAX as u32 - 2).then_some(bytes)
}

/// Client flags of a classic store: the low 32 bits of a number of 64, as `strtoul` reads it.
pub(crate) fn store_flags(word: &[u8]) -> Option<u32> {
    let (negative, number) = long(word)?;
    let number = if negative { number.wrapping_neg() } else { number };
    (!negative || number <= i64::MAX as u64).then_some(number as u32)
}

/// The expiry time of a classic store: the low 32 bits of a signed number of 64, as `strtol` reads it.
pub(crate) fn store_exptime(word: &[u8]) -> Option<i32> {
    let (negative, number) = long(word)?;
    let most = i64::MAX as u64 + u64::from(negative);
    let number = (number <= most).then_some(number as i32)?;
    Some(if negative { number.wrapping_neg() } else { number })
}

/// Sign and digits between white space, of which a word may hold all but the blank.
fn long(word: &[u8]) -> Option<(bool, u64)> {
    let is_white = |byte: &u8| matches!(byte, b'\t'..=b'\r');
    let begin = word.iter().position(|byte| !is_white(byte))?;
    let (negative, number) = sign(&word[begin..], b"+-");
    let end = number.iter().position(is_white).unwrap_or(number.len());
    (end > 0).then_some(())?;
    Some((negative, digits(&number[..end])?))
}

/// Whether a number is negative, and its digits. `signs` are those that may stand before them.
fn sign<'a>(word: &'a [u8], signs: &[u8]) -> (bool, &'a [u8]) {
    match word {
        [sign, digits @ ..] if signs.contains(sign) => (*sign == b'-', digits),
        digits => (false, digits),
    }
}

/// A word that is no longer than memcached reads a number of 32 bits.
fn short(word: &[u8]) -> Option<&[u8]> {
    const BYTES_MAX: usize = 11;
    (word.len() <= BYTES_MAX).then_some(word)
}

fn digits(word: &[u8]) -> Option<u64> {
    word.iter().try_fold(0u64, |sum, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { sum.checked_mul(10)?.checked_add(digit.into()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_their_limits() {
        assert_eq!(number_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(number_u64(b"18446744073709551616"), None);
        assert_eq!(number_u64(b""), None);
        assert_eq!(number_u64(b"-1"), None);
        assert_eq!(number_u64(b"1x"), None);
        assert_eq!(number_u32(b"4294967295"), Some(u32::MAX));
        assert_eq!(number_u32(b"4294967296"), None);
        assert_eq!(number_i32(b"-2147483648"), Some(i32::MIN));
        assert_eq!(number_i32(b"2147483648"), None);
        assert_eq!(number_i32(b"-"), None);
        assert_eq!((number_i32(b"+1"), number_i32(b"00000000001")), (None, Some(1)));
        assert_eq!((number_i32(b"000000000001"), number_u32(b"000000000001")), (None, None));
        assert_eq!(value_bytes(b"2147483645"), Some(2_147_483_645));
        assert_eq!((value_bytes(b"2147483646"), value_bytes(b"-1")), (None, None));
    }

    #[test]
    fn flags_and_times_of_stores_are_the_low_32_bits() {
        for (word, flags, exptime) in [
            (&b"0"[..], Some(0), Some(0)),
            (b"4294967295", Some(u32::MAX), Some(-1)),
            (b"4294967296", Some(0), Some(0)),
            (b"2147483648", Some(1 << 31), Some(i32::MIN)),
            (b"9223372036854775807", Some(u32::MAX), Some(-1)),
            (b"9223372036854775808", Some(0), None),
            (b"18446744073709551615", Some(u32::MAX), None),
            (b"18446744073709551616", None, None),
            (b"000000000000000000000000000007", Some(7), Some(7)),
            (b"-1", None, Some(-1)),
            (b"-9223372036854775808", None, Some(0)),
            (b"-18446744073709551615", Some(1), None),
            (b"-0", Some(0), Some(0)),
            (b"+5", Some(5), Some(5)),
            (b"\t5\tx", Some(5), Some(5)),
            (b"5x", None, None),
            (b"+", None, None),
            (b"\t", None, None),
            (b"x", None, None),
        ] {
            assert_eq!((store_flags(word), store_exptime(word)), (flags, exptime), "{word:?}");
        }
    }

    #[test]
    fn plain_numbers_are_read_and_others_left() {
        let read = |text| Tokens::new(text).plain_number();
        assert_eq!(
            (read(b" 0"), read(b" 80 x"), read(b" 999999999")),
            (Some(0), Some(80), Some(999_999_999))
        );
        for other in [&b""[..], b" ", b"1", b"  1", b" 1x", b" -1", b" 1234567890", b" x"] {
            assert_eq!(read(other), None, "{other:?}");
        }
    }

    #[test]
    fn words_are_separated_by_any_number_of_spaces() {
        let words: Vec<_> = Tokens::new(b"  a bc   d ").collect();
        assert_eq!(words, [&b"a"[..], b"bc", b"d"]);
    }

    #[test]
    fn words_of_any_length_end_at_the_first_space() {
        // Bytes next to a space in value, and with the top bit, are none.
        let bytes = [b'!', 0x1f, 0xa0, 0xff, 0, b'a'];
        for length in 0..40 {
            let word: Vec<u8> = bytes.iter().copied().cycle().take(length).collect();
            assert_eq!(word_end(&word), length);
            for tail in [&b" "[..], b" !", b"  b c d e f g h i"] {
                assert_eq!(word_end(&[&word, tail].concat()), length, "before {tail:?}");
            }
        }
    }

    #[test]
    fn plain_words_end_at_the_first_byte_that_is_none_of_theirs() {
        let bytes = [b'!', 0x7f, 0xa0, 0xff, 0x80, b'a'];
        for length in 0..40 {
            let word: Vec<u8> = bytes.iter().copied().cycle().take(length).collect();
            assert_eq!(plain_end(&word), length);
            for tail in [&b" "[..], b"\r\n", b"\n!", b"\t b c d e f g h i", b"\0"] {
                assert_eq!(plain_end(&[&word, tail].concat()), length, "before {tail:?}");
            }
        }
    }
}
