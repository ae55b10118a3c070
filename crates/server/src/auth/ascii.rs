//! ASCII authentication: the first request must be a `set` of anything whose value is
//! `user password`.

use super::Passwords;
use terrace_protocol::{number_u32, reply};

/// A line without an end that is longer than this is no request.
const LINE_BYTES_MAX: usize = 2048;
/// A line that is shorter than this before its line feed ends the connection, as in memcached: `quit` and `mn` do.
const LINE_BYTES_MIN: usize = 6;
/// The longest value that is looked at.
const TOKEN_BYTES_MAX: u32 = 16 << 10;

/// What stands at the front of the input of a client that has not said who it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// Not all of it was received; so many bytes are needed, where that is known.
    NeedMore(usize),
    /// It is over; no answer.
    Close,
    /// Answered.
    Done { reply: &'static [u8], consumed: usize, outcome: Outcome },
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was no attempt.
    Other,
    Admitted,
    Failed,
}

/// Looks at the front of `input`.
pub(crate) fn attempt(input: &[u8], passwords: &Passwords) -> Attempt {
    let Some(end) = memchr::memchr(b'\n', input) else {
        return if input.len() > LINE_BYTES_MAX { Attempt::Close } else { Attempt::NeedMore(0) };
    };
    if end < LINE_BYTES_MIN {
        // memcached looks at three bytes and more.
        return if input.len() < 3 { Attempt::NeedMore(3) } else { Attempt::Close };
    }
    let (line, rest) = (&input[..end], &input[end + 1..]);
    let Some(bytes) = token_bytes(line.strip_suffix(b"\r").unwrap_or(line)) else {
        let (reply, outcome) = (reply::UNAUTHENTICATED, Outcome::Other);
        return Attempt::Done { reply, consumed: end + 1, outcome };
    };
    if bytes > TOKEN_BYTES_MAX {
        // What follows it is read on line by line, and is too long for one.
        let (reply, outcome) = (reply::AUTH_TOO_LONG, Outcome::Other);
        return Attempt::Done { reply, consumed: end + 1, outcome };
    }
    let consumed = end + 1 + bytes as usize + reply::LINE_END.len();
    let Some(block) = rest.get(..consumed - (end + 1)) else { return Attempt::NeedMore(consumed) };
    let (reply, outcome) = judge(block, passwords);
    Attempt::Done { reply, consumed, outcome }
}

/// The length of the value, if the line begins as a `set`. Key, flags and expiry may be anything.
fn token_bytes(line: &[u8]) -> Option<u32> {
    line.starts_with(b"set").then_some(())?;
    number_u32(line.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).nth(4)?)
}

fn judge(block: &[u8], passwords: &Passwords) -> (&'static [u8], Outcome) {
    let Some(token) = block.strip_suffix(reply::LINE_END) else {
        return (reply::AUTH_TERMINATION, Outcome::Other);
    };
    let token = without_leading_blanks(token);
    let Some(blank) = token.iter().position(|&byte| byte == b' ') else {
        return (reply::AUTH_FORMAT, Outcome::Other);
    };
    let (user, password) = (&token[..blank], &token[blank + 1..]);
    // A password may begin and end with blanks; else there may be some around it. Both are looked at, see `admit`.
    match passwords.admit(user, password) | passwords.admit(user, without_blanks(password)) {
        true => (reply::STORED, Outcome::Admitted),
        false => (reply::AUTH_FAILURE, Outcome::Failed),
    }
}

fn without_leading_blanks(bytes: &[u8]) -> &[u8] {
    let begin = bytes.iter().position(|&byte| byte != b' ').unwrap_or(bytes.len());
    &bytes[begin..]
}

fn without_blanks(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
    without_leading_blanks(&bytes[..end])
}
