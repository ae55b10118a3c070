use super::*;
use crate::plan::{End, Workload};
use crate::{Popularity, Protocol};

fn plan(protocol: Protocol, keys_per_get: usize) -> Plan {
    Plan {
        address: ([127, 0, 0, 1], 11211).into(),
        workload: Workload::Get(Popularity::Uniform),
        first: 0,
        records: 10,
        key_bytes: 20,
        value_bytes: 40,
        connections: 1,
        threads: 1,
        depth: 1,
        rate: None,
        batch: false,
        protocol,
        keys_per_get,
        ttl: 0,
        flags: 5,
        version: 0,
        any_version: false,
        check: true,
        seed: 1,
        end: End::Requests(1),
        progress: false,
    }
}

struct Case {
    replies: Replies,
    window: Window,
    tally: Tally,
}

impl Case {
    fn new(protocol: Protocol, numbers: &[u64]) -> Self {
        let values = Arc::new(Values::new(40));
        let replies = Replies::new(&plan(protocol, numbers.len()), &values).unwrap();
        let mut window = Window::default();
        window.requests.push_back((Request::Get { keys: numbers.len() }, 0));
        window.expected.extend(numbers.iter().map(|&number| Expected { number, version: Some(0) }));
        Self { replies, window, tally: Tally::new() }
    }

    /// Feeds `input` byte by byte, so that every reply is cut at every place.
    fn feed(&mut self, input: &[u8]) -> Result<(), LoadError> {
        let mut waiting = Vec::new();
        for byte in input {
            waiting.push(*byte);
            let taken = self.replies.take(&waiting, 1, &mut self.window, &mut self.tally)?;
            waiting.drain(..taken);
        }
        assert!(waiting.is_empty(), "{:?} left", String::from_utf8_lossy(&waiting));
        Ok(())
    }

    fn counts(&self) -> (u64, u64, u64, u64) {
        let Tally { hits, misses, wrong, errors, .. } = &self.tally;
        (*hits, *misses, *wrong, *errors)
    }

    fn is_answered(&self) -> bool {
        self.window.requests.is_empty() && self.window.expected.is_empty()
    }
}

fn value(number: u64, version: u32) -> Vec<u8> {
    let mut value = Vec::new();
    Values::new(40).append(number, version, &mut value);
    value
}

fn key(number: u64) -> String {
    let mut key = Vec::new();
    Keys::new(20).unwrap().append(number, &mut key);
    String::from_utf8(key).unwrap()
}

fn block(header: &str, value: &[u8]) -> Vec<u8> {
    [header.as_bytes(), b"\r\n", value, b"\r\n"].concat()
}

fn classic(number: u64) -> Vec<u8> {
    block(&format!("VALUE {} 5 40", key(number)), &value(number, 0))
}

#[test]
fn a_hit_a_miss_and_an_error() {
    let mut hit = Case::new(Protocol::Ascii, &[3]);
    hit.feed(&[&classic(3)[..], b"END\r\n"].concat()).unwrap();
    assert_eq!(hit.counts(), (1, 0, 0, 0));
    let mut miss = Case::new(Protocol::Ascii, &[3]);
    miss.feed(b"END\r\n").unwrap();
    assert_eq!(miss.counts(), (0, 1, 0, 0));
    let mut error = Case::new(Protocol::Ascii, &[3]);
    error.feed(b"SERVER_ERROR out of memory writing get response\r\n").unwrap();
    assert_eq!(error.counts(), (0, 0, 0, 1));
    assert!(hit.is_answered() && miss.is_answered() && error.is_answered());
    assert_eq!(hit.tally.requests, 1);
}

#[test]
fn meta_replies() {
    let mut hit = Case::new(Protocol::Meta, &[3]);
    hit.feed(&block("VA 40 f5", &value(3, 0))).unwrap();
    assert_eq!(hit.counts(), (1, 0, 0, 0));
    let mut miss = Case::new(Protocol::Meta, &[3]);
    miss.feed(b"EN\r\n").unwrap();
    assert_eq!(miss.counts(), (0, 1, 0, 0));
    let mut foreign = Case::new(Protocol::Meta, &[3]);
    foreign.feed(&block("VA 40 f5", &value(4, 0))).unwrap();
    assert_eq!(foreign.counts(), (0, 0, 1, 0));
    assert!(hit.is_answered() && miss.is_answered() && foreign.is_answered());
}

#[test]
fn a_multiget_with_gaps() {
    let mut case = Case::new(Protocol::Ascii, &[1, 2, 3, 4, 5]);
    case.feed(&[&classic(2)[..], &classic(4), b"END\r\n"].concat()).unwrap();
    assert_eq!(case.counts(), (2, 3, 0, 0));
    assert!(case.is_answered());
}

#[test]
fn old_foreign_and_misdescribed_values_are_wrong() {
    let old = block(&format!("VALUE {} 5 40", key(3)), &value(3, 7));
    let foreign = block(&format!("VALUE {} 5 40", key(3)), &value(4, 0));
    let flags = block(&format!("VALUE {} 6 40", key(3)), &value(3, 0));
    let short = block(&format!("VALUE {} 5 39", key(3)), &value(3, 0)[..39]);
    let other_key = classic(4);
    for reply in [old, foreign, flags, short, other_key] {
        let mut case = Case::new(Protocol::Ascii, &[3]);
        case.feed(&[&reply[..], b"END\r\n"].concat()).unwrap();
        assert_eq!(case.counts(), (0, 0, 1, 0), "{}", String::from_utf8_lossy(&reply));
        assert!(case.is_answered());
        assert_eq!(case.tally.examples.len(), 1);
    }
}

#[test]
fn what_is_no_reply_ends_the_run() {
    for junk in [&b"STORED\r\n"[..], b"HELLO\r\n", &[b'x'; 3000]] {
        assert!(Case::new(Protocol::Ascii, &[3]).feed(junk).is_err());
    }
    let mut case = Case::new(Protocol::Ascii, &[3]);
    assert!(case.feed(b"END\r\nEND\r\n").is_err(), "one more reply than requests");
}
