//! What a full tier writes, and what it keeps when it takes a segment back.

use std::fmt;
use std::str::FromStr;

/// Which records a tier admits and which it reinserts when it takes a segment back; it applies to a tier that is
/// full or whose write budget is nearly spent. Each policy writes less than the one before. Names are
/// `ADMISSION-REINSERTION`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum WritePolicy {
    /// Admits every record; reinserts those that were used since they were written (FIFO with reinsertion).
    #[default]
    AllOnce,
    /// Admits every record; reinserts those that were used twice.
    AllTwice,
    /// Admits records that were used twice in DRAM or came back after they were dropped (S3-FIFO: Yang et al.,
    /// SOSP 2023); reinserts those that were used since.
    ReusedOnce,
    /// Admits as [`Self::ReusedOnce`]; reinserts only records that have a copy in DRAM.
    ReusedNone,
}

/// What is known of a record that may be written for the first time.
#[derive(Clone, Copy, Debug)]
pub struct Past {
    /// Uses since it was stored.
    pub uses: u8,
    /// It was dropped before, and stored again soon after.
    pub returned: bool,
}

impl WritePolicy {
    /// All of them, the one that writes most first.
    pub const ALL: [Self; 4] = [Self::AllOnce, Self::AllTwice, Self::ReusedOnce, Self::ReusedNone];

    /// Whether a record that is new in DRAM is admitted to the tier; it is dropped otherwise.
    pub fn writes(self, past: Past) -> bool {
        self <= Self::AllTwice || past.uses >= 2 || past.returned
    }

    /// Whether a record is reinserted that was used `uses` times since it was written (2 stands for more). A record
    /// with a copy in DRAM is hot, and is reinserted by every policy.
    pub fn keeps(self, uses: u8, has_copy: bool) -> bool {
        let needed = match self {
            Self::AllOnce | Self::ReusedOnce => 1,
            Self::AllTwice => 2,
            Self::ReusedNone => u8::MAX,
        };
        has_copy || uses >= needed
    }

    /// The name of the policy, as settings and statistics write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllOnce => "all-once",
            Self::AllTwice => "all-twice",
            Self::ReusedOnce => "reused-once",
            Self::ReusedNone => "reused-none",
        }
    }

    /// The next policy that writes less.
    pub fn up(self) -> Option<Self> {
        Self::ALL.get(self as usize + 1).copied()
    }

    /// The next policy that writes more.
    pub fn down(self) -> Option<Self> {
        Self::ALL.get((self as usize).checked_sub(1)?).copied()
    }
}

impl fmt::Display for WritePolicy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A name that is no write policy's; its text lists the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownWritePolicy;

impl fmt::Display for UnknownWritePolicy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, third, last] = WritePolicy::ALL;
        write!(out, "write {first}, {second}, {third} or {last}")
    }
}

impl std::error::Error for UnknownWritePolicy {}

impl FromStr for WritePolicy {
    type Err = UnknownWritePolicy;

    fn from_str(name: &str) -> Result<Self, UnknownWritePolicy> {
        Self::ALL.into_iter().find(|policy| policy.name() == name).ok_or(UnknownWritePolicy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_writes_no_more_than_the_one_before() {
        let pasts = [0, 1, 2].map(|uses| [false, true].map(|returned| Past { uses, returned }));
        for (policy, less) in
            WritePolicy::ALL.into_iter().filter_map(|policy| Some((policy, policy.up()?)))
        {
            assert_eq!(less.down(), Some(policy));
            for past in pasts.as_flattened() {
                assert!(policy.writes(*past) || !less.writes(*past), "{policy} {past:?}");
            }
        }
        assert!(
            WritePolicy::AllOnce.keeps(1, false)
                && !WritePolicy::AllTwice.keeps(1, false)
                && WritePolicy::AllTwice.keeps(2, false)
        );
        assert!(!WritePolicy::ReusedNone.keeps(2, false) && WritePolicy::ReusedNone.keeps(0, true));
        assert!(!WritePolicy::ReusedOnce.writes(Past { uses: 1, returned: false }));
    }

    #[test]
    fn name_parses_to_its_policy() {
        assert!(WritePolicy::ALL.into_iter().all(|policy| policy.name().parse() == Ok(policy)));
        let error = "a".parse::<WritePolicy>().expect_err("no name");
        assert_eq!(error.to_string(), "write all-once, all-twice, reused-once or reused-none");
    }
}
