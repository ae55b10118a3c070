//! Lines for a terminal that are no log: help, versions, and what is wrong with a command line. One that can't be
//! written is dropped, where `println!` would panic.

use std::fmt::Display;
use std::io::{self, Write};

/// Writes a line to standard output.
pub fn line(text: impl Display) {
    write(io::stdout().lock(), &text);
}

/// Writes a line to standard error.
pub fn error(text: impl Display) {
    write(io::stderr().lock(), &text);
}

/// In one piece, so that lines of several threads or processes do not mix.
fn write(mut to: impl Write, text: &dyn Display) {
    // Nobody is left to be told that nobody listens.
    let _ = to.write_all(format!("{text}\n").as_bytes()).and_then(|()| to.flush());
}
