//! Standard output and error whose readers are gone: a terminal that was closed, a log pipe whose
//! program died. What is said is lost, and nothing else.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use tempfile::TempDir;
use terrace_e2e::{Client, free_port, is_terrace, skip, spawn_with, value_of, wait_until};

fn others(test: &str) -> bool {
    if !is_terrace() {
        skip(test, "another server's output");
    }
    !is_terrace()
}

/// A process that is killed when the test is through with it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a pipe takes while nobody reads it (pipe(7)).
const PIPE_BYTES: usize = 64 << 10;

#[test]
fn who_is_told_of_a_server_may_end_it() {
    if others("who_is_told_of_a_server_may_end_it") {
        return;
    }
    let dir = TempDir::new().expect("a directory");
    // The first line still has room in the pipe. The start stands still before the second one, with
    // its process id told already, until the pipe is read.
    // Of the lines before that, each has some 60 bytes, and the next ones together have more.
    let (mut output, mut input) = std::io::pipe().expect("a pipe");
    input.write_all(&vec![b'.'; PIPE_BYTES - 100]).expect("room");
    let flags = format!("-m 64 -P DIR/pid -l 127.0.0.1 -p {}", free_port());
    let child = spawn_with(&flags, &dir, |command| {
        command.stdout(input);
    });
    let mut server = Running(child);
    let id = wait_until("its id", || std::fs::read_to_string(dir.path().join("pid")).ok());
    assert_eq!(id.trim(), server.0.id().to_string());
    kill_process(Pid::from_child(&server.0), Signal::TERM).expect("a signal");
    let mut text = String::new();
    output.read_to_string(&mut text).expect("what it says");
    assert_eq!(wait(&mut server).code(), Some(0), "{}", text.trim_start_matches('.'));
    assert!(text.contains("listening on"), "{}", text.trim_start_matches('.'));
}

/// Starts a server and closes the ends of its output that would be read.
fn start_unheard(flags: &str, dir: &TempDir) -> Running {
    let piped = |command: &mut Command| {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    };
    let mut child = spawn_with(flags, dir, piped);
    drop((child.stdout.take(), child.stderr.take()));
    Running(child)
}

fn connect(port: u16) -> Client {
    wait_until("an answer", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    Client::connect(([127, 0, 0, 1], port).into())
}

fn wait(Running(child): &mut Running) -> ExitStatus {
    wait_until("its end", || child.try_wait().expect("a child can be waited for"))
}

#[test]
fn a_server_that_nobody_listens_to_serves_on() {
    if others("a_server_that_nobody_listens_to_serves_on") {
        return;
    }
    let dir = TempDir::new().expect("a directory");
    let mut before = None;
    // The second start has something to recover, and to say of it.
    for round in 0..2 {
        let port = free_port();
        let flags = format!("-m 64 -t 2 -vv --tier ssd:DIR/tier:64m -l 127.0.0.1 -p {port}");
        let mut server = start_unheard(&flags, &dir);
        let mut client = connect(port);
        if let Some((key, value)) = before {
            wait_until("a warm start", || (client.get(key).as_ref() == Some(&value)).then_some(()));
        }
        let pid = Pid::from_child(&server.0);
        for at in 0..20 {
            kill_process(pid, Signal::HUP).expect("a signal");
            // Each says that it came and went; tuning in vain says so once.
            let mut other = connect(port);
            other.check("slabs automove 1\r\n", "OK\r\n");
            assert!(other.set(&format!("k{at}"), b"value"));
        }
        client.check(
            "cache_memlimit 90000\r\n",
            "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n",
        );
        client.check("mn\r\n", "MN\r\n");
        let value = value_of("kept", round, 1000);
        assert!(client.set("kept", &value));
        before = Some(("kept", value));
        assert_eq!(server.0.try_wait().expect("a child can be waited for"), None);
        kill_process(pid, Signal::TERM).expect("a signal");
        assert_eq!(wait(&mut server).code(), Some(0));
    }
}

#[test]
fn what_is_printed_may_be_cut_off() {
    if others("what_is_printed_may_be_cut_off") {
        return;
    }
    let dir = TempDir::new().expect("a directory");
    for flags in ["--help", "--version", "--license"] {
        assert_eq!(wait(&mut start_unheard(flags, &dir)).code(), Some(0), "{flags}");
    }
    assert_eq!(wait(&mut start_unheard("--no-such-flag", &dir)).code(), Some(1));
}

#[test]
fn a_daemon_may_be_started_by_one_who_does_not_listen() {
    if others("a_daemon_may_be_started_by_one_who_does_not_listen") {
        return;
    }
    let dir = TempDir::new().expect("a directory");
    let port = free_port();
    let flags = format!("-m 64 -d -P DIR/pid -l 127.0.0.1 -p {port}");
    let status = wait(&mut start_unheard(&flags, &dir));
    let pid = std::fs::read_to_string(dir.path().join("pid")).expect("its pid file");
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw).expect("a process id");
    connect(port).check("mn\r\n", "MN\r\n");
    kill_process(pid, Signal::TERM).expect("a signal");
    assert_eq!(status.code(), Some(0));
}
