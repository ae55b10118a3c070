//! Numbers and sizes as people write them.

use std::fmt::Display;
use std::ops::RangeInclusive;

/// The number at the beginning of `text` as strtol finds it (blanks, a sign, digits), and what stands behind it.
/// An equals sign may stand before it: `-m=64` is written often, and memcached 1.4 took it.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let text = text.strip_prefix('=').unwrap_or(text).trim_start();
    let sign = usize::from(text.starts_with(['+', '-']));
    let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then(|| text.split_at(sign + digits))
}

/// A decimal number within `range`; the error names `what` it is and which values are possible. Blanks may stand
/// around it, and anything behind a blank, as memcached's safe_strtol takes it.
pub(crate) fn number<T>(text: &str, range: RangeInclusive<T>, what: &str) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + Display,
{
    let whole = split(text).filter(|(_, rest)| !rest.starts_with(|c: char| !c.is_whitespace()));
    within(whole, range, what)
}

/// As [`number`], whatever stands behind it, as atoi takes it; [`unread`] tells what that is.
pub(crate) fn leading_number<T>(
    text: &str,
    range: RangeInclusive<T>,
    what: &str,
) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + Display,
{
    within(split(text), range, what)
}

fn within<T>(found: Option<(&str, &str)>, range: RangeInclusive<T>, what: &str) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + Display,
{
    match found.map(|(number, _)| number.parse::<T>()) {
        Some(Ok(n)) if range.contains(&n) => Ok(n),
        _ => Err(format!("{what} is a number from {} to {}", range.start(), range.end())),
    }
}

/// The longest beginning of `text` that is a number with or without a fraction, as atof takes it.
pub(crate) fn leading_float(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8()).rev();
    ends.filter_map(|end| text[..end].parse().ok()).find(|number: &f64| number.is_finite())
}

/// Bytes from a number with a suffix k, m, g, t or p (powers of 1024; `K`, `Ki`, `KiB`, `kb` and so on
/// mean the same). A number without suffix counts `unit` bytes; with `None` a suffix must be given.
pub(crate) fn bytes(text: &str, unit: Option<u64>) -> Result<u64, String> {
    let (number, suffix) = split(text).ok_or(WRONG)?;
    scaled(number, shift(suffix).ok_or(WRONG)?, unit)
}

/// As [`bytes`], but a fraction, and what is no suffix, is not looked at, as atoi has it; [`unread`] tells of it.
pub(crate) fn leading_bytes(text: &str, unit: Option<u64>) -> Result<u64, String> {
    let (number, rest) = split(text).ok_or(WRONG)?;
    scaled(number, shift(fraction(rest).1).flatten(), unit)
}

/// What [`leading_number`] or [`leading_bytes`] did not look at in `text`.
pub(crate) fn unread(text: &str, is_size: bool) -> Option<&str> {
    let (_, rest) = split(text)?;
    let is_read = is_size && shift(rest).is_some();
    Some(rest.trim()).filter(|rest| !rest.is_empty() && !is_read)
}

/// `.5m` as `.5` and `m`.
fn fraction(text: &str) -> (&str, &str) {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(text.strip_prefix('.').map_or(0, |text| 1 + digits(text)))
}

const WRONG: &str = "a size is a whole number with k, m, g, t or p, such as 512m or 4g";

/// The power of two that a suffix stands for, if it is one; `Some(None)` for nothing.
fn shift(suffix: &str) -> Option<Option<u32>> {
    Some(match suffix.trim().to_ascii_lowercase().as_str() {
        "" => None,
        "b" => Some(0),
        "k" | "kb" | "ki" | "kib" => Some(10),
        "m" | "mb" | "mi" | "mib" => Some(20),
        "g" | "gb" | "gi" | "gib" => Some(30),
        "t" | "tb" | "ti" | "tib" => Some(40),
        "p" | "pb" | "pi" | "pib" => Some(50),
        _ => return None,
    })
}

fn scaled(number: &str, shift: Option<u32>, unit: Option<u64>) -> Result<u64, String> {
    let factor = match (shift, unit) {
        (Some(shift), _) => 1 << shift,
        (None, Some(unit)) => unit,
        (None, None) => {
            return Err(format!("the size has no unit; write {number}m or {number}g"));
        }
    };
    if number.starts_with('-') {
        return Err(WRONG.into());
    }
    number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(factor))
        .filter(|&n| n <= 1 << 60)
        .ok_or_else(|| "no such size exists; the largest is 1024p".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_sizes() {
        assert_eq!(bytes("64", Some(1 << 20)), Ok(64 << 20));
        assert_eq!(bytes("4G", None), Ok(4 << 30));
        assert_eq!(bytes("4gib", None), Ok(4 << 30));
        assert_eq!(bytes("0k", None), Ok(0));
        for wrong in [
            "",
            "g",
            "-1",
            "-1g",
            "1.5g",
            "4q",
            "0x10",
            "1 g x",
            "99999999999999999999",
            "17592186044416p",
        ] {
            assert!(bytes(wrong, Some(1)).is_err(), "{wrong:?} was taken for a size");
        }
        assert!(bytes("64", None).unwrap_err().contains("64m"));
        for text in ["1Gi", "1GB", " 1g", "1g ", "+1g", "1 g", "=1024m", "1024Mi", "1048576k"] {
            assert_eq!(bytes(text, None), Ok(1 << 30), "{text:?}");
            assert_eq!(leading_bytes(text, None), Ok(1 << 30), "{text:?}");
            assert_eq!(unread(text, true), None, "{text:?}");
        }
    }

    #[test]
    fn reads_sizes_as_atoi_does() {
        for (text, megabytes, rest) in
            [("64.5", 64, ".5"), ("64x", 64, "x"), ("1.5g", 1024, ".5g"), ("64 of it", 64, "of it")]
        {
            assert_eq!(leading_bytes(text, Some(1 << 20)), Ok(megabytes << 20), "{text}");
            assert_eq!(unread(text, true), Some(rest), "{text}");
        }
        for wrong in ["", "abc", "x64", ".5", "-1", "- 1", "==64", "99999999999999999999"] {
            assert!(leading_bytes(wrong, Some(1 << 20)).is_err(), "{wrong:?} was taken for a size");
        }
        assert!(leading_bytes("64x", None).is_err(), "a size without a unit");
    }

    #[test]
    fn reads_numbers() {
        assert_eq!(number("0", 0..=65535u16, "a port"), Ok(0));
        for wrong in ["", "-1", "65536", "1x", "99999999999999"] {
            assert!(number(wrong, 0..=65535u16, "a port").is_err(), "{wrong:?}");
        }
        for text in ["7", " 7", "+7", "7 ", "\t7\n", "7 x", "=7"] {
            assert_eq!(number(text, 0..=65535u16, "a port"), Ok(7), "{text:?}");
        }
    }

    #[test]
    fn reads_numbers_as_atoi_and_atof_do() {
        let read = |text| leading_number(text, 0..=65535u16, "a port");
        for (text, rest) in [("2x", "x"), ("2.0", ".0"), (" +2 x", "x"), ("2 ", ""), ("2", "")] {
            assert_eq!(read(text), Ok(2), "{text:?}");
            assert_eq!(unread(text, false).unwrap_or_default(), rest, "{text:?}");
        }
        for wrong in ["", "x2", "-1", "+", "65536x", "½"] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(leading_float(" 1.25x½"), Some(1.25));
        assert_eq!(
            (leading_float("x"), leading_float("inf"), leading_float("")),
            (None, None, None)
        );
    }
}
