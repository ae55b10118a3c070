//! The same random requests in the binary protocol, sent to Terrace and to memcached: every response
//! must be the same, byte by byte, but for the numbers that each gives out itself (CAS).
//!
//! `TERRACE_DIFFERENTIAL_OPS` says how many requests, `TERRACE_DIFFERENTIAL_SEED` which.

mod common;

use common::binary::{Answer, packet};
use common::memcached::Memcached;
use common::random::{Random, operations};
use common::{Client, TestServer};
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use terrace_e2e::skip;

/// Requests that are sent at once.
const BATCH: usize = 40;
/// Batches on one connection.
const BATCHES: usize = 25;
/// Bits of a number to begin with, and of what is added: some thousand additions stay below 2^63.
/// From there on memcached (`safe_strtoull`) looks for a minus sign, as far as the next zero byte,
/// which lies behind the value, in whatever its memory held before: it may refuse any such number.
const NUMBER_BITS: u64 = 62;
const DELTA_BITS: u64 = 50;

/// Which CAS number a request carries: each server has its own.
#[derive(Clone, Copy, Debug)]
enum Cas {
    None,
    /// The last one that was seen of the key.
    Seen,
    Wrong,
}

/// One request, as far as it is the same for both.
#[derive(Clone, Debug)]
struct Op {
    opcode: u8,
    extras: Vec<u8>,
    key: String,
    value: Vec<u8>,
    cas: Cas,
}

impl Op {
    fn packet(&self, seen: &HashMap<String, u64>) -> Vec<u8> {
        let last = seen.get(&self.key).copied().unwrap_or(0);
        let cas = match self.cas {
            Cas::None => 0,
            Cas::Seen => last,
            Cas::Wrong => last.wrapping_add(1 << 40),
        };
        packet(self.opcode, &self.extras, &self.key, &self.value, cas)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { opcode, extras, key, value, cas } = self;
        let value = String::from_utf8_lossy(&value[..value.len().min(24)]);
        write!(f, "{opcode:02x} {key:?} {value:?} {cas:?} {extras:x?}")
    }
}

/// A number of at most `bits` bits, small ones as often as large ones.
fn number(random: &mut Random, bits: u64) -> u64 {
    random.next() >> (64 - bits + random.below(bits))
}

fn exptime(random: &mut Random) -> [u8; 4] {
    // Never, in a while, at a time that has passed, and at one that is far away.
    random.pick(&[0u32, 0, 0, 0, 100, 2_592_000, 100_000_000, u32::MAX]).to_be_bytes()
}

/// A number where it is to be counted with, and text elsewhere: memcached pads numbers with blanks in
/// place, which shows in what is appended to them.
fn value(random: &mut Random, key: &str) -> Vec<u8> {
    match key.starts_with('n') {
        true => number(random, NUMBER_BITS).to_string().into_bytes(),
        false => {
            let length = random.pick(&[0, 1, 2, 10, 100, 2000]);
            let letter = b'a' + random.below(26) as u8;
            (0..length).map(|at| if at % 7 == 6 { b'\n' } else { letter }).collect()
        }
    }
}

fn op(random: &mut Random) -> Op {
    let is_number = random.one_in(3);
    let letter = if is_number { 'n' } else { 'k' };
    let key = format!("{letter}{}", random.below(6));
    let cas = match random.below(10) {
        0 => Cas::Seen,
        1 => Cas::Wrong,
        _ => Cas::None,
    };
    let opcode = random.pick(&[
        0x00, 0x00, 0x09, 0x0c, 0x0d, 0x01, 0x01, 0x11, 0x02, 0x12, 0x03, 0x13, 0x04, 0x14, 0x05,
        0x15, 0x06, 0x16, 0x0e, 0x19, 0x0f, 0x1a, 0x1c, 0x1d, 0x1e, 0x23, 0x24, 0x0a, 0x08, 0x18,
        0x10, 0x20, 0x21, 0x30, 0xff,
    ]);
    let mut op = Op { opcode, extras: Vec::new(), key, value: Vec::new(), cas };
    match opcode {
        0x01..=0x03 | 0x11..=0x13 => {
            let client_flags = random.pick(&[0u32, 1, u32::MAX]).to_be_bytes();
            // What is stored after its time has a CAS number in memcached only.
            let exptime = random.pick(&[0u32, 0, 0, 100, 2_592_000, u32::MAX]).to_be_bytes();
            op.extras = [client_flags, exptime].concat();
            op.value = value(random, &op.key);
        }
        0x0e | 0x0f | 0x19 | 0x1a => {
            op.key = op.key.replace('n', "k");
            op.value = value(random, &op.key);
            // What grows for ever is soon too long for both.
            op.value.truncate(20);
        }
        0x05 | 0x06 | 0x15 | 0x16 => {
            let delta = number(random, DELTA_BITS);
            let initial = number(random, NUMBER_BITS);
            let exptime = if is_number { random.pick(&[0, 0, 100, u32::MAX]) } else { u32::MAX };
            let numbers = [delta.to_be_bytes(), initial.to_be_bytes()].concat();
            op.extras = [&numbers[..], &exptime.to_be_bytes()].concat();
        }
        0x1c | 0x1d | 0x1e | 0x23 | 0x24 => op.extras = exptime(random).to_vec(),
        0x08 | 0x18 | 0x0a | 0x20 => {
            // In 30 days: one at once leaves what was used within the second there, now and then, in 1.6.45.
            if matches!(opcode, 0x08 | 0x18) {
                op.extras = 2_592_000_u32.to_be_bytes().to_vec();
            }
            (op.key, op.cas) = (String::new(), Cas::None);
        }
        0x10 => op.key = random.pick(&["bogus", "detail", "detail x", "reset"]).into(),
        0x21 => (op.key, op.value) = ("PLAIN".into(), b"\0user\0password".to_vec()),
        // memcached drops as many bytes again as key and extras of an unknown request have.
        0x30 | 0xff => (op.key, op.value) = (String::new(), vec![b'x'; random.below(50) as usize]),
        _ => {}
    }
    op
}

/// A packet whose lengths are wrong: both say so and close.
fn broken(random: &mut Random) -> Vec<u8> {
    let long = "k".repeat(251);
    match random.below(8) {
        0 => packet(0x00, b"", "", b"", 0),
        1 => packet(0x00, b"", &long, b"", 0),
        2 => packet(0x01, &[0; 4], "k", b"", 0),
        3 => packet(0x0a, b"", "k", b"", 0),
        4 => packet(0x05, &[0; 8], "k", b"", 0),
        5 => packet(0x14, b"", "k", b"v", 0),
        6 => {
            let mut packet = packet(0x09, b"", "key", b"", 0);
            packet[11] = 1;
            packet
        }
        _ => {
            let mut packet = packet(0x0a, b"", "", b"", 0);
            packet[0] = 0x81;
            packet
        }
    }
}

/// One of the two.
struct Side {
    address: SocketAddr,
    client: Client,
    /// The last CAS number of each key.
    seen: HashMap<String, u64>,
}

impl Side {
    fn new(address: SocketAddr) -> Self {
        Self { address, client: Client::connect(address), seen: HashMap::new() }
    }

    /// The answers to a batch, up to that of a NOOP behind it.
    fn ask(&mut self, ops: &[Op]) -> Vec<Answer> {
        let mut stream: Vec<u8> = ops.iter().flat_map(|op| op.packet(&self.seen)).collect();
        // Distinguishable from those within: nobody else has a CAS number in a NOOP's request.
        stream.extend(packet(0x0b, b"", "", b"", 0));
        self.client.send(stream);
        let mut answers = Vec::new();
        loop {
            let answer = common::binary::receive(&mut self.client);
            if answer.opcode == 0x0b {
                return answers;
            }
            answers.push(answer);
        }
    }

    /// Notes the CAS numbers that are known for sure after a batch.
    fn look(&mut self) {
        for letter in ["k", "n"] {
            for number in 0..6 {
                let key = format!("{letter}{number}");
                self.client.send(packet(0x00, b"", &key, b"", 0));
                let answer = common::binary::receive(&mut self.client);
                self.seen.insert(key, answer.cas);
            }
        }
    }
}

/// Without what each server gives out itself.
fn comparable(answers: &[Answer]) -> Vec<Answer> {
    let mut answers = answers.to_vec();
    for answer in &mut answers {
        answer.cas = answer.cas.min(1);
        // A number that got shorter in place is padded by memcached.
        if answer.value.first().is_some_and(u8::is_ascii_digit) && answer.value.len() <= 20 {
            answer.value = answer.value.trim_ascii_end().to_vec();
        }
    }
    answers
}

#[test]
fn memcached_answers_binary_requests_the_same() {
    let Some(memcached) = Memcached::start(&["-B", "binary"]) else {
        skip(
            "memcached_answers_binary_requests_the_same",
            "memcached is not installed; make tools",
        );
        return;
    };
    let terrace = TestServer::start();
    let (mut random, seed) = Random::seeded();
    let ops = operations();
    let mut sides = [Side::new(terrace.address), Side::new(memcached.address)];
    let (mut done, mut answered) = (0, 0);
    while done < ops {
        for _ in 0..BATCHES {
            let batch: Vec<_> = (0..BATCH).map(|_| op(&mut random)).collect();
            let [ours, theirs] = sides.each_mut().map(|side| side.ask(&batch));
            let (our, their) = (comparable(&ours), comparable(&theirs));
            if our != their {
                let at = our.iter().zip(&their).position(|(a, b)| a != b);
                let at = at.unwrap_or(our.len().min(their.len()));
                let batch: String = batch.iter().map(|op| format!("\n   {op}")).collect();
                panic!(
                    "seed {seed}, behind {done} requests: answer {at}:\n terrace   {:x?}\n \
                     memcached {:x?}\n of {batch}",
                    ours.get(at),
                    theirs.get(at)
                );
            }
            (done, answered) = (done + BATCH as u64, answered + ours.len());
            sides.iter_mut().for_each(Side::look);
        }
        let end = broken(&mut random);
        let [ours, theirs] = sides.each_mut().map(|side| {
            let mut client = std::mem::replace(&mut side.client, Client::connect(side.address));
            client.send(&end);
            client.receive_to_end()
        });
        assert_eq!(ours, theirs, "seed {seed}: {end:x?}");
    }
    println!("{done} requests, {answered} answers, all the same");
}

#[test]
fn memcached_lets_as_little_pass_before_a_login() {
    let Some(memcached) = Memcached::start(&["-S"]) else {
        skip(
            "memcached_lets_as_little_pass_before_a_login",
            "memcached is not installed; make tools",
        );
        return;
    };
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "user:secret\n").expect("room for it");
    let passwords = terrace::settings::PasswordFile::read(file.path()).expect("a password file");
    let terrace = TestServer::with(|s| s.sasl_passwords = Some(passwords), None);
    for opcode in (0..=0xff).filter(|opcode| ![0x0b, 0x20, 0x21, 0x22].contains(opcode)) {
        let extras = match opcode {
            0x01..=0x03 | 0x11..=0x13 => 8,
            0x05 | 0x06 | 0x15 | 0x16 => 20,
            0x1c..=0x1e | 0x23 | 0x24 => 4,
            _ => 0,
        };
        let request = packet(opcode, &vec![0; extras], "key", b"", 0);
        let [ours, theirs] = [terrace.address, memcached.address].map(|address| {
            let mut client = Client::connect(address);
            client.send(&request);
            client.receive_to_end()
        });
        assert_eq!(ours, theirs, "{opcode:x}");
    }
}
