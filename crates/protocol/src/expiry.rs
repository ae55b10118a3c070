//! What an expiry time on the wire means.

/// Longer than this, in seconds, and the number is a point in time (30 days).
const RELATIVE_MAX: u32 = 60 * 60 * 24 * 30;

/// When a record is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Never.
    Never,
    /// At once.
    Expired,
    /// At this unix time, in seconds.
    At(u32),
}

/// The meaning of `exptime` at time `now` (unix seconds): 0 is never, a negative number at once, up to
/// 30 days counts from now, more is a unix time.
pub fn expiry(exptime: i32, now: u32) -> Expiry {
    u32::try_from(exptime).map_or(Expiry::Expired, |exptime| expiry_unsigned(exptime, now))
}

/// As [`expiry`], for the binary protocol, which has no negative numbers.
pub fn expiry_unsigned(exptime: u32, now: u32) -> Expiry {
    let at = match exptime {
        0 => return Expiry::Never,
        1..=RELATIVE_MAX => now.saturating_add(exptime),
        _ => exptime,
    };
    if at <= now { Expiry::Expired } else { Expiry::At(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_days_divide_relative_from_absolute() {
        let now = 1_700_000_000;
        assert_eq!(expiry(0, now), Expiry::Never);
        assert_eq!(expiry(-1, now), Expiry::Expired);
        assert_eq!(expiry(1, now), Expiry::At(now + 1));
        assert_eq!(expiry(2_592_000, now), Expiry::At(now + 2_592_000));
        assert_eq!(expiry(2_592_001, now), Expiry::Expired);
        assert_eq!(expiry(1_700_000_001, now), Expiry::At(1_700_000_001));
        assert_eq!(expiry_unsigned(1, now), Expiry::At(now + 1));
        assert_eq!(expiry_unsigned(u32::MAX, now), Expiry::At(u32::MAX));
    }
}
