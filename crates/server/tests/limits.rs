//! What clients may take from the server. (More of this, against the real binary: `tests/e2e`.)

mod common;

use common::TestServer;
use terrace_e2e::wait_until;

fn buffer_bytes(client: &mut common::Client) -> u64 {
    client.stat("", "read_buf_bytes").parse().expect("a number")
}

#[test]
fn a_client_that_never_reads_is_held_back() {
    let server = TestServer::start();
    let mut client = server.connect();
    let value = "x".repeat(20_000);
    client.ask(format!("set k 0 0 20000\r\n{value}\r\n"), "STORED\r\n");
    let mut deaf = server.connect();
    deaf.send("get k\r\n".repeat(2000));
    let least = || Some(buffer_bytes(&mut client)).filter(|&held| held >= 1 << 20);
    let held = wait_until("bytes that are held for it", least);
    assert!(held < 8 << 20, "{held} bytes are held for it");
    std::thread::sleep(std::time::Duration::from_millis(300));
    let held = buffer_bytes(&mut client);
    assert!((1 << 20..8 << 20).contains(&held), "{held} bytes are held for it");
    deaf.expect(format!("VALUE k 0 20000\r\n{value}\r\nEND\r\n").repeat(2000));
    client.ask("mn\r\n", "MN\r\n");
    wait_until("their release", || (buffer_bytes(&mut client) < 1 << 20).then_some(()));
}

/// A server of one worker whose connections may hold a megabyte in all.
fn small() -> TestServer {
    let change = |settings: &mut terrace::settings::Settings| {
        settings.connection_buffer_bytes_max = CAP;
        settings.threads = 1;
    };
    TestServer::with(change, None)
}

const CAP: u64 = 1 << 20;

#[test]
fn below_the_cap_who_never_reads_is_held_back_and_others_are_served() {
    let server = small();
    let mut client = server.connect();
    let value = "x".repeat(20_000);
    client.ask(format!("set k 0 0 20000\r\n{value}\r\n"), "STORED\r\n");
    let mut deaf: Vec<_> = (0..100).map(|_| server.connect()).collect();
    deaf.iter_mut().for_each(|client| client.send("get k\r\n".repeat(400)));
    let least = || Some(buffer_bytes(&mut client)).filter(|&held| held > CAP / 2);
    wait_until("bytes that are held for them", least);
    for _ in 0..100 {
        client
            .ask("get none\r\nget k\r\n", format!("END\r\nVALUE k 0 20000\r\n{value}\r\nEND\r\n"));
        let held = buffer_bytes(&mut client);
        assert!(held <= CAP, "{held} bytes are held");
    }
    // Whoever reads at last gets everything.
    let last = format!("VALUE k 0 20000\r\n{value}\r\nEND\r\n").repeat(400);
    deaf.iter_mut().for_each(|client| client.expect(&last));
    assert_eq!(client.stat("", "read_buf_oom"), "0");
    wait_until("their release", || (buffer_bytes(&mut client) < CAP / 2).then_some(()));
}

/// The first part of what is to be stored: within a chunk it ends in the middle.
const PART: usize = 29_000;

/// Sends a part of a SET of `bytes`.
fn send_part(client: &mut common::Client, key: &str, bytes: usize) {
    client.send(format!("set {key} 0 0 {bytes}\r\n{}", "x".repeat(PART)));
}

/// The rest, and what is answered to it and to what follows.
fn send_rest(client: &mut common::Client, bytes: usize) -> String {
    client.send(format!("{}\r\nmn\r\n", "x".repeat(bytes - PART)));
    client.receive_until("MN\r\n")
}

#[test]
fn values_that_do_not_fit_below_the_cap_are_refused_and_skipped() {
    // One that is stored in a piece, and one that is stored in chunks.
    for bytes in [30_000, 700_000] {
        let server = small();
        let mut client = server.connect();
        let mut halves: Vec<_> = (0..60).map(|_| server.connect()).collect();
        for (at, client) in halves.iter_mut().enumerate() {
            send_part(client, &format!("k{at}"), bytes);
        }
        let refused = || client.stat("", "store_no_memory").parse::<u64>().ok().filter(|&n| n > 0);
        wait_until("one that is refused", refused);
        let held = buffer_bytes(&mut client);
        assert!(held <= CAP + (256 << 10), "{held} bytes are held");
        // What fits into a buffer is stored all the same.
        client.ask("set short 0 0 1\r\nx\r\n", "STORED\r\n");
        let answers: Vec<_> = halves.iter_mut().map(|client| send_rest(client, bytes)).collect();
        let count = |answer: &str| answers.iter().filter(|said| **said == answer).count();
        let stored = count("STORED\r\nMN\r\n");
        let refused = count("SERVER_ERROR out of memory storing object\r\nMN\r\n");
        assert!(stored >= 5 && refused >= 5 && stored + refused == 60, "{answers:?}");
    }
}

#[test]
fn who_is_idle_longest_goes_where_memory_is_short() {
    let server = small();
    let mut client = server.connect();
    let mut halves: Vec<_> = (0..60).map(|_| server.connect()).collect();
    for (at, client) in halves.iter_mut().enumerate() {
        send_part(client, &format!("k{at}"), 30_000);
    }
    // Not before ten seconds have passed without a byte. More of them come meanwhile: what the first can shrink by may be
    // enough for as many as are there.
    wait_until("the first that is closed", || {
        let mut another = server.connect();
        send_part(&mut another, "another", 30_000);
        halves.push(another);
        std::thread::sleep(std::time::Duration::from_millis(200));
        (client.stat("", "read_buf_oom") != "0").then_some(())
    });
    let value = "x".repeat(30_000);
    client.ask(format!("set k 0 0 30000\r\n{value}\r\n"), "STORED\r\n");
    let number = |row: &str, client: &mut common::Client| -> usize {
        client.stat("", row).parse().expect("a number")
    };
    wait_until("all others to be there", || {
        let closed = number("read_buf_oom", &mut client);
        assert!(closed < 10, "{closed} connections were closed");
        let there = number("curr_connections", &mut client);
        (there + closed == halves.len() + 1).then_some(())
    });
}

#[test]
fn half_a_request_holds_up_nobody() {
    let server = TestServer::with(|settings| settings.threads = 1, None);
    let mut stalled: Vec<_> = (0..50).map(|_| server.connect()).collect();
    for (number, client) in stalled.iter_mut().enumerate() {
        client.send(&"set k 0 0 20000\r\nxxxx"[..1 + number % 20]);
    }
    let mut client = server.connect();
    client.ask("set a 0 0 1\r\n1\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
}

#[test]
fn connections_above_the_limit_are_told() {
    let server = TestServer::with(|settings| settings.connections_max = 3, None);
    let mut clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.ask("mn\r\n", "MN\r\n"));
    let said = server.connect().receive_to_end();
    assert_eq!(said, b"ERROR Too many open connections\r\n");
    assert_eq!(clients[0].stat("", "rejected_connections"), "1");
    clients.pop();
    wait_until("the end of one", || (clients[0].stat("", "curr_connections") == "2").then_some(()));
    server.connect().ask("mn\r\n", "MN\r\n");
}
