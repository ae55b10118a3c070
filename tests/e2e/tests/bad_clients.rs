//! Clients that behave badly in time: they stall, never read, come in crowds, vanish.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_e2e::{Client, PATIENCE, Server, is_terrace, skip, value_of, wait_until};

#[test]
fn a_stalled_client_holds_up_nobody() {
    // One worker: the stalled and the others share it.
    let mut server = Server::start("-m 64 -t 1");
    let mut stalled: Vec<_> = (0..20).map(|_| server.client()).collect();
    for (at, client) in stalled.iter_mut().enumerate() {
        client.send(format!("set stalled{at} 0 0 10\r\n01234"));
    }
    let good = &mut server.client();
    // Each is answered though the stalled ones never finish: how fast is no matter here.
    for at in 0..1000 {
        let key = format!("k{at}");
        let value = value_of(&key, 0, 100);
        assert!(good.set(&key, &value));
        assert_eq!(good.get(&key), Some(value));
    }
    assert_eq!(good.get("stalled0"), None, "half a value was stored");
    for (at, client) in stalled.iter_mut().enumerate() {
        client.check("56789\r\n", "STORED\r\n");
        assert_eq!(good.get(&format!("stalled{at}")).as_deref(), Some(&b"0123456789"[..]));
    }
    server.assert_alive();
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let server = Server::start("-m 64");
    let client = &mut server.client();
    for byte in b"set k 0 0 5 \r\nab\r\nc\r\nget k\r\nmg k v s\r\n" {
        client.send([*byte]);
        std::thread::sleep(Duration::from_millis(1));
    }
    client.expect("STORED\r\nVALUE k 0 5\r\nab\r\nc\r\nEND\r\nVA 5 s5\r\nab\r\nc\r\n");
}

#[test]
fn a_client_that_never_reads_is_held_back() {
    let mut server = Server::start("-m 64 -t 1");
    let good = &mut server.client();
    let value = value_of("big", 0, 512 << 10);
    assert!(good.set("big", &value));
    let before = server.resident_bytes();
    let mut deaf: Vec<_> = (0..10).map(|_| server.client()).collect();
    // 1000 half megabytes each would be 5 GB of replies.
    let requests = "get big\r\n".repeat(1000);
    for client in &mut deaf {
        client.send(&requests);
    }
    for _ in 0..20 {
        assert_eq!(good.get("big").as_ref(), Some(&value));
        std::thread::sleep(Duration::from_millis(20));
    }
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes kept for clients that do not read");
    // One of them reads at last, and gets everything in order.
    let mut reader = deaf.remove(0);
    for _ in 0..1000 {
        assert_eq!(reader.read_get("big").as_ref(), Some(&value));
    }
    drop(deaf);
    server.assert_alive();
}

#[test]
fn a_deaf_client_that_only_sends_is_held_back_too() {
    let mut server = Server::start("-m 64 -t 1");
    let before = server.resident_bytes();
    let mut deaf = server.client();
    deaf.set_send_timeout(Duration::from_millis(500));
    let block = "version\r\n".repeat(10_000);
    let end = Instant::now() + Duration::from_secs(3);
    // The replies fill both socket buffers, then the server stops reading.
    while Instant::now() < end && deaf.try_send(&block).is_ok() {}
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes kept for a client that does not read");
    server.assert_alive();
}

#[test]
fn who_never_stops_sending_is_answered_meanwhile() {
    // Replies of two bytes each: as many as these would fill no buffer of the server.
    const BATCHES: usize = 300;
    let mut server = Server::start("-m 64 -t 1");
    let mut stream = TcpStream::connect(server.address()).expect("a connection");
    let mut sender = stream.try_clone().expect("a second handle");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let batch = "set k 0 0 10 noreply\r\n0123456789\r\n".repeat(2000) + "mn\r\n";
    let is_answered = Arc::new(AtomicBool::new(false));
    let stops = Arc::clone(&is_answered);
    let sends = std::thread::spawn(move || {
        let go_on = |_: &usize| !stops.load(Ordering::Relaxed);
        (0..BATCHES)
            .take_while(go_on)
            .map(|_| sender.write_all(batch.as_bytes()).expect("sent"))
            .count()
    });
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).expect("a reply");
    is_answered.store(true, Ordering::Relaxed);
    let sent = sends.join().expect("a sender");
    assert_eq!(&reply, b"MN\r\n");
    assert!(sent < BATCHES, "answered only when there was nothing more to come");
    server.assert_alive();
}

/// What a connection above the limit gets to hear.
fn turned_away(client: &mut Client) -> bool {
    let said = client.closed();
    assert!(said.is_empty() || said == "ERROR Too many open connections\r\n", "{said:?}");
    !said.is_empty()
}

#[test]
fn connections_above_the_limit_are_told() {
    let mut server = Server::start("-m 64 -c 100 -t 2");
    // The connections of the start are gone when the count says so.
    let mut held: Vec<Client> = Vec::new();
    let end = Instant::now() + PATIENCE;
    let mut told = false;
    while !told {
        assert!(Instant::now() < end && held.len() <= 100, "{} connections at -c 100", held.len());
        let mut client = server.client();
        match client.try_send("mn\r\n").ok().and_then(|()| client.try_line()) {
            Some(line) if line == "MN" => held.push(client),
            Some(line) => {
                assert_eq!(line, "ERROR Too many open connections");
                told = true;
            }
            None => {}
        }
    }
    // memcached counts some of its own descriptors in.
    assert!(held.len() >= 70, "told after {} connections at -c 100", held.len());
    let mut refused = server.client();
    assert!(turned_away(&mut refused), "closed without a word");
    // Those that are in are not disturbed, and a place that becomes free is given away.
    for client in &mut held {
        client.check("mn\r\n", "MN\r\n");
    }
    assert!(held[0].stat("", "rejected_connections") >= 1);
    held.truncate(5);
    let left = &mut held[0];
    wait_until("places", || (left.stat("", "curr_connections") < 20).then_some(()));
    server.assert_alive();
}

#[test]
fn without_fast_refusal_connections_wait_their_turn() {
    let server = Server::start("-m 64 -c 50 -t 1 -o no_maxconns_fast");
    std::thread::sleep(Duration::from_millis(100));
    let mut held: Vec<_> = (0..80).map(|_| server.client()).collect();
    for client in &mut held {
        client.send("mn\r\n");
    }
    std::thread::sleep(Duration::from_millis(200));
    // One after the other leaves; in the end all were served.
    for mut client in held {
        client.expect("MN\r\n");
    }
}

#[test]
fn silent_connections_are_closed_when_asked_for() {
    let mut server = Server::start("-m 64 -o idle_timeout=1");
    let mut silent = server.client();
    // From before the request on, or a pause of this test would be missing from the time.
    let start = Instant::now();
    silent.check("mn\r\n", "MN\r\n");
    silent.closed();
    let after = start.elapsed();
    assert!(after > Duration::from_millis(500), "closed after {after:?}");
    assert!(server.client().stat("", "idle_kicks") >= 1);
    server.assert_alive();
}

#[test]
fn who_pauses_within_a_value_is_not_idle() {
    let mut server = Server::start("-m 64 -o idle_timeout=1");
    // One that is stored in a piece, one that is stored in chunks, and one that is refused.
    let sizes = [(10_000, "STORED\r\n"), (500_000, "STORED\r\n"), (8 << 20, "")];
    let mut paused: Vec<_> = sizes
        .iter()
        .map(|(bytes, reply)| {
            let mut client = server.client();
            client.send(format!("set k{bytes} 0 0 {bytes}\r\n"));
            client.send("x".repeat(5_000));
            (client, *bytes, *reply)
        })
        .collect();
    // Two that came later, one after the other, were silent for too long.
    for _ in 0..2 {
        let mut silent = server.client();
        silent.check("mn\r\n", "MN\r\n");
        silent.closed();
    }
    for (client, bytes, reply) in &mut paused {
        client.send("x".repeat(*bytes - 5_000) + "\r\n");
        if reply.is_empty() {
            assert_eq!(client.line(), "SERVER_ERROR object too large for cache");
        }
        client.check("mn\r\n", format!("{reply}MN\r\n"));
    }
    server.assert_alive();
}

#[test]
fn who_is_owed_replies_is_not_idle() {
    let mut server = Server::start("-m 64 -o idle_timeout=1");
    // In a piece; chunks are read as the client takes them.
    let value = value_of("k", 0, 30_000);
    let mut owed = server.client();
    assert!(owed.set("k", &value));
    // More than the sockets hold.
    let count = 1500;
    owed.send("get k\r\n".repeat(count));
    // Two that came later, one after the other, were silent for too long.
    for _ in 0..2 {
        let mut silent = server.client();
        silent.check("mn\r\n", "MN\r\n");
        silent.closed();
    }
    for at in 0..count {
        assert_eq!(owed.read_get("k").as_ref(), Some(&value), "reply {at}");
    }
    server.assert_alive();
}

#[test]
fn who_watches_may_be_silent() {
    if !is_terrace() {
        return skip("who_watches_may_be_silent", "another server's log");
    }
    let server = Server::start("-m 64 -o idle_timeout=1");
    let mut watcher = server.client();
    watcher.check("watch deletions\r\n", "OK\r\n");
    // Twice somebody who came later was silent for too long.
    for _ in 0..2 {
        let mut silent = server.client();
        silent.check("mn\r\n", "MN\r\n");
        silent.closed();
    }
    let mut client = server.client();
    client.check("set k 0 0 1\r\nx\r\ndelete k\r\n", "STORED\r\nDELETED\r\n");
    let line = watcher.try_line().expect("it is told");
    assert!(line.contains("type=deleted key=k"), "{line}");
}

#[test]
fn clients_that_vanish_leave_nothing_behind() {
    let mut server = Server::start("-m 64");
    let good = &mut server.client();
    assert!(good.set("k", b"old"));
    for at in 0..200 {
        let mut client = server.client();
        client.send(match at % 4 {
            0 => "get k\r\nget k\r\n",
            1 => "set k 0 0 10\r\n012",
            2 => "set k 0 0 10",
            _ => "",
        });
    }
    wait_until("their end", || (good.stat("", "curr_connections") <= 8).then_some(()));
    assert_eq!(good.get("k").as_deref(), Some(&b"old"[..]));
    server.assert_alive();
}
