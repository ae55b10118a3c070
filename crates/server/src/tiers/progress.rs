//! Waiting for a drain to end: one line that is written anew on a terminal, a line now and then elsewhere.

use super::error::Error;
use super::peer::Peer;
use super::tier::{Tier, duration};
use crate::say;
use std::io::{IsTerminal, Write, stderr};
use std::thread;
use std::time::{Duration, Instant};

const ASK_EVERY: Duration = Duration::from_millis(500);
const LINE_EVERY: Duration = Duration::from_secs(5);
/// The server may be busy, or restart, for this time.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Waits until the tier is empty. Fails if its drain ends before.
pub(super) fn wait(peer: &Peer, tier: &Tier) -> Result<(), Error> {
    let (begin, mut heard) = (Instant::now(), Instant::now());
    let mut line = Line::default();
    loop {
        let tiers = match peer.tiers() {
            Err(Error::NoAnswer(_)) if heard.elapsed() < SILENCE_MAX => {
                thread::sleep(ASK_EVERY);
                continue;
            }
            tiers => tiers?,
        };
        heard = Instant::now();
        let now = tiers.get(tier.number).filter(|now| now.label == tier.label);
        let now = now.ok_or_else(|| ended(tier, "the server has other tiers now"))?;
        match &now.state[..] {
            "draining" | "no-room" => line.show(now),
            "drained" => {
                drop(line);
                let (name, number) = (now.name(), now.number);
                let time = duration(begin.elapsed().as_secs());
                say::line(format_args!(
                    "{name}: drained in {time}; terrace tiers remove {number} takes it out"
                ));
                return Ok(());
            }
            "removed" => return Err(ended(tier, "it was removed")),
            "failed" => return Err(ended(tier, "its drive failed")),
            _ => return Err(ended(tier, "it was cancelled, or the server was restarted")),
        }
        thread::sleep(ASK_EVERY);
    }
}

fn ended(tier: &Tier, why: &str) -> Error {
    Error::Refused(format!("{}: the drain has ended, with records left: {why}", tier.name()))
}

/// The line on standard error.
#[derive(Default)]
struct Line {
    shown: Option<Instant>,
    is_rewritten: bool,
}

impl Line {
    fn show(&mut self, tier: &Tier) {
        let mut text = tier.line();
        if tier.state == "no-room" {
            text += "; waits for room on other tiers (--force drops the oldest records)";
        }
        if stderr().is_terminal() {
            self.is_rewritten = true;
            // A line that goes on below could not be taken back, so that the terminal cuts it.
            let _ = write!(stderr(), "\r\x1b[?7l{text}\x1b[K\x1b[?7h");
        } else if self.shown.is_none_or(|at| at.elapsed() >= LINE_EVERY) {
            say::error(&text);
            self.shown = Some(Instant::now());
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.is_rewritten {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
