//! Reading keys: those of plain requests that stand one behind the other, and those of a long line.
//!
//! Most requests are a `get`, an `mg` or a GET of one value. They have a way of their own here, on which nothing
//! of them is kept but the key: a whole pipeline of them is hashed, then asked of memory, then read.

use super::connection::{Connection, Mode, Stop};
use super::context::Context;
use super::pending::Work;
use crate::commands::keys::{self, ReadKind};
use crate::stats::latency::Command;
use arrayvec::ArrayVec;
use terrace_cache::{Intent, Key};
use terrace_protocol::binary::Echo;
use terrace_protocol::{Keys, KeysKind, PlainGet, Tokens, reply};

/// Keys whose records are asked of memory before the first is read.
pub(super) const BATCH: usize = 32;

/// Keys, and where each ends in what they were taken from.
type Batch<'i> = ArrayVec<(Key<'i>, usize), BATCH>;

/// A line of keys that was begun: some of its keys are still to be read, all of them received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeysLeft {
    kind: KeysKind,
    /// Bytes of the input that are keys.
    text: usize,
    /// Bytes behind them that end the line, or this part of it.
    end: usize,
    is_last: bool,
}

impl Connection {
    /// Executes the plain gets at the front of the input, a batch of them at most; answers how many
    /// bytes they took.
    pub(super) fn process_gets(
        &mut self,
        input: &[u8],
        cx: &mut Context,
        budget: &mut u32,
    ) -> (usize, Result<(), Stop>) {
        // Who looks at commands is shown them where all kinds are executed.
        if cx.shared.looks_at_commands() {
            return (0, Ok(()));
        }
        let Some(form) = input.first().map(|first| PlainGet::of(*first)) else {
            return (0, Ok(()));
        };
        if form == PlainGet::Binary && self.sasl.is_needed() {
            return (0, Ok(()));
        }
        let limit = BATCH.min(*budget as usize);
        let (mut batch, mut at) = (Batch::new(), 0);
        while batch.len() < limit
            && let Some((key, bytes)) = self.parser.plain_get(&input[at..], form)
        {
            at += bytes;
            batch.push((cx.session.key(key), at));
        }
        if batch.is_empty() {
            return (0, Ok(()));
        }
        self.command = Command::Get;
        let (read, result) = match form {
            PlainGet::Classic => {
                self.read_keys(|_| ReadKind::Classic(KeysKind::GET), &batch, reply::END, cx)
            }
            PlainGet::Meta => self.read_keys(|_| ReadKind::MetaValue, &batch, b"", cx),
            PlainGet::Binary => {
                let kind = |at: usize| ReadKind::Binary(Echo::of(&input[at..]));
                self.read_keys(kind, &batch, b"", cx)
            }
        };
        // No more than the limit, see above.
        *budget -= read as u32;
        (taken(&batch[..read]), result)
    }

    /// Reads the key of a line, or begins with its keys if there are more than this `first` one; answers
    /// how many bytes it took.
    pub(super) fn begin_keys(
        &mut self,
        keys: &Keys<'_>,
        first: Option<Key<'_>>,
        bytes: &[u8],
        cx: &mut Context,
    ) -> Result<usize, Stop> {
        if let (Some(key), true) = (first, keys.is_single) {
            self.read_key(ReadKind::Classic(keys.kind), key, cx)?;
            self.replies.append(|out| out.extend_from_slice(reply::END));
            return Ok(bytes.len());
        }
        let text = keys.keys.rest().len();
        let end = match keys.is_last {
            true if bytes.ends_with(b"\r\n") => 2,
            _ => 1,
        };
        self.mode = Mode::Keys(KeysLeft { kind: keys.kind, text, end, is_last: keys.is_last });
        Ok(bytes.len() - text - end)
    }

    /// Reads some keys of a line.
    pub(super) fn process_keys(
        &mut self,
        left: KeysLeft,
        cx: &mut Context,
        budget: &mut u32,
    ) -> Result<(), Stop> {
        let input = std::mem::take(&mut self.input);
        let (consumed, result) = self.read_text(&input.unread()[..left.text], left, cx);
        self.input = input;
        self.input.consume(consumed);
        *budget = budget.saturating_sub(1);
        result
    }

    /// Answers how many bytes of the input were taken.
    fn read_text(
        &mut self,
        text: &[u8],
        left: KeysLeft,
        cx: &mut Context,
    ) -> (usize, Result<(), Stop>) {
        let mut batch = Batch::new();
        let mut words = Tokens::new(text);
        while !batch.is_full()
            && let Some(word) = words.next()
        {
            batch.push((cx.session.key(word), text.len() - words.rest().len()));
        }
        let (read, result) = self.read_keys(|_| ReadKind::Classic(left.kind), &batch, b"", cx);
        let mut consumed = taken(&batch[..read]);
        self.mode = Mode::Keys(KeysLeft { text: left.text - consumed, ..left });
        if result.is_ok() && !batch.is_full() {
            consumed = left.text + left.end;
            self.mode = Mode::Requests;
            if left.is_last {
                self.replies.append(|out| out.extend_from_slice(reply::END));
            }
        }
        (consumed, result)
    }

    /// Reads keys until one has to wait; says how many were read. `kind` is told where a key's request begins,
    /// and `end` is put behind the reply to each.
    #[inline]
    fn read_keys(
        &mut self,
        kind: impl Fn(usize) -> ReadKind,
        batch: &Batch<'_>,
        end: &[u8],
        cx: &mut Context,
    ) -> (usize, Result<(), Stop>) {
        if batch.len() > 1 {
            cx.session.look_ahead(batch.iter().map(|(key, _)| (*key, Intent::Read)));
        }
        for (read, (key, _)) in batch.iter().enumerate() {
            if self.is_held(cx) {
                return (read, Err(Stop::Blocked));
            }
            let begin = read.checked_sub(1).map_or(0, |before| batch[before].1);
            if let Err(stop) = self.read_key(kind(begin), *key, cx) {
                return (read, Err(stop));
            }
            if !end.is_empty() {
                self.replies.append(|out| out.extend_from_slice(end));
            }
        }
        (batch.len(), Ok(()))
    }

    fn read_key(&mut self, kind: ReadKind, key: Key<'_>, cx: &mut Context) -> Result<(), Stop> {
        self.begin(
            cx,
            (key, kind.is_write()),
            |on, out| keys::execute(kind, on, out),
            || Work::Read(kind),
        )
    }
}

/// Bytes up to the end of the last of these keys.
fn taken(keys: &[(Key<'_>, usize)]) -> usize {
    keys.last().map_or(0, |(_, end)| *end)
}
