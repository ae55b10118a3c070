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
use terrace_cache::{Access, Evidence, Key, Listed, Lookup, Observer, Reclaim, Session};

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

/// What a look at a key found, before a command on it was executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Seen {
    Found {
        value_bytes: u64,
        /// Seconds until it expires; 0 for never.
        ttl: u32,
    },
    Expired,
    Missing,
    /// A drive would have to be read, which the command itself did not need.
    #[default]
    Unknown,
}

impl Seen {
    /// Looks at `key` without leaving a trace; `evidence` is what was read for the command.
    pub(crate) fn of(
        session: &Session,
        key: Key<'_>,
        now: u32,
        evidence: Option<Evidence<'_>>,
    ) -> Self {
        // At time 0 nothing has expired: an expired record is counted by the command alone.
        match session.get(key, 0, Access::Peek, evidence) {
            Lookup::Hit(hit) if (1..=now).contains(&hit.record.expires) => Self::Expired,
            Lookup::Hit(hit) => Self::Found {
                value_bytes: hit.record.value_bytes(),
                ttl: hit.record.expires.saturating_sub(now),
            },
            Lookup::Miss => Self::Missing,
            Lookup::Read(_) => Self::Unknown,
        }
    }

    fn is_found(self) -> bool {
        matches!(self, Self::Found { .. })
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

    /// A command on `key` was answered with `reply`. As in memcached, every command looks its key up first; the line is
    /// left out where a plain `set` replaced what no memory tells of.
    pub(crate) fn tell_command(&self, number: i32, about: About, key: &[u8], reply: &[u8]) {
        let seen = match (about.seen, about.kind) {
            (Seen::Unknown, Kind::Fetch) if is_miss(reply) => Seen::Missing,
            (Seen::Unknown, Kind::Fetch) => Seen::Found { value_bytes: value_bytes(reply), ttl: 0 },
            (seen, _) => seen,
        };
        if seen != Seen::Unknown {
            self.tell(Stream::Fetchers, |line| {
                let (status, class, bytes) = match seen {
                    Seen::Found { value_bytes, .. } => ("found", 1, value_bytes),
                    Seen::Expired => ("expired", 0, 0),
                    Seen::Missing | Seen::Unknown => ("not_found", 0, 0),
                };
                line.extend_from_slice(b"type=item_get key=");
                put_uri(line, key);
                let _ = write!(line, " status={status} clsid={class} cfd={number} size={bytes}");
            });
        }
        let outcome = outcome(reply, about, seen);
        let About { name, ttl, value_bytes, .. } = about;
        match about.kind {
            Kind::Delete if outcome == "stored" => self.tell(Stream::Deletions, |line| {
                line.extend_from_slice(b"type=deleted key=");
                put_uri(line, key);
                let size = if let Seen::Found { value_bytes, .. } = seen { value_bytes } else { 0 };
                let _ = write!(line, " cmd={name} clsid=1 size={size}");
            }),
            Kind::Store => {
                // What is added to keeps its lifetime.
                let (ttl, before) = match seen {
                    Seen::Found { value_bytes, ttl } if about.extends() && outcome == "stored" => {
                        (ttl, value_bytes)
                    }
                    _ => (ttl, 0),
                };
                self.tell_stored(number, key, (name, outcome), ttl, before + value_bytes);
            }
            // What a number is created by is an `add`.
            Kind::Change if about.creates && !seen.is_found() && outcome == "stored" => {
                self.tell_stored(number, key, ("add", outcome), ttl, value_bytes);
            }
            Kind::Fetch | Kind::Delete | Kind::Change => {}
        }
    }

    fn tell_stored(
        &self,
        number: i32,
        key: &[u8],
        (name, outcome): (&str, &str),
        ttl: u32,
        bytes: u64,
    ) {
        self.tell(Stream::Mutations, |line| {
            line.extend_from_slice(b"type=item_store key=");
            put_uri(line, key);
            let _ = write!(
                line,
                " status={outcome} cmd={name} ttl={ttl} clsid=1 cfd={number} size={bytes}"
            );
        });
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

/// What became of a change, in memcached's words. Where the client wanted no answer, what was `seen` before tells it; or
/// else it is `quiet`.
fn outcome(reply: &[u8], about: About, seen: Seen) -> &'static str {
    match reply {
        [] if about.is_silent_when_done => "stored",
        [] => match (about.name, seen.is_found()) {
            ("set", _) | ("add", false) => "stored",
            ("delete" | "replace" | "append" | "prepend", true) => "stored",
            (_, _) if seen == Seen::Unknown => "quiet",
            ("add", true) | ("replace" | "append" | "prepend", false) => "not_stored",
            ("delete" | "cas", false) => "not_found",
            _ => "quiet",
        },
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

    const GET: About = About {
        kind: Kind::Fetch,
        name: "",
        ttl: 0,
        value_bytes: 0,
        is_silent_when_done: false,
        creates: false,
        seen: Seen::Unknown,
    };
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
            assert_eq!(outcome(reply, About { name: "cas", ..SET }, Seen::Unknown), says);
        }
        let silent = About { is_silent_when_done: true, ..SET };
        assert_eq!(outcome(b"", silent, Seen::Missing), "stored");
        let add = About { name: "add", ..SET };
        assert_eq!(outcome(b"", add, Seen::Found { value_bytes: 1, ttl: 0 }), "not_stored");
        assert_eq!(outcome(b"", add, Seen::Expired), "stored");
        let hit = [0x81, 0, 0, 1, 4, 0, 0, 0, 0, 0, 0, 9, 0];
        assert_eq!((is_miss(&hit), value_bytes(&hit)), (false, 4));
        assert!(is_miss(&[0x81, 0, 0, 0, 0, 0, 0, 1, 0]));
    }
}
