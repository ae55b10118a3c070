//! What a server says of itself: a line to standard output for what it did, a line to standard error
//! for what went wrong and for what `-v` asks for.
//!
//! Whoever listened may be gone: the terminal was closed, the program at the other end of the pipe has
//! died, the disk with the log is full. That is no reason to stop serving, so a line that can't be
//! written is dropped; everything here speaks through these functions, since `println!` would panic.

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
