//! Replies of the classic and the meta protocol.

use super::{Front, Judge, shown};
use crate::plan::{Plan, Protocol};
use crate::records::Records;
use crate::tally::Tally;
use crate::window::{Expected, Request, Window};
use crate::{LoadError, keys};
use std::io::Write;

/// Longest reply line.
const LINE_BYTES_MAX: usize = 2048;

/// Reads replies.
pub(crate) struct Text {
    judge: Judge,
    words: &'static Words,
    /// The header that the value of a key must have, made again for each key.
    header: Vec<u8>,
    flags: u32,
    /// Where the key lies in `header`, if no more of it changes from key to key; empty if nothing
    /// does.
    key: Option<std::ops::Range<usize>>,
}

struct Words {
    value: &'static [u8],
    end: &'static [u8],
    stored: &'static [u8],
    deleted: &'static [u8],
    not_found: &'static [u8],
    /// Replies end with the value, and don't tell the key; others end with a line of their own.
    are_meta: bool,
}

const ASCII: Words = Words {
    value: b"VALUE ",
    end: b"END\r\n",
    stored: b"STORED\r\n",
    deleted: b"DELETED\r\n",
    not_found: b"NOT_FOUND\r\n",
    are_meta: false,
};
const META: Words = Words {
    value: b"VA ",
    end: b"EN\r\n",
    stored: b"HD\r\n",
    deleted: b"HD\r\n",
    not_found: b"NF\r\n",
    are_meta: true,
};

impl Text {
    pub(super) fn new(plan: &Plan, records: &Records) -> Self {
        let words = if plan.protocol == Protocol::Meta { &META } else { &ASCII };
        let judge = Judge::new(plan, records);
        let mut text = Self { judge, words, header: Vec::new(), flags: plan.flags, key: None };
        text.write_header(0);
        text.key = records.sizes.are_fixed().then(|| {
            let start = text.words.value.len();
            start..start + if words.are_meta { 0 } else { records.sizes.key(0) }
        });
        text
    }

    #[inline]
    pub(super) fn take(
        &mut self,
        rest: &[u8],
        request: Request,
        window: &mut Window,
        tally: &mut Tally,
    ) -> Result<Front, LoadError> {
        match request {
            Request::Get { keys } => self.got(rest, keys, window, tally),
            Request::Store { .. } => {
                if rest.starts_with(self.words.stored) {
                    tally.stored += 1;
                    return Ok(Front::Whole(self.words.stored.len()));
                }
                refusal(rest, 1, tally)
            }
            Request::Delete => {
                if rest.starts_with(self.words.deleted) {
                    tally.deleted += 1;
                    return Ok(Front::Whole(self.words.deleted.len()));
                }
                if rest.starts_with(self.words.not_found) {
                    return Ok(Front::Whole(self.words.not_found.len()));
                }
                refusal(rest, 1, tally)
            }
        }
    }

    #[inline]
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
            window.miss(keys, tally);
            return Ok(Front::Whole(self.words.end.len()));
        }
        let Some(line) = line(rest)? else { return Ok(Front::Partial) };
        if line.starts_with(self.words.value) && keys > 0 {
            return self.other_value(rest, line, keys, window, tally);
        }
        let front = refusal(rest, keys, tally)?;
        window.refuse(keys);
        Ok(front)
    }

    /// Makes the header that the value of this key must have.
    #[inline]
    fn expect(&mut self, expected: Expected) {
        match self.key.clone() {
            None => self.write_header(expected.number),
            Some(key) if key.is_empty() => {}
            Some(key) => keys::rewrite(expected.number, &mut self.header[key]),
        }
    }

    fn write_header(&mut self, number: u64) {
        let Self { header, words, flags, judge, .. } = self;
        let bytes = judge.records.sizes.value(number);
        header.clear();
        header.extend_from_slice(words.value);
        // Writing into memory does not fail.
        let _ = match (words.are_meta, *flags) {
            (false, flags) => {
                judge.records.append_key(number, header);
                write!(header, " {flags} {bytes}\r\n")
            }
            (true, 0) => write!(header, "{bytes}\r\n"),
            (true, flags) => write!(header, "{bytes} f{flags}\r\n"),
        };
    }

    /// A value whose header is the expected one.
    #[inline]
    fn value(
        &self,
        rest: &[u8],
        expected: Expected,
        keys: usize,
        window: &mut Window,
        tally: &mut Tally,
    ) -> Front {
        let from = self.header.len();
        let to = from + self.judge.records.sizes.value(expected.number);
        let Some(end) = rest.get(to..to + 2) else { return Front::Partial };
        self.judge.count(expected, &rest[from..to], end == b"\r\n", tally);
        self.next_key(to + 2, keys, window)
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
            window.miss(missed, tally);
            window.await_keys(keys - missed);
            return Ok(Front::Part(0));
        }
        let words = header.trim_ascii().split(|byte| *byte == b' ');
        let at = if self.words.are_meta { 1 } else { 3 };
        let bytes = words.skip(at).find_map(|word| str::from_utf8(word).ok()?.parse().ok());
        let bytes: usize = bytes.ok_or_else(|| LoadError::Reply(shown(header)))?;
        if rest.len() < header.len().saturating_add(bytes).saturating_add(2) {
            return Ok(Front::Partial);
        }
        tally.wrong += 1;
        let expected = window.expected.front().copied();
        tally.example(|| format!("{expected:?}: {}", shown(header)));
        Ok(self.next_key(header.len() + bytes + 2, keys, window))
    }

    #[inline]
    fn next_key(&self, bytes: usize, keys: usize, window: &mut Window) -> Front {
        window.expected.pop_front();
        if self.words.are_meta {
            return Front::Whole(bytes);
        }
        window.await_keys(keys - 1);
        Front::Part(bytes)
    }
}

/// What the server says instead of doing it, for so many keys.
fn refusal(rest: &[u8], keys: usize, tally: &mut Tally) -> Result<Front, LoadError> {
    let Some(line) = line(rest)? else { return Ok(Front::Partial) };
    if !is_refusal(line) {
        return Err(LoadError::Reply(shown(line)));
    }
    tally.refused(keys, || shown(line));
    Ok(Front::Whole(line.len()))
}

/// The line at the front with its end, once it is whole.
fn line(rest: &[u8]) -> Result<Option<&[u8]>, LoadError> {
    let head = &rest[..rest.len().min(LINE_BYTES_MAX)];
    match head.iter().position(|byte| *byte == b'\n') {
        Some(end) => Ok(Some(&head[..=end])),
        None if head.len() < LINE_BYTES_MAX => Ok(None),
        None => Err(LoadError::Reply(shown(head))),
    }
}

fn is_refusal(line: &[u8]) -> bool {
    [&b"SERVER_ERROR"[..], b"CLIENT_ERROR", b"ERROR", b"NOT_STORED", b"NS\r\n"]
        .iter()
        .any(|word| line.starts_with(word))
}
