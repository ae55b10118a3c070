//! `kill -9` under load, many times over, on the real binary with a real file: nothing older, deleted,
//! flushed, expired, torn or foreign comes back, and what was acknowledged does.
//!
//! Each connection owns its keys, so that it knows of each what the server last acknowledged. Requests
//! without an answer at the moment of the crash are in doubt: they happened or they did not.
//! `TERRACE_CRASH_ROUNDS` says how many crashes.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use terrace_e2e::{PATIENCE, Server, is_terrace, skip, wait_until};

const CONNECTIONS: u64 = 4;
const KEYS: u64 = 6_000;
/// By turns: one thread in the background, or several.
const FLAGS: [&str; 2] = [
    "-m 24 -t 2 --tier ssd:DIR/tier:128m --background-threads 1",
    "-m 24 -t 2 --tier ssd:DIR/tier:128m --background-threads 4",
];

/// What a key holds, as far as the server has told.
#[derive(Clone, Debug, PartialEq)]
struct Held {
    value: Vec<u8>,
    /// Unix time behind which it must not be seen; 0 for never.
    expires: u64,
}

impl Held {
    fn count(value: u64) -> Option<Self> {
        Some(Self { value: value.to_string().into_bytes(), expires: 0 })
    }

    fn number(&self) -> Option<u64> {
        String::from_utf8_lossy(&self.value).parse().ok()
    }
}

/// All that a key may hold: one thing, or several while a request is in doubt.
type Oracle = HashMap<u64, Vec<Option<Held>>>;

/// A connection with the keys that are its own.
struct Owner {
    number: u64,
    random: Random,
    version: u64,
    oracle: Oracle,
    /// What was done with each key, for whoever has to find out.
    history: HashMap<u64, Vec<String>>,
}

struct Connection {
    stream: BufReader<TcpStream>,
}

/// The server is gone.
#[derive(Debug)]
struct Gone;

impl From<std::io::Error> for Gone {
    fn from(_: std::io::Error) -> Self {
        Gone
    }
}

impl Connection {
    fn open(server: &Server) -> Result<Self, Gone> {
        let stream = TcpStream::connect(server.address())?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    fn ask(&mut self, request: &[u8]) -> Result<String, Gone> {
        self.stream.get_mut().write_all(request)?;
        self.line()
    }

    fn line(&mut self) -> Result<String, Gone> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        if !line.ends_with("\r\n") {
            return Err(Gone);
        }
        line.truncate(line.len() - 2);
        Ok(line)
    }

    /// The value and CAS number of a key.
    fn gets(&mut self, key: &str) -> Result<Option<(Vec<u8>, String)>, Gone> {
        let line = self.ask(format!("gets {key}\r\n").as_bytes())?;
        if line == "END" {
            return Ok(None);
        }
        let words: Vec<&str> = line.split(' ').collect();
        let [_, _, _, bytes, cas] = words[..] else { panic!("{key}: {line}") };
        let mut value = vec![0; bytes.parse::<usize>().expect("a length") + 2];
        self.stream.read_exact(&mut value)?;
        value.truncate(value.len() - 2);
        assert_eq!(self.line()?, "END");
        Ok(Some((value, cas.to_owned())))
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

impl Owner {
    fn new(number: u64) -> Self {
        let random = Random(number + 77);
        Self { number, random, version: 0, oracle: Oracle::new(), history: HashMap::new() }
    }

    fn note(&mut self, n: u64, what: String) {
        self.history.entry(n).or_default().push(what);
    }

    fn key(&self, n: u64) -> String {
        format!("owner-{}-key-{n}", self.number)
    }

    /// A value that tells whose and which it is, mostly small, now and then an extent.
    fn value(&mut self, n: u64) -> Vec<u8> {
        self.version += 1;
        let bytes = match self.random.below(50) {
            0 => 5_000 + self.random.below(9_000),
            1 => 1_500 + self.random.below(3_000),
            _ => 60 + self.random.below(300),
        };
        let mut value = format!("{}:{n}:{}:", self.number, self.version).into_bytes();
        value.resize(bytes as usize, b'a' + (self.version % 26) as u8);
        value
    }

    /// Sends a request and notes what it made of a key, or may have made of it: a value, and its time
    /// to live if it has one.
    fn change(
        &mut self,
        connection: &mut Connection,
        n: u64,
        request: &[u8],
        (after, ttl): (Option<Vec<u8>>, Option<u64>),
        done: &str,
    ) -> Result<(), Gone> {
        let line = text(request.split(|&b| b == b'\r').next().unwrap_or_default());
        self.note(n, format!("{line} ..."));
        let answer = connection.ask(request);
        // Counted from the answer on: it may have taken the server long to get to it.
        let expires = ttl.map_or(0, |ttl| now() + ttl + 1);
        let after = after.map(|value| Held { value, expires });
        let mut held = self.oracle.get(&n).cloned().unwrap_or_else(|| vec![None]);
        match &answer {
            Ok(answer) => {
                self.note(n, answer.clone());
                if answer == done {
                    held = vec![after];
                }
            }
            Err(Gone) => held.push(after),
        }
        self.oracle.insert(n, held);
        answer.map(drop)
    }

    fn set(&mut self, connection: &mut Connection, n: u64, ttl: Option<u64>) -> Result<(), Gone> {
        let (key, value) = (self.key(n), self.value(n));
        let head = format!("set {key} 0 {} {}\r\n", ttl.unwrap_or(0), value.len());
        let request = [head.as_bytes(), &value, b"\r\n"].concat();
        self.change(connection, n, &request, (Some(value), ttl), "STORED")
    }

    fn request(&mut self, connection: &mut Connection) -> Result<(), Gone> {
        let n = match self.random.below(3) {
            0 => self.random.below(KEYS / 20),
            _ => self.random.below(KEYS),
        };
        let key = self.key(n);
        let known = self.oracle.get(&n).filter(|held| held.len() == 1);
        let held = known.and_then(|held| held[0].clone());
        match self.random.below(20) {
            0 | 1 => {
                let request = format!("delete {key}\r\n");
                let was = self.oracle.get(&n).cloned();
                self.change(connection, n, request.as_bytes(), (None, None), "DELETED")?;
                // A key that was not there, for whatever reason, is not there.
                if was.is_some() {
                    self.oracle.insert(n, vec![None]);
                }
                Ok(())
            }
            2 => {
                let Some(held) = held else { return Ok(()) };
                let request = format!("touch {key} 2\r\n");
                let after = (Some(held.value), Some(2));
                self.change(connection, n, request.as_bytes(), after, "TOUCHED")
            }
            3 => self.set(connection, n, Some(1 + self.version % 3)),
            4 => {
                let asked = now();
                let Some((value, cas)) = connection.gets(&key)? else { return Ok(()) };
                self.check(n, Some(&value), asked);
                let next = self.value(n);
                let head = format!("cas {key} 0 0 {} {cas}\r\n", next.len());
                let request = [head.as_bytes(), &next, b"\r\n"].concat();
                self.change(connection, n, &request, (Some(next), None), "STORED")
            }
            5 | 6 => self.count(connection, KEYS + n % 50),
            7 | 8 => {
                let asked = now();
                let found = connection.gets(&key)?.map(|(value, _)| value);
                self.check(n, found.as_ref(), asked);
                Ok(())
            }
            _ => self.set(connection, n, None),
        }
    }

    /// A counter: every answer must be one more than what it may hold.
    fn count(&mut self, connection: &mut Connection, n: u64) -> Result<(), Gone> {
        let key = self.key(n);
        let held = self.oracle.get(&n).cloned().unwrap_or_default();
        let values: Vec<u64> = held.iter().flatten().filter_map(Held::number).collect();
        if values.is_empty() {
            let request = format!("set {key} 0 0 3\r\n100\r\n");
            let after = (Some(b"100".to_vec()), None);
            return self.change(connection, n, request.as_bytes(), after, "STORED");
        }
        let mut doubt = held.clone();
        doubt.extend(values.iter().map(|value| Held::count(value + 1)));
        self.oracle.insert(n, doubt);
        let answer = connection.ask(format!("incr {key} 1\r\n").as_bytes())?;
        let after = match answer.parse::<u64>() {
            Ok(value) => {
                assert!(values.contains(&(value - 1)), "{key}: {value} after one of {values:?}");
                vec![Held::count(value)]
            }
            Err(_) => held,
        };
        self.oracle.insert(n, after);
        Ok(())
    }

    /// Whether a key that was asked for at that time may hold this. The answer may have taken long, and
    /// what was still alive when it was given be dead by now.
    fn check(&self, n: u64, found: Option<&Vec<u8>>, asked: u64) {
        let Some(found) = found else { return };
        let nothing = vec![None];
        let held = self.oracle.get(&n).unwrap_or(&nothing);
        let may = held
            .iter()
            .flatten()
            .any(|held| held.value == *found && (held.expires == 0 || asked <= held.expires));
        assert!(
            may,
            "{}: found {:?}, may hold {:?}, after {:?}",
            self.key(n),
            text(found),
            held.iter()
                .map(|h| h.as_ref().map(|h| (text(&h.value), h.expires)))
                .collect::<Vec<_>>(),
            self.history.get(&n).map(|all| &all[all.len().saturating_sub(12)..]),
        );
    }

    /// Compares all keys; says how many records must be there, and how many of them are.
    fn compare(&mut self, connection: &mut Connection) -> (u64, u64) {
        let (mut wanted, mut back) = (0, 0);
        let keys: Vec<u64> = self.oracle.keys().copied().collect();
        for n in keys {
            let (key, asked) = (self.key(n), now());
            let found = connection.gets(&key).expect("the server is up").map(|(value, _)| value);
            self.check(n, found.as_ref(), asked);
            self.note(n, format!("compared: {:?}", found.as_ref().map(|value| text(value))));
            let held = &self.oracle[&n];
            let must = held.iter().all(|h| h.as_ref().is_some_and(|h| h.expires == 0));
            if must {
                wanted += 1;
                back += u64::from(found.is_some());
            }
            let held = held.iter().flatten().find(|held| Some(&held.value) == found.as_ref());
            let held = held.cloned();
            self.oracle.insert(n, vec![held]);
        }
        (wanted, back)
    }
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(&value[..value.len().min(40)]).into_owned()
}

/// SplitMix64 (Steele et al. 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }
}

/// Load until the server is killed.
fn load(
    owners: &mut [Owner],
    server: Server,
    millis: u64,
    flushes: bool,
) -> Arc<tempfile::TempDir> {
    let flush = RwLock::new(());
    let is_gone = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (server, flush, is_gone) = (&server, &flush, &is_gone);
        let workers: Vec<_> = owners
            .iter_mut()
            .map(|owner| {
                scope.spawn(move || {
                    let Ok(mut connection) = Connection::open(server) else { return };
                    loop {
                        let _shared = flush.read().expect("no panic");
                        let ends = is_gone.load(Ordering::Relaxed);
                        if ends || owner.request(&mut connection).is_err() {
                            return;
                        }
                    }
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(millis));
        if flushes {
            // Nobody else has a request under way; what comes of it concerns every key.
            let _alone = flush.write().expect("no panic");
            let mut connection = Connection::open(server).expect("the server is up");
            assert_eq!(connection.ask(b"flush_all\r\n").expect("an answer"), "OK");
            is_gone.store(true, Ordering::Relaxed);
        }
        let pid = i32::try_from(server.pid()).expect("a process id");
        let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("a signal");
        is_gone.store(true, Ordering::Relaxed);
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    if flushes {
        for owner in owners.iter_mut() {
            owner.history.values_mut().for_each(|all| all.push("flush_all".into()));
            owner.oracle.values_mut().for_each(|held| *held = vec![None]);
        }
    }
    server.kill()
}

fn wait_until_recovered(server: &Server) {
    wait_until("the end of the recovery", || {
        (server.client().stats("tiers")["recovery"] == "ready").then_some(())
    });
}

#[test]
fn nothing_old_comes_back_after_kill_9_and_what_was_acknowledged_does() {
    if !is_terrace() {
        return skip("crash", "needs Terrace");
    }
    let rounds = std::env::var("TERRACE_CRASH_ROUNDS").ok().and_then(|n| n.parse().ok());
    let rounds: u64 = rounds.unwrap_or(15);
    let mut owners: Vec<Owner> = (0..CONNECTIONS).map(Owner::new).collect();
    let mut random = Random(3);
    let (mut wanted, mut back) = (0, 0);
    let mut server = Server::start(FLAGS[0]);
    for round in 1..=rounds {
        let flushes = random.below(8) == 0;
        let dir = load(&mut owners, server, 50 + random.below(700), flushes);
        server = match Server::try_start(FLAGS[round as usize % FLAGS.len()], dir) {
            Ok(server) => server,
            Err(failed) => panic!("round {round}: does not start: {}", failed.output),
        };
        assert!(
            !server.output().to_lowercase().contains("cold"),
            "round {round}: {}",
            server.output()
        );
        // Every fourth time the next load begins while shards are recovered.
        if random.below(4) == 0 {
            continue;
        }
        wait_until_recovered(&server);
        for owner in &mut owners {
            let mut connection = Connection::open(&server).expect("the server is up");
            let (w, b) = owner.compare(&mut connection);
            (wanted, back) = (wanted + w, back + b);
        }
    }
    println!("{rounds} crashes: {back} of {wanted} acknowledged records came back, none wrong");
    assert!(wanted > 1000 && back * 1000 >= wanted * 999, "{back} of {wanted} came back");
}
