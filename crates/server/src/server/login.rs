//! What a connection does before it may do anything else.

use super::connection::{Connection, Mode, Stop};
use super::context::Context;
use crate::auth::ascii::{self, Attempt, Outcome};
use std::time::Instant;

/// The wrong password in a row that ends a connection.
const FAILURES_MAX: u8 = 3;

/// Wrong passwords of one connection.
#[derive(Debug, Default)]
pub(super) struct Failures {
    in_a_row: u8,
    /// The worker was told that the one at the front may be answered.
    may_answer: bool,
}

impl Connection {
    /// Takes one attempt of ASCII authentication.
    pub(super) fn process_login(&mut self, cx: &mut Context, budget: &mut u32) -> Result<(), Stop> {
        let Some(passwords) = &cx.shared.passwords else {
            self.mode = Mode::Requests;
            return Ok(());
        };
        if self.input.unread().is_empty() {
            return Err(Stop::Starved);
        }
        match ascii::attempt(self.input.unread(), passwords) {
            Attempt::NeedMore(bytes) => {
                self.needed = bytes;
                Err(Stop::Starved)
            }
            Attempt::Close => {
                self.is_closing = true;
                Err(Stop::Blocked)
            }
            Attempt::Done { reply, consumed, outcome } => {
                if outcome == Outcome::Failed {
                    self.note_failure(cx)?;
                }
                *budget -= 1;
                self.input.consume(consumed);
                self.replies.append(|out| out.extend_from_slice(reply));
                self.note_attempt(outcome, cx);
                Ok(())
            }
        }
    }

    fn note_attempt(&mut self, outcome: Outcome, cx: &Context) {
        match outcome {
            // A failure was noted before.
            Outcome::Other | Outcome::Failed => {}
            Outcome::Admitted => {
                self.mode = Mode::Requests;
                self.note_admission(cx);
            }
        }
    }

    /// A password was right.
    pub(super) fn note_admission(&mut self, cx: &Context) {
        self.failures = Failures::default();
        cx.stats.counters.auth_cmds.add(1);
    }

    /// A password was wrong. If too many were answered of late, stops for the worker to answer it in its turn: its
    /// bytes stay in the input, and are judged again.
    pub(super) fn note_failure(&mut self, cx: &Context) -> Result<(), Stop> {
        let may_answer = std::mem::take(&mut self.failures.may_answer);
        if !may_answer && !cx.shared.failures.may_answer(Instant::now()) {
            return Err(Stop::Throttled);
        }
        self.failures.in_a_row += 1;
        self.is_closing |= self.failures.in_a_row >= FAILURES_MAX;
        cx.stats.counters.auth_cmds.add(1);
        cx.stats.counters.auth_errors.add(1);
        Ok(())
    }

    /// Its wrong password may be answered.
    pub(crate) fn may_answer_failure(&mut self) {
        self.failures.may_answer = true;
        self.stop_waiting();
    }
}
