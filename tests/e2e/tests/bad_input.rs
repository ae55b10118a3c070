//! What a client can send that no client should: each is answered or closed, harms nobody else, and
//! leaves the connection usable where it stays open.

use std::time::{Duration, Instant};
use terrace_e2e::{Client, Server};

const LONGEST_KEY: usize = 250;

/// Sends `request`, wants `reply` as the first line, then brings the connection back in step:
/// until the answer of `mn` only errors may come (about a body that was taken for commands).
fn refused(client: &mut Client, request: &[u8], reply: &str) {
    let shown = String::from_utf8_lossy(&request[..request.len().min(60)]).into_owned();
    client.send(request);
    assert_eq!(client.line(), reply, "{shown:?}");
    client.send("\r\nmn\r\n");
    loop {
        match client.line().as_str() {
            "MN" => return,
            line => assert!(line.contains("ERROR"), "{shown:?} was followed by {line:?}"),
        }
    }
}

#[test]
fn broken_lines_are_refused_one_by_one() {
    let mut server = Server::start("-m 64");
    let client = &mut server.client();
    client.check("set k 0 0 3\r\nold\r\n", "STORED\r\n");
    let format = "CLIENT_ERROR bad command line format";
    for (request, reply) in [
        ("", format),
        ("bogus", "ERROR"),
        ("GET k", "ERROR"),
        ("get", format),
        ("get ", format),
        ("gat", format),
        ("incr k", format),
        ("delete", format),
        ("touch k", format),
        ("mg", format),
        ("stats bogus-word", "ERROR"),
        ("\u{1}\u{2}\u{7f}", "ERROR"),
        ("incr k x", "CLIENT_ERROR invalid numeric delta argument"),
        ("decr k -1", "CLIENT_ERROR invalid numeric delta argument"),
        ("incr k 1", "CLIENT_ERROR cannot increment or decrement non-numeric value"),
        ("touch k x", "CLIENT_ERROR invalid exptime argument"),
        ("gat x k", "CLIENT_ERROR invalid exptime argument"),
        ("mg k v v", "CLIENT_ERROR duplicate flag"),
        ("mg k Z", "CLIENT_ERROR invalid flag"),
        ("mg !!! b v", "CLIENT_ERROR error decoding key"),
    ] {
        refused(client, format!("{request}\r\n").as_bytes(), reply);
    }
    client.check("get k\r\n", "VALUE k 0 3\r\nold\r\nEND\r\n");
    server.assert_alive();
}

/// Whatever is wrong with the line, and in whatever pieces it comes.
#[test]
fn the_value_of_a_refused_store_is_not_executed() {
    let server = Server::start("-m 64");
    let client = &mut server.client();
    let format = "CLIENT_ERROR bad command line format";
    client.check("set k 0 0 3\r\nold\r\n", "STORED\r\n");
    let long = "k".repeat(LONGEST_KEY + 1);
    for (line, reply) in [
        (format!("set {long} 0 0"), format),
        ("add n -1 0".into(), format),
        ("replace n x 0".into(), format),
        ("append n 0 x".into(), format),
        ("ms n".into(), "CLIENT_ERROR invalid flag"),
        (format!("ms {long}"), format),
    ] {
        let flag = if line.starts_with("ms") { " S" } else { "" };
        for value in ["flush_all", &"\r\nflush_all\r\n".repeat(200_000)] {
            let request = format!("{line} {}{flag}\r\n{value}\r\nmn\r\n", value.len());
            let (first, rest) = request.split_at(request.len() / 2);
            client.send(first);
            client.send(rest);
            client.expect(format!("{reply}\r\nMN\r\n"));
        }
    }
    for value in ["flush_all", &"\r\nflush_all\r\n".repeat(20)] {
        for rest in ["", " x", " -1", " noreply"] {
            let reply =
                if rest == " noreply" { "" } else { "CLIENT_ERROR bad command line format\r\n" };
            client.send(format!("cas n 0 0 {}{rest}\r\n{value}\r\nmn\r\n", value.len()));
            client.expect(format!("{reply}MN\r\n"));
        }
    }
    client.check("get k\r\n", "VALUE k 0 3\r\nold\r\nEND\r\n");
}

#[test]
fn a_store_without_a_readable_length_ends_the_connection() {
    let server = Server::start("-m 64");
    server.client().check("set k 0 0 3\r\nold\r\n", "STORED\r\n");
    for line in [
        "set",
        "set k",
        "set k 0 0",
        "set  0 0 9",
        "set k 0 0 -1",
        "set k 0 0 -2147483648",
        "set k 0 0 abc",
        "set k 0 0 2147483647",
        "set k 0 0 2147483648",
        "ms k",
        "ms k abc",
        "ms k -1",
    ] {
        let mut client = server.client();
        client.send(format!("{line}\r\nflush_all\r\n"));
        assert_eq!(client.line(), "CLIENT_ERROR bad command line format", "{line}");
        client.closed();
    }
    server.client().check("get k\r\n", "VALUE k 0 3\r\nold\r\nEND\r\n");
}

#[test]
fn over_long_keys_are_refused_everywhere() {
    let mut server = Server::start("-m 64");
    let client = &mut server.client();
    let format = "CLIENT_ERROR bad command line format";
    let longest = "k".repeat(LONGEST_KEY);
    let longer = "k".repeat(LONGEST_KEY + 1);
    client.check(format!("set {longest} 0 0 1\r\nx\r\n"), "STORED\r\n");
    client.check(format!("get {longest}\r\n"), format!("VALUE {longest} 0 1\r\nx\r\nEND\r\n"));
    for request in [
        format!("get {longer}"),
        format!("gets {longer}"),
        format!("gat 0 {longer}"),
        format!("set {longer} 0 0 1\r\nx"),
        format!("add {longer} 0 0 1\r\nx"),
        format!("append {longer} 0 0 1\r\nx"),
        format!("cas {longer} 0 0 1 1\r\nx"),
        format!("delete {longer}"),
        format!("incr {longer} 1"),
        format!("touch {longer} 1"),
        format!("mg {longer} v"),
        format!("ms {longer} 1\r\nx"),
        format!("md {longer}"),
    ] {
        refused(client, format!("{request}\r\n").as_bytes(), format);
    }
    let flags = "CLIENT_ERROR invalid or duplicate flag";
    refused(client, format!("ma {longer}\r\n").as_bytes(), flags);
    // In a list the keys before it may have been answered; nothing behind it is.
    client.send(format!("get {longest} {longer} {longest}\r\n"));
    let mut line = client.line();
    while line.starts_with("VALUE ") || line == "x" {
        line = client.line();
    }
    assert_eq!(line, format);
    client.check("mn\r\n", "MN\r\n");
    server.assert_alive();
}

#[test]
fn a_wrong_terminator_loses_the_data_only() {
    let mut server = Server::start("-m 64");
    let client = &mut server.client();
    let chunk = "CLIENT_ERROR bad data chunk";
    refused(client, b"set k 0 0 1\r\nxy\r\n", chunk);
    refused(client, b"set k 0 0 3\r\nxyz\rq", chunk);
    refused(client, b"ms k 1\r\nxy\r\n", chunk);
    refused(client, b"set k 0 0 0\r\nxy\r\n", chunk);
    refused(client, b"append k 0 0 2\r\nxyz\r\n", chunk);
    client.check("get k\r\n", "END\r\n");
    server.assert_alive();
}

#[test]
fn values_beyond_the_limit_are_swallowed_and_void_the_old_one() {
    let mut server = Server::start("-m 64 -I 1m");
    let client = &mut server.client();
    let huge = vec![b'x'; (1 << 20) + 1];
    for (request, reply) in [
        (format!("set k 0 0 {}\r\n", huge.len()), "SERVER_ERROR object too large for cache\r\n"),
        (format!("ms k {}\r\n", huge.len()), "SERVER_ERROR object too large for cache\r\n"),
    ] {
        client.check("set k 0 0 3\r\nold\r\n", "STORED\r\n");
        client.send(request);
        client.send(&huge);
        client.send("\r\n");
        client.expect(reply);
        client.check("mn\r\n", "MN\r\n");
        client.check("get k\r\n", "END\r\n");
    }
    server.assert_alive();
}

#[test]
fn an_announced_gigabyte_costs_nothing() {
    let mut server = Server::start("-m 64");
    let before = server.resident_bytes();
    let mut clients: Vec<_> = (0..50).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send("set k 0 0 1073741824\r\nabc");
    }
    server.assert_alive();
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes for announcements");
}

#[test]
fn a_line_without_end_is_cut_off() {
    let mut server = Server::start("-m 64");
    let mut client = server.client();
    client.send("x".repeat(4000));
    client.closed();
    let mut client = server.client();
    client.send(format!("set {}", "k".repeat(4000)));
    client.closed();
    server.assert_alive();
}

#[test]
fn a_line_of_keys_may_be_long_but_not_endless() {
    let mut server = Server::start("-m 64");
    let client = &mut server.client();
    client.check("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    client.send(format!("get{}\r\n", " k".repeat(5000)));
    for _ in 0..5000 {
        client.expect("VALUE k 0 1\r\nx\r\n");
    }
    client.expect("END\r\n");

    // One that never ends: taken for as long as it likes, or cut off, but never kept whole.
    let before = server.resident_bytes();
    let mut client = server.client();
    client.send("get ");
    let keys = "k".repeat(249) + " ";
    let block = keys.repeat(256);
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end && client.try_send(&block).is_ok() {
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < 64 << 20, "{grown} bytes kept of one line");
        if grown > 32 << 20 {
            break;
        }
    }
    drop(client);
    server.assert_alive();
}

#[test]
fn other_protocols_are_turned_away() {
    let mut server = Server::start("-m 64");
    let mut client = server.client();
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    client.closed();
    // The beginning of a TLS handshake: an answer or an end, not silence with a kept line.
    let mut client = server.client();
    client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n");
    client.expect("ERROR\r\n");
    server.assert_alive();
}

#[test]
fn noise_harms_nobody() {
    let mut server = Server::start("-m 64");
    let good = &mut server.client();
    good.check("set stays 0 0 3\r\nval\r\n", "STORED\r\n");
    // A small generator of our own: the same noise in every run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words: [&[u8]; 16] = [
        b"get ",
        b"set ",
        b"ms ",
        b"mg ",
        b"ma ",
        b"\r\n",
        b"\n",
        b" ",
        b"0 0 ",
        b"5\r\n",
        b"k",
        b"-1 ",
        b"noreply",
        b" v k O1",
        b"\x00\xff\x7f",
        b"99999999999 ",
    ];
    for _ in 0..200 {
        let mut noise = Vec::new();
        for _ in 0..random() % 40 {
            noise.extend_from_slice(words[(random() % 16) as usize]);
        }
        let mut client = server.client();
        let _ = client.try_send(&noise);
        client.end();
        client.closed();
    }
    good.check("get stays\r\n", "VALUE stays 0 3\r\nval\r\nEND\r\n");
    server.assert_alive();
}
