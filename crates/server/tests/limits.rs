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

#[test]
fn the_cap_on_buffers_sheds_who_takes_most() {
    let cap = 1 << 20;
    let server = TestServer::with(|settings| settings.connection_buffer_bytes_max = cap, None);
    let mut client = server.connect();
    let value = "x".repeat(20_000);
    client.ask(format!("set k 0 0 20000\r\n{value}\r\n"), "STORED\r\n");
    let mut deaf = server.connect();
    deaf.send("get k\r\n".repeat(2000));
    // In this order: at first the server may not have taken it yet.
    wait_until("one that is shed", || (client.stat("", "read_buf_oom") == "1").then_some(()));
    wait_until("its end", || (client.stat("", "curr_connections") == "1").then_some(()));
    assert!(buffer_bytes(&mut client) < cap);
    client.ask("get none\r\n", "END\r\n");
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
