//! One client.

mod ahead;
mod memory;
mod operations;
mod streams;

use super::about::About;
use super::clients::{Client, State};
use super::conflicts::Conflicts;
use super::connection_memory::CONNECTION_BYTES;
use super::context::{Context, Held};
use super::input::{Input, Received};
use super::keys::KeysLeft;
use super::listener::Kind;
use super::login::Failures;
use super::poll::Ready;
use super::replies::Replies;
use super::slab::Id;
use super::socket::Socket;
use super::upload::Upload;
use super::watch::{Reason, Watcher};
use crate::auth::sasl::SaslLogin;
use crate::settings::Settings;
use crate::stats::latency::Command;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_protocol::Parser;

/// No further request is begun while so many are unfinished.
const UNFINISHED_MAX: usize = 1024;
/// No further request is begun while so many large items are being sent.
const STREAMS_MAX: usize = 32;
/// A list or what a watcher hears is not gone on with while so many bytes stand in the output.
const STREAM_BYTES_MAX: usize = 256 << 10;
/// Replies are sent before the requests behind them are executed once they are so many bytes.
const SEND_BYTES: usize = 16 << 10;
/// A turn that sends more than this, or a part of a large item, is a long one: see [`super::turns`].
const SHORT_TURN_BYTES: u64 = 64 << 10;
/// How long replies may wait for those behind them, which drives are about to bring.
pub(super) const HOLD: Duration = Duration::from_millis(1);
/// After so many turns in a row that left requests over, and at each multiple of it, a look at the clock
/// tells whether replies have waited for long enough: one for each turn would show.
const YIELDS_PER_LOOK: u32 = 4;
/// Receives per turn.
const RECEIVES_MAX: usize = 4;

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// There is nothing to do until something happens.
    Idle,
    /// There is more to do, when others have had their turn.
    More,
    /// The cache has no buffers: again in a millisecond.
    Wait,
    /// A wrong password is to be answered when the server may.
    Throttled,
    /// It is over.
    Close,
}

/// Why requests are not executed further for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// More input is needed.
    Starved,
    /// This turn's share is used up.
    Yield,
    /// An unfinished operation must finish, or the client must take replies.
    Blocked,
    /// The cache has no buffers.
    Wait,
    /// A wrong password may not be answered yet.
    Throttled,
}

/// What the next bytes of input are.
pub(crate) enum Mode {
    /// What `-Y` asks for before anything else.
    Login,
    /// Requests.
    Requests,
    /// The rest of a line of keys.
    Keys(KeysLeft),
    /// The value of a large item.
    Upload(Box<Upload>),
    /// So many bytes that nobody wants.
    Swallow(u64),
}

/// A connection and what it is in the middle of.
pub(crate) struct Connection {
    /// Its worker's name for it.
    pub(super) id: Id,
    socket: Socket,
    /// Events are told to it.
    pub(super) watcher: Option<Arc<Watcher>>,
    /// What others may know of it.
    client: Arc<Client>,
    pub(super) input: Input,
    pub(super) replies: Replies,
    pub(super) conflicts: Conflicts,
    pub(super) mode: Mode,
    pub(super) parser: Parser,
    pub(super) sasl: SaslLogin,
    pub(super) failures: Failures,
    /// What is being executed.
    pub(super) command: Command,
    /// What watchers are told of it.
    pub(super) about: About,
    /// Unread bytes that the request at the front takes in all, where known.
    pub(super) needed: usize,
    /// Several requests came at once the last time.
    has_pipeline: bool,
    /// The socket may have more.
    is_readable: bool,
    /// The client has sent its last byte, whether or not it was received.
    has_hung_up: bool,
    /// The last byte was received.
    has_ended: bool,
    /// No further request is executed.
    pub(super) is_closing: bool,
    /// What was promised to the client can't be kept.
    is_broken: bool,
    /// Its socket failed.
    has_failed: bool,
    /// The worker knows that it watches.
    is_listed: bool,
    /// The cache has no buffers.
    is_waiting: bool,
    /// Since when there is something to send that waits for what drives are about to bring.
    pub(super) held_since: Option<Instant>,
    /// That is to be sent now.
    pub(super) is_released: bool,
    /// Turns in a row that left requests over and sent nothing.
    yields: u32,
    /// When the clock was looked at in the first of them that did.
    yields_since: Option<Instant>,
    /// The listing at the front has nothing at the moment.
    awaits_listing: bool,
    /// Listed for a turn; kept by the worker.
    pub(super) is_ready: bool,
    /// Its turns are long ones; kept for the worker.
    pub(super) is_long: bool,
    /// Bytes of memory, as last told to [`Context::hold`].
    held: u64,
    /// Bytes of large items that are read ahead, as last told to `Context::stream_bytes`.
    streamed: usize,
}

impl Connection {
    /// Begins to talk with `client`.
    pub(crate) fn new(id: Id, socket: Socket, client: Arc<Client>, settings: &Settings) -> Self {
        Self {
            id,
            socket,
            input: Input::default(),
            replies: Replies::default(),
            conflicts: Conflicts::default(),
            mode: if settings.ascii_passwords.is_some() { Mode::Login } else { Mode::Requests },
            parser: Parser::new(settings.protocol_of(client.entry.protocol)),
            sasl: SaslLogin::new(settings.sasl_passwords.is_some()),
            failures: Failures::default(),
            command: Command::default(),
            about: About::default(),
            needed: 0,
            has_pipeline: false,
            is_readable: false,
            has_hung_up: false,
            has_ended: false,
            is_closing: false,
            is_broken: false,
            has_failed: false,
            is_listed: false,
            is_waiting: false,
            held_since: None,
            is_released: false,
            yields: 0,
            yields_since: None,
            awaits_listing: false,
            is_ready: false,
            is_long: false,
            held: 0,
            streamed: 0,
            watcher: None,
            client,
        }
    }

    pub(crate) fn socket(&self) -> impl AsFd + '_ {
        self.socket.fd()
    }

    /// Whether it is one of the connections that are counted and watched.
    pub(crate) fn is_datagram(&self) -> bool {
        matches!(self.socket, Socket::Datagram(_))
    }

    /// What the log calls it.
    pub(crate) fn number(&self) -> i32 {
        self.socket.number()
    }

    /// Takes note of an event.
    pub(crate) fn note(&mut self, ready: Ready) {
        self.is_readable |= ready.readable;
        self.has_hung_up |= ready.hung_up;
    }

    /// Executes what was received, within limits, and sends what there is to send.
    #[inline(never)]
    pub(crate) fn turn(&mut self, cx: &mut Context) -> Turn {
        if cx.is_tight() && self.must_wait_for_client() {
            self.do_with_little(cx);
            return Turn::Idle;
        }
        if !self.replies.has_memory() {
            self.replies.give_memory(cx.buffers.take());
        }
        // An error of the socket ends it: nobody is left to be told.
        let turn = if self.has_failed { None } else { self.advance(cx).ok() };
        self.has_failed = turn.is_none();
        let turn = turn.unwrap_or(Turn::Close);
        if self.watcher.is_some() && !self.is_listed {
            self.is_listed = true;
            cx.watching.push(self.id);
        }
        self.client.note(self.state(), self.replies.waiting(), cx.now);
        if self.input.is_empty() && self.input.capacity() > 0 {
            cx.buffers.put(self.input.take_memory());
        }
        if let Some(memory) = self.replies.take_memory(&mut cx.runs) {
            cx.buffers.put(memory);
        }
        match cx.is_tight() {
            false => self.account(cx),
            true => self.do_with_little(cx),
        }
        turn
    }

    fn state(&self) -> State {
        match self.mode {
            _ if self.watcher.is_some() => State::Watch,
            Mode::Upload(_) => State::Value,
            Mode::Swallow(_) => State::Swallow,
            // The rest of a short value, which is read with its request.
            _ if self.needed > 0 => State::Value,
            _ if self.replies.sendable() > 0 || !self.replies.is_settled() => State::Write,
            _ => State::Read,
        }
    }

    /// Tells what memory the connection keeps between turns.
    #[inline(always)]
    pub(super) fn account(&mut self, cx: &mut Context) {
        let buffers = self.input.capacity() + self.replies.memory() + self.streamed;
        let held = (buffers + self.socket.memory() + CONNECTION_BYTES) as u64;
        if held != self.held {
            self.account_for(held, cx);
        }
    }

    #[inline(never)]
    fn account_for(&mut self, held: u64, cx: &mut Context) {
        cx.hold(std::mem::replace(&mut self.held, held), held);
    }

    fn advance(&mut self, cx: &mut Context) -> io::Result<Turn> {
        let stop = self.execute_received(cx)?;
        let was_full = stop == Stop::Blocked && self.is_full(cx);
        self.awaits_listing = false;
        let mut has_more_to_stream = false;
        if self.replies.has_listing() {
            has_more_to_stream = self.send_listing(cx);
            if self.is_broken {
                return Ok(Turn::Close);
            }
        }
        let has_streams = self.replies.streams() > 0;
        if has_streams {
            if !std::mem::replace(&mut self.is_long, true) {
                return Ok(Turn::More);
            }
            self.read_ahead(cx);
        }
        if stop == Stop::Yield && self.gathers_replies() {
            cx.stats.counters.conn_yields.add(1);
            return Ok(Turn::More);
        }
        self.yields = 0;
        let may_hold = !self.replies.is_settled() || self.held_since.is_some();
        if may_hold && matches!(stop, Stop::Starved | Stop::Blocked) && self.holds_replies(cx) {
            return Ok(Turn::Idle);
        }
        // An answer must not reach the client before what it acknowledges is safe.
        if self.replies.sendable() > 0 || has_streams {
            cx.session.make_durable()?;
        }
        let is_told = self.tell_watcher();
        let mut sent = 0;
        let is_sent = self.replies.send(&mut self.socket, &mut sent)?;
        cx.stats.counters.bytes_written.add(sent);
        self.is_long = has_streams || sent > SHORT_TURN_BYTES;
        let mut has_finished = false;
        if has_streams {
            self.is_broken = self.replies.is_broken();
            if self.is_broken {
                return Ok(Turn::Close);
            }
            has_finished = self.go_on_with_streams(is_sent, cx);
            has_more_to_stream |= self.replies.has_ready_stream();
        }
        if is_sent && self.is_over(stop) {
            return Ok(Turn::Close);
        }
        if !is_told && is_sent && self.replies.is_settled() {
            // Nothing else would bring it back here.
            return Ok(Turn::More);
        }
        if self.awaits_listing && is_sent {
            // Who makes it has no way to wake this one; it is asked again in a moment.
            self.is_waiting = true;
            return Ok(Turn::Wait);
        }
        self.is_waiting |= matches!(stop, Stop::Wait | Stop::Throttled);
        Ok(match stop {
            Stop::Wait => Turn::Wait,
            Stop::Throttled => Turn::Throttled,
            Stop::Yield => Turn::More,
            Stop::Blocked if has_finished || was_full && !self.is_full(cx) => Turn::More,
            _ if has_more_to_stream && is_sent => Turn::More,
            Stop::Blocked | Stop::Starved => Turn::Idle,
        })
    }

    /// Whether the replies so far go out together with those of requests that are here already. Somebody who
    /// never stops sending must get them too.
    fn gathers_replies(&mut self) -> bool {
        if self.replies.sendable() >= SEND_BYTES {
            return false;
        }
        self.yields += 1;
        if !self.yields.is_multiple_of(YIELDS_PER_LOOK) {
            return true;
        }
        if self.yields == YIELDS_PER_LOOK {
            self.yields_since = Some(Instant::now());
        }
        self.yields_since.is_some_and(|since| since.elapsed() < HOLD)
    }

    /// Whether what could be sent waits a moment for the replies behind it, as it does in memcached: to send
    /// each of them alone takes the kernel longer than all of them take us. What was found in DRAM waits only
    /// while the worker has something else to do.
    fn holds_replies(&mut self, cx: &mut Context) -> bool {
        let may_hold = !std::mem::take(&mut self.is_released)
            && (1..SEND_BYTES).contains(&self.replies.sendable())
            && !self.replies.is_settled()
            && self.replies.streams() == 0
            && !self.replies.has_listing();
        match self.held_since {
            Some(since) if may_hold && since.elapsed() < HOLD => true,
            None if may_hold => {
                let now = Instant::now();
                self.held_since = Some(now);
                cx.held.push_back(Held {
                    id: self.id,
                    since: now,
                    has_prompt: self.replies.has_prompt(),
                });
                true
            }
            _ => {
                self.held_since = None;
                false
            }
        }
    }

    /// Sends what it holds back for reads of drives, in its next turn. Says whether there is anything.
    pub(super) fn release(&mut self) -> bool {
        self.is_released = self.held_since.is_some();
        self.is_released
    }

    /// Executes what was received, and receives more.
    fn execute_received(&mut self, cx: &mut Context) -> io::Result<Stop> {
        let most = cx.shared.settings.requests_per_event;
        let (mut budget, mut receives) = (most, 0);
        let stop = loop {
            // Between requests, which is where most turns begin.
            let has_nothing =
                self.is_readable && self.needed == 0 && self.input.is_empty() && !self.is_held(cx);
            let stop = match has_nothing {
                true => Stop::Starved,
                false => self.process(cx, &mut budget),
            };
            match stop {
                Stop::Starved if self.needed > 0 && self.lacks_memory(cx) => {
                    match self.refuse_value(cx) {
                        Ok(()) => {}
                        Err(stop) => break stop,
                    }
                }
                Stop::Starved if self.is_readable && receives < RECEIVES_MAX => {
                    self.receive(cx)?;
                    receives += 1;
                }
                Stop::Starved if self.is_readable => break Stop::Yield,
                stop => break stop,
            }
        };
        self.has_pipeline = most - budget > 1;
        Ok(stop)
    }

    fn receive(&mut self, cx: &mut Context) -> io::Result<()> {
        if self.input.capacity() == 0 {
            self.input.give_memory(cx.buffers.take());
        }
        let before = self.input.unread().len();
        let received = self.input.receive(&mut self.socket, self.needed)?;
        cx.stats.counters.bytes_read.add((self.input.unread().len() - before) as u64);
        match received {
            Received::More => {}
            // Behind the last bytes stands the end, of which there is no further event.
            Received::Drained => self.is_readable = self.has_hung_up,
            Received::End => {
                self.is_readable = false;
                self.has_ended = true;
            }
        }
        Ok(())
    }

    /// Everything that will ever be answered was answered.
    fn is_over(&self, stop: Stop) -> bool {
        let no_more = self.is_closing || self.has_ended && stop == Stop::Starved;
        no_more && self.replies.is_settled()
    }

    /// Whether no further request may be begun until others are finished or sent.
    pub(super) fn is_full(&self, cx: &Context) -> bool {
        self.replies.owed() > cx.owed_max
            || self.replies.unfinished() >= UNFINISHED_MAX
            || self.replies.streams() >= STREAMS_MAX
            || self.replies.has_listing()
    }

    pub(super) fn is_held(&self, cx: &Context) -> bool {
        self.is_closing || self.is_waiting || self.is_full(cx)
    }

    /// A millisecond has passed: the cache may have buffers again.
    pub(crate) fn stop_waiting(&mut self) {
        self.is_waiting = false;
    }

    /// Whether it was silent, and owed nothing, since before `then`. As in memcached, those that watch
    /// wait for us and may be silent for ever, and so may the programs behind Unix sockets, and whoever
    /// takes a while to send a value.
    pub(crate) fn is_idle_since(&self, then: u32) -> bool {
        let may_be_silent = self.watcher.is_some()
            || self.client.entry.kind == Kind::Unix
            || self.is_within_value();
        !may_be_silent && self.client.last_active() < then && self.is_owed_nothing()
    }

    fn is_owed_nothing(&self) -> bool {
        self.replies.is_settled() && self.replies.is_all_sent() && self.socket.is_flushed()
    }

    /// The next bytes belong to a request of which the line is here.
    fn is_within_value(&self) -> bool {
        match self.mode {
            Mode::Requests => self.needed > 0,
            Mode::Upload(_) | Mode::Swallow(_) => true,
            Mode::Login | Mode::Keys(_) => false,
        }
    }

    /// Cleans up; the socket closes itself.
    pub(crate) fn close(mut self, cx: &mut Context, is_idle: bool) {
        if !self.is_datagram() {
            cx.shared.clients.remove(self.number());
            let reason = match is_idle {
                true => Reason::Idle,
                false if self.has_failed => Reason::Error,
                false => Reason::Normal,
            };
            cx.shared.watchers.tell_closed(self.number(), &self.client, reason);
        }
        // What is cut off should look so.
        if !self.is_broken {
            self.socket.close();
        }
        cx.hold(self.held, 0);
        cx.let_in.take_if(|let_in| *let_in == self.id);
        self.note_streamed(0, cx);
        if let Mode::Upload(upload) = &self.mode {
            upload.discard(&cx.executor());
        }
    }
}
