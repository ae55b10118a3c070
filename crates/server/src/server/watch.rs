//! Telling watchers (`watch`) what happens. Nobody pays for it while nobody watches but a load of one
//! word per command.

use super::clients::Client;
use crate::stats::latency::Command;
use std::io::Write;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

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
    /// Accepted, as memcached's scripts ask for it: evictions, sysevents, rawcmds and those of the
    /// proxy have no events here.
    Silent = 16,
}

impl Stream {
    /// What `watch` calls it.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"fetchers" => Self::Fetchers,
            b"mutations" => Self::Mutations,
            b"deletions" => Self::Deletions,
            b"connevents" => Self::Connections,
            b"evictions" | b"sysevents" | b"rawcmds" | b"proxyreqs" | b"proxyevents"
            | b"proxyuser" => Self::Silent,
            _ => return None,
        })
    }
}

/// One watcher: what is to be told to it.
#[derive(Debug)]
pub(crate) struct Watcher {
    streams: u32,
    waiting: Mutex<Vec<u8>>,
}

/// All watchers of a server.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
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
        out.append(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Watchers {
    /// Begins to watch `streams`, a bit each; `None` if there are too many watchers. It ends when the
    /// watcher is dropped.
    pub(crate) fn add(&self, streams: u32) -> Option<Arc<Watcher>> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        self.forget_the_gone(&mut all);
        if all.len() >= WATCHERS_MAX {
            return None;
        }
        let watcher = Arc::new(Watcher { streams, waiting: Mutex::default() });
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

    /// Tells those who want it; `event` writes the line from `type=` on.
    fn tell(&self, stream: Stream, event: impl FnOnce(&mut Vec<u8>)) {
        if self.wanted.load(Ordering::Relaxed) & stream as u32 == 0 {
            return;
        }
        let number = 1 + self.written.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut line = Vec::new();
        // Writing to a `Vec` never fails.
        let (seconds, micros) = (now.as_secs(), now.subsec_micros());
        let _ = write!(line, "ts={seconds}.{micros:06} gid={number} ");
        event(&mut line);
        line.push(b'\n');
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        self.forget_the_gone(&mut all);
        let wants = |watcher: &Arc<Watcher>| watcher.streams & stream as u32 != 0;
        for watcher in all.iter().filter_map(Weak::upgrade).filter(wants) {
            let mut waiting = watcher.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.len() + line.len() > WAITING_BYTES_MAX {
                self.skipped.fetch_add(1, Ordering::Relaxed);
            } else {
                waiting.extend_from_slice(&line);
                self.sent.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// A connection came.
    pub(crate) fn tell_opened(&self, number: i32, client: &Client) {
        self.tell(Stream::Connections, |line| {
            let _ = write!(line, "type=conn_new {} cfd={number}", origin(client));
        });
    }

    /// A connection went.
    pub(crate) fn tell_closed(&self, number: i32, client: &Client) {
        self.tell(Stream::Connections, |line| {
            let _ = write!(line, "type=conn_close {} reason=normal cfd={number}", origin(client));
        });
    }

    /// A command on `key` was answered with `reply`.
    pub(crate) fn tell_command(&self, number: i32, command: Command, key: &[u8], reply: &[u8]) {
        let event = |line: &mut Vec<u8>, kind: &str, more: std::fmt::Arguments<'_>| {
            let _ = write!(line, "type={kind} key=");
            put_key(line, key);
            let _ = write!(line, " {more} clsid=1 cfd={number}");
        };
        match command {
            Command::Get => self.tell(Stream::Fetchers, |line| {
                let status = if is_miss(reply) { "not_found" } else { "found" };
                event(line, "item_get", format_args!("status={status}"));
                let _ = write!(line, " size={}", value_bytes(reply));
            }),
            Command::Delete if reply.starts_with(b"DELETED") || reply.starts_with(b"HD") => {
                self.tell(Stream::Deletions, |line| {
                    event(line, "deleted", format_args!("cmd=delete"));
                });
            }
            Command::Delete => {}
            _ => self.tell(Stream::Mutations, |line| {
                let name = Command::ALL[command as usize].1;
                let status = outcome(reply);
                event(line, "item_store", format_args!("status={status} cmd={name}"));
            }),
        }
    }
}

/// Where a client is, as memcached's events say it.
fn origin(client: &Client) -> String {
    let (transport, address) = client.address.split_once(':').unwrap_or(("", ""));
    match address.rsplit_once(':') {
        Some((ip, port)) if transport != "unix" => {
            format!("rip={} rport={port} transport={transport}", ip.trim_matches(['[', ']']))
        }
        _ => format!("rip=unix rport=0 transport={transport}"),
    }
}

fn is_miss(reply: &[u8]) -> bool {
    reply.is_empty() || reply.starts_with(b"EN")
}

/// The length of the value that a reply announces; 0 if it announces none.
fn value_bytes(reply: &[u8]) -> u64 {
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
fn outcome(reply: &[u8]) -> &'static str {
    match reply {
        [] => "quiet",
        // A response of the binary protocol, with its status.
        [0x81, _, _, _, _, _, 0, status, ..] => match status {
            0 => "stored",
            1 => "not_found",
            2 => "exists",
            3 => "too_large",
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

/// A key as URLs spell it.
fn put_key(line: &mut Vec<u8>, key: &[u8]) {
    for &byte in key {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            line.push(byte);
        } else {
            let _ = write!(line, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchers_hear_what_they_asked_for_and_no_more() {
        let watchers = Watchers::default();
        watchers.tell_command(5, Command::Get, b"early", b"");
        let gets = watchers.add(Stream::Fetchers as u32).unwrap();
        watchers.tell_command(5, Command::Get, b"a b", b"VALUE a 0 17\r\n");
        watchers.tell_command(5, Command::Set, b"k", b"STORED\r\n");
        let mut heard = Vec::new();
        gets.take(&mut heard);
        let heard = String::from_utf8(heard).unwrap();
        assert!(heard.starts_with("ts="), "{heard}");
        let end = " gid=1 type=item_get key=a%20b status=found clsid=1 cfd=5 size=17\n";
        assert!(heard.ends_with(end), "{heard}");
        // Who doesn't listen costs no more than its share.
        for _ in 0..10_000 {
            watchers.tell_command(5, Command::Get, b"key", b"");
        }
        assert!(gets.waiting.lock().unwrap().len() <= WAITING_BYTES_MAX);
        assert!(watchers.skipped.load(Ordering::Relaxed) > 0);
        drop(gets);
        assert_eq!((watchers.count(), watchers.are_there()), (0, false));
        let many: Vec<_> = (0..WATCHERS_MAX).map(|_| watchers.add(1)).collect();
        assert!(many.iter().all(Option::is_some) && watchers.add(1).is_none());
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
        ] {
            assert_eq!(outcome(reply), says);
        }
    }
}
