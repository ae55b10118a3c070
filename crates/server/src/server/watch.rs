//! Telling watchers (`watch`) what happens. Nobody pays for it while nobody watches but a load of one
//! word per command.

use super::about::{About, Kind};
use super::clients::Client;
use super::clock::Clock;
use super::poll::Waker;
use crate::key_text::{put_line, put_uri};
use std::io::Write;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};
use terrace_cache::{Listed, Observer, Reclaim};

/// Watchers at once.
const WATCHERS_MAX: usize = 20;
/// Bytes that wait for one watcher; what comes when they are used up is not told to it.
const WAITING_BYTES_MAX: usize = 256 << 10;

/// A kind of events; a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Stream {
    Fetchers = 1,
    Mutations = 2,
    Deletions = 4,
    Connections = 8,
    /// Lines as they were received.
    Requests = 16,
    /// Records that lost their place to others.
    Evictions = 32,
    /// What background work does.
    System = 64,
    /// Accepted, as memcached's scripts ask for it: there is no proxy here.
    Silent = 128,
}

impl Stream {
    /// What `watch` calls it.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"fetchers" => Self::Fetchers,
            b"mutations" => Self::Mutations,
            b"deletions" => Self::Deletions,
            b"connevents" => Self::Connections,
            b"rawcmds" => Self::Requests,
            b"evictions" => Self::Evictions,
            b"sysevents" => Self::System,
            b"proxyreqs" | b"proxyevents" | b"proxyuser" => Self::Silent,
            _ => return None,
        })
    }
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// One of both sides closed it.
    Normal,
    /// It broke.
    Error,
    /// It was silent for too long.
    Idle,
}

impl Reason {
    fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Error => "error",
            Self::Idle => "idle_timeout",
        }
    }
}

/// One watcher: what is to be told to it.
#[derive(Debug)]
pub(crate) struct Watcher {
    streams: u32,
    waiting: Mutex<Waiting>,
    /// Wakes the worker that sends it.
    waker: Arc<Waker>,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<u8>,
    /// Lines that found no room since the last that did.
    skipped: u64,
}

/// All watchers of a server.
#[derive(Debug)]
pub(crate) struct Watchers {
    /// What expiry goes by; it may differ from the wall's.
    clock: Clock,
    /// The streams that any of them wants.
    wanted: AtomicU32,
    all: Mutex<Vec<Weak<Watcher>>>,
    /// Events so far, which number them too.
    pub(crate) written: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) skipped: AtomicU64,
}

impl Watcher {
    /// Moves what is to be told to `out`.
    pub(crate) fn take(&self, out: &mut Vec<u8>) {
        out.append(&mut self.waiting().lines);
    }

    /// Keeps a line for it, if there is room. Its worker is woken by the first line only: it takes all
    /// there are, and takes the rest when the client has taken what it was sent.
    fn tell(&self, line: &[u8]) -> bool {
        let mut waiting = self.waiting();
        if waiting.lines.len() + line.len() > WAITING_BYTES_MAX {
            waiting.skipped += 1;
            return false;
        }
        let is_first = waiting.lines.is_empty();
        if waiting.skipped > 0 {
            let skipped = std::mem::take(&mut waiting.skipped);
            // Writing to a `Vec` never fails.
            let _ = writeln!(waiting.lines, "skipped={skipped}");
        }
        waiting.lines.extend_from_slice(line);
        drop(waiting);
        if is_first {
            self.waker.wake();
        }
        true
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watchers {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            wanted: AtomicU32::new(0),
            all: Mutex::default(),
            written: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
        }
    }

    /// Begins to watch `streams`, a bit each; `None` if there are too many watchers. It ends when the
    /// watcher is dropped.
    pub(crate) fn add(&self, streams: u32, waker: Arc<Waker>) -> Option<Arc<Watcher>> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        self.forget_the_gone(&mut all);
        if all.len() >= WATCHERS_MAX {
            return None;
        }
        let watcher = Arc::new(Watcher { streams, waiting: Mutex::default(), waker });
        all.push(Arc::downgrade(&watcher));
        self.wanted.fetch_or(streams, Ordering::Relaxed);
        Some(watcher)
    }

    /// How many watch.
    pub(crate) fn count(&self) -> usize {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        self.forget_the_gone(&mut all);
        all.len()
    }

    fn forget_the_gone(&self, all: &mut Vec<Weak<Watcher>>) {
        all.retain(|watcher| watcher.strong_count() > 0);
        let wanted = all.iter().filter_map(Weak::upgrade).fold(0, |w, watcher| w | watcher.streams);
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    /// Whether anybody wants any event.
    pub(crate) fn are_there(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) != 0
    }

    fn wants(&self, stream: Stream) -> bool {
        self.wanted.load(Ordering::Relaxed) & stream as u32 != 0
    }

    /// Seconds that a record has left which is gone at that time; -1 for ever.
    fn ttl(&self, expires: u32) -> i64 {
        if expires == 0 { -1 } else { i64::from(expires) - i64::from(self.clock.now()) }
    }

    /// Tells those who want it; `event` writes the line from `type=` on.
    fn tell(&self, stream: Stream, event: impl FnOnce(&mut Vec<u8>)) {
        if !self.wants(stream) {
            return;
        }
        let number = 1 + self.written.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut line = Vec::new();
        let (seconds, micros) = (now.as_secs(), now.subsec_micros());
        let _ = write!(line, "ts={seconds}.{micros:06} gid={number} ");
        event(&mut line);
        line.push(b'\n');
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        self.forget_the_gone(&mut all);
        let wants = |watcher: &Arc<Watcher>| watcher.streams & stream as u32 != 0;
        for watcher in all.iter().filter_map(Weak::upgrade).filter(wants) {
            let counter = if watcher.tell(&line) { &self.sent } else { &self.skipped };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A connection came.
    pub(crate) fn tell_opened(&self, number: i32, client: &Client) {
        self.tell(Stream::Connections, |line| {
            let _ = write!(line, "type=conn_new {} cfd={number}", origin(client));
        });
    }

    /// A connection went.
    pub(crate) fn tell_closed(&self, number: i32, client: &Client, reason: Reason) {
        self.tell(Stream::Connections, |line| {
            let (origin, reason) = (origin(client), reason.name());
            let _ = write!(line, "type=conn_close {origin} reason={reason} cfd={number}");
        });
    }

    /// A line of a request was received.
    pub(crate) fn tell_request(&self, number: i32, line: &[u8]) {
        self.tell(Stream::Requests, |out| {
            let _ = write!(out, "<{number} ");
            put_line(out, line);
        });
    }

    /// A command on `key` was answered with `reply`.
    pub(crate) fn tell_command(&self, number: i32, about: About, key: &[u8], reply: &[u8]) {
        let event = |line: &mut Vec<u8>, kind: &str, more: std::fmt::Arguments<'_>| {
            let _ = write!(line, "type={kind} key=");
            put_uri(line, key);
            let _ = write!(line, " {more} clsid=1 cfd={number}");
        };
        let outcome = outcome(reply, about.is_silent_when_done);
        match about.kind {
            Kind::Fetch => self.tell(Stream::Fetchers, |line| {
                let status = if is_miss(reply) { "not_found" } else { "found" };
                event(line, "item_get", format_args!("status={status}"));
                let _ = write!(line, " size={}", value_bytes(reply));
            }),
            Kind::Delete if outcome == "stored" => self.tell(Stream::Deletions, |line| {
                event(line, "deleted", format_args!("cmd={}", about.name));
            }),
            Kind::Delete => {}
            Kind::Store => self.tell(Stream::Mutations, |line| {
                let About { name, ttl, value_bytes, .. } = about;
                let more = format_args!("status={outcome} cmd={name} ttl={ttl}");
                event(line, "item_store", more);
                let _ = write!(line, " size={value_bytes}");
            }),
        }
    }
}

impl Observer for Watchers {
    fn wants_evictions(&self) -> bool {
        self.wants(Stream::Evictions)
    }

    fn evicted(&self, listed: Listed<'_>) {
        let Listed { record, accessed, fetched, .. } = listed;
        self.tell(Stream::Evictions, |line| {
            let fetched = if fetched { "yes" } else { "no" };
            let (ttl, since) =
                (self.ttl(record.expires), self.clock.now().saturating_sub(accessed));
            let size = record.value_bytes();
            line.extend_from_slice(b"type=eviction key=");
            put_uri(line, record.key);
            let _ = write!(line, " fetch={fetched} ttl={ttl} la={since} clsid=1 size={size}");
        });
    }

    fn reclaims(&self, place: u64, step: Reclaim) {
        self.tell(Stream::System, |line| {
            let _ = match step {
                Reclaim::Begun { sequence } => {
                    write!(line, "type=compact_start id={place} version={sequence}")
                }
                Reclaim::Done => write!(line, "type=compact_end id={place}"),
                Reclaim::PutOff => write!(line, "type=compact_abort id={place}"),
            };
        });
    }
}

/// Where a client is, as memcached's events say it.
fn origin(client: &Client) -> String {
    let (transport, address) = client.address.split_once(':').unwrap_or(("", ""));
    match address.rsplit_once(':') {
        Some((ip, port)) if transport != "unix" => {
            format!("rip={} rport={port} transport={transport}", ip.trim_matches(['[', ']']))
        }
        _ => "rip=unix rport=0 transport=local".to_string(),
    }
}

/// Whether the reply of something that was looked up says that it is not there.
pub(super) fn is_miss(reply: &[u8]) -> bool {
    match reply {
        // A response of the binary protocol, with its status.
        [0x81, _, _, _, _, _, high, low, ..] => (*high, *low) != (0, 0),
        reply => reply.is_empty() || reply.starts_with(b"EN"),
    }
}

/// The length of the value that a reply announces; 0 if it announces none.
fn value_bytes(reply: &[u8]) -> u64 {
    if let &[0x81, _, k0, k1, extras, _, _, _, b0, b1, b2, b3, ..] = reply {
        let body = u32::from_be_bytes([b0, b1, b2, b3]);
        return body
            .saturating_sub(u16::from_be_bytes([k0, k1]).into())
            .saturating_sub(extras.into())
            .into();
    }
    let line = reply.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let word = match words.next() {
        Some(b"VALUE") => words.nth(2),
        Some(b"VA") => words.next(),
        _ => None,
    };
    let text = word.and_then(|word| std::str::from_utf8(word).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// What became of a change, in memcached's words; `quiet` where the client wanted no answer.
fn outcome(reply: &[u8], is_silent_when_done: bool) -> &'static str {
    match reply {
        [] if is_silent_when_done => "stored",
        [] => "quiet",
        // A response of the binary protocol, with its status.
        [0x81, _, _, _, _, _, 0, status, ..] => match status {
            0 => "stored",
            1 => "not_found",
            2 => "exists",
            3 => "too_large",
            0x82 => "no_memory",
            _ => "not_stored",
        },
        reply if reply.starts_with(b"NOT_FOUND") || reply.starts_with(b"NF") => "not_found",
        reply if reply.starts_with(b"EX") => "exists",
        reply if reply.starts_with(b"NOT_STORED") || reply.starts_with(b"NS") => "not_stored",
        reply if reply.starts_with(b"SERVER_ERROR object too large") => "too_large",
        reply if reply.starts_with(b"SERVER_ERROR") => "no_memory",
        reply if reply.starts_with(b"CLIENT_ERROR") => "not_stored",
        _ => "stored",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: About =
        About { kind: Kind::Fetch, name: "", ttl: 0, value_bytes: 0, is_silent_when_done: false };
    const SET: About = About { kind: Kind::Store, name: "set", ttl: 9, value_bytes: 3, ..GET };

    fn waker() -> Arc<Waker> {
        Arc::new(Waker::new().unwrap())
    }

    fn heard(watcher: &Watcher) -> String {
        let mut heard = Vec::new();
        watcher.take(&mut heard);
        String::from_utf8(heard).unwrap()
    }

    #[test]
    fn watchers_hear_what_they_asked_for_and_no_more() {
        let watchers = Watchers::new(Clock::new(0));
        watchers.tell_command(5, GET, b"early", b"");
        let gets = watchers.add(Stream::Fetchers as u32, waker()).unwrap();
        let sets = watchers.add(Stream::Mutations as u32, waker()).unwrap();
        watchers.tell_command(5, GET, b"a b", b"VALUE a 0 17\r\n");
        watchers.tell_command(5, SET, b"k", b"STORED\r\n");
        let got = heard(&gets);
        assert!(got.starts_with("ts="), "{got}");
        let end = " gid=1 type=item_get key=a%20b status=found clsid=1 cfd=5 size=17\n";
        assert!(got.ends_with(end), "{got}");
        let end = " gid=2 type=item_store key=k status=stored cmd=set ttl=9 clsid=1 cfd=5 size=3\n";
        assert!(heard(&sets).ends_with(end));
        drop(sets);
        // Who doesn't listen costs no more than its share, and hears how much it missed.
        for _ in 0..10_000 {
            watchers.tell_command(5, GET, b"key", b"");
        }
        assert!(gets.waiting().lines.len() <= WAITING_BYTES_MAX);
        let skipped = watchers.skipped.load(Ordering::Relaxed);
        assert!(skipped > 0 && !heard(&gets).contains("skipped="));
        watchers.tell_command(5, GET, b"key", b"");
        assert!(heard(&gets).starts_with(&format!("skipped={skipped}\nts=")));
        drop(gets);
        assert_eq!((watchers.count(), watchers.are_there()), (0, false));
        let many: Vec<_> = (0..WATCHERS_MAX).map(|_| watchers.add(1, waker())).collect();
        assert!(many.iter().all(Option::is_some) && watchers.add(1, waker()).is_none());
    }

    #[test]
    fn what_a_record_has_left_is_told_by_the_clock_that_it_expires_by() {
        // As after a restart for which the wall clock was set back.
        let clock = Clock::new(Clock::new(0).now() + 500);
        let watchers = Watchers::new(clock);
        let left = watchers.ttl(clock.now() + 1000);
        assert!((999..=1000).contains(&left), "{left}");
        assert_eq!(watchers.ttl(0), -1);
    }

    #[test]
    fn outcomes_are_memcacheds() {
        for (reply, says) in [
            (&b"STORED\r\n"[..], "stored"),
            (b"HD\r\n", "stored"),
            (b"17\r\n", "stored"),
            (b"NOT_STORED\r\n", "not_stored"),
            (b"EXISTS\r\n", "exists"),
            (b"NF\r\n", "not_found"),
            (b"SERVER_ERROR object too large for cache\r\n", "too_large"),
            (b"", "quiet"),
            (&[0x81, 1, 0, 0, 0, 0, 0, 2, 0], "exists"),
            (&[0x81, 1, 0, 0, 0, 0, 0, 0x82, 0], "no_memory"),
        ] {
            assert_eq!(outcome(reply, false), says);
        }
        assert_eq!(outcome(b"", true), "stored");
        let hit = [0x81, 0, 0, 1, 4, 0, 0, 0, 0, 0, 0, 9, 0];
        assert_eq!((is_miss(&hit), value_bytes(&hit)), (false, 4));
        assert!(is_miss(&[0x81, 0, 0, 0, 0, 0, 0, 1, 0]));
    }
}
