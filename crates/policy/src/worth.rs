//! What a use is worth by how long its record is.

/// A record is taken for at most this many times as long, or short, as the mean, as a power of two. A longer read
/// takes longer, too, so that a long record is worth more than its length alone says.
const DOUBLINGS_MAX: u32 = 2;

/// How much more a use of a record is worth than that of one of mean length: in the same room, as many times as many
/// of the shorter ones can be used (Cherkasova 1998, GreedyDual-Size-Frequency). In powers of two, so that records of
/// about one length are worth the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Worth {
    times: u32,
    part: u32,
}

impl Worth {
    /// Of a record of `bytes` where the mean is `mean_bytes`, not known if 0.
    pub(crate) fn of(bytes: u32, mean_bytes: u32) -> Self {
        match (bytes, mean_bytes) {
            (0, _) | (_, 0) => Self { times: 0, part: 0 },
            _ if bytes <= mean_bytes => Self { times: doublings(mean_bytes, bytes), part: 0 },
            _ => Self { times: 0, part: doublings(bytes, mean_bytes) },
        }
    }

    /// What so much of it is worth.
    pub(crate) fn times(self, amount: u32) -> u32 {
        amount << self.times >> self.part
    }
}

/// The nearest power of two to `long / short`.
fn doublings(long: u32, short: u32) -> u32 {
    let [long, short] = [long, short].map(|bytes| u64::from(bytes).pow(2));
    let is_passed = |power: &u32| short.saturating_mul(1 << (2 * power - 1)) <= long;
    (1..=DOUBLINGS_MAX).filter(is_passed).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_a_record_the_more_a_use_of_it_is_worth() {
        let worth = |bytes| Worth::of(bytes, 100).times(100);
        for (bytes, expected) in
            [(1, 400), (35, 400), (36, 200), (70, 200), (71, 100), (141, 100), (142, 50), (283, 25)]
        {
            assert_eq!(worth(bytes), expected, "{bytes}");
        }
        assert_eq!(worth(u32::MAX), 25);
        assert_eq!([Worth::of(7, 0), Worth::of(0, 7)].map(|worth| worth.times(3)), [3, 3]);
    }
}
