//! Replies, matched with the requests in flight and checked.

use crate::plan::{Plan, Protocol};
use crate::requests::{Expected, Request, Window};
use crate::tally::Tally;
use crate::{Keys, LoadError, Values};
use std::sync::Arc;

/// Longest reply line.
const LINE_BYTES_MAX: usize = 2048;

/// Reads replies of one connection.
pub(crate) struct Replies {
    keys: Keys,
    values: Arc<Values>,
    check: bool,
    words: &'static Words,
    /// The header that the value of a key must have, rewritten for each key.
    header: Vec<u8>,
    /// Where the key lies in `header`; meta replies leave it to the value to say whose it is.
    key: std::ops::Range<usize>,
    /// Meta replies end with the value; classic ones with a line of their own.
    ends_with_value: bool,
}

struct Words {
    value: &'static [u8],
    end: &'static [u8],
    stored: &'static [u8],
}

const ASCII: Words = Words { value: b"VALUE ", end: b"END\r\n", stored: b"STORED\r\n" };
const META: Words = Words { value: b"VA ", end: b"EN\r\n", stored: b"HD\r\n" };

/// What the front of the input is.
enum Front {
    /// So many bytes are dealt with.
    Taken(usize),
    /// More must come first.
    Partial,
}

impl Replies {
    pub(crate) fn new(plan: &Plan, values: &Arc<Values>) -> Result<Self, LoadError> {
        let keys = plan.keys()?;
        let meta = plan.protocol == Protocol::Meta;
        let (flags, bytes) = (plan.flags, values.bytes());
        let mut header = if meta { b"VA".to_vec() } else { b"VALUE ".to_vec() };
        let start = header.len();
        if !meta {
            keys.append(0, &mut header);
        }
        let key = start..header.len();
        let tail = match (meta, flags) {
            (false, _) => format!(" {flags} {bytes}\r\n"),
            (true, 0) => format!(" {bytes}\r\n"),
            (true, _) => format!(" {bytes} f{flags}\r\n"),
        };
        header.extend_from_slice(tail.as_bytes());
        let words = if meta { &META } else { &ASCII };
        let (values, check) = (Arc::clone(values), plan.check);
        Ok(Self { keys, values, check, words, header, key, ends_with_value: meta })
    }

    /// Takes every whole reply at the front of `input`; gives back how many bytes they were.
    pub(crate) fn take(
        &mut self,
        input: &[u8],
        now: u64,
        window: &mut Window,
        tally: &mut Tally,
    ) -> Result<usize, LoadError> {
        let mut taken = 0;
        while taken < input.len() {
            let rest = &input[taken..];
            let Some((request, sent)) = window.requests.front().copied() else {
                return Err(LoadError::Reply(text(rest)));
            };
            let front = match request {
                Request::Store => self.stored(rest, window, tally)?,
                Request::Get { keys } => self.got(rest, keys, window, tally)?,
            };
            match front {
                Front::Taken(bytes) => taken += bytes,
                Front::Partial => break,
            }
            if matches!(window.requests.front(), Some((Request::Get { keys: DONE }, _)) | None) {
                window.requests.pop_front();
                tally.answered(now.saturating_sub(sent));
            }
        }
        Ok(taken)
    }

    fn stored(
        &self,
        rest: &[u8],
        window: &mut Window,
        tally: &mut Tally,
    ) -> Result<Front, LoadError> {
        let taken = if rest.starts_with(self.words.stored) {
            tally.stored += 1;
            self.words.stored.len()
        } else {
            let Some(line) = line(rest)? else { return Ok(Front::Partial) };
            if !is_refusal(line) {
                return Err(LoadError::Reply(text(line)));
            }
            tally.errors += 1;
            tally.example(|| text(line));
            line.len()
        };
        finish(window);
        Ok(Front::Taken(taken))
    }

    fn got(
        &mut self,
        rest: &[u8],
        keys: usize,
        window: &mut Window,
        tally: &mut Tally,
    ) -> Result<Front, LoadError> {
        if let Some(&expected) = window.expected.front().filter(|_| keys > 0) {
            self.expect(expected);
            if rest.starts_with(&self.header) {
                return Ok(self.value(rest, expected, keys, window, tally));
            }
        }
        if rest.starts_with(self.words.end) {
            tally.misses += keys as u64;
            window.expected.drain(..keys);
            finish(window);
            return Ok(Front::Taken(self.words.end.len()));
        }
        let Some(line) = line(rest)? else { return Ok(Front::Partial) };
        if line.starts_with(self.words.value) && keys > 0 {
            return self.other_value(rest, line, keys, window, tally);
        }
        if !is_refusal(line) {
            return Err(LoadError::Reply(text(line)));
        }
        tally.errors += keys as u64;
        tally.example(|| text(line));
        window.expected.drain(..keys);
        finish(window);
        Ok(Front::Taken(line.len()))
    }

    /// Puts the key into the header.
    fn expect(&mut self, expected: Expected) {
        if !self.key.is_empty() {
            self.keys.rewrite(expected.number, &mut self.header[self.key.clone()]);
        }
    }

    /// A value whose header is the expected one.
    fn value(
        &self,
        rest: &[u8],
        expected: Expected,
        keys: usize,
        window: &mut Window,
        tally: &mut Tally,
    ) -> Front {
        let (from, to) = (self.header.len(), self.header.len() + self.values.bytes());
        let Some(end) = rest.get(to..to + 2) else { return Front::Partial };
        let value = &rest[from..to];
        let fits = !self.check || self.values.fits(expected.number, expected.version, value);
        if fits && end == b"\r\n" {
            tally.hits += 1;
        } else {
            tally.wrong += 1;
            tally.example(|| format!("{expected:?}: {}", text(value)));
        }
        self.next_key(keys, window);
        Front::Taken(to + 2)
    }

    /// A value with another header than that of the next key: of a later key of the same request
    /// (those before it were missed), or wrong.
    fn other_value(
        &mut self,
        rest: &[u8],
        header: &[u8],
        keys: usize,
        window: &mut Window,
        tally: &mut Tally,
    ) -> Result<Front, LoadError> {
        let later = window.expected.iter().take(keys).skip(1).position(|expected| {
            self.expect(*expected);
            header == self.header
        });
        if let Some(missed) = later.map(|position| position + 1) {
            tally.misses += missed as u64;
            window.expected.drain(..missed);
            set_keys(window, keys - missed);
            return Ok(Front::Taken(0));
        }
        let words = header.trim_ascii().split(|byte| *byte == b' ');
        let at = if self.ends_with_value { 1 } else { 3 };
        let bytes = words.skip(at).find_map(|word| str::from_utf8(word).ok()?.parse().ok());
        let bytes: usize = bytes.ok_or_else(|| LoadError::Reply(text(header)))?;
        if rest.len() < header.len() + bytes + 2 {
            return Ok(Front::Partial);
        }
        tally.wrong += 1;
        let expected = window.expected.front().copied();
        tally.example(|| format!("{expected:?}: {}", text(header)));
        self.next_key(keys, window);
        Ok(Front::Taken(header.len() + bytes + 2))
    }

    fn next_key(&self, keys: usize, window: &mut Window) {
        window.expected.pop_front();
        if self.ends_with_value { finish(window) } else { set_keys(window, keys - 1) }
    }
}

/// Marks a request as answered; [`Replies::take`] takes it out.
const DONE: usize = usize::MAX;

fn finish(window: &mut Window) {
    set_keys(window, DONE);
}

fn set_keys(window: &mut Window, left: usize) {
    if let Some((request, _)) = window.requests.front_mut() {
        *request = Request::Get { keys: left };
    }
}

/// The line at the front with its end, once it is whole.
fn line(rest: &[u8]) -> Result<Option<&[u8]>, LoadError> {
    let head = &rest[..rest.len().min(LINE_BYTES_MAX)];
    match head.iter().position(|byte| *byte == b'\n') {
        Some(end) => Ok(Some(&head[..=end])),
        None if head.len() < LINE_BYTES_MAX => Ok(None),
        None => Err(LoadError::Reply(text(head))),
    }
}

fn is_refusal(line: &[u8]) -> bool {
    [&b"SERVER_ERROR"[..], b"CLIENT_ERROR", b"ERROR", b"NOT_STORED", b"NS\r\n"]
        .iter()
        .any(|word| line.starts_with(word))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(100)]).trim_end().to_string()
}

#[cfg(test)]
#[path = "replies_tests.rs"]
mod tests;
