//! How far a run is, on standard error: a bar on a terminal, lines elsewhere.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

const CELLS: usize = 30;
const BAR_EVERY: Duration = Duration::from_millis(200);
const LINE_EVERY: Duration = Duration::from_secs(2);

pub(crate) struct Progress {
    what: String,
    is_bar: bool,
    shown: Instant,
    /// Requests answered when it was shown last.
    answered: u64,
}

impl Progress {
    pub(crate) fn new(what: &str) -> Self {
        let is_bar = stderr().is_terminal();
        Self { what: what.to_owned(), is_bar, shown: Instant::now(), answered: 0 }
    }

    /// Shows `share` (0 to 1) and the requests answered so far, unless it just did.
    pub(crate) fn show(&mut self, share: f64, answered: u64) {
        let time = self.shown.elapsed();
        if time < if self.is_bar { BAR_EVERY } else { LINE_EVERY } {
            return;
        }
        let rate = (answered - self.answered.min(answered)) as f64 / time.as_secs_f64();
        (self.shown, self.answered) = (Instant::now(), answered);
        let share = share.clamp(0.0, 1.0);
        let text = format!("{:3.0} % {answered} requests, {rate:.0}/s", share * 100.0);
        // Nobody reads it, perhaps.
        let _ = if self.is_bar {
            let full = (share * CELLS as f64) as usize;
            let (full, empty) = ("#".repeat(full), "-".repeat(CELLS - full));
            write!(stderr(), "\r\x1b[K{} [{full}{empty}] {text}", self.what)
        } else {
            writeln!(stderr(), "  {}: {text}", self.what)
        };
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_bar {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
