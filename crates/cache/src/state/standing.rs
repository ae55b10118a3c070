//! Which roster of a set a member, the state or the witness has seen last, and whether that one counts.
//!
//! A roster lists the members of a set from one start to the next. It is proposed to all members that are present, and
//! put in force once all of them have it: nothing is acknowledged before. So a proposal that was cut short counts for
//! nothing, and its holders are as good as those of the roster before it.

use crate::platform::getters::getters;

/// Identifies a roster of a set. Two parts of a set that run apart may count to the same generation; the nonce tells
/// their rosters from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RosterId {
    /// Counts the rosters of the set; 0 before the first one.
    generation: u64,
    nonce: u64,
}

getters! {
    RosterId {
        generation: u64,
        nonce: u64,
    }
}

impl RosterId {
    pub(crate) fn new(generation: u64, nonce: u64) -> Self {
        Self { generation, nonce }
    }

    /// Whether there is such a roster.
    pub(crate) fn is_any(self) -> bool {
        self.generation > 0
    }
}

/// The roster that was seen last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    roster: RosterId,
    /// The roster in force when this one was proposed.
    before: RosterId,
    is_in_force: bool,
}

getters! {
    Standing {
        roster: RosterId,
        before: RosterId,
        is_in_force: bool,
    }
}

impl Standing {
    /// Words of an encoded standing.
    pub(crate) const WORDS: usize = 5;

    /// A roster that is proposed while `before` is in force.
    pub(crate) fn proposed(roster: RosterId, before: RosterId) -> Self {
        Self { roster, before, is_in_force: false }
    }

    /// A roster that is in force, of which nothing else is known; the default if there is none.
    pub(crate) fn in_force(roster: RosterId) -> Self {
        match roster.is_any() {
            true => Self::proposed(roster, RosterId::default()).put_in_force(),
            false => Self::default(),
        }
    }

    /// The same roster, in force.
    pub(crate) fn put_in_force(self) -> Self {
        Self { is_in_force: true, ..self }
    }

    /// The standing of a superblock or state from before format 4, where every start counted one epoch further.
    pub(crate) fn of_format_3(set: u64, epoch: u64, is_in_force: bool) -> Self {
        let id = |generation| RosterId::new(generation, mix(set));
        Self { roster: id(epoch), before: id(epoch.saturating_sub(1)), is_in_force }
    }

    /// The newest roster that this shows to have been in force.
    pub(crate) fn last_in_force(self) -> RosterId {
        if self.is_in_force { self.roster } else { self.before }
    }

    /// Whether the holder has missed nothing since the roster `last` came into force, given that no newer one did.
    pub(crate) fn holds(self, last: RosterId) -> bool {
        self.roster == last || (!self.is_in_force && self.before == last)
    }

    pub(crate) fn to_words(self) -> [u64; Self::WORDS] {
        let Self { roster, before, is_in_force } = self;
        let is_in_force = u64::from(is_in_force);
        [roster.generation, roster.nonce, before.generation, before.nonce, is_in_force]
    }

    pub(crate) fn from_words(words: [u64; Self::WORDS]) -> Self {
        let [generation, nonce, before, before_nonce, is_in_force] = words;
        Self {
            roster: RosterId { generation, nonce },
            before: RosterId { generation: before, nonce: before_nonce },
            is_in_force: is_in_force != 0,
        }
    }
}

/// The id of the member that was tier number `tier` of a set before format 4.
pub(crate) fn member_of_format_3(set: u64, tier: usize) -> u64 {
    mix(set ^ mix(tier as u64 + 1)) | 1
}

/// Spreads the bits of a number (splitmix64).
fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn proposal_counts_for_nothing_and_costs_its_holder_nothing() {
        let [first, second, other] =
            [(1, 7), (2, 8), (2, 9)].map(|(number, nonce)| RosterId::new(number, nonce));
        let proposed = Standing::proposed(second, first);
        assert_eq!(proposed.last_in_force(), first);
        assert!(proposed.holds(first) && proposed.holds(second) && !proposed.holds(other));
        let in_force = proposed.put_in_force();
        assert_eq!(in_force.last_in_force(), second);
        assert!(in_force.holds(second) && !in_force.holds(first));
        for standing in [proposed, in_force] {
            assert_eq!(Standing::from_words(standing.to_words()), standing);
        }
    }
}
