//! A short GET beside many clients that ask for 18 MB each and read it: from DRAM and from flash.
//! `TERRACE_E2E_READERS` says how many there are.

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use terrace_e2e::{Server, is_terrace, skip, value_of};

/// Threads that read for all clients: with more of them the wait would be for the processor.
const THREADS: usize = 2;
/// How long a GET may take, but for one of a hundred.
const P99_MAX: Duration = Duration::from_millis(200);
const MEASURED_FOR: Duration = Duration::from_secs(3);
/// How often it is measured before it counts: other work on the machine disturbs some.
const ROUNDS: usize = 4;
/// One measurement at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn readers() -> usize {
    std::env::var("TERRACE_E2E_READERS").ok().and_then(|n| n.parse().ok()).unwrap_or(150)
}

/// One client: asks, reads the whole reply, and asks again.
struct Reader {
    stream: TcpStream,
    request: Vec<u8>,
    left: usize,
}

impl Reader {
    /// Reads what there is; how much it was.
    fn go_on(&mut self, reply_bytes: usize, buffer: &mut [u8]) -> usize {
        let here = match self.stream.read(buffer) {
            Ok(0) => panic!("closed with {} bytes to come", self.left),
            Ok(here) => here,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("{error} with {} bytes to come", self.left),
        };
        self.left -= here;
        if self.left == 0 {
            self.left = reply_bytes;
            self.stream.write_all(&self.request).expect("a short request fits");
        }
        here
    }
}

/// Has `count` clients ask and read until `ends`; `request` says what each asks for.
fn read(
    address: SocketAddr,
    count: usize,
    (request, reply_bytes): (impl Fn(usize) -> String, usize),
    (ends, total): (&AtomicBool, &AtomicU64),
) {
    let epoll = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
    let begin = |at: usize| {
        let mut stream = TcpStream::connect(address).expect("a connection");
        let request = request(at).into_bytes();
        stream.write_all(&request).expect("asked");
        stream.set_nonblocking(true).expect("a socket");
        let data = EventData::new_u64(at as u64);
        epoll::add(&epoll, &stream, data, EventFlags::IN).expect("watched");
        Reader { stream, request, left: reply_bytes }
    };
    let mut readers: Vec<_> = (0..count).map(begin).collect();
    let mut buffer = vec![0; 256 << 10];
    let mut events = Vec::with_capacity(64);
    while !ends.load(Ordering::Relaxed) {
        events.clear();
        let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let spare = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(&epoll, spare, Some(&timeout)).expect("waited");
        for event in &events {
            let here = readers[event.data.u64() as usize].go_on(reply_bytes, &mut buffer);
            total.fetch_add(here as u64, Ordering::Relaxed);
        }
    }
}

/// Measures GETs beside clients that ask for each of `keys` keys of `bytes` bytes by turns, 18 MB at once.
fn measure(what: &str, flags: &str, (keys, bytes): (usize, usize)) {
    if !is_terrace() {
        return skip("big_readers", "another server");
    }
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, all).expect("the hard limit is allowed");
    let mut server = Server::start(&format!("-c 4000 {flags}"));
    let good = &mut server.client();
    for at in 0..keys {
        let key = format!("big{at:03}");
        assert!(good.set(&key, &value_of(&key, 0, bytes)));
    }
    let value = value_of("good", 0, 1000);
    assert!(good.set("good", &value));
    let many = 18_000_000 / bytes;
    let request = |at: usize| -> String {
        (0..many).map(|n| format!("get big{:03}\r\n", (at * 7 + n) % keys)).collect()
    };
    let reply_bytes = |at: usize| -> usize {
        let line =
            |n| format!("VALUE big{:03} 0 {bytes}\r\n\r\nEND\r\n", (at * 7 + n) % keys).len();
        (0..many).map(|n| bytes + line(n)).sum()
    };
    // Of equal length, so that all replies are.
    assert!((0..keys).all(|at| reply_bytes(at) == reply_bytes(0)));
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let is_soon = (0..ROUNDS).any(|_| {
        let asked = (&request, reply_bytes(0));
        beside_readers(what, server.address(), asked, || {
            assert_eq!(good.get("good").as_ref(), Some(&value));
        }) <= P99_MAX
    });
    assert!(is_soon, "{what}: not in {P99_MAX:?}");
    server.assert_alive();
}

/// The 99th percentile of what `get` takes beside readers.
fn beside_readers(
    what: &str,
    address: SocketAddr,
    asked: (&(impl Fn(usize) -> String + Sync), usize),
    mut get: impl FnMut(),
) -> Duration {
    let (ends, total) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut took = std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| read(address, readers() / THREADS, asked, (&ends, &total)));
        }
        let mut took = Vec::new();
        let end = Instant::now() + MEASURED_FOR;
        while Instant::now() < end {
            let start = Instant::now();
            get();
            took.push(start.elapsed());
            std::thread::sleep(Duration::from_millis(1));
        }
        ends.store(true, Ordering::Relaxed);
        took
    });
    took.sort_unstable();
    let (p99, most) = (took[took.len() * 99 / 100], took[took.len() - 1]);
    eprintln!(
        "{what}: {} readers, {} MB/s; {} GETs, p50 {:.1?}, p99 {p99:.1?}, at most {most:.1?}",
        readers(),
        total.load(Ordering::Relaxed) / 1_000_000 / MEASURED_FOR.as_secs(),
        took.len(),
        took[took.len() / 2],
    );
    p99
}

#[test]
fn a_get_beside_readers_of_18_values_in_dram_is_answered_soon() {
    measure("18 values of 1 MB in DRAM", "-m 64 -t 4", (1, 1_000_000));
}

#[test]
fn a_get_beside_readers_of_a_long_value_in_dram_is_answered_soon() {
    measure("a value of 18 MB in DRAM", "-m 256 -I 32m -t 4", (1, 18_000_000));
}

#[test]
fn a_get_beside_readers_of_short_values_in_dram_is_answered_soon() {
    measure("600 values of 30 kB in DRAM", "-m 64 -t 4", (1, 30_000));
}

#[test]
fn a_get_beside_readers_of_18_values_on_flash_is_answered_soon() {
    let flags = "-m 64 -t 4 --tier ssd:DIR/tier:1g";
    measure("18 values of 1 MB on flash", flags, (10 * 30, 1_000_000));
}

#[test]
fn a_get_beside_readers_of_a_long_value_on_flash_is_answered_soon() {
    let flags = "-m 64 -I 32m -t 4 --tier ssd:DIR/tier:1g";
    measure("values of 18 MB on flash", flags, (10, 18_000_000));
}
