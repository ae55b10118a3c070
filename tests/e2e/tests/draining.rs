//! Tiers of the real server that are drained and removed through the admin port.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use tempfile::TempDir;
use terrace_e2e::{
    Client, PATIENCE, Server, count_right, fill, free_port, is_terrace, skip, wait_until,
};

const RECORDS: usize = 20_000;
const TOKEN: &str = "0123456789abcdef";
const BEARER: &str = "Authorization: Bearer 0123456789abcdef\r\n";

fn needs_terrace(test: &str) -> bool {
    if !is_terrace() {
        skip(test, "needs Terrace");
    }
    is_terrace()
}

/// Status and body of an answer.
fn ask(port: u16, method: &str, path: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer of text");
    let (head, body) = text.split_once("\r\n\r\n").expect("an answer has a head");
    let status = head.split(' ').nth(1).expect("it has a status");
    (status.parse().expect("a number"), body.to_owned())
}

/// The state of a tier as `/tiers` has it.
fn state(port: u16, tier: usize) -> String {
    let (status, body) = ask(port, "GET", "/tiers", BEARER);
    assert_eq!(status, 200, "{body}");
    let object = body.split("{\"tier\":").nth(tier + 1).expect("there is such a tier");
    let state = object.split("\"state\":\"").nth(1).and_then(|rest| rest.split('"').next());
    state.expect("it has a state").to_owned()
}

/// A server with three tiers, the port of its page, and its flags without tiers.
fn with_token(dir: Arc<TempDir>) -> (Server, u16, String) {
    fs::write(dir.path().join("token"), format!("{TOKEN}\n")).expect("a file");
    let port = free_port();
    let flags = format!("-m 32 -t 2 --admin 127.0.0.1:{port} --admin-token-file DIR/token");
    (start(&format!("{flags}{}", tiers(&["a", "b", "c"])), dir), port, flags)
}

/// The same, with records on each tier.
fn filled(dir: Arc<TempDir>) -> (Server, u16, String) {
    let (server, port, flags) = with_token(dir);
    fill(&mut server.client(), "key", RECORDS, 300);
    let mut client = server.client();
    wait_until("records on each tier", || {
        let stats = client.stats("tiers");
        let has_some = |tier: usize| stats[&format!("tier:{tier}:segments_used")] != "0";
        (0..3).all(has_some).then_some(())
    });
    (server, port, flags)
}

fn tiers(names: &[&str]) -> String {
    names.iter().map(|name| format!(" --tier ssd:DIR/{name}:64m")).collect()
}

fn start(flags: &str, dir: Arc<TempDir>) -> Server {
    Server::try_start(flags, dir).unwrap_or_else(|failed| panic!("{flags}: {}", failed.output))
}

fn found(client: &mut Client) -> usize {
    count_right(client, "key", RECORDS, 300)
}

#[test]
fn drained_tier_can_be_removed_and_costs_no_record() {
    if !needs_terrace("drained_tier_can_be_removed_and_costs_no_record") {
        return;
    }
    let dir = Arc::new(TempDir::new().expect("a folder"));
    let (server, port, flags) = filled(Arc::clone(&dir));
    let post = |path: &str| ask(port, "POST", path, BEARER);
    assert_eq!(state(port, 1), "working");
    assert_eq!(post("/tiers/1/remove").0, 409);
    assert_eq!(post("/tiers/3/drain").0, 404);
    let (status, body) = post("/tiers/1/drain");
    assert_eq!(status, 200, "{body}");
    wait_until("the end of the drain", || (state(port, 1) == "drained").then_some(()));
    let mut client = server.client();
    assert_eq!(client.stats("tiers")["tier:1:state"], "drained");
    assert_eq!(client.stat("tiers", "tier:1:segments_used"), 0);
    assert_eq!(found(&mut client), RECORDS);
    assert_eq!(post("/tiers/1/remove").0, 200);
    assert_eq!(state(port, 1), "removed");
    assert_eq!(post("/tiers/1/cancel").0, 409);
    assert_eq!(found(&mut client), RECORDS);
    drop(client);
    assert_eq!(server.stop(), Some(0));
    let server = start(&format!("{flags}{}", tiers(&["a", "c"])), dir);
    let mut client = server.client();
    wait_until("the end of the recovery", || {
        (client.stats("tiers")["recovery"] == "ready").then_some(())
    });
    assert_eq!(found(&mut client), RECORDS);
}

#[test]
fn changes_need_the_token_and_a_post() {
    if !needs_terrace("changes_need_the_token_and_a_post") {
        return;
    }
    let (_server, port, _) = with_token(Arc::new(TempDir::new().expect("a folder")));
    for path in ["/tiers/0/drain", "/tiers/0/cancel", "/tiers/0/remove?records=drop"] {
        assert_eq!(ask(port, "GET", path, BEARER).0, 405, "{path}");
        assert_eq!(ask(port, "POST", path, "").0, 401, "{path}");
        let wrong = "Authorization: Bearer 0123456789abcdeX\r\n";
        assert_eq!(ask(port, "POST", path, wrong).0, 401, "{path}");
    }
    assert_eq!(state(port, 0), "working");
}

#[test]
fn nothing_can_be_changed_without_a_configured_token() {
    if !needs_terrace("nothing_can_be_changed_without_a_configured_token") {
        return;
    }
    let port = free_port();
    let flags = format!("-m 32 --admin 127.0.0.1:{port}{}", tiers(&["a", "b"]));
    let _server = start(&flags, Arc::new(TempDir::new().expect("a folder")));
    assert_eq!(ask(port, "POST", "/tiers/0/remove?records=drop", "").0, 403);
    assert_eq!(ask(port, "POST", "/tiers/0/drain", BEARER).0, 403);
    assert_eq!(state(port, 0), "working");
}
