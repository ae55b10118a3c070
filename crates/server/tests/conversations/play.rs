//! Plays a conversation to a server, and writes down the answers.
//!
//! What two servers may give out differently is left out here and nowhere else: CAS numbers are counted from
//! `#1` as they appear (0, and those that a request named, which are all above a million million, stay), and of
//! `STAT` lines the values are left out. Times to live beyond 30 days are those up to a date, and become `t+`;
//! shorter ones depend on the moment, so that who compares asks again.

use super::notation;
use crate::common::binary::Answer;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use terrace_e2e::PATIENCE;

/// Times to live above, in seconds, are those up to a date.
const RELATIVE_MAX: u64 = 30 * 24 * 3600;
/// CAS numbers above are those that requests name.
const NAMED_CAS: u64 = 1_000_000_000_000;

/// In which protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Text,
    Binary,
}

/// A server to talk to.
pub struct Peer {
    address: SocketAddr,
    control: TcpStream,
}

impl Peer {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, control: connect(address) }
    }

    /// The answers to a conversation that begins with nothing stored.
    pub fn play(&mut self, protocol: Protocol, sent: &str) -> String {
        self.control.write_all(b"flush_all\r\n").expect("the server reads");
        let mut answer = [0; 4];
        self.control.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"OK\r\n");
        Talk { stream: connect(self.address), received: Vec::new(), protocol }.play(sent)
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_nodelay(true).expect("a TCP socket");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

struct Talk {
    stream: TcpStream,
    received: Vec<u8>,
    protocol: Protocol,
}

impl Talk {
    /// A request in which `$` stands for the last CAS number that was answered waits for that. A last request,
    /// for nothing, shows whether the server goes on.
    fn play(mut self, sent: &str) -> String {
        let (line, end) = match self.protocol {
            Protocol::Text => ('|', "mn|"),
            Protocol::Binary => (']', "[0a]"),
        };
        let mut together = String::new();
        for request in sent.split_inclusive(line) {
            if request.contains('$') {
                self.send(&(together + end));
                self.receive(false);
                let (_, cas) = self.written();
                together = request.replace('$', &cas.to_string());
            } else {
                together += request;
            }
        }
        self.send(&(together + end));
        let _ = self.stream.shutdown(Shutdown::Write);
        self.receive(true);
        self.written().0
    }

    fn send(&mut self, text: &str) {
        let bytes = match self.protocol {
            Protocol::Text => notation::bytes(text),
            Protocol::Binary => notation::packets(text),
        };
        // It may have had enough before the last byte.
        let _ = self.stream.write_all(&bytes);
    }

    /// Receives to the end, or up to the answer to the request for nothing.
    fn receive(&mut self, to_end: bool) {
        let mut buffer = [0; 16 << 10];
        while to_end || !self.is_answered() {
            match self.stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(bytes) => self.received.extend(&buffer[..bytes]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
                Err(error) => panic!("{error} behind {:?}", notation::text(&self.received)),
            }
        }
    }

    fn is_answered(&self) -> bool {
        match self.protocol {
            Protocol::Text => self.received.ends_with(b"MN\r\n"),
            Protocol::Binary => self.received.ends_with(&Answer::NOOP),
        }
    }

    /// What was received, written down, and the last CAS number in it.
    fn written(&self) -> (String, u64) {
        let mut numbers = Numbers::default();
        let text = match self.protocol {
            Protocol::Text => {
                let lines = notation::text(&self.received);
                let lines = lines.split('|').map(|line| numbers.line(line));
                lines.collect::<Vec<_>>().join("|")
            }
            Protocol::Binary => numbers.responses(&self.received),
        };
        (text, numbers.last)
    }
}

/// The CAS numbers of a conversation.
#[derive(Default)]
struct Numbers {
    seen: Vec<u64>,
    last: u64,
}

impl Numbers {
    fn cas(&mut self, number: u64) -> String {
        if number == 0 {
            return "0".into();
        }
        self.last = number;
        if number > NAMED_CAS {
            return number.to_string();
        }
        let place = self.seen.iter().position(|seen| *seen == number).unwrap_or_else(|| {
            self.seen.push(number);
            self.seen.len() - 1
        });
        format!("#{}", place + 1)
    }

    fn line(&mut self, line: &str) -> String {
        let mut words: Vec<_> = line.split(' ').map(str::to_string).collect();
        match &*words[0] {
            "STAT" => words.truncate(2),
            "VALUE" if words.len() == 5 => self.word(&mut words[4], ""),
            "HD" | "VA" | "EN" | "NF" | "NS" | "EX" => {
                words[1..].iter_mut().for_each(|word| self.word(word, "c"));
                let is_date = |word: &&mut String| {
                    let digits = word.strip_prefix('t').and_then(|digits| digits.parse().ok());
                    digits.is_some_and(|seconds: u64| seconds > RELATIVE_MAX)
                };
                words[1..].iter_mut().filter(is_date).for_each(|word| *word = "t+".into());
            }
            "ME" => words[1..].iter_mut().for_each(|word| self.word(word, "cas=")),
            _ => {}
        }
        words.join(" ")
    }

    fn word(&mut self, word: &mut String, prefix: &str) {
        if let Some(number) = word.strip_prefix(prefix).and_then(|digits| digits.parse().ok()) {
            *word = format!("{prefix}{}", self.cas(number));
        }
    }

    fn responses(&mut self, mut bytes: &[u8]) -> String {
        const STAT: u8 = 0x10;
        let mut out = String::new();
        while bytes.first() == Some(&0x81)
            && let Some((mut answer, taken)) = Answer::parse(bytes)
        {
            if answer.opcode == STAT && answer.status == 0 && !answer.key.is_empty() {
                answer.value.clear();
            }
            let cas = self.cas(answer.cas);
            out += &notation::response(&answer, &cas);
            bytes = &bytes[taken..];
        }
        out + &notation::text(bytes)
    }
}
