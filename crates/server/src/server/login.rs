//! What a connection does before it may do anything else.

use super::connection::{Connection, Mode, Stop};
use super::context::Context;
use crate::auth::ascii::{self, Attempt, Outcome};

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
                *budget -= 1;
                self.input.consume(consumed);
                self.replies.append(|out| out.extend_from_slice(reply));
                self.note_attempt(outcome, cx);
                Ok(())
            }
        }
    }

    fn note_attempt(&mut self, outcome: Outcome, cx: &Context) {
        let counters = &cx.stats.counters;
        match outcome {
            Outcome::Other => {}
            Outcome::Close => self.is_closing = true,
            Outcome::Admitted => {
                self.mode = Mode::Requests;
                counters.auth_cmds.add(1);
            }
            Outcome::Failed => {
                counters.auth_cmds.add(1);
                counters.auth_errors.add(1);
            }
        }
    }
}
