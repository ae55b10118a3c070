//! Tiers behind NVMe/TCP: a server, and a `terrace export` that stalls, dies and comes back.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_e2e::{
    Client, Server, count_right, fill, free_port, is_terrace, program, skip, wait_until,
};

const RECORDS: usize = 60_000;
const BYTES: usize = 1000;

fn needs_terrace(test: &str) -> bool {
    if !is_terrace() {
        skip(test, "needs Terrace");
    }
    is_terrace()
}

/// A target over a file in `DIR`, at the same address each time.
struct Target {
    dir: Arc<TempDir>,
    port: u16,
    child: Child,
}

impl Target {
    fn new(dir: &Arc<TempDir>) -> Self {
        let port = free_port();
        Self { dir: Arc::clone(dir), port, child: Self::start(dir, port) }
    }

    fn start(dir: &TempDir, port: u16) -> Child {
        let mut child = Command::new(program())
            .arg("export")
            .arg(format!("{}:256m,block=512", dir.path().join("shared").display()))
            .args(["--nqn", &Self::nqn(port), "--listen", &format!("127.0.0.1:{port}")])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut said = lines.map_while(Result::ok);
        assert!(said.by_ref().any(|line| line.contains("nvme connect")), "it has ended");
        // What it says later has to go somewhere.
        thread::spawn(move || said.for_each(drop));
        child
    }

    fn nqn(port: u16) -> String {
        format!("nqn.2014-08.org.nvmexpress:terrace:{}:{port}", std::process::id())
    }

    fn tier(&self) -> String {
        format!("nvme-tcp:127.0.0.1:{}/{}", self.port, Self::nqn(self.port))
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let done = Command::new("kill").args(["-s", name, &pid]).status().expect("kill runs");
        assert!(done.success());
    }

    fn restart(&mut self) {
        self.signal("KILL");
        self.child.wait().expect("it ends");
        self.child = Self::start(&self.dir, self.port);
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(flags: &str, dir: &Arc<TempDir>) -> Server {
    match Server::try_start(flags, Arc::clone(dir)) {
        Ok(server) => server,
        Err(failed) => panic!("{}", failed.output),
    }
}

fn health(client: &mut Client, tier: usize) -> String {
    client.stats("tiers")[&format!("tier:{tier}:health")].clone()
}

/// All are there, once recovery and reconnection are over, but for those that the index had no room for: it can't grow
/// while a tier does not answer.
fn all_are_back(server: &Server, client: &mut Client) {
    let (mut right, end) = (0, Instant::now() + Duration::from_secs(60));
    while right + (client.stat("tiers", "evictions_index") as usize) < RECORDS {
        assert!(
            Instant::now() < end,
            "{right} of {RECORDS} are right: {} {:#?}",
            server.output(),
            client.stats("tiers")
        );
        right = count_right(client, "key", RECORDS, BYTES);
    }
    assert!(right > RECORDS * 9 / 10, "{right}");
}

#[test]
fn records_outlive_crashes_of_the_server_and_of_the_target() {
    if !needs_terrace("records_outlive_crashes_of_the_server_and_of_the_target") {
        return;
    }
    for engine in ["auto", "pool"] {
        let dir = Arc::new(TempDir::new().expect("a folder"));
        let mut target = Target::new(&dir);
        let flags = format!(
            "-m 24 -t 2 --io-engine {engine} --stop-timeout 5 --state DIR --tier {}",
            target.tier()
        );
        let server = start(&flags, &dir);
        let mut client = server.client();
        fill(&mut client, "key", RECORDS, BYTES);
        assert!(client.stat("tiers", "tier:0:records") > 30_000, "they are on the target");
        all_are_back(&server, &mut client);
        server.kill();
        let server = start(&flags, &dir);
        all_are_back(&server, &mut server.client());
        target.restart();
        all_are_back(&server, &mut server.client());
        assert_eq!(server.stop(), Some(0));
        let server = start(&flags, &dir);
        all_are_back(&server, &mut server.client());
        target.signal("TERM");
        let mut client = server.client();
        wait_until("it learns", || (health(&mut client, 0) == "unresponsive").then_some(()));
        assert!(client.set("new", b"value"), "the server goes on");
        assert_eq!(server.stop(), Some(0), "also without the target");
    }
}

#[test]
fn stalled_target_costs_its_records_alone_and_for_as_long() {
    if !needs_terrace("stalled_target_costs_its_records_alone_and_for_as_long") {
        return;
    }
    let dir = Arc::new(TempDir::new().expect("a folder"));
    let target = Target::new(&dir);
    let flags = format!("-m 24 -t 2 --tier ssd:DIR/local:256m --tier {}", target.tier());
    let server = start(&flags, &dir);
    let mut client = server.client();
    fill(&mut client, "key", RECORDS, BYTES);
    let of = |client: &mut Client, tier| client.stat("tiers", &format!("tier:{tier}:records"));
    let (local, remote) = (of(&mut client, 0), of(&mut client, 1));
    assert!(local > 5000 && remote > 5000, "{local} and {remote}");
    target.signal("STOP");
    let right = count_right(&mut client, "key", RECORDS, BYTES) as u64;
    assert!(right >= local && right < RECORDS as u64, "{right} of {local} and {remote}");
    assert_eq!(health(&mut client, 1), "unresponsive");
    assert_eq!(health(&mut client, 0), "working");
    // Longer than a Keep Alive is waited for.
    wait_until("the session is lost", || {
        server.output_with("lost the connection").contains("lost the connection").then_some(())
    });
    target.signal("CONT");
    all_are_back(&server, &mut client);
    wait_until("working again", || (health(&mut client, 1) == "working").then_some(()));
}

#[test]
fn remote_tier_is_added_to_a_running_server_and_removed_again() {
    if !needs_terrace("remote_tier_is_added_to_a_running_server_and_removed_again") {
        return;
    }
    for engine in ["auto", "pool"] {
        let dir = Arc::new(TempDir::new().expect("a folder"));
        let target = Target::new(&dir);
        let port = free_port();
        std::fs::write(dir.path().join("token"), "0123456789abcdef\n").expect("a file");
        let flags = format!(
            "-m 24 -t 2 --io-engine {engine} --tier ssd:DIR/local:256m --admin 127.0.0.1:{port} \
             --admin-token-file DIR/token"
        );
        let server = start(&flags, &dir);
        let tiers = |words: &[&str]| {
            let output = Command::new(program())
                .arg("tiers")
                .args(words)
                .args(["--admin", &format!("127.0.0.1:{port}"), "--admin-token-file"])
                .arg(dir.path().join("token"))
                .output()
                .expect("it runs");
            assert!(output.status.success(), "{words:?}: {output:?}");
        };
        tiers(&["add", &target.tier()]);
        let mut client = server.client();
        fill(&mut client, "key", RECORDS, BYTES);
        assert!(client.stat("tiers", "tier:1:records") > 5000);
        all_are_back(&server, &mut client);
        tiers(&["drain", "1", "--wait"]);
        tiers(&["remove", "1"]);
        all_are_back(&server, &mut client);
        // The target has it free for another server.
        let other = Arc::new(TempDir::new().expect("a folder"));
        let second = start(&format!("-m 24 --tier {}", target.tier()), &other);
        assert_eq!(second.stop(), Some(0));
    }
}
