//! Judges the tiers of a start: which of them hold what the last run of their set left.
//!
//! The order and the paths of the tiers say nothing; ids and rosters in their superblocks do. A tier is believed if it
//! has missed nothing since the newest roster came into force, and if something vouches for that roster being the
//! newest one: the witness; without one more than half of the roster's members; all of them where the set has a witness
//! that is gone.

use crate::state::standing::{RosterId, Standing};
use crate::tiers::roster::{Generations, Roster};
use crate::tiers::superblock::{FirstPages, Superblock};
use std::fmt;
use std::io;

/// What is known of a tier before it is judged.
pub(super) enum Given {
    /// Its device can't be read.
    Absent(io::Error),
    /// Its device can be read, and is not another program's.
    Pages(FirstPages),
}

/// What a tier is to the start.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Its device can't be read.
    Absent(io::Error),
    /// It starts empty, as a new member.
    Empty(Reason),
    /// It holds what it held when the last run ended, as far as its log says so.
    Holder(Box<Superblock>),
}

/// Why a tier starts empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    New,
    Damaged,
    /// Was written in this format, which this program can't read.
    OtherFormat(u32),
    OtherSet,
    /// The last run was without it.
    Away,
    /// Too few of its roster's members are there.
    TooFew {
        present: usize,
        members: usize,
        has_witness: bool,
    },
    /// Two tiers have the same id.
    Copy,
    /// Two parts of the set have run apart, and neither is newer.
    Fork,
    /// Was made with other sizes of shards, segments or fingerprints.
    OtherSizes,
    /// The machine was restarted, and the tier was not stopped cleanly.
    NotStopped,
    /// It was not stopped cleanly, and the state of this boot is not there.
    NoState,
    /// Its log failed while the last run lasted.
    LogFailed,
    /// Its log can't be read.
    Log(String),
}

impl Reason {
    /// Whether another start could do better, so that an operator may want this one to be refused.
    pub(super) fn is_avoidable(&self) -> bool {
        !matches!(self, Self::New | Self::Away | Self::Fork | Self::NotStopped | Self::LogFailed)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New => write!(f, "is new"),
            Self::Damaged => write!(f, "its superblock is damaged; check the drive"),
            Self::OtherFormat(version) => write!(
                f,
                "was written in format {version}, and this program reads {}; start the version that wrote it to keep \
                 what it holds",
                super::mount::formats_read()
            ),
            Self::OtherSet => {
                write!(f, "belongs to another set of tiers; give the tiers of one set")
            }
            Self::Away => write!(
                f,
                "holds an older content than the last run left: it is a copy, or was away then"
            ),
            Self::TooFew { present, members, has_witness } => {
                let needed = if *has_witness { "all of them" } else { "more than half of them" };
                write!(
                    f,
                    "is one of {members} tiers of a set, of which {present} are here, and the others may have run \
                     without it; give {needed}, or the file with the roster of the set (--roster)"
                )
            }
            Self::Copy => write!(f, "is a copy of another tier that is given; give one of them"),
            Self::Fork => write!(f, "ran apart from other tiers of its set, which are here, too"),
            Self::OtherSizes => write!(f, "was made with other index sizes"),
            Self::NotStopped => write!(
                f,
                "the machine was restarted without a clean stop; stop the server by SIGTERM before, or write \
                 --durability strict"
            ),
            Self::NoState => write!(
                f,
                "the state of the last run is missing (see --state), or too large for this -m; stop the server by \
                 SIGTERM before its state or its machine goes"
            ),
            Self::LogFailed => {
                write!(f, "did not take the tombstone log before; replace the drive")
            }
            Self::Log(why) => f.write_str(why),
        }
    }
}

/// The tiers of a start, judged.
pub(super) struct Judged {
    /// The set that the start goes on with; `None` if no tier is of any.
    pub(super) set: Option<u64>,
    /// The roster that was in force last.
    pub(super) last: Option<Roster>,
    /// The newest roster in force that anything tells of: the state knows it without its members.
    pub(super) known: RosterId,
    pub(super) generations: Generations,
    /// One for each tier.
    pub(super) verdicts: Vec<Verdict>,
}

/// The set that most of the tiers are of; of several the first one.
pub(super) fn set_of(given: &[Given]) -> Option<u64> {
    let sets = || given.iter().flat_map(pages_of).map(|page| page.set);
    let count = |set| {
        let is_of_it = |given: &&Given| pages_of(given).iter().any(|page| page.set == set);
        given.iter().filter(is_of_it).count()
    };
    sets().rev().max_by_key(|&set| count(set))
}

/// The superblocks of a tier that this program can read, the newest first.
fn pages_of(given: &Given) -> &[Superblock] {
    match given {
        Given::Pages(FirstPages::Ours(pages)) => {
            let readable = pages.iter().take_while(|page| page.is_readable()).count();
            &pages[..readable]
        }
        _ => &[],
    }
}

/// Judges the tiers of a start. `state` is the standing of the set's state, if it is of this boot; `witness` is the
/// roster that the witness has for the set.
pub(super) fn judge(
    given: Vec<Given>,
    set: Option<u64>,
    state: Option<Standing>,
    witness: Option<&Roster>,
) -> Judged {
    let pages = given.iter().flat_map(pages_of).filter(|page| Some(page.set) == set);
    let pages: Vec<_> = pages.cloned().collect();
    let rosters = || pages.iter().map(|page| &page.roster).chain(witness);
    let standings = || rosters().map(Roster::standing).chain(state);
    let generations = Generations::of(standings());
    let newest = newest(standings().map(Standing::last_in_force));
    let known = newest.ok().flatten();
    let last = known.and_then(|last| {
        rosters()
            .filter(|roster| roster.standing().roster() == last)
            .max_by_key(|roster| roster.standing().is_in_force())
    });
    let last = last.map(|roster| roster.put_in_force());
    let in_force = || standings().map(Standing::last_in_force);
    let is_beside = |last: &Roster| {
        let mut in_force = rosters().filter(|roster| roster.standing().is_in_force());
        in_force.any(|other| last.is_beside(other))
    };
    let is_fork = newest.is_err()
        || last
            .as_ref()
            .is_some_and(|last| in_force().any(|other| last.is_fork_of(other)) || is_beside(last));
    let last = last.filter(|_| !is_fork);
    let holder = |given: &Given| {
        let last = last.as_ref()?;
        let id = last.standing().roster();
        let is_member = |page: &&Superblock| Some(page.set) == set && last.has(page.owner.member());
        let pages = || pages_of(given).iter().filter(is_member);
        // The page with the roster itself stays until another one is in force, for the list of its members.
        let own = pages().find(|page| page.roster.standing().roster() == id);
        own.or_else(|| pages().find(|page| page.roster.standing().holds(id))).cloned()
    };
    let holders: Vec<_> = given.iter().map(holder).collect();
    let doubt = last.as_ref().and_then(|last| doubt(last, &holders, witness));
    let copies = |member: u64| {
        holders.iter().flatten().filter(|holder| holder.owner.member() == member).count()
    };
    let verdict = |(given, holder): (Given, &Option<Superblock>)| {
        let pages = match given {
            Given::Absent(error) => return Verdict::Absent(error),
            Given::Pages(pages) => pages,
        };
        let reason = match (pages, holder) {
            (_, Some(holder)) if copies(holder.owner.member()) > 1 => Reason::Copy,
            (_, Some(holder)) => match &doubt {
                None => return Verdict::Holder(Box::new(holder.clone())),
                Some(doubt) => doubt.clone(),
            },
            (FirstPages::Blank, _) => Reason::New,
            (FirstPages::Damaged | FirstPages::Foreign, _) => Reason::Damaged,
            (FirstPages::Ours(pages), _) => match &pages[0] {
                page if !page.is_readable() => Reason::OtherFormat(page.version),
                page if Some(page.set) != set => Reason::OtherSet,
                _ if is_fork => Reason::Fork,
                // A start that formatted it died before it was a member.
                _ if !pages.iter().any(|page| page.roster.standing().is_in_force()) => Reason::New,
                _ => Reason::Away,
            },
        };
        Verdict::Empty(reason)
    };
    let verdicts = given.into_iter().zip(&holders).map(verdict).collect();
    Judged { set, last, known: known.unwrap_or_default(), generations, verdicts }
}

/// The newest of some rosters that were in force, if any was.
///
/// # Errors
/// Two are the newest: parts of the set have run apart.
fn newest(rosters: impl Iterator<Item = RosterId>) -> Result<Option<RosterId>, ()> {
    let mut newest: Option<RosterId> = None;
    let mut is_fork = false;
    for roster in rosters.filter(|roster| roster.is_any()) {
        match newest {
            Some(known) if known == roster || known.generation() > roster.generation() => {}
            Some(known) if known.generation() == roster.generation() => is_fork = true,
            _ => (newest, is_fork) = (Some(roster), false),
        }
    }
    if is_fork { Err(()) } else { Ok(newest) }
}

/// Why the holders of the newest known roster are not believed; `None` if they are.
fn doubt(
    last: &Roster,
    holders: &[Option<Superblock>],
    witness: Option<&Roster>,
) -> Option<Reason> {
    let id = last.standing().roster();
    if witness.is_some_and(|witness| witness.standing().holds(id)) {
        return None;
    }
    let is_there =
        |member: &&u64| holders.iter().flatten().any(|holder| holder.owner.member() == **member);
    let (present, members) = (last.members().iter().filter(is_there).count(), last.members().len());
    let is_enough = if last.has_witness() { present == members } else { last.are_most(present) };
    let has_witness = last.has_witness();
    (!is_enough).then_some(Reason::TooFew { present, members, has_witness })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::tiers::roster::Line;

    const SET: u64 = 77;

    /// A set of tiers over several runs.
    struct Set {
        tiers: Vec<Vec<Superblock>>,
        last: RosterId,
        generation: u64,
        line: Line,
        witness: Option<Roster>,
    }

    impl Set {
        /// A set of this many tiers, after their first run.
        fn of(tiers: usize, has_witness: bool) -> Self {
            let last = RosterId::default();
            let mut set = Self {
                tiers: vec![Vec::new(); tiers],
                last,
                generation: 0,
                line: Line::default(),
                witness: None,
            };
            set.run(&(0..tiers).collect::<Vec<_>>(), has_witness);
            set
        }

        /// Has these tiers propose a roster, and put it in force where `is_in_force`.
        fn start(&mut self, tiers: &[usize], has_witness: bool, is_in_force: bool) {
            self.generation += 1;
            let nonce = self.generation * 100 + tiers[0] as u64;
            let id = RosterId::new(self.generation, nonce);
            let members: Vec<_> = tiers.iter().map(|&tier| tier as u64 + 1).collect();
            let standing = Standing::proposed(id, self.last);
            let mut roster =
                Roster::new(standing, has_witness, members.into()).of_line(self.line.clone());
            if is_in_force {
                (roster, self.last) = (roster.put_in_force(), id);
            }
            for &tier in tiers {
                let pages = &mut self.tiers[tier];
                let written = pages.first().map_or(1, |page| page.owner.number() + 1);
                pages.insert(0, Superblock::of_test(SET, tier as u64 + 1, written, roster.clone()));
                pages.truncate(2);
            }
            if has_witness {
                self.witness = Some(roster);
            }
        }

        fn run(&mut self, tiers: &[usize], has_witness: bool) {
            self.start(tiers, has_witness, true);
        }

        /// The tiers that a start with these believes, in their order.
        fn believed(&self, tiers: &[usize], has_witness: bool) -> Vec<usize> {
            let given = |&tier: &usize| Given::Pages(FirstPages::Ours(self.tiers[tier].clone()));
            let given: Vec<_> = tiers.iter().map(given).collect();
            let set = set_of(&given);
            let witness = self.witness.as_ref().filter(|_| has_witness);
            let judged = judge(given, set, None, witness);
            let is_held = |verdict: &Verdict| matches!(verdict, Verdict::Holder(_));
            let held = tiers.iter().zip(&judged.verdicts).filter(|(_, verdict)| is_held(verdict));
            held.map(|(&tier, _)| tier).collect()
        }
    }

    #[test]
    fn order_says_nothing() {
        let set = Set::of(3, false);
        assert_eq!(set.believed(&[2, 0, 1], false), [2, 0, 1]);
    }

    #[test]
    fn more_than_half_is_believed_without_a_witness_and_each_with_one() {
        let set = Set::of(4, false);
        assert_eq!(set.believed(&[0, 1, 3], false), [0, 1, 3]);
        assert_eq!(set.believed(&[0, 1], false), []);
        let set = Set::of(4, true);
        assert_eq!(set.believed(&[2], true), [2]);
        assert_eq!(set.believed(&[0, 1, 3], false), [], "the witness is gone");
        assert_eq!(set.believed(&[0, 1, 2, 3], false), [0, 1, 2, 3]);
    }

    #[test]
    fn tier_that_was_away_is_out_of_date() {
        for has_witness in [false, true] {
            let mut set = Set::of(3, has_witness);
            set.run(&[0, 2], has_witness);
            assert_eq!(set.believed(&[0, 1, 2], has_witness), [0, 2]);
            assert_eq!(set.believed(&[1], has_witness), []);
        }
    }

    #[test]
    fn parts_that_run_in_turn_are_not_believed_after_each_other() {
        let mut set = Set::of(2, true);
        set.run(&[0], true);
        assert_eq!(set.believed(&[1], true), []);
        set.run(&[1], true);
        assert_eq!(set.believed(&[0], true), []);
        assert_eq!(set.believed(&[0, 1], true), [1]);
    }

    #[test]
    fn proposal_that_was_cut_short_costs_no_member_anything() {
        for has_witness in [false, true] {
            let mut set = Set::of(2, has_witness);
            set.start(&[0], has_witness, false);
            assert_eq!(set.believed(&[0, 1], has_witness), [0, 1]);
            set.start(&[1, 0], has_witness, false);
            assert_eq!(set.believed(&[0, 1], has_witness), [0, 1]);
        }
    }

    #[test]
    fn rosters_of_one_generation_are_not_believed() {
        let mut set = Set::of(4, false);
        let (generation, last) = (set.generation, set.last);
        set.run(&[0, 1], false);
        (set.generation, set.last) = (generation, last);
        set.run(&[2, 3], false);
        assert_eq!(set.believed(&[0, 1, 2, 3], false), []);
    }

    /// A part that was not believed began anew, and then the rest of the set ran without it: each has changes that the
    /// other has not.
    #[test]
    fn lines_that_went_on_beside_each_other_are_not_believed() {
        let mut set = Set::of(3, false);
        let (generation, last) = (set.generation, set.last);
        let first = set.line.clone();
        (set.line, set.generation) = first.begin(Generations::new(generation, generation), 5);
        set.run(&[2], false);
        assert_eq!(set.believed(&[0, 1, 2], false), [2], "the others have not run since");
        set.run(&[2], false);
        assert_eq!(set.believed(&[0, 1, 2], false), [2]);
        (set.generation, set.last, set.line) = (generation, last, first.clone());
        set.run(&[0, 1], false);
        assert_eq!(set.believed(&[0, 1, 2], false), []);
        // Neither are two that began anew beside each other.
        (set.line, set.generation) = first.begin(Generations::new(generation, generation), 6);
        set.run(&[0, 1], false);
        assert_eq!(set.believed(&[0, 1, 2], false), []);
    }

    /// As [`crate::recovery::mount::Mount::believe_none_later`] leaves it.
    #[test]
    fn nobody_is_believed_behind_a_roster_that_only_the_state_knows() {
        let set = Set::of(3, false);
        let given = || set.tiers.iter().map(|pages| Given::Pages(FirstPages::Ours(pages.clone())));
        let held = |state| {
            let judged = judge(given().collect(), Some(SET), state, None);
            judged.verdicts.iter().filter(|v| matches!(v, Verdict::Holder(_))).count()
        };
        assert_eq!(held(Some(Standing::in_force(set.last))), 3);
        let known = Generations::new(set.generation, set.generation);
        let (_, generation) = set.line.begin(known, 5);
        assert_eq!(held(Some(Standing::in_force(RosterId::new(generation + 1, 7)))), 0);
    }

    #[test]
    fn copies_of_one_tier_are_not_believed() {
        let mut set = Set::of(2, true);
        set.tiers[1] = set.tiers[0].clone();
        assert_eq!(set.believed(&[0, 1], true), []);
    }

    #[test]
    fn witness_of_an_older_run_does_not_vouch() {
        let mut set = Set::of(2, true);
        let old = set.witness.clone();
        set.run(&[0, 1], true);
        set.witness = old;
        assert_eq!(set.believed(&[0], true), []);
        assert_eq!(set.believed(&[0, 1], true), [0, 1]);
    }

    #[test]
    fn set_of_most_tiers_is_gone_on_with() {
        let mut set = Set::of(3, true);
        let other = Set::of(1, true).tiers.remove(0);
        let foreign = |page: Superblock| Superblock { set: SET + 1, ..page };
        set.tiers[0] = other.into_iter().map(foreign).collect();
        assert_eq!(set.believed(&[0, 1, 2], true), [1, 2]);
    }
}
