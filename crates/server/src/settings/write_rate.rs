//! How much a drive may be written (`--write-budget`).

use super::size;
use terrace_cache::WriteRate;

/// `RATE[,RATE...]`: one for each tier, or one for all of them.
pub(crate) fn rates(text: &str) -> Result<Vec<WriteRate>, String> {
    text.split(',').map(rate).collect()
}

fn rate(text: &str) -> Result<WriteRate, String> {
    let wrong = || "write 1dwpd (the drive's size each day), 40MB/s, or unlimited".to_string();
    let lower = text.to_ascii_lowercase();
    if lower == "unlimited" {
        return Ok(WriteRate::Unlimited);
    }
    if let Some(drives) = lower.strip_suffix("dwpd") {
        return match drives.parse::<f64>() {
            Ok(drives) if drives.is_finite() && drives > 0.0 => Ok(WriteRate::DrivesPerDay(drives)),
            _ => Err(wrong()),
        };
    }
    match lower.strip_suffix("/s").map(|bytes| size::bytes(bytes, None)) {
        Some(Ok(bytes)) if bytes > 0 => Ok(WriteRate::BytesPerSecond(bytes as f64)),
        Some(Err(reason)) => Err(reason),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_rates_of_several_tiers_and_refuses_what_is_none() {
        let three = [
            WriteRate::DrivesPerDay(0.3),
            WriteRate::BytesPerSecond(40.0 * 1_048_576.0),
            WriteRate::Unlimited,
        ];
        assert_eq!(rates("0.3dwpd,40MB/s,unlimited"), Ok(three.to_vec()));
        for wrong in ["", "40", "40MB", "0dwpd", "-1dwpd", "nandwpd", "0k/s", "1dwpd,", "5/s"] {
            assert!(rates(wrong).is_err(), "{wrong}");
        }
    }
}
