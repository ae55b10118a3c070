//! The admin page of the real binary: what it tells, to whom, and that it can't be held up.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_e2e::{
    Client, PATIENCE, Server, assert_on_flash, flash_server, free_port, is_terrace, push_to_flash,
    run_as_root, skip, value_of, wait_until,
};

fn others(test: &str) -> bool {
    if !is_terrace() {
        skip(test, "only Terrace has it");
    }
    !is_terrace()
}

/// Status line, headers and body.
fn exchange(stream: &mut (impl Read + Write), request: &str) -> (String, String) {
    stream.write_all(request.as_bytes()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer of text");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {text:?}"));
    (head.to_string(), body.to_string())
}

fn get(port: u16, path: &str, headers: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    exchange(&mut stream, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"))
}

fn body(port: u16, path: &str) -> String {
    let (head, body) = get(port, path, "");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{path}: {head}");
    body
}

/// Samples by name and labels.
fn metrics(port: u16) -> BTreeMap<String, f64> {
    let text = body(port, "/metrics");
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
        (name.to_string(), value.parse().unwrap_or_else(|_| panic!("{line:?}")))
    };
    text.lines().filter(|line| !line.starts_with('#')).map(sample).collect()
}

/// What is told both ways: a metric, and a row of which `stats`.
const BOTH_WAYS: [(&str, &str, &str); 8] = [
    ("terrace_connections", "", "curr_connections"),
    ("terrace_stores_total", "", "cmd_set"),
    ("terrace_commands_total{command=\"get\",result=\"hit\"}", "", "get_hits"),
    ("terrace_commands_total{command=\"get\",result=\"miss\"}", "", "get_misses"),
    ("terrace_memory_limit_bytes", "", "limit_maxbytes"),
    ("terrace_tier_capacity_bytes{tier=\"0\"}", "tiers", "tier:0:capacity_bytes"),
    ("terrace_tier_reads_total{tier=\"0\"}", "tiers", "tier:0:reads"),
    ("terrace_tier_hits_total{tier=\"0\"}", "tiers", "tier:0:hits"),
];

fn rows(client: &mut Client) -> Vec<u64> {
    BOTH_WAYS.iter().map(|(_, what, row)| client.stat(what, row)).collect()
}

#[test]
fn metrics_agree_with_stats() {
    if others("metrics_agree_with_stats") {
        return;
    }
    let port = free_port();
    let mut server = flash_server(&format!("-t 2 --admin 127.0.0.1:{port}"));
    let client = &mut server.client();
    assert!(client.set("cold", &value_of("cold", 0, 500)));
    push_to_flash(client);
    assert_on_flash(client, "cold");
    for _ in 0..3 {
        assert!(client.get("cold").is_some());
        assert_eq!(client.get("nothing"), None);
    }
    // Background work moves some of them: they are compared where nothing changes meanwhile.
    let metrics = wait_until("the same figures before and behind a page", || {
        let before = rows(client);
        let metrics = metrics(port);
        (rows(client) == before).then_some(metrics)
    });
    for ((metric, ..), row) in BOTH_WAYS.iter().zip(rows(client)) {
        assert_eq!(metrics.get(*metric), Some(&(row as f64)), "{metric}");
    }
    let count = |labels: &str| {
        let name = format!("terrace_command_duration_seconds_count{{{labels}}}");
        metrics.get(&name).copied().unwrap_or_default()
    };
    assert!(count("command=\"set\",served=\"dram\"") >= 10_000.0);
    assert!(count("command=\"get\",served=\"0\"") >= 1.0, "{metrics:?}");
    // The buckets of a histogram add up, and reads of a file take some time.
    let reads = "terrace_tier_read_duration_seconds";
    let buckets: Vec<_> =
        metrics.iter().filter(|(name, _)| name.starts_with(&format!("{reads}_bucket"))).collect();
    assert!(buckets.len() > 10);
    let all = metrics[&format!("{reads}_count{{tier=\"0\"}}")];
    assert_eq!(metrics[&format!("{reads}_bucket{{tier=\"0\",le=\"+Inf\"}}")], all);
    assert!(buckets.iter().all(|(_, count)| **count <= all));
    assert!(metrics[&format!("{reads}_sum{{tier=\"0\"}}")] > 0.0);

    let status = body(port, "/status");
    assert!(status.contains("\"cmd_set\":") && status.contains("\"tier:0:device\":\""), "{status}");
    // Of less than a day, how long a drive lasts cannot be told.
    assert!(status.contains("\"tier:0:life_years\":null"), "{status}");
    assert!(!metrics.keys().any(|name| name.starts_with("terrace_tier_life_years")), "{metrics:?}");
    assert_eq!(client.stats("tiers")["tier:0:life_years"], "unknown");
    assert_eq!(body(port, "/healthz"), "ok\n");
    assert_eq!(body(port, "/readyz"), "ready\n");
    assert_eq!(body(port, "/readyz?recovered"), "ready\n");
    assert!(get(port, "/etc/passwd", "").0.starts_with("HTTP/1.1 404"));
    server.assert_alive();
}

#[test]
fn it_is_off_and_local_unless_asked_for() {
    if others("it_is_off_and_local_unless_asked_for") {
        return;
    }
    assert!(!Server::start("-m 64").output().contains("metrics and status on"));
    let failed = Server::run("-m 64 --admin 0.0.0.0:9150");
    assert_eq!(failed.code, Some(64), "{}", failed.output);
    assert!(failed.output.contains("--admin-token-file"), "{}", failed.output);
}

#[test]
fn a_token_is_asked_for() {
    if others("a_token_is_asked_for") {
        return;
    }
    let dir = Arc::new(TempDir::new().expect("a directory"));
    let port = free_port();
    let flags = format!("-m 64 --admin 0.0.0.0:{port} --admin-token-file DIR/token");
    fs::write(dir.path().join("token"), "short\n").expect("a file");
    let failed = Server::try_start(&flags, Arc::clone(&dir)).err().expect("a short token");
    assert!(failed.output.contains("at least 16 characters"), "{}", failed.output);
    fs::write(dir.path().join("token"), "0123456789abcdef\n").expect("a file");
    let _server = Server::try_start(&flags, dir).ok().expect("a server");
    for wrong in
        ["", "Authorization: Bearer 0123456789abcdeX\r\n", "Authorization: 0123456789abcdef\r\n"]
    {
        for path in ["/metrics", "/status", "/"] {
            let (head, body) = get(port, path, wrong);
            assert!(head.starts_with("HTTP/1.1 401"), "{wrong:?}: {head}");
            assert_eq!(body, "a token is needed\n");
        }
        // A kubelet has no token.
        for path in ["/healthz", "/readyz", "/readyz?recovered"] {
            let (head, _) = get(port, path, wrong);
            assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
        }
    }
    let (head, body) = get(port, "/metrics", "Authorization: Bearer 0123456789abcdef\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && body.contains("terrace_uptime_seconds"), "{head}");
}

#[test]
fn a_unix_socket_is_for_its_owner() {
    if others("a_unix_socket_is_for_its_owner") {
        return;
    }
    let server = Server::start("-m 64 --admin DIR/admin");
    let path = server.dir.path().join("admin");
    let mode = fs::metadata(&path).expect("the socket").permissions().mode() & 0o777;
    assert_eq!(mode, 0o700);
    let mut stream = UnixStream::connect(&path).expect("a connection");
    let (head, body) = exchange(&mut stream, "HEAD /metrics HTTP/1.0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.0 200") && head.contains("version=0.0.4"), "{head}");
    assert_eq!(body, "");
}

#[test]
fn host_of_another_name_is_refused_without_a_token() {
    if others("host_of_another_name_is_refused_without_a_token") {
        return;
    }
    let port = free_port();
    let _server =
        Server::start(&format!("-m 64 --admin 127.0.0.1:{port} --admin-host own.example"));
    let status = |host: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let request = format!("GET /metrics HTTP/1.1\r\n{host}\r\n");
        let (head, body) = exchange(&mut stream, &request);
        assert_eq!(body.contains("terrace_"), head.starts_with("HTTP/1.1 200"), "{host}: {head}");
        head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    };
    for own in ["localhost", "127.0.0.1:9150", "[::1]:1", "Own.Example:80"] {
        assert_eq!(status(&format!("Host: {own}\r\n")), 200, "{own}");
    }
    assert_eq!(status("Host: evil.example\r\n"), 421);
    assert_eq!(status("Host: own.example.evil.example\r\n"), 421);
    assert_eq!(status(""), 400);
    assert_eq!(status("Host: localhost\r\nHost: evil.example\r\n"), 400);
}

/// Opens connections that stay silent: `at_once` before it returns, then 100 a second for as long as the guard
/// lives.
struct Silent {
    _at_once: Vec<TcpStream>,
    stop: mpsc::Sender<()>,
    rest: Option<JoinHandle<usize>>,
}

impl Silent {
    fn start(port: u16, at_once: usize) -> Self {
        let connect = move || TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let _at_once = (0..at_once).map(|_| connect()).collect();
        let (stop, is_over) = mpsc::channel();
        let rest = thread::spawn(move || {
            let mut silent = VecDeque::new();
            let mut opened = 0;
            while is_over.recv_timeout(Duration::from_millis(10)) == Err(RecvTimeoutError::Timeout)
            {
                silent.push_back(connect());
                opened += 1;
                // This side keeps its descriptors within bounds, too; the server closes them after five seconds.
                silent.truncate(1000);
            }
            opened
        });
        Self { _at_once, stop, rest: Some(rest) }
    }

    /// Connections that were opened since the first ones.
    fn stop(mut self) -> usize {
        let _ = self.stop.send(());
        self.rest.take().expect("stopped once").join().expect("a thread that connects")
    }
}

#[test]
fn health_beside_silent_connections_is_answered() {
    if others("health_beside_silent_connections_is_answered") {
        return;
    }
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if limit.maximum.is_some_and(|files| files < 3500)
        || setrlimit(Resource::Nofile, raised).is_err()
    {
        skip("health_beside_silent_connections_is_answered", "3,500 open files are not allowed");
        return;
    }
    let seconds = std::env::var("TERRACE_E2E_SECONDS").ok().and_then(|s| s.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(3));
    let port = free_port();
    let mut server = Server::start(&format!("-m 64 --admin 127.0.0.1:{port}"));
    let silent = Silent::start(port, 1000);
    let mut times = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < time {
        let start = Instant::now();
        assert_eq!(body(port, "/healthz"), "ok\n");
        times.push(start.elapsed());
        thread::sleep(Duration::from_millis(5));
    }
    let opened = silent.stop();
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "/healthz beside 1,000 silent connections and {opened} new ones in {time:?}: {} answers, p50 {:?}, p99 {:?}, \
         most {:?}",
        times.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
    // An answer that waits for a silent connection to time out takes five seconds.
    assert!(at(0.5) < Duration::from_secs(1), "{:?}", at(0.5));
    assert!(opened >= 10, "only {opened} connections were opened");
    server.assert_alive();
}

#[test]
fn silent_connections_above_the_limit_make_way() {
    if others("silent_connections_above_the_limit_make_way") {
        return;
    }
    // 16 connections are left to the page: `-c` takes the rest.
    let port = free_port();
    let flags = format!("-m 64 -t 1 -c 128 --admin 127.0.0.1:{port}");
    let wrapper = match run_as_root() {
        true => "setpriv --bounding-set=-sys_resource prlimit --nofile=200:200",
        false => "prlimit --nofile=200:200",
    };
    let mut server = match Server::try_start_under(wrapper, &flags) {
        Ok(server) => server,
        Err(failed) => panic!("{}", failed.output),
    };
    let connect = || TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    let silent: Vec<_> = (0..100).map(|_| connect()).collect();
    assert_eq!(body(port, "/healthz"), "ok\n");
    // Those are closed at once; the last ones after five seconds, with 408.
    let closed_at_once = silent.into_iter().filter(|stream| {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut text = String::new();
        let _ = (&mut &*stream).read_to_string(&mut text);
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 408"), "{text}");
        text.is_empty()
    });
    assert_eq!(closed_at_once.count(), 85, "100 and one for the answer, 16 places");
    server.assert_alive();
}

#[test]
fn wrong_requests_are_told_what_is_wrong() {
    if others("wrong_requests_are_told_what_is_wrong") {
        return;
    }
    let port = free_port();
    let mut server = Server::start(&format!("-m 64 --admin 127.0.0.1:{port}"));
    let long =
        |bytes: usize| format!("GET / HTTP/1.1\r\nHost: ::1\r\nX: {}\r\n\r\n", "a".repeat(bytes));
    for (request, status) in [
        ("nonsense\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 405),
        ("DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        ("GET /etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (&long(4000).replace("::1", "[::1]"), 200),
        (&long(4096).replace("::1", "[::1]"), 431),
        (&long(10_000), 431),
        // One request a connection: what follows is not looked at.
        (
            "GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /x HTTP/1.1\r\nHost: localhost\r\n\r\n",
            200,
        ),
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let (head, body) = exchange(&mut stream, request);
        let line = head.lines().next().unwrap_or_default();
        assert!(line.starts_with(&format!("HTTP/1.1 {status} ")), "{request:.60}: {head}");
        assert_eq!(body.matches("HTTP/1.").count(), 0, "{request:.60}: a second answer");
        assert_eq!(head.contains("allow: GET, HEAD"), status == 405, "{head}");
    }
    // memcached's port knows nothing of HTTP.
    let mut wrong = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], server.address().port())))
        .expect("a connection");
    wrong.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("sent");
    let mut said = String::new();
    let _ = wrong.read_to_string(&mut said);
    assert!(!said.contains("terrace_"), "{said}");
    server.assert_alive();
}

#[test]
fn half_requests_are_told_after_five_seconds() {
    if others("half_requests_are_told_after_five_seconds") {
        return;
    }
    let port = free_port();
    let mut server = Server::start(&format!("-m 64 --admin 127.0.0.1:{port}"));
    let begin = Instant::now();
    let mut stalled: Vec<_> = (0..20)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
            stream.write_all(b"GET /metrics HT").expect("sent");
            stream
        })
        .collect();
    assert_eq!(body(port, "/healthz"), "ok\n");
    for stream in &mut stalled {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let (head, body) = exchange(stream, "");
        assert!(head.starts_with("HTTP/1.1 408") && body.is_empty(), "{head}");
    }
    assert!(begin.elapsed() > Duration::from_secs(4), "too early: {:?}", begin.elapsed());
    server.assert_alive();
}
