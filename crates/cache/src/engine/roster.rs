//! Puts a new roster in force: at a start, and when a member leaves.
//!
//! 1. It is proposed: to the state, to the witness, and to each member. A crash leaves the roster before in force, and
//!    holders of the proposal have missed nothing.
//! 2. The witness says that it is in force.
//! 3. Each member says so, first where the proposal was, then in its other superblock.
//! 4. The state says so. Only now may a change be acknowledged.
//!
//! A member that does not take it is put out, and it begins again with the next generation. Where those that take it
//! are no more than half of the roster before, and there is no witness, a start may find the others alone and believe
//! them: what goes on here is a new line, so that the two are not taken for one set later.

use crate::config::error::OpenError;
use crate::engine::members::Member;
use crate::engine::{Engine, superblocks};
use crate::platform::crash::crash_point;
use crate::platform::lock::lock;
use crate::state::standing::{RosterId, Standing};
use crate::tiers::roster::Roster;
use crate::tiers::superblock::device_error;
use std::io;

/// Why a roster did not come into force.
enum Refusal {
    /// The member of this tier did not take it. Whether it is in force elsewhere by now.
    Member {
        tier: usize,
        error: io::Error,
        is_in_force: bool,
    },
    Witness(io::Error),
}

/// Puts a roster of all members that are not out in force. `nonce` is a random number.
///
/// # Errors
/// No member is left, or the witness can't be written: nothing may be acknowledged.
pub(crate) fn renew(engine: &Engine, nonce: u64) -> Result<(), OpenError> {
    let mut current = lock(engine.current_roster());
    loop {
        let (members, tiers): (Vec<u64>, Vec<usize>) = (0..engine.members().len())
            .filter(|&tier| !engine.member(tier).is_out())
            .map(|tier| (engine.member(tier).id(), tier))
            .unzip();
        if engine.witness().is_none() {
            current.begin_line_unless_most_are(&members, nonce);
        }
        let generation = current.count();
        let id = RosterId::new(generation, nonce.wrapping_add(generation) | 1);
        let standing = Standing::proposed(id, current.roster().standing().last_in_force());
        let proposed = Roster::new(standing, engine.witness().is_some(), members.into());
        let proposed = proposed.of_line(current.line());
        match put(engine, &proposed, &tiers) {
            Ok(()) => {
                current.put_in_force(&proposed);
                let out = engine.members().iter().filter(|member| member.is_out());
                out.for_each(Member::distrust);
                return Ok(());
            }
            Err(Refusal::Witness(error)) => return Err(OpenError::Witness(error)),
            Err(Refusal::Member { tier, error, is_in_force }) => {
                if is_in_force {
                    current.put_in_force(&proposed);
                }
                put_out(engine, tier, &error);
                if tiers.len() == 1 {
                    let store = &engine.shared().slots().tiers()[tier];
                    return Err(device_error(store.device().as_ref(), error));
                }
            }
        }
    }
}

/// Has a member leave with the next roster; it is distrusted once that is in force.
fn put_out(engine: &Engine, tier: usize, error: &io::Error) {
    engine.shared().slots().tiers()[tier].give_up(error);
    engine.shared().logs()[tier].fail();
    engine.member(tier).leave();
}

fn put(engine: &Engine, proposed: &Roster, tiers: &[usize]) -> Result<(), Refusal> {
    let in_force = proposed.put_in_force();
    let set_state = |roster: &Roster| {
        if let Some(state) = engine.shared().state() {
            state.set_standing(roster.standing());
        }
    };
    let set_witness = |roster: &Roster| match engine.witness() {
        Some(witness) => {
            let set = engine.set().set;
            witness.write(&roster.encode(set)).map_err(Refusal::Witness)
        }
        None => Ok(()),
    };
    set_state(proposed);
    crash_point("roster: proposed to the state");
    set_witness(proposed)?;
    crash_point("roster: proposed to the witness");
    for &tier in tiers {
        let refused = |error| Refusal::Member { tier, error, is_in_force: false };
        superblocks::propose(engine, tier, proposed).map_err(refused)?;
        crash_point("roster: proposed to one member");
    }
    set_witness(&in_force)?;
    crash_point("roster: the witness has it");
    let mut is_in_force = engine.witness().is_some();
    for _ in 0..2 {
        for &tier in tiers {
            let refused = |error| Refusal::Member { tier, error, is_in_force };
            superblocks::write(engine, tier, &in_force, false).map_err(refused)?;
            is_in_force = true;
            crash_point("roster: one member has it");
        }
    }
    set_state(&in_force);
    crash_point("roster: the state has it");
    Ok(())
}
