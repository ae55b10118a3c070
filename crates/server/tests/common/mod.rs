//! A server inside the test process, and a client that speaks bytes.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

pub mod binary;
pub mod memcached;
pub mod random;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace::server::{Listener, Server};
use terrace::settings::Settings;
use terrace_cache::{Cache, Config, Tier, Tuning};
use terrace_device::{Drive, FileDevice};
use terrace_e2e::PATIENCE;

/// A server; stopped when dropped.
pub struct TestServer {
    pub address: SocketAddr,
    server: Option<Server>,
    /// Holds the file of the tier; removed with the server.
    _dir: Option<TempDir>,
}

impl TestServer {
    /// Two workers, DRAM only.
    pub fn start() -> Self {
        Self::with(|_| {}, None)
    }

    /// A little DRAM above a file of `bytes`, with segments so small that records soon lie there.
    pub fn start_tiered(bytes: u64) -> Self {
        Self::with(|_| {}, Some(bytes))
    }

    pub fn with(change: impl FnOnce(&mut Settings), tier_bytes: Option<u64>) -> Self {
        let (devices, dir) = match tier_bytes {
            None => (Vec::new(), None),
            Some(bytes) => {
                let (device, dir) = open_file(bytes);
                (vec![Arc::new(device) as Arc<dyn Drive>], Some(dir))
            }
        };
        let mut server = Self::over(change, devices);
        server._dir = dir;
        server
    }

    /// On these drives.
    pub fn over(change: impl FnOnce(&mut Settings), devices: Vec<Arc<dyn Drive>>) -> Self {
        let mut settings = Settings { threads: 2, ..Settings::default() };
        settings.memory_bytes = 64 << 20;
        change(&mut settings);
        let cache = Cache::open(Config {
            tiers: devices.iter().map(|device| Tier::new(Arc::clone(device))).collect(),
            evict: settings.evict,
            cas: settings.cas,
            item_bytes_max: settings.item_bytes_max,
            tuning: Tuning::default(),
            ..Config::new(settings.memory_bytes)
        })
        .expect("a cache");
        Self::serving(&settings, cache, &devices)
    }

    /// Serves a cache that lies on these devices.
    pub fn serving(settings: &Settings, cache: Arc<Cache>, devices: &[Arc<dyn Drive>]) -> Self {
        let listener = Listener::tcp(SocketAddr::from(([127, 0, 0, 1], 0)), 64).expect("a port");
        let address = listener.tcp_address().expect("a TCP listener");
        let server = Server::start(settings, cache, devices.to_vec(), vec![listener], None)
            .expect("a server");
        Self { address, server: Some(server), _dir: None }
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Waits for the threads to end by themselves.
    pub fn join(mut self) {
        self.server.take().expect("runs until here").join().expect("no panic");
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.server.take());
    }
}

/// A file for a tier.
pub fn open_file(bytes: u64) -> (FileDevice, TempDir) {
    let dir = TempDir::new().expect("a directory");
    let device = FileDevice::open(dir.path().join("tier"), Some(bytes));
    (device.expect("a file for the tier"), dir)
}

/// Stores 40 MB, enough to push whatever was stored before from little DRAM to the drive.
pub fn fill(client: &mut Client) {
    let value = "x".repeat(1000);
    for block in 0..40 {
        let mut request = String::new();
        for number in 0..1000 {
            request
                .push_str(&format!("set filler{block}-{number} 0 0 1000 noreply\r\n{value}\r\n"));
        }
        client.ask(&request, "");
    }
}

/// A connection.
pub struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        Self { stream, unread: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// A second way to send on the same connection.
    pub fn clone_for_sending(&self) -> Self {
        Self { stream: self.stream.try_clone().expect("a descriptor"), unread: Vec::new() }
    }

    /// Receives until `enough` says how many bytes are wanted and they are there.
    pub fn receive(&mut self, enough: impl Fn(&[u8]) -> Option<usize>) -> Vec<u8> {
        let start = Instant::now();
        let mut buffer = vec![0; 64 << 10];
        loop {
            if let Some(bytes) = enough(&self.unread) {
                return self.unread.drain(..bytes).collect();
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => panic!("closed; got only {:?}", String::from_utf8_lossy(&self.unread)),
                Ok(bytes) => self.unread.extend(&buffer[..bytes]),
                Err(_) if start.elapsed() < PATIENCE => {}
                Err(error) => {
                    panic!("{error}; got only {:?}", String::from_utf8_lossy(&self.unread))
                }
            }
        }
    }

    /// Receives exactly `expected`.
    #[track_caller]
    pub fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        // Only what has just come is compared, so that long replies don't take quadratic time.
        let agreeing = std::cell::Cell::new(0);
        let got = self.receive(|unread| {
            let from = agreeing.get();
            let differs = unread[from..].iter().zip(&expected[from..]).any(|(a, b)| a != b);
            agreeing.set(unread.len().min(expected.len()));
            (differs || unread.len() >= expected.len()).then_some(unread.len().min(expected.len()))
        });
        if got != expected {
            let end = self.receive(|unread| Some(unread.len().min(200)));
            panic!(
                "expected {:?}, got {:?}",
                String::from_utf8_lossy(&expected[..expected.len().min(2000)]),
                String::from_utf8_lossy(&[&got[..got.len().min(2000)], &end].concat()),
            );
        }
    }

    /// Sends `request` and receives exactly `reply`, and nothing behind it.
    #[track_caller]
    pub fn ask(&mut self, request: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) {
        self.send(request);
        self.expect(reply);
        self.expect_silence();
    }

    /// Nothing more has come so far; a version behind it shows the order.
    #[track_caller]
    pub fn expect_silence(&mut self) {
        self.send("version\r\n");
        self.expect("VERSION 1.6.45\r\n");
    }

    /// Everything up to and including `end`.
    pub fn receive_until(&mut self, end: &str) -> String {
        let end = end.as_bytes();
        let bytes = self.receive(|unread| {
            unread.windows(end.len()).position(|window| window == end).map(|at| at + end.len())
        });
        String::from_utf8(bytes).expect("text")
    }

    /// One number of `stats ARGUMENTS`.
    pub fn stat(&mut self, arguments: &str, name: &str) -> String {
        self.send(format!("stats {arguments}\r\n"));
        let text = self.receive_until("END\r\n");
        let prefix = format!("STAT {name} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).to_string()
    }

    /// The answer to `mg KEY t` behind a time to live that was set just before: a minute of it may be
    /// over.
    #[track_caller]
    pub fn expect_time_left(&mut self, key: &str, seconds: u64) {
        self.send(format!("mg {key} t\r\n"));
        let line = self.receive_until("\r\n");
        let left = line.trim_end().strip_prefix("HD t").and_then(|left| left.parse().ok());
        let may = seconds.saturating_sub(PATIENCE.as_secs())..=seconds;
        assert!(left.is_some_and(|left| may.contains(&left)), "{key}: {line}");
    }

    /// Waits for the server to close the connection, and returns what it said before.
    pub fn receive_to_end(mut self) -> Vec<u8> {
        let start = Instant::now();
        let mut buffer = vec![0; 64 << 10];
        while start.elapsed() < PATIENCE {
            match self.stream.read(&mut buffer) {
                Ok(0) => return self.unread,
                Ok(bytes) => self.unread.extend(&buffer[..bytes]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return self.unread;
                }
                Err(_) => {}
            }
        }
        panic!("still open after {:?}", String::from_utf8_lossy(&self.unread));
    }

    /// Everything up to `end`, or up to the end of the connection.
    pub fn receive_all_or_until(mut self, end: &[u8]) -> Vec<u8> {
        let start = Instant::now();
        let mut buffer = vec![0; 64 << 10];
        while start.elapsed() < PATIENCE && !self.unread.ends_with(end) {
            match self.stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(bytes) => self.unread.extend(&buffer[..bytes]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                Err(_) => {}
            }
        }
        self.unread
    }

    /// Says that nothing more will be sent.
    pub fn shut_write(&self) {
        self.stream.shutdown(std::net::Shutdown::Write).expect("an open socket");
    }
}
