//! Numbers and sizes as people write them.

use std::fmt::Display;
use std::ops::RangeInclusive;

/// A decimal number within `range`; the error names `what` it is and which values are possible.
pub(crate) fn number<T>(text: &str, range: RangeInclusive<T>, what: &str) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + Display,
{
    match text.parse::<T>() {
        Ok(n) if range.contains(&n) => Ok(n),
        _ => Err(format!("{what} is a number from {} to {}", range.start(), range.end())),
    }
}

/// Bytes from a number with a suffix k, m, g, t or p (powers of 1024; `K`, `KiB`, `kb` and so on
/// mean the same). A number without suffix counts `unit` bytes; with `None` a suffix must be given.
pub(crate) fn bytes(text: &str, unit: Option<u64>) -> Result<u64, String> {
    let wrong = || "a size is a whole number with k, m, g, t or p, such as 512m or 4g".to_string();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    if number.is_empty() {
        return Err(wrong());
    }
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" => None,
        "b" => Some(0),
        "k" | "kb" | "kib" => Some(10),
        "m" | "mb" | "mib" => Some(20),
        "g" | "gb" | "gib" => Some(30),
        "t" | "tb" | "tib" => Some(40),
        "p" | "pb" | "pib" => Some(50),
        _ => return Err(wrong()),
    };
    let factor = match (shift, unit) {
        (Some(shift), _) => 1 << shift,
        (None, Some(unit)) => unit,
        (None, None) => return Err(format!("the size has no unit; write {number}m or {number}g")),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(factor))
        .filter(|&n| n <= 1 << 60)
        .ok_or_else(|| "no such size exists; the largest is 1024p".to_string())
}

/// `bytes` as a person reads it: exact where it is a whole number of a unit, else one decimal.
pub fn display_bytes(bytes: u64) -> String {
    const UNITS: [(&str, u64); 5] =
        [("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        None => format!("{bytes} B"),
        Some((name, unit)) if bytes.is_multiple_of(*unit) => format!("{} {name}", bytes / unit),
        Some((name, unit)) => {
            let tenths = u128::from(bytes) * 10 / u128::from(*unit);
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
    }
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
            "1 g",
            "99999999999999999999",
            "17592186044416p",
        ] {
            assert!(bytes(wrong, Some(1)).is_err(), "{wrong:?} was taken for a size");
        }
        assert!(bytes("64", None).unwrap_err().contains("64m"));
    }

    #[test]
    fn reads_numbers() {
        assert_eq!(number("0", 0..=65535u16, "a port"), Ok(0));
        for wrong in ["", "-1", "65536", "1x", "99999999999999"] {
            assert!(number(wrong, 0..=65535u16, "a port").is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn writes_sizes() {
        assert_eq!(display_bytes(0), "0 B");
        assert_eq!(display_bytes(2 << 30), "2 GiB");
        assert_eq!(display_bytes((1 << 30) + (1 << 29)), "1.5 GiB");
        assert_eq!(display_bytes(u64::MAX), "16383.9 PiB");
    }
}
