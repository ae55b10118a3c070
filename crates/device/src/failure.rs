//! How a drive fails.

use std::error::Error;
use std::fmt;
use std::io;

/// Inside of the errors of [`unanswered`].
#[derive(Debug)]
struct Unanswered;

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the drive does not answer")
    }
}

impl Error for Unanswered {}

/// The error of a transfer that was not answered in time.
pub(crate) fn unanswered() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, Unanswered)
}

/// Whether a transfer failed only because its device has not answered yet, and may still.
pub fn is_unanswered(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Unanswered>())
}
