use super::*;
use crate::plan::Workload;
use crate::window::Request;
use crate::{Popularity, Sizes, keys};

const SIZES: Sizes = Sizes::Fixed { key: 20, value: 40 };

fn plan(protocol: Protocol, keys_per_get: usize) -> Plan {
    let workload = Workload::Get(Popularity::Uniform);
    let server = std::net::SocketAddr::from(([127, 0, 0, 1], 11211));
    Plan { protocol, keys_per_get, sizes: SIZES, flags: 5, ..Plan::new(server, workload, 10) }
}

struct Case {
    replies: Replies,
    window: Window,
    tally: Tally,
}

impl Case {
    fn new(protocol: Protocol, numbers: &[u64]) -> Self {
        let replies = Replies::new(&plan(protocol, numbers.len()), &Records::new(&SIZES));
        let mut window = Window::default();
        window.requests.push_back((Request::Get { keys: numbers.len() }, 0));
        let expected = |&number| Expected { number, value: Value::Version(0) };
        window.expected.extend(numbers.iter().map(expected));
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
    Records::new(&SIZES).append_value(number, version, &mut value);
    value
}

fn key(number: u64) -> String {
    let mut key = Vec::new();
    keys::append(number, 20, &mut key);
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
fn a_version_of_another_run_is_told_from_a_stale_one() {
    let old = block(&format!("VALUE {} 5 40", key(3)), &value(3, 7));
    let foreign = block(&format!("VALUE {} 5 40", key(3)), &value(4, 0));
    let flags = block(&format!("VALUE {} 6 40", key(3)), &value(3, 7));
    for (reply, expected, others) in [
        (&old, Value::Planned(0), 1),
        (&old, Value::Planned(7), 0),
        // This run has stored another one itself.
        (&old, Value::Version(8), 0),
        (&old, Value::Absent, 0),
        (&foreign, Value::Planned(0), 0),
        (&flags, Value::Planned(0), 0),
    ] {
        let mut case = Case::new(Protocol::Ascii, &[3]);
        case.window.expected[0].value = expected;
        case.feed(&[&reply[..], b"END\r\n"].concat()).unwrap();
        let right = u64::from(expected == Value::Planned(7));
        assert_eq!(case.counts(), (right, 0, 1 - right, 0), "{expected:?}");
        assert_eq!(case.tally.other_versions, others, "{expected:?}");
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

#[test]
fn a_deleted_record_must_not_be_there() {
    let mut case = Case::new(Protocol::Ascii, &[3]);
    case.window.expected[0].value = Value::Absent;
    case.feed(&[&classic(3)[..], b"END\r\n"].concat()).unwrap();
    assert_eq!(case.counts(), (0, 0, 1, 0));
    for (protocol, deleted, absent) in [
        (Protocol::Ascii, &b"DELETED\r\n"[..], &b"NOT_FOUND\r\n"[..]),
        (Protocol::Meta, b"HD\r\n", b"NF\r\n"),
        (Protocol::Binary, &binary(0x04, 0, 0, &[], &[]), &binary(0x04, 1, 0, &[], b"Not found")),
    ] {
        let mut case = Case::new(protocol, &[]);
        case.window.requests = [(Request::Delete, 0), (Request::Delete, 0)].into();
        case.feed(&[deleted, absent].concat()).unwrap();
        assert_eq!((case.tally.deleted, case.tally.requests), (1, 2));
        assert!(case.is_answered());
    }
}

fn binary(opcode: u8, status: u8, opaque: u8, extras: &[u8], value: &[u8]) -> Vec<u8> {
    let mut header = [0; 24];
    (header[0], header[1], header[4], header[7]) = (0x81, opcode, extras.len() as u8, status);
    (header[11], header[15]) = ((extras.len() + value.len()) as u8, opaque);
    [&header, extras, value].concat()
}

const FLAGS: [u8; 4] = [0, 0, 0, 5];

#[test]
fn binary_replies() {
    let outcome = |reply: &[u8]| {
        let mut case = Case::new(Protocol::Binary, &[3]);
        case.feed(reply).unwrap();
        assert!(case.is_answered());
        case.counts()
    };
    assert_eq!(outcome(&binary(0, 0, 0, &FLAGS, &value(3, 0))), (1, 0, 0, 0));
    assert_eq!(outcome(&binary(0, 1, 0, &[], b"Not found")), (0, 1, 0, 0));
    assert_eq!(outcome(&binary(0, 0x82, 0, &[], b"Out of memory")), (0, 0, 0, 1));
    assert_eq!(outcome(&binary(0, 0, 0, &FLAGS, &value(4, 0))), (0, 0, 1, 0), "foreign");
    assert_eq!(outcome(&binary(0, 0, 0, &[0; 4], &value(3, 0))), (0, 0, 1, 0), "other flags");
    assert_eq!(outcome(&binary(0, 0, 0, &FLAGS, &value(3, 0)[..39])), (0, 0, 1, 0), "short");
    for junk in [&b"END\r\n"[..], &binary(1, 0, 0, &[], &[])] {
        assert!(Case::new(Protocol::Binary, &[3]).feed(junk).is_err());
    }
}

#[test]
fn a_binary_multiget_with_gaps() {
    let hit = |at: u8| binary(9, 0, at, &FLAGS, &value(u64::from(at) + 1, 0));
    let mut case = Case::new(Protocol::Binary, &[1, 2, 3, 4, 5]);
    case.feed(&[hit(1), hit(3), binary(10, 0, 0, &[], &[])].concat()).unwrap();
    assert_eq!(case.counts(), (2, 3, 0, 0));
    assert!(case.is_answered());
    let mut foreign = Case::new(Protocol::Binary, &[1, 2]);
    assert!(foreign.feed(&hit(3)).is_err());
}
