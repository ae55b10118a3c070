//! The admin page of the real binary: what it tells, to whom, and that it can't be held up.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_e2e::{
    Client, PATIENCE, Server, assert_on_flash, flash_server, free_port, is_terrace, push_to_flash,
    skip, value_of, wait_until,
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
    exchange(&mut stream, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n"))
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
        for path in ["/metrics", "/status", "/healthz", "/"] {
            let (head, body) = get(port, path, wrong);
            assert!(head.starts_with("HTTP/1.1 401"), "{wrong:?}: {head}");
            assert_eq!(body, "a token is needed\n");
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
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("version=0.0.4"), "{head}");
    assert_eq!(body, "");
}

#[test]
fn silent_connections_keep_their_places_for_a_moment_only() {
    if others("silent_connections_keep_their_places_for_a_moment_only") {
        return;
    }
    let port = free_port();
    let mut server = Server::start(&format!("-m 64 --admin 127.0.0.1:{port}"));
    // On a machine that stands still it is tried again.
    let is_soon_answered = (0..5).any(|_| {
        let start = Instant::now();
        let connect = |_| TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let _silent: Vec<_> = (0..8).map(connect).collect();
        assert_eq!(body(port, "/healthz"), "ok\n");
        start.elapsed() < Duration::from_secs(4)
    });
    assert!(is_soon_answered, "eight silent connections kept the page from others");
    server.assert_alive();
}

#[test]
fn slow_and_foul_readers_hold_up_nobody() {
    if others("slow_and_foul_readers_hold_up_nobody") {
        return;
    }
    let port = free_port();
    let mut server = Server::start(&format!("-m 64 --admin 127.0.0.1:{port}"));
    let connect = || TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    let mut foul = connect();
    let (head, _) = exchange(&mut foul, "nonsense\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");
    let mut endless = connect();
    let _ = endless.write_all(&[b'a'; 100_000]);
    // Those that send half a request are cut off after a second; until then others are still
    // answered. On a machine that stands still for as long it is tried again.
    let answered_meanwhile = (0..5).any(|_| {
        let mut stalled: Vec<_> = (0..6)
            .map(|_| {
                let mut stream = connect();
                stream.write_all(b"GET /metrics HT").expect("sent");
                stream
            })
            .collect();
        assert_eq!(body(port, "/healthz"), "ok\n");
        let is_open = |stream: &mut TcpStream| {
            stream.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout");
            stream.read(&mut [0; 10]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        };
        let are_open = stalled.iter_mut().all(is_open);
        for stream in &mut stalled {
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            assert_eq!(stream.read(&mut [0; 10]).unwrap_or(0), 0, "half a request was answered");
        }
        are_open
    });
    assert!(answered_meanwhile, "an answer had to wait for those that stall");
    assert_eq!(body(port, "/healthz"), "ok\n");
    // memcached's port knows nothing of HTTP.
    let mut wrong = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], server.address().port())))
        .expect("a connection");
    wrong.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("sent");
    let mut said = String::new();
    let _ = wrong.read_to_string(&mut said);
    assert!(!said.contains("terrace_"), "{said}");
    server.assert_alive();
}
