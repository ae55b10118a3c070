//! Notes for the operator. The library logs nothing: the caller that opens a cache logs its notes.

use std::fmt;

/// A line for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A fact.
    Info(String),
    /// An unwanted condition, with what to do about it.
    Warning(String),
}

impl Note {
    /// The line, without its level.
    pub fn text(&self) -> &str {
        let (Self::Info(text) | Self::Warning(text)) = self;
        text
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// `bytes` for a person: exact where it is a whole number of a unit, else with one decimal.
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

/// `count` with a comma between each three digits.
pub fn display_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn counts_are_displayed_with_commas() {
        let shown = [0, 999, 1_000, 12_345, 1_234_567].map(display_count);
        assert_eq!(shown, ["0", "999", "1,000", "12,345", "1,234,567"]);
    }

    #[test]
    fn sizes_are_displayed_with_units() {
        assert_eq!(display_bytes(0), "0 B");
        assert_eq!(display_bytes(2 << 30), "2 GiB");
        assert_eq!(display_bytes((1 << 30) + (1 << 29)), "1.5 GiB");
        assert_eq!(display_bytes(u64::MAX), "16383.9 PiB");
    }
}
