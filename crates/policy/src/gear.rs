//! What a full tier writes, and what it keeps when it takes a segment back.

/// How much is written for how many hits; only a tier that is full, or whose write budget is spent,
/// has one. Each gear writes less than the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gear {
    /// Everything is written; what was used since it was written stays (FIFO with reinsertion).
    #[default]
    A,
    /// Everything is written; only what was used twice stays.
    B,
    /// What was used twice in DRAM or came back after it was let go is written (S3-FIFO: Yang et al., SOSP
    /// 2023); what was used since stays.
    C,
    /// As C, and nothing stays but what has a copy in DRAM.
    D,
}

/// What is known of a record that may be written for the first time.
#[derive(Clone, Copy, Debug)]
pub struct Past {
    /// How often it was used since it came.
    pub uses: u8,
    /// It was let go before, and came back soon.
    pub returned: bool,
}

impl Gear {
    /// All of them, the one that writes most first.
    pub const ALL: [Self; 4] = [Self::A, Self::B, Self::C, Self::D];

    /// Whether a record that came new into DRAM is written, or let go.
    pub fn writes(self, past: Past) -> bool {
        self <= Self::B || past.uses >= 2 || past.returned
    }

    /// Whether a record stays that was used so many times since it was written (2 stands for more).
    /// What has a copy in DRAM is hot, and stays whatever the gear.
    pub fn keeps(self, uses: u8, has_copy: bool) -> bool {
        let needed = match self {
            Self::A | Self::C => 1,
            Self::B => 2,
            Self::D => u8::MAX,
        };
        has_copy || uses >= needed
    }

    /// The next gear that writes less.
    pub fn up(self) -> Option<Self> {
        Self::ALL.get(self as usize + 1).copied()
    }

    /// The next gear that writes more.
    pub fn down(self) -> Option<Self> {
        Self::ALL.get((self as usize).checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gear_writes_no_more_than_the_one_before() {
        let pasts = [0, 1, 2].map(|uses| [false, true].map(|returned| Past { uses, returned }));
        for (gear, less) in Gear::ALL.into_iter().filter_map(|gear| Some((gear, gear.up()?))) {
            assert_eq!(less.down(), Some(gear));
            for past in pasts.as_flattened() {
                assert!(gear.writes(*past) || !less.writes(*past), "{gear:?} {past:?}");
            }
        }
        assert!(Gear::A.keeps(1, false) && !Gear::B.keeps(1, false) && Gear::B.keeps(2, false));
        assert!(!Gear::D.keeps(2, false) && Gear::D.keeps(0, true));
        assert!(!Gear::C.writes(Past { uses: 1, returned: false }));
    }
}
