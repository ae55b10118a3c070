//! `terrace export`: the real binary, its words, its stops and crashes, and many hosts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;
use terrace_e2e::{NvmeHost, Server, is_terrace, program, skip, wait_until};
use terrace_nvme::command::Status;
use terrace_nvme::command::nvm::{self, Blocks};
use terrace_nvme::pdu::Digests;

const BLOCK: usize = 4096;
const BOTH: Digests = Digests { header: true, data: true };
const NONE: Digests = Digests { header: false, data: false };
/// What 64 hosts with four queues each may take.
const RESIDENT_KIB_MAX: u64 = 256 << 10;

fn needs_terrace(test: &str) -> bool {
    if !is_terrace() {
        skip(test, "needs Terrace");
    }
    is_terrace()
}

/// A running export; killed when dropped.
struct Export {
    child: Child,
    address: SocketAddr,
    nqn: String,
    /// What it has said until it listened.
    said: String,
    rest: BufReader<std::process::ChildStdout>,
}

impl Export {
    fn start(words: &[&str]) -> Self {
        let mut child = Command::new(program())
            .arg("export")
            .args(words)
            .args(["--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut rest = BufReader::new(child.stdout.take().expect("a pipe"));
        let (mut said, mut nqn, mut address) = (String::new(), String::new(), None);
        while !said.contains("nvme connect") {
            let mut line = String::new();
            let bytes = rest.read_line(&mut line).expect("text");
            assert!(bytes > 0, "it has ended: {said}");
            let word = |before: &str| line.trim().strip_prefix(before).map(str::to_owned);
            nqn = word("subsystem ").unwrap_or(nqn);
            address = word("listening on ").and_then(|text| text.parse().ok()).or(address);
            said += &line;
        }
        Self { child, address: address.expect("an address"), nqn, said, rest }
    }

    fn connect(&self, number: u8, queues: u16, digests: Digests) -> NvmeHost {
        let login = NvmeHost::login(number, &self.nqn);
        NvmeHost::connect(self.address, login, (queues, 32), digests, None).expect("it connects")
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let done = Command::new("kill").args(["-s", name, &pid]).status().expect("kill runs");
        assert!(done.success());
    }

    fn resident_kib(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a row");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Waits for its end. Returns its exit code, and what it has said since it listened.
    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.rest.read_to_string(&mut rest).expect("text");
        (self.child.wait().expect("it ends").code(), rest)
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs an export that does not get as far as serving.
fn refused(words: &[&str]) -> (Option<i32>, String) {
    let output: Output =
        Command::new(program()).arg("export").args(words).output().expect("it runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}

fn file_in(dir: &TempDir) -> PathBuf {
    dir.path().join("shared")
}

fn block_of(number: u64) -> Vec<u8> {
    terrace_e2e::value_of("block", number, BLOCK)
}

#[test]
fn start_says_what_is_served_and_what_to_type() {
    const NAME: &str = "start_says_what_is_served_and_what_to_type";
    if !needs_terrace(NAME) {
        return;
    }
    let dir = TempDir::new().unwrap();
    let path = format!("{}:8m", text(&file_in(&dir)));
    let host = NvmeHost::login(1, "").host_nqn;
    let export = Export::start(&[&path, "--host", &host]);
    let (said, port, nqn) = (&export.said, export.address.port(), &export.nqn);
    for line in [
        format!("namespace 1: {}, ", text(&file_in(&dir))),
        format!("host {host}"),
        format!("listening on 127.0.0.1:{port}"),
        format!("terrace --tier nvme-tcp:127.0.0.1:{port}/{nqn}\n"),
        format!("nvme connect -t tcp -a 127.0.0.1 -s {port} -n {nqn}\n"),
    ] {
        assert!(said.contains(&line), "{line:?} is not in {said}");
    }
    let known = nqn.clone();
    export.connect(1, 1, NONE);
    drop(export);
    assert_eq!(Export::start(&[&path]).nqn, known, "the name is the same after a restart");
}

#[test]
fn wrong_flags_are_told_what_to_write() {
    if !needs_terrace("wrong_flags_are_told_what_to_write") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let path = text(&file_in(&dir)).to_owned();
    let (sized, named) = (format!("{path}:8m"), format!("{path}2:8m,nsid=1"));
    for (words, code, says) in [
        (vec![], 2, "PATH[:SIZE]"),
        (vec![&*path], 1, "has no size yet"),
        (vec![&sized, &named], 2, "write nsid=N behind it"),
        (vec![&sized, "--host", "db1"], 2, "begins with `nqn.`"),
        (vec![&sized, "--listen", "10.0.0.5:x"], 2, "[fd00::5]:4420"),
        (vec![&sized, "--listen", "192.0.2.1"], 1, "write an address of this machine"),
        (vec![&sized, "--threads", "0"], 2, "from 1 to 64"),
        (vec![&sized, "--admin", "0.0.0.0:1"], 2, "--admin-token-file"),
        (vec![text(dir.path())], 1, "is a directory"),
        (vec!["/dev/null"], 1, "neither a file nor a block device"),
    ] {
        let (ended, errors) = refused(&words);
        assert_eq!(ended, Some(code), "{words:?}: {errors}");
        assert!(errors.contains(says), "{words:?}: {errors}");
    }
}

#[test]
fn tier_of_a_running_server_is_refused() {
    if !needs_terrace("tier_of_a_running_server_is_refused") {
        return;
    }
    let dir = Arc::new(TempDir::new().unwrap());
    let server = Server::try_start("-m 64 --tier ssd:DIR/shared:256m", Arc::clone(&dir));
    let server = server.unwrap_or_else(|failed| panic!("{}", failed.output));
    let (code, errors) = refused(&[text(&file_in(&dir)), "--listen", "127.0.0.1:0"]);
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("stop the other Terrace or unmount it"), "{errors}");
    drop(server);
}

#[test]
fn metrics_count_what_hosts_do() {
    if !needs_terrace("metrics_count_what_hosts_do") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let (path, socket) = (format!("{}:8m", text(&file_in(&dir))), dir.path().join("admin"));
    let export = Export::start(&[&path, "--admin", text(&socket)]);
    let mut host = export.connect(1, 1, BOTH);
    for lba in 0..3 {
        let write = nvm::write(1, Blocks { lba, count: 1 }, false);
        assert_eq!(host.io[0].run(write, block_of(lba)).unwrap().0.status, Status::SUCCESS);
    }
    let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let labels = format!("{{nsid=\"1\",path=\"{}\"}}", text(&file_in(&dir)));
    for line in [
        format!("terrace_export_namespace_writes_total{labels} 3"),
        format!("terrace_export_namespace_written_bytes_total{labels} {}", 3 * BLOCK),
        "terrace_export_hosts 1".into(),
        "terrace_export_connections 2".into(),
        "terrace_export_connections_half_open 0".into(),
        "terrace_export_connections_closed_total{reason=\"protocol\"} 0".into(),
    ] {
        assert!(answer.lines().any(|found| found == line), "{line:?} is not in {answer}");
    }
}

/// Writes in a closed loop until the connection ends. Every block that was answered is counted in `done`, from 0 on.
fn write_on(export: &Export, number: u8, done: Arc<AtomicU64>) -> thread::JoinHandle<()> {
    let mut host = export.connect(number, 1, NONE);
    thread::spawn(move || {
        // All of it: the I/O queues end with the Admin Queue.
        let host = &mut host;
        for block in 0.. {
            let lba = u64::from(number - 1) * 1024 + block % 1024;
            let write = nvm::write(1, Blocks { lba, count: 1 }, false);
            match host.io[0].run(write, block_of(lba + block / 1024)) {
                Ok((outcome, _)) => assert_eq!(outcome.status, Status::SUCCESS),
                Err(_) => return,
            }
            done.store(block + 1, SeqCst);
        }
    })
}

/// Whether the file has what was answered: of each block the last version that was, or the next one, which was under way.
fn check_written(path: &Path, number: u8, done: u64) {
    let file = std::fs::File::open(path).expect("the file");
    for at in 0..1024.min(done) {
        let lba = u64::from(number - 1) * 1024 + at;
        let round = (done - 1 - at) / 1024;
        let mut found = vec![0; BLOCK];
        file.read_exact_at(&mut found, lba * BLOCK as u64).expect("a block");
        let fits = [round, round + 1].iter().any(|round| found == block_of(lba + round));
        assert!(fits, "block {lba} of host {number} is not as it was written");
    }
}

#[test]
fn stop_under_load_finishes_commands_and_ends_with_0() {
    if !needs_terrace("stop_under_load_finishes_commands_and_ends_with_0") {
        return;
    }
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = file_in(&dir);
    let export = Export::start(&[&format!("{}:16m", text(&path))]);
    let done: [Arc<AtomicU64>; 3] = Default::default();
    let hosts: Vec<_> = (1..=3)
        .map(|number| write_on(&export, number, Arc::clone(&done[usize::from(number) - 1])))
        .collect();
    wait_until("all hosts have written", || {
        done.iter().all(|one| one.load(SeqCst) > 200).then_some(())
    });
    export.signal("TERM");
    let (code, said) = export.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("all that was written is on the media"), "{said}");
    hosts.into_iter().for_each(|host| host.join().expect("no write failed"));
    for number in 1..=3 {
        check_written(&path, number, done[usize::from(number) - 1].load(SeqCst));
    }
}

#[test]
fn killed_export_comes_back_with_all_that_was_answered() {
    if !needs_terrace("killed_export_comes_back_with_all_that_was_answered") {
        return;
    }
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = file_in(&dir);
    let words = format!("{}:16m", text(&path));
    let export = Export::start(&[&words]);
    let ids = export.connect(9, 1, NONE).controller.namespace.map(|one| one.ids);
    let done: Arc<AtomicU64> = Arc::default();
    let host = write_on(&export, 1, Arc::clone(&done));
    wait_until("the host has written", || (done.load(SeqCst) > 1200).then_some(()));
    drop(export);
    host.join().expect("no write failed");
    check_written(&path, 1, done.load(SeqCst));

    let export = Export::start(&[&words]);
    let mut host = export.connect(1, 1, BOTH);
    assert_eq!(host.controller.namespace.map(|one| one.ids), ids);
    let read = nvm::read(1, Blocks { lba: 0, count: 1 });
    let (outcome, data) = host.io[0].run(read, vec![0; BLOCK]).unwrap();
    assert_eq!(outcome.status, Status::SUCCESS);
    assert!((0..9).any(|round| data == block_of(round)), "the block is of none of the rounds");
}

/// All buffers are in use: every queue has reads of 256 KiB whose answers its host does not take.
#[test]
fn many_hosts_stay_within_the_memory_that_they_may_take() {
    if !needs_terrace("many_hosts_stay_within_the_memory_that_they_may_take") {
        return;
    }
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let export = Export::start(&[&format!("{}:32m", text(&file_in(&dir)))]);
    let mut hosts: Vec<_> = (1..=64).map(|number| export.connect(number, 4, NONE)).collect();
    let idle = export.resident_kib();
    for queue in hosts.iter_mut().flat_map(|host| &mut host.io) {
        while queue.has_room() {
            let read = nvm::read(1, Blocks { lba: 0, count: 64 });
            queue.submit(read, vec![0; 64 * BLOCK]).expect("room");
        }
    }
    let mut most = 0;
    for _ in 0..20 {
        most = most.max(export.resident_kib());
        thread::sleep(Duration::from_millis(100));
    }
    println!("64 hosts x 4 queues: {} MiB connected, {} MiB under load", idle >> 10, most >> 10);
    assert!(most <= RESIDENT_KIB_MAX, "{most} KiB, {idle} KiB before the load");
}
