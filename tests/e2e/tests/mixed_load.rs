//! Many clients at once on one tiered server, every answer checked against what was acknowledged:
//! a value of an older version, of another key, or of no version at all fails the test.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_e2e::{Client, Server, flash_server, is_terrace, tier_stat, value_of};

const CLIENTS: u64 = 6;

/// Each client has its own keys, so it knows what the newest acknowledged version is.
struct Worker {
    id: u64,
    client: Client,
    /// The version of each key; 0 when it is absent.
    versions: Vec<u64>,
    state: u64,
    hits: u64,
    misses: u64,
}

impl Worker {
    fn new(server: &Server, id: u64, keys: usize) -> Self {
        let state = (id + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let client = server.client();
        Self { id, client, versions: vec![0; keys], state, hits: 0, misses: 0 }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % below
    }

    /// Sizes that fit a page, cross pages, and need chunks, in proportions that keep the load small.
    fn bytes(version: u64) -> usize {
        match version % 100 {
            0 => 40_000,
            1..=4 => 5_000,
            5..=40 => 800,
            _ => 100,
        }
    }

    fn step(&mut self) {
        let at = self.random(self.versions.len() as u64) as usize;
        let key = format!("c{}k{at}", self.id);
        let version = self.versions[at];
        match self.random(100) {
            0..=49 => self.get(at, &key, version),
            50..=84 => {
                let next = version + 1 + self.random(1000);
                assert!(self.client.set(&key, &value_of(&key, next, Self::bytes(next))), "{key}");
                self.versions[at] = next;
            }
            85..=89 => {
                match self.client.ask(&format!("delete {key}")).as_str() {
                    "DELETED" => assert!(version != 0, "{key} was back from the dead"),
                    "NOT_FOUND" => self.misses += u64::from(version != 0),
                    line => panic!("{line}"),
                }
                self.versions[at] = 0;
            }
            90..=93 => {
                let next = version + 1;
                let value = value_of(&key, next, Self::bytes(next));
                self.client.send(format!("add {key} 0 0 {}\r\n", value.len()));
                self.client.send([&value[..], b"\r\n"].concat());
                match self.client.line().as_str() {
                    "STORED" => {
                        self.misses += u64::from(version != 0);
                        self.versions[at] = next;
                    }
                    "NOT_STORED" => assert!(version != 0, "{key} was deleted, and add found it"),
                    line => panic!("{line}"),
                }
            }
            94..=96 => match self.client.ask(&format!("touch {key} 1000")).as_str() {
                "TOUCHED" => assert!(version != 0, "{key} was back from the dead"),
                "NOT_FOUND" => self.misses += u64::from(version != 0),
                line => panic!("{line}"),
            },
            _ => {
                // A pipeline of a read, a write and a read of the same key.
                let next = version + 1;
                let value = value_of(&key, next, Self::bytes(next));
                self.client.send(format!("get {key}\r\n"));
                self.client.send_set(&key, &value);
                self.client.send(format!("get {key}\r\n"));
                let before = self.client.read_get(&key);
                self.compare(&key, version, before);
                assert_eq!(self.client.line(), "STORED");
                let after = self.client.read_get(&key);
                self.compare(&key, next, after);
                self.versions[at] = next;
            }
        }
    }

    fn get(&mut self, at: usize, key: &str, version: u64) {
        let got = self.client.get(key);
        if got.is_none() {
            // Evicted; known to be absent, so that its return would be noticed.
            self.versions[at] = 0;
        }
        self.compare(key, version, got);
    }

    fn compare(&mut self, key: &str, version: u64, got: Option<Vec<u8>>) {
        match got {
            None => self.misses += u64::from(version != 0),
            Some(value) => {
                self.hits += 1;
                let head = String::from_utf8_lossy(&value[..value.len().min(40)]).into_owned();
                assert!(version != 0, "{key} is back from the dead: {head:?}");
                let expected = value_of(key, version, Self::bytes(version));
                assert!(value == expected, "{key} should be version {version}, is {head:?}");
            }
        }
    }
}

/// Runs the load for `time` over `keys` keys; gives back hits and misses of keys that were stored.
fn load(server: &Server, keys: usize, time: Duration) -> (u64, u64) {
    let end = Instant::now() + time;
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS)
            .map(|id| {
                let failed = &failed;
                scope.spawn(move || {
                    let mut worker = Worker::new(server, id, keys / CLIENTS as usize);
                    while Instant::now() < end && !failed.load(Ordering::Relaxed) {
                        for _ in 0..100 {
                            worker.step();
                        }
                    }
                    (worker.hits, worker.misses)
                })
            })
            .collect();
        threads.into_iter().fold((0, 0), |(hits, misses), thread| match thread.join() {
            Ok((h, m)) => (hits + h, misses + m),
            Err(panic) => {
                failed.store(true, Ordering::Relaxed);
                std::panic::resume_unwind(panic)
            }
        })
    })
}

/// Seconds per case; `TERRACE_E2E_SECONDS` makes the run longer.
fn seconds() -> Duration {
    let seconds = std::env::var("TERRACE_E2E_SECONDS").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(8))
}

#[test]
fn below_capacity_nothing_is_wrong_and_nothing_lost() {
    for engine in ["auto", "pool"] {
        let flags = if is_terrace() { format!("--io-engine {engine}") } else { String::new() };
        let mut server = flash_server(&flags);
        let (hits, misses) = load(&server, 60_000, seconds());
        assert!(hits > 1000, "{hits} hits");
        assert_eq!(misses, 0, "records were lost from a cache that is not full");
        server.assert_alive();
    }
}

#[test]
fn above_capacity_nothing_is_wrong() {
    // A drive of 64 MiB, which the records do not fit.
    let mut server = match is_terrace() {
        true => Server::start("-m 64 --tier ssd:DIR/tier:64m"),
        false => Server::start("-m 64"),
    };
    let (hits, _) = load(&server, 600_000, seconds() * 2);
    assert!(hits > 1000, "{hits} hits");
    if is_terrace() {
        assert!(tier_stat(&mut server.client(), "segment_writes") > 0, "the drive was not used");
    }
    server.assert_alive();
}
