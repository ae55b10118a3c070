//! From a connection's input to executed commands.

use super::about::About;
use super::connection::{Connection, Mode, Stop};
use super::context::Context;
use super::pending::Work;
use super::slab::Id;
use super::upload::Upload;
use crate::commands::admin::{self, After};
use crate::commands::{keyed, keys};
use crate::stats::latency::Command;
use arrayvec::ArrayVec;
use terrace_cache::{Key, NewValue};
use terrace_protocol::{Admin, DataBlock, Keys, KeysKind, Parse, Parser, Reject, Request, reply};

/// Requests that are parsed, and whose index lines are asked for, before the first is executed.
const BATCH: usize = 32;

/// A request of a batch.
struct Parcel<'i> {
    parse: Parse<'i>,
    /// All of it as it was received, with its data block.
    bytes: &'i [u8],
    /// Where its data block begins, if it has one here.
    data: usize,
    /// The parser's state behind it.
    parser: Parser,
}

type Batch<'i> = ArrayVec<Parcel<'i>, BATCH>;

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
    /// Executes what was received, until something is missing.
    pub(super) fn process(&mut self, id: Id, cx: &mut Context, budget: &mut u32) -> Stop {
        loop {
            if self.is_held() {
                return Stop::Blocked;
            }
            if *budget == 0 {
                return Stop::Yield;
            }
            let step = match self.mode {
                Mode::Login => self.process_login(cx, budget),
                Mode::Requests => self.process_batch(id, cx, budget),
                Mode::Keys(left) => self.process_keys(left, id, cx, budget),
                Mode::Upload(_) => self.process_upload(id, cx),
                Mode::Swallow(bytes) => self.swallow(bytes),
            };
            if let Err(stop) = step {
                return stop;
            }
        }
    }

    /// Parses a few requests, asks for what their lookups begin with, and executes them.
    fn process_batch(&mut self, id: Id, cx: &mut Context, budget: &mut u32) -> Result<(), Stop> {
        if self.input.is_empty() {
            self.needed = 0;
            return Err(Stop::Starved);
        }
        // Taken out while its bytes are looked at, since executing changes the connection.
        let input = std::mem::take(&mut self.input);
        let (consumed, result) = self.process_parcels(input.unread(), id, cx, budget);
        self.input = input;
        self.input.consume(consumed);
        result
    }

    /// Answers how many bytes of the input were taken.
    fn process_parcels(
        &mut self,
        input: &[u8],
        id: Id,
        cx: &mut Context,
        budget: &mut u32,
    ) -> (usize, Result<(), Stop>) {
        let mut consumed = 0;
        // Not moved anywhere: that would copy kilobytes, however few they hold.
        let mut batch = ArrayVec::new();
        self.parse(input, cx, BATCH.min(*budget as usize), &mut batch);
        let mut keys = ArrayVec::new();
        hash_keys(&batch, cx, &mut keys);
        let mut result = if batch.is_empty() { Err(Stop::Starved) } else { Ok(()) };
        for (parcel, key) in batch.iter().zip(&keys) {
            if self.is_held() {
                result = Err(Stop::Blocked);
                break;
            }
            let before = self.parser;
            self.parser = parcel.parser;
            match self.process_one(parcel, *key, id, cx) {
                Ok(bytes) => consumed += bytes,
                Err(stop) => {
                    self.parser = before;
                    result = Err(stop);
                    break;
                }
            }
            *budget -= 1;
            if !matches!(self.mode, Mode::Requests) {
                break;
            }
        }
        (consumed, result)
    }

    /// Parses the requests that were received in whole. Notes how much the next one needs.
    fn parse<'i>(&mut self, input: &'i [u8], cx: &Context, limit: usize, batch: &mut Batch<'i>) {
        self.needed = 0;
        let mut parser = self.parser;
        let mut at = 0;
        while batch.len() < limit && at < input.len() {
            let parse = parser.parse(&input[at..]);
            let (consumed, value, ends_batch) = match &parse {
                Parse::NeedMore => break,
                Parse::Reject(reject) => (reject.consumed, None, false),
                // Whether what follows may be executed depends on it.
                Parse::Request { request, consumed } if self.is_login(request) => {
                    (*consumed, None, true)
                }
                // Its keys take turns of their own, after which the rest would be parsed anew.
                Parse::Request { request: Request::Keys(keys), consumed } if !keys.is_single => {
                    (*consumed, None, true)
                }
                Parse::Request { request, consumed } => (*consumed, request.data_block(), false),
            };
            let is_inline = |bytes| bytes as usize <= cx.limits.inline_bytes_max;
            let block = value.filter(|block| is_inline(block.value_bytes));
            let bytes = consumed + block.map_or(0, |block| block.bytes() as usize);
            let Some(bytes) = input[at..].get(..bytes) else {
                self.needed = bytes;
                break;
            };
            at += bytes.len();
            let ends_batch = ends_batch || block.is_none() && value.is_some();
            batch.push(Parcel { parse, bytes, data: consumed, parser });
            if ends_batch {
                break;
            }
        }
    }

    /// Executes one request; answers how many bytes of the input it took.
    fn process_one(
        &mut self,
        parcel: &Parcel<'_>,
        key: Option<Key<'_>>,
        id: Id,
        cx: &mut Context,
    ) -> Result<usize, Stop> {
        if let Parse::Request { request, .. } = &parcel.parse {
            self.command = Command::of(request);
            if cx.shared.looks_at_commands() {
                self.about = About::of(request, cx.now);
            }
        }
        // Who begins to watch by it need not hear of it.
        let is_watched = cx.shared.watchers.are_there();
        let taken = self.execute_one(parcel, key, id, cx)?;
        if is_watched {
            self.tell_line(parcel, cx);
        }
        Ok(taken)
    }

    fn execute_one(
        &mut self,
        parcel: &Parcel<'_>,
        key: Option<Key<'_>>,
        id: Id,
        cx: &mut Context,
    ) -> Result<usize, Stop> {
        match &parcel.parse {
            // Not put into a batch.
            Parse::NeedMore => return Err(Stop::Starved),
            Parse::Reject(reject) => self.refuse(reject),
            Parse::Request { request: Request::Keys(keys), .. } => {
                return self.begin_keys(keys, key, parcel.bytes, id, cx);
            }
            Parse::Request { request: Request::MetaNoop, .. } => {
                self.replies.append(|out| out.extend_from_slice(reply::META_NOOP));
            }
            Parse::Request { request: Request::Admin(admin), .. } => {
                self.process_admin(admin, cx)?;
            }
            Parse::Request { request: Request::Binary(request), .. }
                if request.key().is_none() || !self.sasl.admits(request) =>
            {
                self.process_unkeyed_binary(request, cx)?;
            }
            Parse::Request { request, .. } => {
                let Some(key) = key else { return Ok(parcel.bytes.len()) };
                self.process_keyed(request, key, parcel, id, cx)?;
            }
        }
        Ok(parcel.bytes.len())
    }

    /// Tells watchers the line of a request as it came; the binary protocol has none.
    fn tell_line(&self, parcel: &Parcel<'_>, cx: &Context) {
        if matches!(parcel.parse, Parse::Request { request: Request::Binary(_), .. }) {
            return;
        }
        let line = parcel.bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        cx.shared.watchers.tell_request(self.number(), line);
    }

    fn refuse(&mut self, reject: &Reject) {
        self.replies.append(|out| out.extend_from_slice(reject.reply));
        self.is_closing |= reject.close;
        if reject.swallow > 0 {
            self.mode = Mode::Swallow(reject.swallow);
        }
    }

    fn process_keyed(
        &mut self,
        request: &Request<'_>,
        key: Key<'_>,
        parcel: &Parcel<'_>,
        id: Id,
        cx: &mut Context,
    ) -> Result<(), Stop> {
        let mut value = &parcel.bytes[parcel.data..];
        if let Some(block) = request.data_block() {
            if block.value_bytes as usize > cx.limits.inline_bytes_max {
                return self.begin_upload(request, key, (parcel.bytes, block), id, cx);
            }
            match value.strip_suffix(block.terminator) {
                Some(block) => value = block,
                None => {
                    self.replies.append(|out| out.extend_from_slice(request.bad_data_block()));
                    return Ok(());
                }
            }
        }
        self.begin(
            cx,
            id,
            (key, keyed::is_write(request)),
            |executor, out| {
                let value = NewValue::Inline(value, &[]);
                keyed::execute(executor, request, key, value, None, out)
            },
            || Work::request(key, parcel.bytes, None),
        )
    }

    /// Executes what is no matter of one key, once everything before it is finished.
    fn process_admin(&mut self, admin: &Admin<'_>, cx: &mut Context) -> Result<(), Stop> {
        if !self.replies.is_settled() {
            return Err(Stop::Blocked);
        }
        let executor = cx.executor();
        match self.replies.append(|out| admin::execute(&executor, admin, out)) {
            After::GoOn => {}
            After::Close => self.is_closing = true,
            After::List(listing) => self.replies.reserve_listing(listing),
            After::Watch(watcher) => self.watcher = Some(watcher),
        }
        Ok(())
    }

    /// Reads the key of a line, or begins with its keys if there are more than this `first` one; answers
    /// how many bytes it took.
    fn begin_keys(
        &mut self,
        keys: &Keys<'_>,
        first: Option<Key<'_>>,
        bytes: &[u8],
        id: Id,
        cx: &mut Context,
    ) -> Result<usize, Stop> {
        if let (Some(key), true) = (first, keys.is_single) {
            self.read_key(keys.kind, key, id, cx)?;
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

    fn process_keys(
        &mut self,
        left: KeysLeft,
        id: Id,
        cx: &mut Context,
        budget: &mut u32,
    ) -> Result<(), Stop> {
        let input = std::mem::take(&mut self.input);
        let text = &input.unread()[..left.text];
        let mut batch: ArrayVec<(Key<'_>, usize), BATCH> = ArrayVec::new();
        let mut at = 0;
        while !batch.is_full()
            && let Some((word, end)) = next_word(text, at)
        {
            batch.push((cx.session.key(word), end));
            at = end;
        }
        batch.iter().for_each(|(key, _)| cx.session.prefetch(*key));
        batch.iter().for_each(|(key, _)| cx.session.prefetch_record(*key));
        let is_through = !batch.is_full();
        let (mut consumed, mut result) = (0, Ok(()));
        for (key, end) in batch {
            result = match self.is_held() {
                true => Err(Stop::Blocked),
                false => self.read_key(left.kind, key, id, cx),
            };
            if result.is_err() {
                break;
            }
            consumed = end;
        }
        *budget = budget.saturating_sub(1);
        self.mode = Mode::Keys(KeysLeft { text: left.text - consumed, ..left });
        if result.is_ok() && is_through {
            consumed = left.text + left.end;
            self.mode = Mode::Requests;
            if left.is_last {
                self.replies.append(|out| out.extend_from_slice(reply::END));
            }
        }
        self.input = input;
        self.input.consume(consumed);
        result
    }

    fn read_key(
        &mut self,
        kind: KeysKind,
        key: Key<'_>,
        id: Id,
        cx: &mut Context,
    ) -> Result<(), Stop> {
        self.begin(
            cx,
            id,
            (key, kind.touch.is_some()),
            |executor, out| keys::execute(kind, executor, key, None, out),
            || Work::Key { kind, key: key.bytes().into() },
        )
    }

    /// A value that is too long for one piece comes chunk by chunk, or not at all. `line` is the
    /// request without it.
    fn begin_upload(
        &mut self,
        request: &Request<'_>,
        key: Key<'_>,
        (line, block): (&[u8], DataBlock),
        id: Id,
        cx: &mut Context,
    ) -> Result<(), Stop> {
        if u64::from(block.value_bytes) > cx.limits.item_bytes_max {
            // Answers that it is too large, and removes what it was to replace.
            self.begin(
                cx,
                id,
                (key, true),
                |executor, out| {
                    keyed::execute(executor, request, key, NewValue::Inline(&[], &[]), None, out)
                },
                || Work::request(key, line, None),
            )?;
            self.mode = Mode::Swallow(block.bytes());
            return Ok(());
        }
        if !self.replies.is_settled() {
            return Err(Stop::Blocked);
        }
        let upload = Upload::begin(&cx.executor(), (key.bytes(), line), block);
        self.mode = Mode::Upload(Box::new(upload));
        Ok(())
    }

    fn swallow(&mut self, bytes: u64) -> Result<(), Stop> {
        let here = bytes.min(self.input.unread().len() as u64);
        self.input.consume(here as usize);
        if here < bytes {
            self.mode = Mode::Swallow(bytes - here);
            return Err(Stop::Starved);
        }
        self.mode = Mode::Requests;
        Ok(())
    }
}

/// Finds the keys of the requests and hashes them. If there are several, what their lookups will need is
/// asked of memory: first all lines of the table, then, when these have come, all records.
fn hash_keys<'b>(batch: &'b Batch<'_>, cx: &Context, keys: &mut ArrayVec<Option<Key<'b>>, BATCH>) {
    let is_pipeline = batch.len() > 1;
    for parcel in batch {
        let key = match &parcel.parse {
            Parse::Request { request, .. } => keyed::key_of(request),
            _ => None,
        };
        let key = key.map(|key| cx.session.key(key));
        if let Some(key) = key.filter(|_| is_pipeline) {
            cx.session.prefetch(key);
        }
        keys.push(key);
    }
    if is_pipeline {
        keys.iter().flatten().for_each(|key| cx.session.prefetch_record(*key));
    }
}

/// The first word of `text` from `at` on, and where it ends.
fn next_word(text: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let start = at + text[at..].iter().position(|&byte| byte != b' ')?;
    let rest = &text[start..];
    let bytes = memchr::memchr(b' ', rest).unwrap_or(rest.len());
    Some((&rest[..bytes], start + bytes))
}
