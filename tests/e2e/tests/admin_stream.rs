//! The live page of the real binary without a browser (tests/page has one): its stream, and signing in.

use socket2::{Domain, Socket, Type};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_e2e::{PATIENCE, Server, free_port, is_terrace, skip, wait_until};

fn others(test: &str) -> bool {
    if !is_terrace() {
        skip(test, "only Terrace has it");
    }
    !is_terrace()
}

fn send(port: u16, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(request.as_bytes()).expect("sent");
    stream
}

/// Status, headers and body.
fn answer(port: u16, request: &str) -> (u16, String, String) {
    let mut text = String::new();
    send(port, request).read_to_string(&mut text).expect("an answer of text");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {text:?}"));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    (status, head.to_string(), body.to_string())
}

fn get(port: u16, path: &str, headers: &str) -> (u16, String, String) {
    answer(port, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"))
}

/// A reader of the stream.
struct Reader(BufReader<TcpStream>);

impl Reader {
    fn new(port: u16) -> Self {
        let mut reader =
            Self(BufReader::new(send(port, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")));
        let status = reader.line().expect("a status");
        assert!(status.starts_with("HTTP/1.1 200"), "{status}");
        reader
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        (self.0.read_line(&mut line).ok()? > 0).then_some(line)
    }

    /// The next event; `None` at the end of the stream.
    fn event(&mut self) -> Option<serde_json::Value> {
        loop {
            let line = self.line()?;
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).expect("JSON"));
            }
        }
    }
}

#[test]
fn readers_share_one_event_a_second_that_agrees_with_stats() {
    if others("readers_share_one_event_a_second_that_agrees_with_stats") {
        return;
    }
    let port = free_port();
    let server = Server::start(&format!("-m 64 -t 1 --admin 127.0.0.1:{port}"));
    let client = &mut server.client();
    assert!(client.set("k", b"value"));
    assert_eq!(client.get("k").as_deref(), Some(&b"value"[..]));
    let (mut one, mut other) = (Reader::new(port), Reader::new(port));
    // The first has an event that the second did not see, or the other way round.
    let begin = Instant::now();
    let events: Vec<_> = (0..4).map(|_| one.event().expect("an event")).collect();
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    let times: Vec<_> = events.iter().map(|event| event["ms"].as_u64().expect("a time")).collect();
    assert!(times.is_sorted_by(|a, b| *b >= a + 900), "{times:?}");
    let same = (0..4).map(|_| other.event().expect("an event")).find(|event| *event == events[2]);
    assert!(same.is_some(), "both are told the same");
    for (name, value) in client.stats("") {
        let changes =
            ["uptime", "time", "rusage_user", "rusage_system", "bytes_read", "bytes_written"];
        if changes.contains(&name.as_str()) {
            continue;
        }
        let told = &events[3]["status"]["stats"][&name];
        let told = told.as_str().map_or_else(|| told.to_string(), str::to_string);
        assert_eq!(told, value, "{name}");
    }
    assert_eq!(events[3]["status"]["stats"]["get_hits"], 1);
    // Of the last ten seconds: neither was measured, or one of them as the first of 64.
    assert!(events[3]["latency"]["dram"]["get"]["p99"].is_u64(), "{}", events[3]["latency"]);
}

#[test]
fn number_of_readers_is_bounded() {
    if others("number_of_readers_is_bounded") {
        return;
    }
    let port = free_port();
    let mut server = Server::start(&format!("-m 64 -t 1 --admin 127.0.0.1:{port}"));
    let mut readers: Vec<_> = (0..32).map(|_| Reader::new(port)).collect();
    assert_eq!(get(port, "/events", "").0, 503);
    assert_eq!(get(port, "/metrics", "").0, 200, "the other pages have places left");
    assert!(readers[31].event().is_some());
    readers.truncate(31);
    wait_until("a place", || {
        let head = "HEAD /events HTTP/1.1\r\nHost: localhost\r\n\r\n";
        (answer(port, head).0 == 200).then_some(())
    });
    readers.push(Reader::new(port));
    assert!(readers[31].event().is_some());
    // Another site's page takes no place, though it could read nothing.
    assert_eq!(get(port, "/events", "Sec-Fetch-Site: cross-site\r\n").0, 403);
    server.assert_alive();
    // They end with the server.
    assert_eq!(server.stop(), Some(0));
    while readers[31].event().is_some() {}
}

#[test]
fn reader_that_does_not_read_is_closed_and_others_go_on() {
    if others("reader_that_does_not_read_is_closed_and_others_go_on") {
        return;
    }
    let port = free_port();
    // Long events: eight tiers have 400 rows.
    let tiers: Vec<_> = (0..8).map(|at| format!("--tier ssd:DIR/tier{at}:64m")).collect();
    let flags = format!("-m 128 -t 1 --admin 127.0.0.1:{port} {}", tiers.join(" "));
    let mut server = Server::start(&flags);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let silent = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    silent.set_recv_buffer_size(4 << 10).expect("a buffer");
    silent.connect(&address.into()).expect("a connection");
    let mut silent = TcpStream::from(silent);
    silent.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut reader = Reader::new(port);
    let connections = || {
        let path = format!("/proc/{}/fd", server.pid());
        let files = fs::read_dir(path).expect("the server runs").flatten();
        files
            .filter(|file| {
                fs::read_link(file.path())
                    .is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
            })
            .count()
    };
    // The silent one came first: with an event of the reader both have been let in.
    assert!(reader.event().is_some());
    let both = connections();
    let mut events = 1;
    while connections() >= both {
        assert!(reader.event().is_some());
        events += 1;
        assert!(events < 60, "the silent one has its place after a minute");
    }
    assert!(events > 3, "closed after {events} events already");
    silent.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut kept = Vec::new();
    let _ = silent.read_to_end(&mut kept);
    println!("{events} events; {} bytes waited for the silent reader", kept.len());
    assert!(kept.len() < 512 << 10, "{}", kept.len());
    assert!(reader.event().is_some());
    server.assert_alive();
}

const TOKEN: &str = "a token+with/odd&letters";

/// A server whose page needs [`TOKEN`].
fn server_with_token() -> (Server, u16) {
    let dir = Arc::new(TempDir::new().expect("a directory"));
    fs::write(dir.path().join("token"), format!("{TOKEN}\n")).expect("a file");
    let port = free_port();
    let flags = format!("-m 64 --admin 127.0.0.1:{port} --admin-token-file DIR/token");
    match Server::try_start(&flags, dir) {
        Ok(server) => (server, port),
        Err(failed) => panic!("{}", failed.output),
    }
}

fn post(port: u16, path: &str, headers: &str, body: &str) -> (u16, String, String) {
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    answer(port, &request)
}

#[test]
fn browser_signs_in_and_out() {
    if others("browser_signs_in_and_out") {
        return;
    }
    let (mut server, port) = server_with_token();
    const HTML: &str = "Accept: text/html,*/*\r\n";
    let (status, head, form) = get(port, "/", HTML);
    assert!(status == 401 && form.contains("action=\"sign-in\""), "{head}");
    assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
    assert!(!form.contains("events"), "nothing of the page");

    let (status, head, said) = post(port, "/sign-in", "", "token=another+token+entirely");
    assert!(status == 401 && said.contains("That is not the token."), "{head}");
    assert!(!head.contains("set-cookie"), "{head}");
    let right = "token=a+token%2Bwith%2Fodd%26letters";
    let (status, head, _) = post(port, "/sign-in", "Origin: http://evil.example\r\n", right);
    assert_eq!((status, head.contains("set-cookie")), (403, false), "another site's form");

    let (status, head, _) = post(port, "/sign-in", "Origin: http://localhost\r\n", right);
    assert!(status == 303 && head.contains("location: ."), "{head}");
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = format!("Cookie: {}\r\n", cookie.split("; ").next().expect("a value"));
    for path in ["/", "/status", "/metrics"] {
        assert_eq!(get(port, path, &cookie).0, 200, "{path}");
    }
    assert_eq!(get(port, "/status", "").0, 401);

    // GET changes nothing, and a cookie is good for reads alone.
    assert_eq!(get(port, "/sign-out", &cookie).0, 405);
    assert_eq!(post(port, "/status", &cookie, "").0, 405);
    assert_eq!(get(port, "/status", &cookie).0, 200);
    let (status, head, _) = post(port, "/sign-out", &cookie, "");
    assert!(status == 303 && head.contains("Max-Age=0"), "{head}");
    assert_eq!(get(port, "/status", &cookie).0, 401, "a copy of the cookie is of no use");

    // Basic, as `curl -u` sends it: any user, and the token for a password.
    let basic = "Authorization: Basic YW55OmEgdG9rZW4rd2l0aC9vZGQmbGV0dGVycw==\r\n";
    assert_eq!(get(port, "/status", basic).0, 200);
    assert_eq!(post(port, "/sign-in", "", &"x".repeat(5000)).0, 400);
    server.assert_alive();
}

#[test]
fn wrong_tokens_are_answered_twenty_a_second() {
    if others("wrong_tokens_are_answered_twenty_a_second") {
        return;
    }
    let (mut server, port) = server_with_token();
    let begin = Instant::now();
    let tries: Vec<_> = (0..30)
        .map(|at| {
            std::thread::spawn(move || match at % 3 {
                0 => post(port, "/sign-in", "", "token=wrong").0,
                1 => get(port, "/status", "Authorization: Bearer wrong\r\n").0,
                _ => get(port, "/status", "Authorization: Basic YTpi\r\n").0,
            })
        })
        .collect();
    assert!(tries.into_iter().all(|wrong| wrong.join().expect("an answer") == 401));
    assert!(begin.elapsed() >= Duration::from_millis(29 * 50), "{:?}", begin.elapsed());
    // Who only asks for the form is no attempt, and does not wait.
    let begin = Instant::now();
    (0..40).for_each(|_| assert_eq!(get(port, "/", "Accept: text/html\r\n").0, 401));
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    server.assert_alive();
}
