//! Amounts as people write them: a number, with or without a fraction, and a suffix. The programs of `terrace` read
//! their flags with it; errors say what to write instead.
#![forbid(unsafe_code)]

/// Powers of 1024, as the server reads sizes: `k`, `Ki`, `KB` and `KiB` mean the same.
const BYTES: &[(&str, f64)] = &[
    ("k", 1024.0),
    ("m", 1_048_576.0),
    ("g", 1_073_741_824.0),
    ("t", 1_099_511_627_776.0),
    ("p", 1_125_899_906_842_624.0),
];
/// Powers of 1000.
const COUNTS: &[(&str, f64)] = &[("k", 1e3), ("m", 1e6), ("g", 1e9), ("b", 1e9), ("t", 1e12)];
const TIMES: &[(&str, f64)] = &[("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];

/// Bytes.
pub fn bytes(text: &str) -> Result<f64, String> {
    size(text, 1.0)
}

/// Bytes, where a bare number counts MiB, as behind the server's `-m`.
pub fn mebibytes(text: &str) -> Result<f64, String> {
    size(text, 1_048_576.0)
}

/// Bytes, where a bare number counts GiB.
pub fn gibibytes(text: &str) -> Result<f64, String> {
    size(text, 1_073_741_824.0)
}

/// A number of things, or of things per second.
pub fn count(text: &str) -> Result<f64, String> {
    amount(text, 1.0, |suffix| named(COUNTS, suffix))
        .ok_or_else(|| "write a number such as 220k, 1.5m, 2b or 1e9".into())
}

/// Seconds.
pub fn seconds(text: &str) -> Result<f64, String> {
    amount(text, 1.0, |suffix| named(TIMES, suffix))
        .ok_or_else(|| "write seconds, or a time such as 90s, 15m, 12h or 7d".into())
}

/// Bits per second, where a bare number counts Gbit/s.
pub fn bits(text: &str) -> Result<f64, String> {
    amount(text, 1e9, |suffix| named(COUNTS, suffix))
        .ok_or_else(|| "write Gbit/s, or a rate such as 25g or 800m".into())
}

/// A share in percent, as a part of 1.
pub fn percent(text: &str) -> Result<f64, String> {
    let share =
        amount(text, 1.0, |suffix| named(&[("%", 1.0)], suffix)).map(|percent| percent / 100.0);
    share.filter(|share| *share <= 1.0).ok_or_else(|| "write a number from 0 to 100".into())
}

/// A whole number of things.
pub fn whole(text: &str) -> Result<u64, String> {
    let number = count(text)?;
    if number.fract() != 0.0 || number > u64::MAX as f64 {
        return Err("write a whole number such as 220k, 1.5m or 2b".into());
    }
    Ok(number as u64)
}

/// A whole number of bytes.
pub fn whole_bytes(text: &str) -> Result<u64, String> {
    bytes(text).map(|bytes| bytes as u64)
}

/// A plain number.
pub fn number(text: &str) -> Result<f64, String> {
    amount(text, 1.0, |_| None).ok_or_else(|| "write a number, such as 1.5".into())
}

fn size(text: &str, unit: f64) -> Result<f64, String> {
    let factor = |suffix: &str| {
        let letter = suffix.strip_suffix("ib").or(suffix.strip_suffix(['b', 'i']));
        match letter.unwrap_or(suffix) {
            "" => Some(1.0),
            letter => named(BYTES, letter),
        }
    };
    amount(text, unit, factor).ok_or_else(|| "write a size such as 512m or 1.5g".into())
}

/// The longest number at the beginning, times what its suffix stands for, or `unit` without one.
fn amount(text: &str, unit: f64, factor: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let text = text.trim();
    // Else `inf` and `nan` would be numbers.
    text.strip_prefix('.')
        .unwrap_or(text)
        .starts_with(|c: char| c.is_ascii_digit())
        .then_some(())?;
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8()).rev();
    let (number, suffix) = ends
        .map(|end| text.split_at(end))
        .find_map(|(number, suffix)| Some((number.parse::<f64>().ok()?, suffix.trim())))?;
    let factor = match suffix {
        "" => unit,
        suffix => factor(&suffix.to_ascii_lowercase())?,
    };
    Some(number * factor).filter(|amount| amount.is_finite())
}

fn named(table: &[(&str, f64)], suffix: &str) -> Option<f64> {
    table.iter().find(|(name, _)| *name == suffix).map(|(_, factor)| *factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_the_server_reads_them() {
        for text in
            ["1g", "1G", "1Gi", "1GB", "1gib", " 1 g ", "1024m", "1073741824", "1073741824b"]
        {
            assert_eq!(bytes(text), Ok(1_073_741_824.0), "{text:?}");
        }
        assert_eq!(bytes("1.5k"), Ok(1536.0));
        assert_eq!((mebibytes("64"), mebibytes("4g")), (Ok(64.0 * 1_048_576.0), gibibytes("4")));
        for wrong in ["", "g", "-1", "4q", "0x10", "1 g x", "inf", "nan", ".", "1ii", "1kk", "½"] {
            assert!(bytes(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn counts_times_and_bits_have_suffixes_of_their_own() {
        for (text, number) in
            [("220k", 220e3), ("1.5M", 1.5e6), ("2b", 2e9), ("1e9", 1e9), ("7", 7.0), (".5", 0.5)]
        {
            assert_eq!(count(text), Ok(number), "{text}");
        }
        assert_eq!(
            (seconds("90"), seconds("15m"), seconds("7d")),
            (Ok(90.0), Ok(900.0), Ok(604_800.0))
        );
        assert_eq!((bits("25"), bits("800m")), (Ok(25e9), Ok(8e8)));
        for wrong in ["", "k", "1kb", "1e", "1e999", "-5", "1,000"] {
            assert!(count(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!((whole("1.5k"), whole_bytes("1.5k")), (Ok(1500), Ok(1536)));
        assert!(number("1k").is_err() && whole("1.5").is_err());
        assert_eq!((percent("95"), percent("0.5 %")), (Ok(0.95), Ok(0.005)));
        assert!(percent("101").is_err() && percent("-1").is_err());
        assert!(seconds("1w").unwrap_err().contains("7d"));
    }
}
