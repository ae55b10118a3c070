//! Many clients at once on one tiered server, every answer checked against what was acknowledged:
//! a value of an older version, of another key, or of no version at all fails the test.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_e2e::{
    Client, CutOff, Server, flash_server, is_terrace, push_to_flash, tier_stat, value_of,
};

const CLIENTS: u64 = 6;

/// Each client has its own keys, so it knows what the newest acknowledged version is.
struct Worker {
    id: u64,
    client: Client,
    /// The version of each key; 0 when it is absent.
    versions: Vec<u64>,
    /// How those came to be absent that were stored before.
    absent: HashMap<usize, String>,
    state: u64,
    seen: Seen,
}

/// What came back.
#[derive(Clone, Copy, Default)]
struct Seen {
    hits: u64,
    /// Of keys that were stored.
    misses: u64,
    /// Large values whose connection ended within them.
    cut_off: u64,
}

/// Version of a key that is not used any more, because its newest version is not known.
const RETIRED: u64 = u64::MAX;

impl Worker {
    fn new(server: &Server, id: u64, keys: usize) -> Self {
        let state = (id + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let client = server.client();
        let (versions, absent) = (vec![0; keys], HashMap::new());
        Self { id, client, versions, absent, state, seen: Seen::default() }
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

    fn step(&mut self, server: &Server) {
        let at = self.random(self.versions.len() as u64) as usize;
        if self.versions[at] != RETIRED && self.act(at).is_err() {
            self.seen.cut_off += 1;
            self.versions[at] = RETIRED;
            self.client = server.client();
        }
    }

    /// One request, or a pipeline of a few, for one key.
    fn act(&mut self, at: usize) -> Result<(), CutOff> {
        let key = format!("c{}k{at}", self.id);
        let version = self.versions[at];
        match self.random(100) {
            0..=49 => self.get(at, &key, version)?,
            50..=84 => {
                let next = version + 1 + self.random(1000);
                assert!(self.client.set(&key, &value_of(&key, next, Self::bytes(next))), "{key}");
                self.versions[at] = next;
            }
            85..=89 => {
                let line = self.client.ask(&format!("delete {key}"));
                match line.as_str() {
                    "DELETED" => self.assert_may_be_there(at),
                    "NOT_FOUND" => self.seen.misses += u64::from(version != 0),
                    line => panic!("{line}"),
                }
                self.note_absent(at, &line);
            }
            90..=93 => {
                let next = version + 1;
                let value = value_of(&key, next, Self::bytes(next));
                self.client.send(format!("add {key} 0 0 {}\r\n", value.len()));
                self.client.send([&value[..], b"\r\n"].concat());
                match self.client.line().as_str() {
                    "STORED" => {
                        self.seen.misses += u64::from(version != 0);
                        self.versions[at] = next;
                    }
                    "NOT_STORED" => self.assert_may_be_there(at),
                    line => panic!("{line}"),
                }
            }
            94..=96 => match self.client.ask(&format!("touch {key} 1000")).as_str() {
                "TOUCHED" => self.assert_may_be_there(at),
                "NOT_FOUND" => self.seen.misses += u64::from(version != 0),
                line => panic!("{line}"),
            },
            _ => {
                // A pipeline of a read, a write and a read of the same key.
                let next = version + 1;
                let value = value_of(&key, next, Self::bytes(next));
                self.client.send(format!("get {key}\r\n"));
                self.client.send_set(&key, &value);
                self.client.send(format!("get {key}\r\n"));
                let before = self.client.try_read_get(&key)?;
                self.compare(&key, version, before);
                assert_eq!(self.client.line(), "STORED");
                let after = self.client.try_read_get(&key)?;
                self.compare(&key, next, after);
                self.versions[at] = next;
            }
        }
        Ok(())
    }

    fn get(&mut self, at: usize, key: &str, version: u64) -> Result<(), CutOff> {
        self.client.send(format!("get {key}\r\n"));
        let got = self.client.try_read_get(key)?;
        if got.is_none() {
            // Evicted; known to be absent, so that its return would be noticed.
            self.note_absent(at, "missed");
        }
        self.compare(key, version, got);
        Ok(())
    }

    fn note_absent(&mut self, at: usize, how: &str) {
        let version = std::mem::take(&mut self.versions[at]);
        if version != 0 {
            self.absent.insert(at, format!("{how}, of {} bytes", Self::bytes(version)));
        }
    }

    /// Something found the key.
    fn assert_may_be_there(&self, at: usize) {
        let how = self.absent.get(&at).map_or("never stored", String::as_str);
        assert!(self.versions[at] != 0, "c{}k{at} was back from the dead: {how}", self.id);
    }

    fn compare(&mut self, key: &str, version: u64, got: Option<Vec<u8>>) {
        match got {
            None => self.seen.misses += u64::from(version != 0),
            Some(value) => {
                self.seen.hits += 1;
                let head = String::from_utf8_lossy(&value[..value.len().min(40)]).into_owned();
                assert!(version != 0, "{key} is back from the dead: {head:?}");
                let expected = value_of(key, version, Self::bytes(version));
                assert!(value == expected, "{key} should be version {version}, is {head:?}");
            }
        }
    }
}

/// Runs the load for `time` over `keys` keys; gives back what was seen.
fn load(server: &Server, keys: usize, time: Duration) -> Seen {
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
                            worker.step(server);
                        }
                    }
                    worker.seen
                })
            })
            .collect();
        threads.into_iter().fold(Seen::default(), |all, thread| match thread.join() {
            Ok(seen) => Seen {
                hits: all.hits + seen.hits,
                misses: all.misses + seen.misses,
                cut_off: all.cut_off + seen.cut_off,
            },
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
        let seen = load(&server, 60_000, seconds());
        assert!(seen.hits > 1000, "{} hits", seen.hits);
        assert_eq!(seen.misses, 0, "records were lost from a cache that is not full");
        assert_eq!(seen.cut_off, 0, "values were cut off in a cache that is not full");
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
    // On a slow machine the load alone would not fill it.
    push_to_flash(&mut server.client());
    let Seen { hits, cut_off, .. } = load(&server, 600_000, seconds() * 2);
    assert!(hits > 1000, "{hits} hits");
    // A part of a large value may be evicted between the look at the whole and its turn to be sent.
    assert!(cut_off <= hits / 1000, "{cut_off} values were cut off, of {hits}");
    if is_terrace() {
        assert!(tier_stat(&mut server.client(), "segment_writes") > 0, "the drive was not used");
    }
    server.assert_alive();
}
