//! The tiers as members of their set: what their superblocks say.

use crate::config::witness::Witness;
use crate::platform::getters::getters;
use crate::platform::lock::lock;
use crate::state::standing::{RosterId, Standing};
use crate::tiers::roster::{Generations, Line, Roster};
use crate::tiers::superblock::{Owner, Superblock, Written};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// One tier.
pub(crate) struct Member {
    id: u64,
    log_key: u64,
    written: Mutex<Written>,
    /// What the newest superblock says of clean stop and strict mode.
    is_clean: AtomicBool,
    is_strict: AtomicBool,
    /// In strict mode: the log on the tier holds all changes that were ever acknowledged.
    has_durable_log: AtomicBool,
    /// After a power loss the log is not believed: the superblock says so, or the roster in force.
    is_distrusted: AtomicBool,
    /// It is not in the roster from the next one on.
    is_out: AtomicBool,
}

getters! {
    Member {
        id: u64,
    }
}

impl Member {
    /// A member that is formatted at this start.
    pub(crate) fn new(id: u64, written: Written) -> Self {
        let no = || AtomicBool::new(false);
        Self {
            id,
            log_key: id,
            written: Mutex::new(written),
            is_clean: no(),
            is_strict: no(),
            has_durable_log: no(),
            is_distrusted: no(),
            is_out: no(),
        }
    }

    /// A member that is believed.
    pub(crate) fn holder(page: &Superblock, written: Written) -> Self {
        Self {
            log_key: page.owner.log_key(),
            is_clean: AtomicBool::new(page.clean),
            is_strict: AtomicBool::new(page.strict),
            has_durable_log: AtomicBool::new(page.has_complete_log()),
            ..Self::new(page.owner.member(), written)
        }
    }

    /// The place of a tier whose device can't be read.
    pub(crate) fn absent() -> Self {
        let absent = Self::new(0, Written::NONE);
        absent.leave();
        absent
    }

    /// Whether it is in the roster no longer.
    pub(crate) fn is_out(&self) -> bool {
        self.is_out.load(Ordering::Acquire)
    }

    /// Leaves it out of the next roster.
    pub(crate) fn leave(&self) {
        self.is_out.store(true, Ordering::Release);
    }

    /// Takes back [`Member::leave`]: the roster without it did not come into force.
    pub(crate) fn stay(&self) {
        self.is_out.store(false, Ordering::Release);
    }

    pub(crate) fn is_distrusted(&self) -> bool {
        self.is_distrusted.load(Ordering::Acquire)
    }

    pub(crate) fn distrust(&self) {
        self.is_distrusted.store(true, Ordering::Release);
    }

    pub(crate) fn has_durable_log(&self) -> bool {
        self.has_durable_log.load(Ordering::Relaxed)
    }

    pub(crate) fn note_durable_log(&self) {
        self.has_durable_log.store(true, Ordering::Relaxed);
    }

    /// What the newest superblock says of clean stop and strict mode.
    pub(crate) fn marks(&self) -> (bool, bool) {
        (self.is_clean.load(Ordering::Relaxed), self.is_strict.load(Ordering::Relaxed))
    }

    /// Numbers the next superblock for `write`, and notes what it says.
    pub(crate) fn write<E>(
        &self,
        mut superblock: Superblock,
        write: impl FnOnce(&Superblock) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut written = lock(&self.written);
        superblock.owner = Owner::new(self.id, self.log_key, written.next());
        let done = write(&superblock);
        written.note(superblock.owner.number(), superblock.roster.standing().is_in_force());
        self.is_clean.store(superblock.clean, Ordering::Relaxed);
        self.is_strict.store(superblock.strict, Ordering::Relaxed);
        done
    }
}

/// The roster in force, and the newest generation that was ever proposed.
pub(crate) struct Current {
    roster: Roster,
    generation: u64,
    line: Line,
}

impl Current {
    /// What a start found; the first one of a set finds nothing.
    fn new(
        last: Option<Roster>,
        known: RosterId,
        (generations, nonce): (Generations, u64),
        is_cold: bool,
    ) -> Self {
        // What comes next is behind that one, although its members may be unknown.
        let of_unknown = || Roster::new(Standing::in_force(known), false, [].into());
        let roster = last.unwrap_or_else(of_unknown);
        let (line, generation) = match is_cold && generations.proposed() > 0 {
            true => roster.line().begin(generations, nonce),
            false => {
                let last = roster.standing().roster().generation();
                (roster.line().clone(), Line::go_on(last, generations.proposed()))
            }
        };
        Self { roster, generation, line }
    }

    pub(super) fn roster(&self) -> &Roster {
        &self.roster
    }

    pub(super) fn line(&self) -> Line {
        self.line.clone()
    }

    /// Begins a new line behind this one, unless more than half of the members of the roster in force are among these,
    /// or the line has begun since that roster.
    pub(super) fn begin_line_unless_most_are(&mut self, members: &[u64], nonce: u64) {
        let before = self.roster.members();
        let staying = before.iter().filter(|member| members.contains(member)).count();
        let has_begun = self.roster.line() != &self.line;
        if !before.is_empty() && !self.roster.are_most(staying) && !has_begun {
            let in_force = self.roster.standing().roster().generation();
            let known = Generations::new(in_force, self.generation);
            (self.line, self.generation) = self.line.begin(known, nonce);
        }
    }

    /// The generation of the next roster.
    pub(super) fn count(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    pub(super) fn put_in_force(&mut self, proposed: &Roster) {
        self.roster = proposed.put_in_force();
    }
}

/// What a start found of the set.
pub(crate) struct Membership {
    members: Box<[Member]>,
    last: Option<Roster>,
    /// The same, perhaps without its members.
    known: RosterId,
    /// Those that were seen, and a random number.
    generations: (Generations, u64),
    witness: Option<Arc<dyn Witness>>,
    is_cold: bool,
}

impl Membership {
    /// One member for each tier; the roster that was in force last; that one, perhaps without its members; the
    /// generations that were seen, and a random number; `is_cold` if nothing of an earlier run is believed.
    pub(crate) fn new(
        members: Box<[Member]>,
        (last, known, generations): (Option<Roster>, RosterId, (Generations, u64)),
        witness: Option<Arc<dyn Witness>>,
        is_cold: bool,
    ) -> Self {
        Self { members, last, known, generations, witness, is_cold }
    }

    pub(super) fn is_cold(&self) -> bool {
        self.is_cold
    }

    pub(super) fn witness(&self) -> Option<Arc<dyn Witness>> {
        self.witness.clone()
    }

    pub(super) fn split(self) -> (Box<[Member]>, Current) {
        let current = Current::new(self.last, self.known, self.generations, self.is_cold);
        (self.members, current)
    }
}
