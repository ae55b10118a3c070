//! A client that sends bytes and looks at the bytes that come back.

use crate::PATIENCE;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// The connection ended within a value.
#[derive(Debug)]
pub struct CutOff;

/// One connection. Methods panic when the server does not answer as told.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects; the server must be there.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Self { stream: BufReader::with_capacity(1 << 16, stream) }
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("the server takes bytes");
    }

    /// Sends bytes to a server that may have closed.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.stream.get_mut().write_all(bytes.as_ref())
    }

    /// Sends `request` and wants exactly `reply`.
    pub fn check(&mut self, request: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) {
        self.send(request.as_ref());
        self.expect_for(&String::from_utf8_lossy(request.as_ref()), reply.as_ref());
    }

    /// Wants exactly `reply` next.
    pub fn expect(&mut self, reply: impl AsRef<[u8]>) {
        self.expect_for("", reply.as_ref());
    }

    fn expect_for(&mut self, request: &str, reply: &[u8]) {
        let mut got = Vec::new();
        while got.len() < reply.len() {
            let there = match self.stream.fill_buf() {
                Ok(there) => there,
                Err(error) => self.wrong(request, reply, &got, &error.to_string()),
            };
            if there.is_empty() {
                self.wrong(request, reply, &got, "end of connection");
            }
            let take = there.len().min(reply.len() - got.len());
            got.extend_from_slice(&there[..take]);
            self.stream.consume(take);
            if !reply.starts_with(&got) {
                let rest = self.stream.buffer().to_vec();
                got.extend(rest);
                self.wrong(request, reply, &got, "no more");
            }
        }
    }

    fn wrong(&self, request: &str, reply: &[u8], got: &[u8], then: &str) -> ! {
        let short = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
            format!("{text:?} ({} bytes)", bytes.len())
        };
        let request: String = request.chars().take(200).collect();
        panic!("{request:?}: expected {}, got {}, then {then}", short(reply), short(got));
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).expect("so many bytes");
        bytes
    }

    /// The next line, without its end.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).expect("a line");
        assert!(line.ends_with(b"\r\n"), "not a line: {:?}", String::from_utf8_lossy(&line));
        line.truncate(line.len() - 2);
        String::from_utf8(line).expect("a line of text")
    }

    /// The next line, without its end; `None` when the connection ends instead.
    pub fn try_line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(line.trim_end().to_string()),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
            Err(error) => panic!("neither a line nor an end: {error}"),
        }
    }

    /// Lets [`Client::try_send`] fail when the server takes nothing for so long.
    pub fn set_send_timeout(&mut self, timeout: Duration) {
        self.stream.get_ref().set_write_timeout(Some(timeout)).expect("a timeout");
    }

    /// Sends a line and gives back the line that answers it.
    pub fn ask(&mut self, request: &str) -> String {
        self.send(format!("{request}\r\n"));
        self.line()
    }

    /// Stores a value without flags and time to live; says whether the answer was `STORED`.
    pub fn set(&mut self, key: &str, value: &[u8]) -> bool {
        self.send_set(key, value);
        self.line() == "STORED"
    }

    /// Sends a `set` and leaves its answer to be read.
    pub fn send_set(&mut self, key: &str, value: &[u8]) {
        let mut request = format!("set {key} 0 0 {}\r\n", value.len()).into_bytes();
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\n");
        self.send(request);
    }

    /// The value of `key`, if it is there.
    pub fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        self.send(format!("get {key}\r\n"));
        self.read_get(key)
    }

    /// Reads the answer of a `get` that was sent for one key.
    pub fn read_get(&mut self, key: &str) -> Option<Vec<u8>> {
        self.try_read_get(key).expect("the whole value")
    }

    /// As [`Client::read_get`], for a value that may be cut off: when a part of a large one is lost
    /// after its length was sent, all that the server can do is to close.
    pub fn try_read_get(&mut self, key: &str) -> Result<Option<Vec<u8>>, CutOff> {
        let line = self.line();
        if line == "END" {
            return Ok(None);
        }
        let mut words = line.split(' ');
        assert_eq!((words.next(), words.next()), (Some("VALUE"), Some(key)), "{line}");
        let bytes = words.nth(1).and_then(|n| n.parse().ok()).expect("a length");
        let mut value = vec![0; bytes];
        match self.stream.read_exact(&mut value) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Err(CutOff),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Err(CutOff),
            Err(error) => panic!("{key}: no value: {error}"),
        }
        self.expect(b"\r\nEND\r\n");
        Ok(Some(value))
    }

    /// The answer of `stats WHAT` as names and values.
    pub fn stats(&mut self, what: &str) -> BTreeMap<String, String> {
        self.send(format!("stats {what}\r\n").replace(" \r", "\r"));
        let mut stats = BTreeMap::new();
        loop {
            let line = self.line();
            if line == "END" {
                return stats;
            }
            let (name, value) = line
                .strip_prefix("STAT ")
                .and_then(|rest| rest.split_once(' '))
                .unwrap_or_else(|| panic!("stats {what} said {line:?}"));
            stats.insert(name.to_string(), value.to_string());
        }
    }

    /// One number of `stats WHAT`.
    pub fn stat(&mut self, what: &str, name: &str) -> u64 {
        let stats = self.stats(what);
        let value = stats.get(name).unwrap_or_else(|| panic!("stats {what}: no {name}: {stats:?}"));
        value.parse().unwrap_or_else(|_| panic!("stats {what}: {name} is {value}"))
    }

    /// Says that nothing more will be sent.
    pub fn end(&mut self) {
        let _ = self.stream.get_mut().shutdown(Shutdown::Write);
    }

    /// Wants the server to close, and gives back what it still said.
    pub fn closed(&mut self) -> String {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            // Closed with bytes of ours unread.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => {
                panic!("not closed: {error}; it said {:?}", String::from_utf8_lossy(&rest));
            }
        }
        String::from_utf8_lossy(&rest).into_owned()
    }
}
