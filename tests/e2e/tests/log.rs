//! The log: what each start says, and how its lines are written.

use serde_json::Value;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_e2e::{Server, is_terrace, skip, spawn_with, wait_until};

const TIER: &str = "-m 64 --tier ssd:DIR/tier:128m";

/// Stores some records and ends the server by a signal.
fn filled(server: Server, kill: bool) -> Arc<TempDir> {
    let mut client = server.client();
    for number in 0..1500 {
        assert!(client.set(&format!("k{number}"), b"v"));
    }
    if kill {
        return server.kill();
    }
    let dir = Arc::clone(&server.dir);
    assert_eq!(server.stop(), Some(0));
    dir
}

fn start_in(flags: &str, dir: Arc<TempDir>) -> Server {
    Server::try_start(flags, dir).unwrap_or_else(|failed| panic!("{}", failed.output))
}

#[test]
fn a_start_says_in_a_line_whether_it_is_warm() {
    if !is_terrace() {
        return skip("a_start_says_in_a_line_whether_it_is_warm", "it is of Terrace's own lines");
    }
    let summaries = |output: &str| -> Vec<String> {
        let is_one =
            |line: &&str| ["warm: ", "cold: ", "COLD START: "].iter().any(|s| line.contains(s));
        output.lines().filter(is_one).map(str::to_owned).collect()
    };
    let server = Server::start(TIER);
    let said = summaries(&server.output());
    assert!(said.len() == 1 && said[0].contains(" INFO cold: the tiers are new"), "{said:?}");
    let dir = filled(server, false);
    let server = start_in(TIER, dir);
    let said = summaries(&server.output_with("warm: "));
    assert!(said.len() == 1 && said[0].contains(" INFO warm: 1,500 records in "), "{said:?}");
    let dir = filled(server, true);
    let mut states = terrace_e2e::state_dir(dir.path()).read_dir().expect("a folder");
    let state = states.next().expect("a kill leaves it").expect("it can be listed");
    std::fs::remove_file(state.path()).expect("it is removed");
    let said = summaries(&start_in(TIER, dir).output());
    let why = "tier: the state of the last run is missing";
    assert!(
        said.len() == 1
            && said[0].contains(" WARN COLD START: ")
            && said[0].contains(why)
            && said[0].contains("SIGTERM"),
        "{said:?}"
    );
}

#[test]
fn lines_are_objects_where_it_is_asked_for() {
    if !is_terrace() {
        return skip("lines_are_objects_where_it_is_asked_for", "it is of Terrace's own lines");
    }
    let server = Server::start(&format!("{TIER} --log-format json -o hashpower=20"));
    let output = server.output();
    let lines: Vec<Value> =
        output.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let text = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    assert!(lines.iter().all(|line| text(line, "timestamp").ends_with('Z')), "{output}");
    let has = |level: &str, begin: &str| {
        let is_it =
            |line: &Value| text(line, "level") == level && text(line, "message").starts_with(begin);
        lines.iter().any(is_it)
    };
    assert!(has("INFO", "listening on ") && has("INFO", "-o hashpower=20: "), "{output}");
    let failed = Server::run("-m 64 --log-format json --tier ssd:DIR/none/tier:128m");
    let last: Value =
        serde_json::from_str(failed.output.lines().last().expect("a line")).expect("JSON");
    assert_eq!((failed.code, text(&last, "level").as_str()), (Some(71), "ERROR"), "{last}");
    let wrong = Server::run("-m 64 --log-format xml");
    assert!(wrong.output.contains("write text or json"), "{}", wrong.output);
}

#[test]
fn what_asks_to_read_files_again_ends_no_start() {
    if !is_terrace() {
        return skip("what_asks_to_read_files_again_ends_no_start", "memcached ends by it");
    }
    let dir = TempDir::new().expect("a directory");
    let mut server = spawn_with(TIER, &dir, |_| {});
    let pid = server.id().to_string();
    let is_asked = |signal: &str| {
        let sent = Command::new("kill").args([signal, &pid]).status();
        sent.expect("kill runs").success()
    };
    // From before it handles signals at all until it serves.
    let end = Instant::now() + Duration::from_secs(1);
    let caught = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        (u64::from_str_radix(caught.trim(), 16).ok()? & 1 != 0).then_some(())
    };
    wait_until("SIGHUP taken", caught);
    while Instant::now() < end {
        assert!(is_asked("-HUP"), "it has ended");
    }
    assert!(is_asked("-TERM"));
    assert_eq!(server.wait().expect("an end").code(), Some(0));
}
