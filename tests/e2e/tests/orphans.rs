//! `kill -9` while large values are uploaded, deleted and replaced, on the real binary with a real file: once the start
//! is over, the cache holds the bytes of the values that it should hold, and of no others.
//!
//! `TERRACE_ORPHAN_ROUNDS` says how many crashes each mode sees.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_e2e::{Client, PATIENCE, Server, is_terrace, skip, value_of, wait_until};

const MODES: [(&str, u64); 3] = [
    ("-m 64 -t 2 -I 8m --tier ssd:DIR/tier:256m", 14),
    ("-m 64 -t 2 -I 8m -M --tier ssd:DIR/tier:256m", 14),
    ("-m 64 -t 2 -I 8m --tier ssd:DIR/upper:64m --tier ssd:DIR/lower:256m,below", 14),
];
const VALUE_BYTES: usize = 6 << 20;
/// Uploads that do not come to their end.
const HALVES: usize = 6;
/// What live bytes may differ by from those of the values, in percent.
const TOLERANCE: u64 = 1;

/// What the cache should hold: the version of each key's value.
type Model = Vec<Option<u64>>;

fn key(n: usize) -> String {
    format!("large{n}")
}

fn set(client: &mut Client, n: usize, version: u64) {
    assert!(client.set(&key(n), &value_of(&key(n), version, VALUE_BYTES)), "{n}");
}

/// Begins uploads that are still under way when the server is killed.
fn begin_halves(server: &Server, round: u64) -> Vec<Client> {
    let begin = |n: usize| {
        let mut client = server.client();
        client.send(format!("set half{n} 0 0 {VALUE_BYTES}\r\n"));
        client.send(value_of("half", round, VALUE_BYTES / (n + 1) - 1));
        client
    };
    (0..HALVES).map(begin).collect()
}

/// A round of changes, the last of them right before the crash.
fn change(server: &Server, model: &mut Model, round: u64) {
    let mut client = server.client();
    for (n, held) in model.iter_mut().enumerate().filter(|(_, held)| held.is_none()) {
        set(&mut client, n, round);
        *held = Some(round);
    }
    let _halves = begin_halves(server, round);
    // Time for some of it to be sealed.
    thread::sleep(Duration::from_millis(20 * (round % 10)));
    for (n, held) in model.iter_mut().enumerate() {
        match (n as u64 + round) % 3 {
            0 => {
                client.check(format!("delete {}\r\n", key(n)), "DELETED\r\n");
                *held = None;
            }
            1 if round.is_multiple_of(2) => {
                client.check(format!("set {} 0 0 5\r\nsmall\r\n", key(n)), "STORED\r\n");
                client.check(format!("delete {}\r\n", key(n)), "DELETED\r\n");
                *held = None;
            }
            1 => {
                set(&mut client, n, round + 1000);
                *held = Some(round + 1000);
            }
            _ => {}
        }
    }
}

/// Waits until the start is over, and says how many bytes are live then.
fn live_bytes(server: &Server, wanted: u64) -> u64 {
    let mut client = server.client();
    wait_until("the start is over", || {
        let rows = client.stats("tiers");
        (rows["recovery"] == "ready" && rows["chunk_search"] == "done").then_some(())
    });
    // What was found is removed a slice at a time.
    let end = Instant::now() + PATIENCE / 4;
    loop {
        let live = client.stat("", "bytes");
        if live.abs_diff(wanted) * 100 <= wanted * TOLERANCE || Instant::now() > end {
            return live;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn crash(flags: &str, keys: u64, rounds: u64) {
    let mut server = Server::start(flags);
    let mut model: Model = vec![None; keys as usize];
    let (mut worst, mut took) = (0, Duration::ZERO);
    for round in 1..=rounds {
        change(&server, &mut model, round);
        let dir: Arc<TempDir> = server.kill();
        server = match Server::try_start(flags, dir) {
            Ok(server) => server,
            Err(failed) => panic!("{flags}: round {round}: {}", failed.output),
        };
        assert!(!server.output().to_lowercase().contains("cold"), "{flags}: {}", server.output());
        let wanted = model.iter().flatten().count() as u64 * VALUE_BYTES as u64;
        let start = Instant::now();
        let live = live_bytes(&server, wanted);
        took = took.max(start.elapsed());
        let off = live.abs_diff(wanted) * 10_000 / wanted;
        assert!(off <= TOLERANCE * 100, "{flags}: round {round}: {live} bytes live, not {wanted}");
        worst = worst.max(off);
        let mut client = server.client();
        for (n, held) in model.iter().enumerate() {
            let value = client.get(&key(n));
            let wanted = held.map(|version| value_of(&key(n), version, VALUE_BYTES));
            assert!(value == wanted, "{flags}: round {round}: {}", key(n));
        }
    }
    println!(
        "{flags}: {rounds} crashes: live bytes off by {}.{:02} % at most, {} ms after a start",
        worst / 100,
        worst % 100,
        took.as_millis()
    );
}

#[test]
fn crashes_within_uploads_and_deletes_of_large_values_leave_no_bytes_behind() {
    if !is_terrace() {
        return skip("orphans", "memcached keeps nothing over a crash");
    }
    let rounds = std::env::var("TERRACE_ORPHAN_ROUNDS").ok().and_then(|n| n.parse().ok());
    for (flags, keys) in MODES {
        crash(flags, keys, rounds.unwrap_or(2));
    }
}
