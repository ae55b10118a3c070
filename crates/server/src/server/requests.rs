//! From a connection's input to executed commands.

use super::about::About;
use super::connection::{Connection, Mode, Stop};
use super::context::Context;
use super::keys::BATCH;
use super::pending::Work;
use super::upload::Upload;
use crate::commands::admin::{self, After};
use crate::commands::executor::Executor;
use crate::commands::keyed;
use crate::stats::latency::Command;
use arrayvec::ArrayVec;
use terrace_cache::{Intent, Key, NewValue};
use terrace_protocol::{DataBlock, Parse, Parser, Reject, Request, reply};

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

impl Parcel<'_> {
    /// The key that the request is about.
    fn key(&self) -> Option<&[u8]> {
        match &self.parse {
            Parse::Request { request, .. } => keyed::key_of(request),
            _ => None,
        }
    }

    /// What it will do with that key's record.
    fn intent(&self) -> Intent {
        match &self.parse {
            Parse::Request { request, .. } if keyed::is_write(request) => Intent::Change,
            _ => Intent::Read,
        }
    }
}

type Batch<'i> = ArrayVec<Parcel<'i>, BATCH>;

impl Connection {
    /// Executes what was received, until something is missing.
    pub(super) fn process(&mut self, cx: &mut Context, budget: &mut u32) -> Stop {
        loop {
            if self.is_held(cx) {
                return Stop::Blocked;
            }
            if *budget == 0 {
                return Stop::Yield;
            }
            let step = match self.mode {
                Mode::Login => self.process_login(cx, budget),
                Mode::Requests => self.process_batch(cx, budget),
                Mode::Keys(left) => self.process_keys(left, cx, budget),
                Mode::Upload(_) => self.process_upload(cx),
                Mode::Swallow(bytes) => self.swallow(bytes),
            };
            if let Err(stop) = step {
                return stop;
            }
        }
    }

    /// Parses a few requests, asks for what their lookups begin with, and executes them.
    fn process_batch(&mut self, cx: &mut Context, budget: &mut u32) -> Result<(), Stop> {
        if self.input.is_empty() {
            self.needed = 0;
            return Err(Stop::Starved);
        }
        // Taken out while its bytes are looked at, since executing changes the connection.
        let input = std::mem::take(&mut self.input);
        let (mut consumed, mut result) = self.process_gets(input.unread(), cx, budget);
        if consumed == 0 && result.is_ok() {
            (consumed, result) = self.process_parcels(input.unread(), cx, budget);
        }
        self.input = input;
        self.input.consume(consumed);
        match result {
            // Nothing else would come of another look.
            Ok(()) if self.input.is_empty() && self.awaits_request() => {
                self.needed = 0;
                Err(Stop::Starved)
            }
            result => result,
        }
    }

    /// Whether the next bytes of input begin a request that will be executed.
    fn awaits_request(&self) -> bool {
        matches!(self.mode, Mode::Requests) && !self.is_closing
    }

    /// Answers how many bytes of the input were taken.
    #[inline(never)]
    fn process_parcels(
        &mut self,
        input: &[u8],
        cx: &mut Context,
        budget: &mut u32,
    ) -> (usize, Result<(), Stop>) {
        self.needed = 0;
        let Some((first, is_last)) = self.parse_one(input, self.parser, cx) else {
            return (0, Err(Stop::Starved));
        };
        if is_last || *budget == 1 || first.bytes.len() == input.len() {
            // There is nothing to be asked of memory meanwhile, nor anything to be kept for later.
            let key = first.key().map(|key| cx.session.key(key));
            return match self.process_one(&first, key, cx) {
                Ok(bytes) => {
                    *budget -= 1;
                    (bytes, Ok(()))
                }
                Err(stop) => (0, Err(stop)),
            };
        }
        // Not moved anywhere: that would copy kilobytes, however few they hold.
        let mut batch = ArrayVec::new();
        batch.push(first);
        self.parse(input, cx, BATCH.min(*budget as usize), &mut batch);
        let mut keys = ArrayVec::new();
        hash_keys(&batch, cx, &mut keys);
        let mut consumed = 0;
        for (parcel, key) in batch.iter().zip(&keys) {
            if self.is_held(cx) {
                return (consumed, Err(Stop::Blocked));
            }
            match self.process_one(parcel, *key, cx) {
                Ok(bytes) => consumed += bytes,
                Err(stop) => return (consumed, Err(stop)),
            }
            *budget -= 1;
            if !matches!(self.mode, Mode::Requests) {
                break;
            }
        }
        (consumed, Ok(()))
    }

    /// Parses the requests behind the first that were received in whole.
    fn parse<'i>(&mut self, input: &'i [u8], cx: &Context, limit: usize, batch: &mut Batch<'i>) {
        let mut at = batch.iter().map(|parcel| parcel.bytes.len()).sum();
        while batch.len() < limit
            && let Some(parser) = batch.last().map(|parcel| parcel.parser)
            && let Some((parcel, is_last)) = self.parse_one(&input[at..], parser, cx)
        {
            at += parcel.bytes.len();
            batch.push(parcel);
            if is_last {
                break;
            }
        }
    }

    /// Parses the request at the front of `input`, if it was received in whole, and says whether what
    /// follows has to wait for it. Notes how much it needs if it was not.
    #[inline(always)]
    fn parse_one<'i>(
        &mut self,
        input: &'i [u8],
        mut parser: Parser,
        cx: &Context,
    ) -> Option<(Parcel<'i>, bool)> {
        if input.is_empty() {
            return None;
        }
        let parse = parser.parse(input);
        let (consumed, value, is_last) = match &parse {
            Parse::NeedMore => return None,
            Parse::Reject(reject) => (reject.consumed, None, false),
            // The keys of a line take turns of their own, after which the rest would be parsed anew.
            Parse::Request { request: Request::Keys(keys), consumed } => {
                (*consumed, None, !keys.is_single)
            }
            // Whether what follows may be executed depends on it.
            Parse::Request { request, consumed } if self.is_login(request) => {
                (*consumed, None, true)
            }
            Parse::Request { request, consumed } => (*consumed, request.data_block(), false),
        };
        let is_inline = |bytes| bytes as usize <= cx.limits.inline_bytes_max;
        let block = value.filter(|block| is_inline(block.value_bytes));
        let bytes = consumed + block.map_or(0, |block| block.bytes() as usize);
        let Some(bytes) = input.get(..bytes) else {
            self.needed = bytes;
            return None;
        };
        let is_last = is_last || block.is_none() && value.is_some();
        Some((Parcel { parse, bytes, data: consumed, parser }, is_last))
    }

    /// Executes one request; answers how many bytes of the input it took.
    #[inline(never)]
    fn process_one(
        &mut self,
        parcel: &Parcel<'_>,
        key: Option<Key<'_>>,
        cx: &mut Context,
    ) -> Result<usize, Stop> {
        let before = std::mem::replace(&mut self.parser, parcel.parser);
        if let Parse::Request { request, .. } = &parcel.parse {
            self.command = Command::of(request);
        }
        let taken = match cx.shared.looks_at_commands() {
            false => self.execute_one(parcel, key, cx),
            true => self.execute_watched(parcel, key, cx),
        };
        if taken.is_err() {
            // It is parsed again.
            self.parser = before;
        }
        taken
    }

    /// Executes a request of which others are told.
    #[inline(never)]
    fn execute_watched(
        &mut self,
        parcel: &Parcel<'_>,
        key: Option<Key<'_>>,
        cx: &mut Context,
    ) -> Result<usize, Stop> {
        if let Parse::Request { request, .. } = &parcel.parse {
            self.about = About::of(request, cx.now);
        }
        // Who begins to watch by it need not hear of it.
        let is_watched = cx.shared.watchers.are_there();
        let taken = self.execute_one(parcel, key, cx)?;
        if is_watched {
            self.tell_line(parcel, cx);
        }
        Ok(taken)
    }

    fn execute_one(
        &mut self,
        parcel: &Parcel<'_>,
        key: Option<Key<'_>>,
        cx: &mut Context,
    ) -> Result<usize, Stop> {
        match &parcel.parse {
            // Not put into a batch.
            Parse::NeedMore => return Err(Stop::Starved),
            Parse::Reject(reject) => self.refuse(reject),
            Parse::Request { request: Request::Keys(keys), .. } => {
                return self.begin_keys(keys, key, parcel.bytes, cx);
            }
            Parse::Request { request: Request::MetaNoop, .. } => {
                self.replies.append(|out| out.extend_from_slice(reply::META_NOOP));
            }
            Parse::Request { request: Request::Admin(admin), .. } => {
                self.process_admin(cx, |executor, out| admin::execute(executor, admin, out))?;
            }
            Parse::Request { request: Request::Binary(request), .. }
                if request.key().is_none() || !self.sasl.admits(request) =>
            {
                self.process_unkeyed_binary(request, cx)?;
            }
            Parse::Request { request, .. } => {
                let Some(key) = key else { return Ok(parcel.bytes.len()) };
                self.process_keyed(request, key, parcel, cx)?;
            }
        }
        Ok(parcel.bytes.len())
    }

    /// Tells watchers the line of a request as it came; the binary protocol has none.
    #[inline(never)]
    fn tell_line(&self, parcel: &Parcel<'_>, cx: &Context) {
        if matches!(parcel.parse, Parse::Request { request: Request::Binary(_), .. }) {
            return;
        }
        let line = parcel.bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        cx.shared.watchers.tell_request(self.number(), line);
    }

    #[inline(never)]
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
        cx: &mut Context,
    ) -> Result<(), Stop> {
        let mut value = &parcel.bytes[parcel.data..];
        if let Some(block) = request.data_block() {
            if block.value_bytes as usize > cx.limits.inline_bytes_max {
                return self.begin_upload(request, key, block, cx);
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
            (key, keyed::is_write(request)),
            |on, out| {
                let value = NewValue::Inline(value, &[]);
                keyed::execute(on, request, value, out)
            },
            || Work::request(request, value),
        )
    }

    /// Executes what is no matter of one key, once everything before it is finished.
    #[inline(never)]
    pub(super) fn process_admin(
        &mut self,
        cx: &Context,
        execute: impl FnOnce(&Executor<'_>, &mut Vec<u8>) -> After,
    ) -> Result<(), Stop> {
        if !self.replies.is_settled() {
            return Err(Stop::Blocked);
        }
        match self.replies.append(|out| execute(&cx.executor(), out)) {
            After::GoOn => {}
            After::Close => self.is_closing = true,
            After::List(listing) => self.replies.reserve_listing(listing),
            After::Watch(watcher) => self.watcher = Some(watcher),
        }
        Ok(())
    }

    /// A value that is too long for one piece comes chunk by chunk, or not at all.
    #[inline(never)]
    fn begin_upload(
        &mut self,
        request: &Request<'_>,
        key: Key<'_>,
        block: DataBlock,
        cx: &mut Context,
    ) -> Result<(), Stop> {
        if u64::from(block.value_bytes) > cx.limits.item_bytes_max {
            // Answers that it is too large, and removes what it was to replace.
            self.begin(
                cx,
                (key, true),
                |on, out| keyed::execute(on, request, NewValue::Inline(&[], &[]), out),
                || Work::request(request, &[]),
            )?;
            self.mode = Mode::Swallow(block.bytes());
            return Ok(());
        }
        if !self.replies.is_settled() {
            return Err(Stop::Blocked);
        }
        let upload = Upload::begin(&cx.executor(), (key, request), block);
        self.mode = Mode::Upload(Box::new(upload));
        Ok(())
    }

    #[inline(never)]
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

/// Finds the keys of a pipeline and hashes them, and asks for what the requests will need of memory.
fn hash_keys<'b>(batch: &'b Batch<'_>, cx: &Context, keys: &mut ArrayVec<Option<Key<'b>>, BATCH>) {
    keys.extend(batch.iter().map(|parcel| parcel.key().map(|key| cx.session.key(key))));
    let known = batch.iter().zip(&*keys);
    cx.session.look_ahead(known.filter_map(|(parcel, key)| Some(((*key)?, parcel.intent()))));
}
