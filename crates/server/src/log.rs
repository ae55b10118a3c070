//! The log: a line with time and level for each event; to standard output for what the server did, to standard error
//! for what went wrong and for what `-v` asks for.
//!
//! The terminal may be closed, the program at the other end of the pipe may have died, the disk with the log may be
//! full. That is no reason to stop serving: a line that can't be written is dropped. Nothing on the way of a request is
//! logged but by `-v`.

use std::io;
use terrace_cache::Note;
use tracing::{Level, info, warn};
use tracing_subscriber::fmt::writer::MakeWriterExt;

/// How lines are written (`--log-format`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Time, level and message, parted by blanks.
    #[default]
    Text,
    /// An object with `timestamp`, `level` and `message`.
    Json,
}

/// Begins the log of this process. Before that, and in processes that never do, lines are dropped.
pub fn begin(format: LogFormat) {
    let writer = io::stderr.with_filter(is_for_errors).or_else(io::stdout.with_filter(|_| true));
    let lines = tracing_subscriber::fmt()
        .with_max_level(Level::DEBUG)
        .with_target(false)
        .with_ansi(false)
        .log_internal_errors(false)
        .with_writer(writer);
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}

/// What `-v` asks for is beside what goes wrong, as in memcached.
fn is_for_errors(line: &tracing::Metadata<'_>) -> bool {
    *line.level() != Level::INFO
}

/// Logs what was noted.
pub fn notes<'n>(notes: impl IntoIterator<Item = &'n Note>) {
    for note in notes {
        match note {
            Note::Info(text) => info!("{text}"),
            Note::Warning(text) => warn!("{text}"),
        }
    }
}
