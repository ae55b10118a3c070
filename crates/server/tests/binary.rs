//! Conversations in the binary protocol, and the ways to say who one is.

mod common;

use common::binary::{Answer, GET, NOOP, SET, frame, packet, receive};
use common::{Client, TestServer};
use std::io::Write;
use terrace::settings::{PasswordFile, Settings};

/// What is asked for, and what comes back.
fn set(key: &str, value: &[u8]) -> Vec<u8> {
    packet(SET, &[0; 8], key, value, 0)
}

fn failure(opcode: u8, status: u16, text: &str) -> Vec<u8> {
    frame(0x81, opcode, status, (b"", b"", text.as_bytes()), 0)
}

fn success(opcode: u8) -> Vec<u8> {
    failure(opcode, 0, "")
}

fn ask(client: &mut Client, packet: Vec<u8>) -> Answer {
    client.send(packet);
    receive(client)
}

/// Nothing was said since, as the answer to a NOOP shows.
#[track_caller]
fn expect_silence(client: &mut Client) {
    client.send(packet(NOOP, b"", "", b"", 0));
    client.expect(success(NOOP));
}

#[test]
fn values_come_back_with_flags_and_cas() {
    let server = TestServer::start();
    let mut client = server.connect();
    let stored = ask(&mut client, packet(SET, &[0, 0, 0, 7, 0, 0, 0, 0], "k", b"abc", 0));
    assert_eq!((stored.status, stored.value.len()), (0, 0));
    assert!(stored.cas > 0);
    for (opcode, key) in [(GET, ""), (0x09, ""), (0x0c, "k"), (0x0d, "k")] {
        let got = ask(&mut client, packet(opcode, b"", "k", b"", 0));
        assert_eq!((got.status, got.opcode, got.cas), (0, opcode, stored.cas));
        assert_eq!((&got.extras[..], &got.value[..]), (&[0, 0, 0, 7][..], &b"abc"[..]));
        assert_eq!(got.key, key.as_bytes());
    }
    for opcode in [0x1d, 0x1e, 0x23, 0x24] {
        let got = ask(&mut client, packet(opcode, &[0, 0, 1, 0], "k", b"", 0));
        assert_eq!((got.status, &got.value[..]), (0, &b"abc"[..]), "{opcode:x}");
    }
    let touched = ask(&mut client, packet(0x1c, &[0, 0, 1, 0], "k", b"", 0));
    assert_eq!(
        (touched.status, &touched.extras[..], touched.value.len()),
        (0, &[0, 0, 0, 7][..], 0)
    );
    // What was touched has a time to live now, as another connection sees it.
    let mut other = server.connect();
    other.send("mg k t\r\n");
    assert!(other.receive_until("\r\n").starts_with("HD t25"));
}

#[test]
fn failures_have_memcacheds_words() {
    let server = TestServer::start();
    let mut client = server.connect();
    let not_found = |opcode| failure(opcode, 1, "Not found");
    for (opcode, extras) in [(GET, 0), (0x04, 0), (0x1c, 4), (0x1d, 4), (0x03, 8), (0x13, 8)] {
        let packet = packet(opcode, &vec![0; extras], "none", b"", 0);
        client.send(packet);
        client.expect(not_found(opcode));
    }
    for opcode in [0x0c, 0x23] {
        let extras = if opcode == 0x23 { &[0; 4][..] } else { b"" };
        client.send(packet(opcode, extras, "none", b"", 0));
        client.expect(frame(0x81, opcode, 1, (b"", b"none", b""), 0));
    }
    for opcode in [0x0e, 0x0f, 0x19, 0x1a] {
        client.send(packet(opcode, b"", "none", b"x", 0));
        client.expect(failure(opcode, 5, "Not stored."));
    }
    let no_create = [[0; 16].as_slice(), &[255; 4]].concat();
    client.send(packet(0x05, &no_create, "none", b"", 0));
    client.expect(not_found(0x05));
    let cas = ask(&mut client, set("k", b"abc")).cas;
    client.send(packet(0x02, &[0; 8], "k", b"x", 0));
    client.expect(failure(0x02, 2, "Data exists for key."));
    client.send(packet(0x05, &[0; 20], "k", b"", 0));
    client.expect(failure(0x05, 6, "Non-numeric server-side value for incr or decr"));
    for (opcode, extras) in [(0x01, 8), (0x04, 0), (0x0e, 0), (0x12, 8)] {
        client.send(packet(opcode, &vec![0; extras], "k", b"", cas + 1).as_slice());
        client.expect(failure(opcode, 2, "Data exists for key."));
    }
    client.send(packet(0x01, &[0; 8], "none", b"x", 9));
    client.expect(failure(0x01, 1, "Not found"));
    client.send(packet(0x30, b"", "key", b"value", 0));
    client.expect(failure(0x30, 0x81, "Unknown command"));
    client.send(packet(0x20, b"", "", b"", 0));
    client.expect(failure(0x20, 0x81, "Unknown command"));
    client.send(packet(0x21, b"", "PLAIN", b"\0u\0p", 0));
    client.expect(failure(0x21, 0x81, "Unknown command"));
    client.send(packet(0x10, b"", "bogus", b"", 0));
    client.expect(failure(0x10, 1, "Not found"));
    expect_silence(&mut client);
    // As in memcached one with the wrong CAS number is no miss.
    assert_eq!(server.connect().stat("", "delete_misses"), "1");
}

#[test]
fn quiet_commands_are_silent_about_what_was_expected() {
    let server = TestServer::start();
    let mut client = server.connect();
    let mut stream = Vec::new();
    for number in 0..50 {
        stream.extend(packet(0x11, &[0; 8], &format!("k{number}"), b"v", 0));
    }
    stream.extend(packet(0x19, b"", "k1", b"w", 0));
    stream.extend(packet(0x14, b"", "k2", b"", 0));
    stream.extend(packet(0x15, &[0; 20], "n", b"", 0));
    stream.extend(packet(0x18, &[0, 1, 0, 0], "", b"", 0));
    for number in 0..60 {
        stream.extend(packet(0x09, b"", &format!("k{number}"), b"", 0));
    }
    stream.extend(packet(NOOP, b"", "", b"", 0));
    client.send(stream);
    for number in (0..50).filter(|&number| number != 2) {
        let value = if number == 1 { &b"vw"[..] } else { b"v" };
        let got = receive(&mut client);
        assert_eq!((got.opcode, &got.value[..]), (0x09, value), "k{number}");
    }
    client.expect(success(NOOP));
    client.send(packet(0x17, b"", "", b"", 0));
    assert_eq!(client.receive_to_end(), b"");
    let mut client = server.connect();
    client.send(packet(0x07, b"", "", b"", 0));
    assert_eq!(client.receive_to_end(), success(0x07));
}

#[test]
fn numbers_are_counted() {
    let server = TestServer::start();
    let mut client = server.connect();
    let arith = |opcode, delta: u64, initial: u64, exptime: u32| {
        let extras =
            [&delta.to_be_bytes()[..], &initial.to_be_bytes(), &exptime.to_be_bytes()].concat();
        packet(opcode, &extras, "n", b"", 0)
    };
    for (request, number) in [
        (arith(5, 1, 10, 0), 10u64),
        (arith(5, 5, 0, u32::MAX), 15),
        (arith(6, 100, 0, 0), 0),
        (arith(6, 1, 0, 0), 0),
        (arith(5, u64::MAX, 0, 0), u64::MAX),
        (arith(5, 2, 0, 0), 1),
    ] {
        let answer = ask(&mut client, request);
        assert_eq!((answer.status, &answer.value[..]), (0, &number.to_be_bytes()[..]));
        assert!(answer.cas > 0);
    }
}

#[test]
fn lengths_that_contradict_each_other_end_the_connection() {
    let server = TestServer::start();
    let long = "k".repeat(251);
    let mut short = packet(GET, b"", "key", b"", 0);
    short[11] = 1;
    for (packet, status, text) in [
        (packet(GET, b"", "", b"", 0), 4, "Invalid arguments"),
        (packet(GET, b"", &long, b"", 0), 4, "Invalid arguments"),
        (packet(SET, b"", "k", b"v", 0), 4, "Invalid arguments"),
        (short, 0x81, "Unknown command"),
    ] {
        let mut client = server.connect();
        let opcode = packet[1];
        client.send(packet);
        assert_eq!(client.receive_to_end(), failure(opcode, status, text));
    }
    let mut client = server.connect();
    client.send(packet(NOOP, b"", "", b"", 0));
    client.expect(success(NOOP));
    client.send(frame(0x81, NOOP, 0, (b"", b"", b""), 0));
    assert_eq!(client.receive_to_end(), b"");
}

#[test]
fn statistics_are_a_response_for_each() {
    let server = TestServer::start();
    let mut client = server.connect();
    for (name, wanted) in [("", "curr_items"), ("settings", "maxbytes"), ("tiers", "")] {
        client.send(packet(0x10, b"", name, b"", 0));
        let mut names = Vec::new();
        loop {
            let answer = receive(&mut client);
            if answer.key.is_empty() {
                break;
            }
            names.push(String::from_utf8(answer.key).expect("text"));
        }
        assert!(wanted.is_empty() || names.iter().any(|name| name == wanted), "{names:?}");
    }
    for name in ["reset", "detail on", "detail off"] {
        client.send(packet(0x10, b"", name, b"", 0));
        client.expect(success(0x10));
    }
    let version = ask(&mut client, packet(0x0b, b"", "", b"", 0));
    assert_eq!(version.value, b"1.6.45");
    expect_silence(&mut client);
}

#[test]
fn large_values_go_in_and_out_in_pieces() {
    let server = TestServer::with(|s| s.item_bytes_max = 8 << 20, Some(64 << 20));
    let mut client = server.connect();
    let value: Vec<u8> = (0..5_000_000u32).map(|n| (n * 7 + n / 251) as u8).collect();
    let stored = ask(&mut client, set("big", &value));
    assert_eq!(stored.status, 0);
    // Values end in what would end a line elsewhere.
    assert_eq!(ask(&mut client, set("crlf", b"\r\n")).status, 0);
    client.send([packet(0x0d, b"", "big", b"", 0), packet(GET, b"", "crlf", b"", 0)].concat());
    let big = receive(&mut client);
    assert_eq!((&big.key[..], big.cas), (&b"big"[..], stored.cas));
    assert!(big.value == value, "{} bytes", big.value.len());
    assert_eq!(receive(&mut client).value, b"\r\n");
    assert_eq!(ask(&mut client, packet(0x0e, b"", "big", b"tail", 0)).status, 0);
    let longer = ask(&mut client, packet(GET, b"", "big", b"", 0)).value;
    assert_eq!((longer.len(), &longer[value.len()..]), (value.len() + 4, &b"tail"[..]));
    client.send(set("big", &vec![0; (8 << 20) + 1]));
    client.expect(failure(SET, 3, "Too large."));
    client.send(packet(GET, b"", "big", b"", 0));
    client.expect(failure(GET, 1, "Not found"));
    expect_silence(&mut client);
}

#[test]
fn records_on_a_drive_answer_in_order() {
    let server = TestServer::with(|s| s.memory_bytes = 32 << 20, Some(128 << 20));
    let mut client = server.connect();
    let value = |number: u32| number.to_string().repeat(200).into_bytes();
    for from in (0..40_000).step_by(100) {
        let stream: Vec<u8> = (from..from + 100)
            .flat_map(|n| packet(0x11, &[0; 8], &format!("r{n}"), &value(n), 0))
            .collect();
        client.send([stream, packet(NOOP, b"", "", b"", 0)].concat());
        client.expect(success(NOOP));
    }
    for from in (0..40_000).step_by(1000) {
        let keys = (from..from + 1000).map(|n| packet(0x0d, b"", &format!("r{n}"), b"", 0));
        client.send([keys.collect::<Vec<_>>().concat(), packet(NOOP, b"", "", b"", 0)].concat());
        for n in from..from + 1000 {
            let got = receive(&mut client);
            assert_eq!(String::from_utf8_lossy(&got.key), format!("r{n}"));
            assert!(got.value == value(n), "r{n}");
        }
        client.expect(success(NOOP));
    }
    // Changes of what lies there: each sees the one before it.
    let key = "r7";
    let stream = [
        packet(0x19, b"", key, b"!", 0),
        packet(GET, b"", key, b"", 0),
        packet(0x14, b"", key, b"", 0),
        packet(GET, b"", key, b"", 0),
    ];
    client.send(stream.concat());
    assert_eq!(receive(&mut client).value, [value(7), b"!".to_vec()].concat());
    client.expect(failure(GET, 1, "Not found"));
    let mut other = server.connect();
    let reads: u64 = other.stat("tiers", "tier:0:reads").parse().expect("a number");
    assert!(reads > 0, "nothing was read from the drive");
}

/// A password file that goes with the test.
struct Passwords(tempfile::NamedTempFile);

impl Passwords {
    fn new(text: &str) -> Self {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("room for it");
        Self(file)
    }

    fn read(&self) -> Option<PasswordFile> {
        Some(PasswordFile::read(self.0.path()).expect("a password file"))
    }
}

#[test]
fn sasl_lets_nothing_else_pass_first() {
    let passwords = Passwords::new("user:secret\n");
    let server = TestServer::with(|s: &mut Settings| s.sasl_passwords = passwords.read(), None);
    let refused = |opcode| failure(opcode, 0x20, "Auth failure.");
    for (opcode, extras, key) in
        [(GET, 0, "k"), (SET, 8, "k"), (0x10, 0, ""), (0x08, 0, ""), (0x07, 0, ""), (0x30, 0, "")]
    {
        let mut client = server.connect();
        client.send(packet(opcode, &vec![0; extras], key, b"", 0));
        assert_eq!(client.receive_to_end(), refused(opcode), "{opcode:x}");
    }
    let mut client = server.connect();
    client.send("get k\r\n");
    assert_eq!(client.receive_to_end(), b"");
    // The answer does not wait for a value that may never come.
    let mut client = server.connect();
    client.send(&set("k", &[0; 1000])[..40]);
    assert_eq!(client.receive_to_end(), refused(SET));

    let mut client = server.connect();
    assert_eq!(ask(&mut client, packet(0x0b, b"", "", b"", 0)).value, b"1.6.45");
    assert_eq!(ask(&mut client, packet(0x20, b"", "", b"", 0)).value, b"PLAIN");
    for (mechanism, message) in [
        ("PLAIN", &b"\0user\0wrong"[..]),
        ("PLAIN", b"\0wrong\0secret"),
        ("PLAIN", b"other\0user\0secret"),
        ("PLAIN", b"\0user\0secret\0"),
        ("CRAM-MD5", b"\0user\0secret"),
    ] {
        let mut client = server.connect();
        client.send(packet(0x21, b"", mechanism, message, 0));
        client.expect(refused(0x21));
    }
    client.send(packet(0x22, b"", "PLAIN", b"\0user\0secret", 0));
    client.expect(refused(0x22));
    // Everything at once; the second request counts as one of somebody known.
    let login = packet(0x21, b"", "PLAIN", b"\0user\0secret", 0);
    client.send([login, set("k", b"v"), packet(GET, b"", "k", b"", 0)].concat());
    assert_eq!(receive(&mut client).value, b"Authenticated");
    assert_eq!(receive(&mut client).status, 0);
    assert_eq!(receive(&mut client).value, b"v");
    // A failure afterwards takes it away.
    client.send(packet(0x21, b"", "PLAIN", b"\0user\0wrong", 0));
    client.expect(refused(0x21));
    client.send(packet(GET, b"", "k", b"", 0));
    assert_eq!(client.receive_to_end(), refused(GET));
    // In two steps.
    let mut client = server.connect();
    client.send(packet(0x21, b"", "PLAIN", b"", 0));
    client.expect(failure(0x21, 0x21, ""));
    assert_eq!(ask(&mut client, packet(0x22, b"", "PLAIN", b"\0user\0secret", 0)).status, 0);
    assert_eq!(ask(&mut client, packet(GET, b"", "k", b"", 0)).value, b"v");
}

#[test]
fn third_wrong_sasl_password_in_a_row_closes() {
    let passwords = Passwords::new("user:secret\n");
    let server = TestServer::with(|s: &mut Settings| s.sasl_passwords = passwords.read(), None);
    let wrong = || packet(0x21, b"", "PLAIN", b"\0user\0wrong", 0);
    let refused = failure(0x21, 0x20, "Auth failure.");
    let mut client = server.connect();
    // All at once; the fourth is not looked at.
    client.send(
        [wrong(), wrong(), wrong(), packet(0x21, b"", "PLAIN", b"\0user\0secret", 0)].concat(),
    );
    assert_eq!(client.receive_to_end(), refused.repeat(3));
    // A right one between them begins the count anew. In two steps, each is judged once.
    let mut client = server.connect();
    for _ in 0..2 {
        for _ in 0..2 {
            client.send(
                [packet(0x21, b"", "PLAIN", b"", 0), packet(0x22, b"", "PLAIN", b"\0u\0w", 0)]
                    .concat(),
            );
            client.expect([failure(0x21, 0x21, ""), failure(0x22, 0x20, "Auth failure.")].concat());
        }
        let right = packet(0x21, b"", "PLAIN", b"\0user\0secret", 0);
        assert_eq!(ask(&mut client, right).status, 0);
    }
    assert_eq!(ask(&mut client, packet(GET, b"", "k", b"", 0)).status, 1);
}

#[test]
fn sasl_follows_the_file() {
    let passwords = Passwords::new("user:secret\n");
    let server = TestServer::with(|s: &mut Settings| s.sasl_passwords = passwords.read(), None);
    let mut client = server.connect();
    let mut log_in =
        |message: &[u8]| ask(&mut client, packet(0x21, b"", "PLAIN", message, 0)).status;
    assert_eq!(log_in(b"\0user\0secret"), 0);
    std::fs::write(passwords.0.path(), "").expect("a file");
    // An empty file is nobody's intention: the last good one stays.
    assert_eq!(log_in(b"\0user\0secret"), 0);
    std::fs::write(passwords.0.path(), "user:other\n").expect("a file");
    assert_eq!((log_in(b"\0user\0secret"), log_in(b"\0user\0other")), (0x20, 0));
}

#[test]
fn ascii_authentication_comes_first() {
    let passwords = Passwords::new("user:secret\nnext:one");
    let server = TestServer::with(|s: &mut Settings| s.ascii_passwords = passwords.read(), None);
    let mut client = server.connect();
    for (request, answer) in [
        ("get k\r\n", "CLIENT_ERROR unauthenticated\r\n"),
        ("sets k 0 0 8\r\nnext two\r\n", "CLIENT_ERROR authentication failure\r\n"),
        (" set k 0 0 8\r\n", "CLIENT_ERROR unauthenticated\r\n"),
        ("version\r\n", "CLIENT_ERROR unauthenticated\r\n"),
        ("set k 0 0\r\n", "CLIENT_ERROR unauthenticated\r\n"),
        ("ms k 11\r\n", "CLIENT_ERROR unauthenticated\r\n"),
        ("set k 0 0 11\r\nuser wrong1\r\n", "CLIENT_ERROR authentication failure\r\n"),
        ("set k 0 0 10\r\nusersecret\r\n", "CLIENT_ERROR bad authentication token format\r\n"),
        ("set k 0 0 11\r\nuser secretxx", "CLIENT_ERROR bad command line termination\r\n"),
        ("set any thing goes 8\r\nnext one\r\n", "STORED\r\n"),
        ("get any\r\n", "END\r\n"),
        ("set k 0 0 11\r\nuser secret\r\n", "STORED\r\n"),
        ("get k\r\n", "VALUE k 0 11\r\nuser secret\r\nEND\r\n"),
    ] {
        client.send(request);
        client.expect(answer);
    }
    assert_eq!(client.stat("", "auth_cmds"), "3");
    assert_eq!(client.stat("", "auth_errors"), "2");
    assert_eq!(client.stat("settings", "auth_enabled_ascii"), passwords.0.path().to_string_lossy());
    // All of it in one piece, and in the smallest ones.
    let stream = b"set k 0 0 11\r\nuser secret\r\nmn\r\n";
    for step in [stream.len(), 1] {
        let mut client = server.connect();
        stream.chunks(step).for_each(|piece| client.send(piece));
        client.expect("STORED\r\nMN\r\n");
    }
    let mut client = server.connect();
    // A token that is too long is none, and the connection goes on.
    client.send("set k 0 0 16385\r\nset k 0 0 11\r\nuser secret\r\nmn\r\n");
    client.expect("CLIENT_ERROR auth token too long\r\nSTORED\r\nMN\r\n");
    let mut client = server.connect();
    client.send([b"set k 0 0 16384\r\n", &[b'x'; 16384][..], b"\r\nmn\r\n"].concat());
    // A line that short ends the connection, as in memcached.
    client.expect("CLIENT_ERROR bad authentication token format\r\n");
    assert_eq!(client.receive_to_end(), b"");
    for short in ["mn\r\n", "quit\r\n", "get\r\n", "\r\n\n", "set k\n"] {
        let mut client = server.connect();
        client.send(short);
        assert_eq!(client.receive_to_end(), b"", "{short:?}");
    }
    // So does a value that is no request, behind a token that is too long.
    let mut client = server.connect();
    client.send([b"set k 0 0 16385\r\n", &[b'x'; 16385][..], b"\r\nmn\r\n"].concat());
    assert_eq!(client.receive_to_end(), b"CLIENT_ERROR auth token too long\r\n");
    let mut client = server.connect();
    client.send(vec![b'x'; 2049]);
    assert_eq!(client.receive_to_end(), b"");
    // The binary protocol has no way in.
    let mut client = server.connect();
    client.send(packet(0x0b, b"", "", b"", 0));
    client.send("\r\n");
    client.expect("CLIENT_ERROR unauthenticated\r\n");
}

#[test]
fn blanks_around_a_name_and_a_password_are_none_of_them() {
    let passwords = Passwords::new("user:secret\nlong: two words ");
    let server = TestServer::with(|s: &mut Settings| s.ascii_passwords = passwords.read(), None);
    let answer = |token: &str| {
        let mut client = server.connect();
        client.send(format!("set k 0 0 {}\r\n{token}\r\n", token.len()));
        client.receive_until("\r\n")
    };
    for token in ["  user secret", "user   secret", "user secret  ", "long  two words "] {
        assert_eq!(answer(token), "STORED\r\n", "{token:?}");
    }
    for token in ["user sec ret", "user ", "user secret\t", "long two words"] {
        assert_eq!(answer(token), "CLIENT_ERROR authentication failure\r\n", "{token:?}");
    }
    assert_eq!(answer("  "), "CLIENT_ERROR bad authentication token format\r\n");
}
