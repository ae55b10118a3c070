//! Requests while a start brings back what is on a drive.

mod common;

use common::{TestServer, open_file};
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace::settings::Settings;
use terrace_cache::{Cache, Config, Tier, Tuning};
use terrace_device::{AlignedBuf, Device, Geometry};
use terrace_e2e::PATIENCE;

const VALUES: usize = 24;

/// A drive whose reads take as long as they are held up. Workers have one of their own.
struct Held {
    drive: Arc<dyn Device>,
    holds: AtomicBool,
}

impl Device for Held {
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
    fn raw_fd(&self) -> Option<RawFd> {
        self.drive.raw_fd()
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

fn open(drive: Arc<dyn Device>) -> Arc<Cache> {
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
    let drive: Arc<dyn Device> = Arc::new(file);
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
