//! Password files of the real binary: `-Y` and SIGHUP, `-S` and the environment.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_e2e::{Client, Server, free_port, is_terrace, skip, wait_until};

fn directory(passwords: &str) -> (Arc<TempDir>, PathBuf) {
    let dir = Arc::new(TempDir::new().expect("a temporary directory"));
    let file = dir.path().join("passwords");
    std::fs::write(&file, passwords).expect("room for it");
    (dir, file)
}

fn start(flags: &str, dir: Arc<TempDir>) -> Server {
    match Server::try_start(flags, dir) {
        Ok(server) => server,
        Err(failed) => panic!("{flags}: exit code {:?}: {}", failed.code, failed.output),
    }
}

fn hang_up(server: &Server) {
    let pid = rustix::process::Pid::from_raw(server.pid() as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("a signal");
}

/// What the server says to this user and password.
fn log_in(server: &Server, token: &str) -> String {
    let mut client = server.client();
    client.send(format!("set k 0 0 {}\r\n{token}\r\n", token.len()));
    client.line()
}

#[test]
fn ascii_passwords_are_read_again_at_sighup() {
    let (dir, file) = directory("alice:one\n");
    let mut server = start("-m 64 -Y DIR/passwords", dir);
    assert_eq!(log_in(&server, "alice one"), "STORED");
    assert_eq!(log_in(&server, "alice two"), "CLIENT_ERROR authentication failure");
    let mut known = server.client();
    known.send("set k 0 0 9\r\nalice one\r\n");
    assert_eq!(known.line(), "STORED");

    std::fs::write(&file, "alice:two\n").expect("room for it");
    assert_eq!(log_in(&server, "alice two"), "CLIENT_ERROR authentication failure");
    hang_up(&server);
    wait_until("the new password", || (log_in(&server, "alice two") == "STORED").then_some(()));
    assert_eq!(log_in(&server, "alice one"), "CLIENT_ERROR authentication failure");
    // Who was let in stays.
    known.check("mn\r\n", "MN\r\n");

    if is_terrace() {
        std::fs::write(&file, "no entry at all\n").expect("room for it");
        hang_up(&server);
        server.output_with("passwords stay as they were");
        assert_eq!(log_in(&server, "alice two"), "STORED");
    }
    server.assert_running();
}

#[test]
fn a_daemon_finds_its_passwords_again() {
    if !is_terrace() {
        skip("a_daemon_finds_its_passwords_again", "memcached looks for them in /");
        return;
    }
    let (dir, file) = directory("alice:one\n");
    let port = free_port();
    let flags = format!("-d -P pid -m 64 -l 127.0.0.1 -p {port} -Y passwords");
    let started = terrace_e2e::spawn_with(&flags, &dir, |command| {
        command.current_dir(dir.path());
    });
    assert!(started.wait_with_output().expect("it starts").status.success());
    let pid = std::fs::read_to_string(dir.path().join("pid")).expect("a file with its number");
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().expect("a number"));
    let signal = |signal| rustix::process::kill_process(pid.expect("a process"), signal);
    let logs_in = || {
        let mut client = Client::connect(([127, 0, 0, 1], port).into());
        client.send("set k 0 0 9\r\nalice two\r\n");
        client.line() == "STORED"
    };
    let result = std::panic::catch_unwind(|| {
        assert!(!logs_in());
        std::fs::write(&file, "alice:two\n").expect("room for it");
        signal(rustix::process::Signal::HUP).expect("a signal");
        wait_until("the new password", || logs_in().then_some(()));
    });
    signal(rustix::process::Signal::TERM).expect("a signal");
    result.expect("the daemon behaves");
}

#[test]
fn the_binary_protocol_does_not_go_round_ascii_passwords() {
    let (dir, _) = directory("alice:one\n");
    let server = start("-m 64 -Y DIR/passwords", dir);
    let mut client = server.client();
    let mut get = vec![0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
    get.extend([0; 12]);
    get.extend(b"k\r\n");
    client.send(&get);
    assert_eq!(client.line(), "CLIENT_ERROR unauthenticated");
}

/// SASL_AUTH with PLAIN; answers the status.
fn sasl(client: &mut Client, message: &[u8]) -> u8 {
    let mut packet = vec![0x80, 0x21, 0, 5, 0, 0, 0, 0, 0, 0, 0, 5 + message.len() as u8];
    packet.extend([0; 12]);
    packet.extend(b"PLAIN");
    packet.extend(message);
    client.send(&packet);
    // "Authenticated" and "Auth failure." are equally long.
    let answer = client.bytes(24 + 13);
    assert_eq!((answer[0], answer[1], answer[11]), (0x81, 0x21, 13), "{answer:x?}");
    answer[7]
}

#[test]
fn sasl_passwords_come_from_the_environment() {
    if !is_terrace() {
        skip("sasl_passwords_come_from_the_environment", "Debian's memcached has no such file");
        return;
    }
    let (dir, file) = directory("alice:one\n");
    let variables = [("MEMCACHED_SASL_PWDB", "DIR/passwords")];
    let server = Server::try_start_with("-m 64 -S", Arc::clone(&dir), &variables);
    let server = server.unwrap_or_else(|failed| panic!("it said: {}", failed.output));
    let mut client = server.client();
    assert_eq!(sasl(&mut client, b"\0alice\0two"), 0x20);
    assert_eq!(sasl(&mut client, b"\0alice\0one"), 0);
    // As in memcached, a change counts at once.
    std::fs::write(&file, "alice:two\nbob:three\n").expect("room for it");
    assert_eq!(sasl(&mut client, b"\0alice\0one"), 0x20);
    assert_eq!(sasl(&mut client, b"\0bob\0three"), 0);
    // Told once, not for each client: what was taken out of such a file still counts.
    std::fs::write(&file, "bob:four\nno entry\n").expect("room for it");
    for _ in 0..3 {
        assert_eq!(sasl(&mut client, b"\0bob\0three"), 0);
    }
    std::fs::remove_file(&file).expect("it is there");
    assert_eq!(sasl(&mut client, b"\0bob\0three"), 0);
    let output = server.output_with("No such file");
    assert_eq!(output.matches("the passwords stay as they were: ").count(), 2, "{output}");
    // Text is no way in.
    let mut text = server.client();
    text.send("version\r\n");
    assert_eq!(text.closed(), "");
}

#[test]
fn what_can_not_work_is_refused_at_the_start() {
    for (flags, says) in [
        ("-S", "MEMCACHED_SASL_PWDB"),
        ("-Y /nonexistent/file", "/nonexistent/file"),
        ("-Y /dev/null", "no client could log in"),
        ("-S -B ascii", "MEMCACHED_SASL_PWDB"),
    ] {
        if !is_terrace() {
            skip("what_can_not_work_is_refused_at_the_start", "the words are Terrace's");
            return;
        }
        let failed = Server::run(flags);
        assert_ne!(failed.code, Some(0), "{flags}");
        assert!(failed.output.contains(says), "{flags}: {}", failed.output);
    }
}

#[test]
fn third_wrong_password_in_a_row_closes() {
    if !is_terrace() {
        skip("third_wrong_password_in_a_row_closes", "memcached lets one try for ever");
        return;
    }
    let (dir, _) = directory("alice:one\n");
    let mut server = start("-m 64 -Y DIR/passwords", dir);
    let wrong = "set k 0 0 9\r\nalice two\r\n";
    let refused = "CLIENT_ERROR authentication failure";
    let mut client = server.client();
    // What is no attempt does not count.
    client.send(format!("get k\r\n{wrong}{wrong}get k\r\n{wrong}set k 0 0 9\r\nalice one\r\n"));
    for line in
        ["CLIENT_ERROR unauthenticated", refused, refused, "CLIENT_ERROR unauthenticated", refused]
    {
        assert_eq!(client.line(), line);
    }
    assert_eq!(client.closed(), "");
    let mut client = server.client();
    client.send(format!("{wrong}{wrong}set k 0 0 9\r\nalice one\r\nmn\r\n"));
    for line in [refused, refused, "STORED", "MN"] {
        assert_eq!(client.line(), line);
    }
    server.assert_running();
}

#[test]
fn wrong_passwords_wait_and_right_ones_do_not() {
    if !is_terrace() {
        skip("wrong_passwords_wait_and_right_ones_do_not", "memcached answers each at once");
        return;
    }
    let (dir, _) = directory("alice:one\n");
    std::fs::write(dir.path().join("token"), "0123456789abcdef\n").expect("room for it");
    let admin = free_port();
    let flags =
        format!("-m 64 -Y DIR/passwords --admin 127.0.0.1:{admin} --admin-token-file DIR/token");
    let mut server = start(&flags, dir);
    let page = |token: &str| {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", admin)).expect("a connection");
        write!(
            stream,
            "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
        )
        .expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    };
    // 100 failures at once, by two ways in: 20 of them a second are answered.
    let begin = Instant::now();
    let mut clients: Vec<_> = (0..80).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send("set k 0 0 9\r\nalice two\r\n");
    }
    let (pages, slowest) = std::thread::scope(|scope| {
        let wrong: Vec<_> = (0..20).map(|_| scope.spawn(|| page("wrong"))).collect();
        let mut times = Vec::new();
        while wrong.iter().any(|page| !page.is_finished()) {
            let start = Instant::now();
            assert_eq!(log_in(&server, "alice one"), "STORED");
            assert!(page("0123456789abcdef").starts_with("HTTP/1.1 200"));
            times.push(start.elapsed());
        }
        let pages = wrong.into_iter().map(|page| page.join().expect("a page")).collect::<Vec<_>>();
        times.sort_unstable();
        (pages, times[times.len() / 2])
    });
    assert!(pages.iter().all(|page| page.starts_with("HTTP/1.1 401")), "{pages:?}");
    for client in &mut clients {
        assert_eq!(client.line(), "CLIENT_ERROR authentication failure");
    }
    // The first is answered at once.
    let least = Duration::from_millis(50 * 99);
    assert!(begin.elapsed() >= least, "100 failures within {:?}", begin.elapsed());
    assert!(slowest < Duration::from_millis(500), "right ones waited: {slowest:?}");
    server.assert_running();
}
