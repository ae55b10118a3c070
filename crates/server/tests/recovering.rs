//! Requests while a start brings back what is on a drive.

mod common;

use common::{TestServer, open_file};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace::settings::Settings;
use terrace_cache::{Cache, Config, Tier, Tuning};
use terrace_device::{AlignedBuf, Drive, Geometry, Reads};
use terrace_e2e::PATIENCE;

const VALUES: usize = 24;

/// A drive whose reads take as long as they are held up. Workers have one of their own.
struct Held {
    drive: Arc<dyn Drive>,
    holds: AtomicBool,
}

impl Drive for Held {
    fn label(&self) -> &str {
        self.drive.label()
    }
    fn geometry(&self) -> Geometry {
        self.drive.geometry()
    }
    fn read_at(&self, offset: u64, buf: &mut AlignedBuf) -> io::Result<()> {
        wait_until(|| !self.holds.load(Ordering::Acquire));
        self.drive.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &AlignedBuf) -> io::Result<()> {
        self.drive.write_at(offset, buf)
    }
    fn flush(&self) -> io::Result<()> {
        self.drive.flush()
    }
    fn reads(&self) -> Reads<'_> {
        self.drive.reads()
    }
}

/// Holds up no read any more where the test is over, so that the recovery of a server that is dropped comes to its end.
struct Release<'a>(&'a Held);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.holds.store(false, Ordering::Release);
    }
}

/// For so long at most that a test which fails ends.
fn wait_until(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn open(drive: Arc<dyn Drive>) -> Arc<Cache> {
    let tuning = Tuning { shards: Some(8), ..Tuning::default() };
    Cache::open(Config { tiers: vec![Tier::new(drive)], tuning, ..Config::new(64 << 20) })
        .expect("a cache")
}

fn key(n: usize) -> String {
    format!("large-{n}")
}

fn value(n: usize) -> Vec<u8> {
    format!("{n:08}").into_bytes().repeat(100_000)
}

fn reply(n: usize) -> String {
    let value = String::from_utf8(value(n)).expect("digits");
    format!("VALUE {} 0 {}\r\n{value}\r\nEND\r\n", key(n), value.len())
}

/// Its manifest may be back before its chunks: then it is missed, and is there later on.
#[test]
fn a_large_value_that_is_read_too_early_is_not_lost() {
    let (file, _dir) = open_file(256 << 20);
    let drive: Arc<dyn Drive> = Arc::new(file);
    let settings = Settings { threads: 2, ..Settings::default() };
    let cache = open(Arc::clone(&drive));
    let server = TestServer::serving(&settings, Arc::clone(&cache), &[Arc::clone(&drive)]);
    let mut client = server.connect();
    for n in 0..VALUES {
        client.send(format!("set {} 0 0 {}\r\n", key(n), value(n).len()));
        client.ask([&value(n)[..], b"\r\n"].concat(), "STORED\r\n");
    }
    drop((client, server));
    assert!(cache.close(1, &|| true), "comes to the end");
    drop(cache);

    let held = Arc::new(Held { drive: Arc::clone(&drive), holds: AtomicBool::new(false) });
    let cache = open(Arc::clone(&held) as Arc<_>);
    for _ in 0..4 {
        assert!(cache.recover(), "half of the shards");
    }
    held.holds.store(true, Ordering::Release);
    let server = TestServer::serving(&settings, Arc::clone(&cache), &[drive]);
    let _release = Release(&held);
    let mut client = server.connect();
    let missed = (0..VALUES).filter(|&n| {
        client.send(format!("get {}\r\n", key(n)));
        let answer = client.receive_until("END\r\n");
        assert!(answer == "END\r\n" || answer == reply(n), "{}", key(n));
        answer == "END\r\n"
    });
    // One in five hundred lies in these shards with all of its chunks, and is hit.
    assert!(missed.count() > VALUES / 2, "a value lacks chunks");
    held.holds.store(false, Ordering::Release);
    wait_until(|| cache.recovering() == 0);
    for n in 0..VALUES {
        client.ask(format!("get {}\r\n", key(n)), reply(n));
    }
}

/// A cache whose only drive has `small-0` to `small-23`, of which a start has brought nothing back yet, and goes on with
/// that when the guard is dropped.
fn held_up(drive: &Arc<dyn Drive>, settings: &Settings) -> (Arc<Held>, TestServer) {
    let cache = open(Arc::clone(drive));
    let server = TestServer::serving(settings, Arc::clone(&cache), &[Arc::clone(drive)]);
    let mut client = server.connect();
    for n in 0..VALUES {
        client.ask(format!("set small-{n} 7 0 2\r\n4{}\r\n", n % 10), "STORED\r\n");
    }
    drop((client, server));
    assert!(cache.close(1, &|| true), "comes to the end");
    drop(cache);
    let held = Arc::new(Held { drive: Arc::clone(drive), holds: AtomicBool::new(false) });
    let cache = open(Arc::clone(&held) as Arc<_>);
    held.holds.store(true, Ordering::Release);
    let server = TestServer::serving(settings, cache, &[Arc::clone(drive)]);
    (held, server)
}

const REFUSED: &str = "SERVER_ERROR still recovering, try again later\r\n";

/// What was there is not known yet: no answer may say that there was nothing.
#[test]
fn a_change_that_depends_on_a_record_is_refused_where_it_is_not_back_within_a_second() {
    let (file, _dir) = open_file(256 << 20);
    let drive: Arc<dyn Drive> = Arc::new(file);
    let settings = Settings { threads: 1, ..Settings::default() };
    let (held, server) = held_up(&drive, &settings);
    let release = Release(&held);
    let requests = [
        "incr small-0 1\r\n",
        "decr small-1 1\r\n",
        "append small-2 0 0 1\r\nx\r\n",
        "prepend small-3 0 0 1\r\nx\r\n",
        "replace small-4 0 0 1\r\nx\r\n",
        "add small-5 0 0 1\r\nx\r\n",
        "cas small-6 0 0 1 5\r\nx\r\n",
        "touch small-7 0\r\n",
        "gat 0 small-8\r\n",
        "gats 0 small-9\r\n",
        "delete small-10\r\n",
        "ms small-11 1 ME\r\nx\r\n",
        "ms small-12 1 C5\r\nx\r\n",
        "ma small-13\r\n",
        "md small-14\r\n",
        "mg small-15 v N0\r\n",
        "mg small-16 v T0\r\n",
        "ma small-17 N0 J5\r\n",
    ];
    // They wait beside each other.
    let mut clients: Vec<_> = requests.iter().map(|_| server.connect()).collect();
    let start = Instant::now();
    for (client, request) in clients.iter_mut().zip(requests) {
        client.send(request);
    }
    // Who changes the key knows what is there; a GET may miss.
    let mut other = server.connect();
    other.ask("set small-20 0 0 1\r\ny\r\n", "STORED\r\n");
    other.ask("add small-20 0 0 1\r\nz\r\n", "NOT_STORED\r\n");
    other.ask("delete small-20\r\n", "DELETED\r\n");
    other.ask("add small-20 0 0 1\r\nz\r\n", "STORED\r\n");
    other.ask("get small-20\r\n", "VALUE small-20 0 1\r\nz\r\nEND\r\n");
    other.ask("get small-21\r\n", "END\r\n");
    other.ask("mg small-21 v\r\n", "EN\r\n");
    for (client, request) in clients.iter_mut().zip(requests) {
        let answer = client.receive_until("\r\n");
        assert_eq!(answer, REFUSED, "{request}");
        client.ask("mn\r\n", "MN\r\n");
    }
    assert!(start.elapsed() >= Duration::from_secs(1), "too soon");
    // ADD of the binary protocol, with opaque 7.
    let mut binary = server.connect();
    let mut add = vec![0x80, 2, 0, 7, 8, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0];
    add.extend([0; 8]);
    add.extend(b"small-5x");
    binary.send(&add);
    let mut refused =
        vec![0x81, 2, 0, 0, 0, 0, 0, 0x86, 0, 0, 0, 17, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0];
    refused.extend(b"Temporary failure");
    binary.expect(refused);
    // Who needs none of them goes on meanwhile, on the only worker: at one time or another also on a slow machine.
    let mut count = requests.len() + 1;
    let goes_on = (0..20).any(|_| {
        clients[0].send("incr small-0 1\r\n");
        let start = Instant::now();
        other.ask("mg small-20 v\r\n", "VA 1\r\nz\r\n");
        let took = start.elapsed();
        clients[0].expect(REFUSED);
        count += 1;
        took < Duration::from_millis(500)
    });
    assert!(goes_on, "all wait for one");
    other.send("stats tiers\r\n");
    let stats = other.receive_until("END\r\n");
    assert!(stats.contains(&format!("STAT recovery_refused {count}\r\n")), "{stats}");
    drop(release);
    // Nothing was changed by what was refused.
    for n in 0..18 {
        let expected = format!("VALUE small-{n} 7 2\r\n4{}\r\nEND\r\n", n % 10);
        wait_until(|| {
            let mut client = server.connect();
            client.send(format!("get small-{n}\r\n"));
            client.receive_until("END\r\n") == expected
        });
        other.ask(format!("get small-{n}\r\n"), expected);
    }
}

/// A shard that comes back in time has the right answer.
#[test]
fn a_change_that_depends_on_a_record_waits_for_it() {
    let (file, _dir) = open_file(256 << 20);
    let drive: Arc<dyn Drive> = Arc::new(file);
    let settings = Settings { threads: 1, ..Settings::default() };
    let (held, server) = held_up(&drive, &settings);
    let release = Release(&held);
    let mut client = server.connect();
    client.send(
        "add small-0 0 0 1\r\nx\r\nincr small-1 1\r\ndelete small-2\r\nadd none 0 0 1\r\nx\r\n",
    );
    std::thread::sleep(Duration::from_millis(100));
    drop(release);
    assert_eq!(client.receive_until("DELETED\r\n"), "NOT_STORED\r\n42\r\nDELETED\r\n");
    assert_eq!(client.receive_until("\r\n"), "STORED\r\n");
}
