//! Clients that ask for much of a drive and go without waiting for it.

use std::net::TcpStream;
use std::time::{Duration, Instant};
use terrace_e2e::{Client, assert_on_flash, fill, flash_server, push_to_flash};

const RECORDS: usize = 20_000;
const CLIENTS: usize = 100;
const ROUNDS: usize = 10;

/// What they asked for is not read for nobody: it would keep others waiting, and memory.
#[test]
fn what_nobody_waits_for_is_not_read() {
    let server = flash_server("-t 1");
    let mut client = server.client();
    fill(&mut client, "r", RECORDS, 500);
    push_to_flash(&mut client);
    assert_on_flash(&mut client, "r7");
    let before = server.resident_bytes();
    for round in 0..ROUNDS {
        let clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
        for (at, mut client) in clients.into_iter().enumerate() {
            let key = |n: usize| (n * 7919 + at * 31 + round * 101) % RECORDS;
            let gets: String = (0..1000).map(|n| format!("get r{}\r\n", key(n))).collect();
            // The kernel's buffers may be full, since nobody reads.
            client.set_send_timeout(Duration::from_millis(20));
            let _ = client.try_send(gets);
        }
    }
    let start = Instant::now();
    assert!(client.get("r11").is_some());
    let took = start.elapsed();
    assert!(took < Duration::from_secs(3), "a GET beside what nobody waits for took {took:?}");
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 200 << 20, "{} MiB for what nobody waits for", grown >> 20);
    drop(TcpStream::connect(server.address()).expect("it still listens"));
}
