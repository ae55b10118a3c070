//! A server that may not evict (`-M`) and has no room left for a single change.

mod common;

use common::{Client, TestServer};

/// Records that are read, of 2,000 bytes each.
const RECORDS: usize = 1000;
/// Records that grow until nothing fits any more.
const GROWING: usize = 2000;

/// A server without room. The records `s0` to `s999` are stale, `t0` to `t999` live for a thousand seconds.
fn full_server() -> (TestServer, Client) {
    let few = |settings: &mut terrace::settings::Settings| {
        settings.memory_bytes = 16 << 20;
        settings.evict = false;
    };
    let server = TestServer::with(few, None);
    let mut client = server.connect();
    let value = "v".repeat(2000);
    for n in 0..RECORDS {
        client.send(format!("ms s{n} 2000 q\r\n{value}\r\nmd s{n} I q\r\n"));
        client.send(format!("ms t{n} 2000 T1000 q\r\n{value}\r\n"));
    }
    (0..GROWING).for_each(|n| client.send(format!("ms g{n} 0 q\r\n\r\n")));
    client.expect_silence();
    for bytes in [2000, 200] {
        let value = "x".repeat(bytes);
        let grow = |n| format!("append g{n} 0 0 {bytes}\r\n{value}\r\n");
        loop {
            client.send((0..GROWING).map(grow).collect::<String>() + "mn\r\n");
            if !client.receive_until("MN\r\n").contains("STORED") {
                break;
            }
        }
    }
    (server, client)
}

#[test]
fn what_is_stale_is_read_without_a_winner() {
    let (_server, mut client) = full_server();
    let mut winners = 0;
    for n in 0..RECORDS {
        client.send(format!("mg s{n} k v\r\n"));
        let line = client.receive_until("\r\n");
        winners += match line.trim_end().strip_prefix(&format!("VA 2000 ks{n} ")) {
            Some("X W") => 1,
            Some("X") => 0,
            _ => panic!("{line}"),
        };
        client.receive_until("\r\n");
    }
    assert!(winners < RECORDS, "it was not full");
}

#[test]
fn what_is_told_as_touched_is_touched() {
    let (_server, mut client) = full_server();
    let mut touched = 0;
    for n in 0..RECORDS {
        client.send(format!("gat 100000 t{n}\r\nmn\r\n"));
        if client.receive_until("MN\r\n").starts_with("VALUE") {
            client.expect_time_left(&format!("t{n}"), 100_000);
            touched += 1;
        }
    }
    assert!(touched < RECORDS, "it was not full");
}
