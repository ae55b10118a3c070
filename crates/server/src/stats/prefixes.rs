//! `stats detail`: what is asked for, by the beginnings of keys. Off unless asked for, since every
//! command then takes one lock.

use crate::key_text::{is_plain, put_uri};
use crate::server::about::Kind;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Prefixes that are counted; what comes later is not.
const PREFIXES_MAX: usize = 65_536;

/// The counts of all prefixes.
#[derive(Debug)]
pub(crate) struct Prefixes {
    delimiter: u8,
    is_on: AtomicBool,
    counts: Mutex<BTreeMap<Box<[u8]>, Counts>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

impl Prefixes {
    /// A key's prefix ends before the first `delimiter`; keys without one are not counted.
    pub(crate) fn new(delimiter: u8, is_on: bool) -> Self {
        Self { delimiter, is_on: AtomicBool::new(is_on), counts: Mutex::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(crate) fn turn(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
    }

    /// Counts a command on `key`, if that is wanted.
    pub(crate) fn note(&self, kind: Kind, key: &[u8], is_hit: bool) {
        if !self.is_on() {
            return;
        }
        let Some(end) = key.iter().position(|&byte| byte == self.delimiter) else { return };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= PREFIXES_MAX && !counts.contains_key(&key[..end]) {
            return;
        }
        let counts = counts.entry(key[..end].into()).or_default();
        match kind {
            Kind::Fetch => {
                counts.gets += 1;
                counts.hits += u64::from(is_hit);
            }
            Kind::Store => counts.sets += 1,
            Kind::Delete => counts.deletes += 1,
            Kind::Change => {}
        }
    }

    /// Forgets what was counted (`stats reset`).
    pub(crate) fn reset(&self) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Writes a line for each, without the end.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for (prefix, counts) in self.counts.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let Counts { gets, hits, sets, deletes } = counts;
            out.extend_from_slice(b"PREFIX ");
            // What came in a line stands as it is, as in memcached.
            if is_plain(prefix) {
                out.extend_from_slice(prefix);
            } else {
                put_uri(out, prefix);
            }
            // Writing to a `Vec` never fails.
            let _ = write!(out, " get {gets} hit {hits} set {sets} del {deletes}\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_counted_when_asked_for() {
        let prefixes = Prefixes::new(b':', false);
        prefixes.note(Kind::Fetch, b"a:1", true);
        prefixes.turn(true);
        for (kind, key, is_hit) in [
            (Kind::Fetch, &b"a:1"[..], true),
            (Kind::Fetch, b"a:2", false),
            (Kind::Store, b"a:1:x", true),
            (Kind::Delete, b"b:1", true),
            (Kind::Fetch, b"plain", true),
        ] {
            prefixes.note(kind, key, is_hit);
        }
        let mut out = Vec::new();
        prefixes.write(&mut out);
        let says = "PREFIX a get 2 hit 1 set 1 del 0\r\nPREFIX b get 0 hit 0 set 0 del 1\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), says);
        // A key of the binary protocol can't forge a line or its end.
        prefixes.reset();
        prefixes.note(Kind::Fetch, b"a get 9\r\nEND\r\n\x00:1", true);
        prefixes.note(Kind::Fetch, "größe%:1".as_bytes(), true);
        let mut out = Vec::new();
        prefixes.write(&mut out);
        let says = "PREFIX a%20get%209%0D%0AEND%0D%0A%00 get 1 hit 1 set 0 del 0\r\n\
                    PREFIX größe% get 1 hit 1 set 0 del 0\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), says);
        prefixes.reset();
        let mut out = Vec::new();
        prefixes.write(&mut out);
        assert!(out.is_empty());
    }
}
