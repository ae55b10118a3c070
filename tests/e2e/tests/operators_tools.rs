//! What operators have at hand, run as it is: `memcached-tool` and the start script that come with
//! Debian's memcached. libmemcached's tools are in `real_clients.rs`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use terrace_e2e::{Server, fill, flash_server, free_port, is_terrace, skip, wait_until};

const MEMCACHED_TOOL: &str = "/usr/share/memcached/scripts/memcached-tool";
const START_SCRIPT: &str = "/usr/share/memcached/scripts/systemd-memcached-wrapper";

/// What a tool printed, and whether it ended well.
fn run(program: &str, arguments: &[&str], dir: &Path) -> (String, bool) {
    let mut command = Command::new("timeout");
    command.args(["30", program]).args(arguments).current_dir(dir).stdin(Stdio::null());
    let output = command.output().expect("timeout runs");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (text, output.status.success())
}

#[test]
fn keys_are_dumped_class_by_class() {
    if !is_terrace() {
        return skip("keys_are_dumped_class_by_class", "memcached has other classes");
    }
    let server = flash_server("-t 2");
    let mut client = server.client();
    client.check("stats cachedump 1 0\r\nstats cachedump 2 0\r\n", "END\r\nEND\r\n");
    client.check("set k 5 0 3\r\nabc\r\n", "STORED\r\n");
    client.check("stats cachedump 1 100\r\nmn\r\n", "ITEM k [3 b; 0 s]\r\nEND\r\nMN\r\n");
    client.check("stats cachedump 64 0\r\n", "CLIENT_ERROR Illegal slab id\r\n");
    // Most of them on the drive.
    fill(&mut client, "key", 100_000, 1000);
    client.send("stats cachedump 1 70000\r\n");
    let mut keys: Vec<_> = std::iter::from_fn(|| Some(client.line()))
        .take_while(|line| line != "END")
        .map(|line| line.split(' ').nth(1).expect("a key").to_string())
        .collect();
    // An answer is never longer than 2 MiB, as memcached's.
    assert!((60_000..=70_000).contains(&keys.len()), "{}", keys.len());
    let all = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), all, "none twice");
    let forbids = Server::start("-X");
    forbids
        .client()
        .check("stats cachedump 1 1\r\n", "CLIENT_ERROR stats cachedump not allowed\r\n");
}

#[test]
fn memcacheds_own_tool() {
    if !Path::new(MEMCACHED_TOOL).exists() {
        return skip("memcacheds_own_tool", "not installed; make tools");
    }
    let server = Server::start("-m 64 -t 2 -o track_sizes");
    let mut client = server.client();
    fill(&mut client, "key", 1000, 100);
    let address = server.address().to_string();
    let tool = |mode: &str| {
        let (text, is_good) = run(MEMCACHED_TOOL, &[&address, mode], server.dir.path());
        assert!(is_good, "{mode}: {text}");
        text
    };
    if is_terrace() {
        // Class, size of the mean item, age, pages, items.
        let mean = format!("{}B", client.stat("", "bytes").div_ceil(1000));
        let display = tool("display");
        let row: Vec<_> = display.lines().nth(1).expect("a row").split_whitespace().collect();
        assert_eq!((row[0], row[1], row[4]), ("1", mean.as_str(), "1000"), "{display}");
        assert!(row[3].parse::<u32>().is_ok_and(|pages| (1..=64).contains(&pages)), "{display}");
    }
    let has = |text: String, words: &[&str]| {
        let same = |line: &str| line.split_whitespace().eq(words.iter().copied());
        assert!(text.lines().any(same), "{words:?} in {text}");
    };
    has(tool("stats"), &["curr_items", "1000"]);
    has(tool("settings"), &["maxbytes", "67108864"]);
    assert!(tool("sizes").lines().count() > 1);
    assert_eq!(tool("keys").matches("key=key").count(), 1000);
    assert_eq!(tool("dump").matches("add key").count(), 1000);
}

/// Debian's script reads `/etc/memcached.conf`, or the file it is given, and starts `/usr/bin/memcached`:
/// here in a mount namespace of its own, where Terrace has that name.
#[test]
fn debians_start_script() {
    let test = "debians_start_script";
    if !is_terrace() || !Path::new(START_SCRIPT).exists() {
        return skip(test, "needs Terrace, and the script of Debian's memcached");
    }
    let mount = format!("mount --bind {} /usr/bin/memcached", terrace_e2e::program().display());
    let probe = Command::new("unshare").args(["--mount", "sh", "-c", &mount]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return skip(test, "nothing can be mounted here; needs root");
    }
    let dir = Arc::new(TempDir::new().expect("a directory"));
    let (path, port) = (dir.path().to_str().expect("text"), free_port());
    let conf = std::fs::read_to_string("/etc/memcached.conf").unwrap_or_else(|_| {
        "# memcached\n-d\nlogfile /var/log/memcached.log\n-m 64\n-p 11211\n-u memcache\n-l 127.0.0.1\n-P /var/run/memcached/memcached.pid\n".into()
    });
    let conf = conf.replace("-p 11211", &format!("-p {port}"));
    let conf = conf.replace("-u memcache", "-u root");
    let conf = conf.replace("/var/run/memcached/memcached.pid", &format!("{path}/pid"));
    std::fs::write(dir.path().join("conf"), conf).expect("room");
    let script = format!("{mount} && exec {START_SCRIPT} {path}/conf");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("unshare runs");
    let pid = wait_until("its pid file", || {
        let text = std::fs::read_to_string(dir.path().join("pid")).ok()?;
        text.trim().parse::<u32>().ok()
    });
    assert_eq!(pid, child.id(), "the script becomes the server");
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    wait_until("the server", || std::net::TcpStream::connect(address).ok());
    terrace_e2e::Client::connect(address).check("version\r\n", "VERSION 1.6.45\r\n");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is there");
    let end = std::time::Instant::now() + Duration::from_secs(30);
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break status;
        }
        assert!(std::time::Instant::now() < end, "it does not stop");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(0));
    assert!(!dir.path().join("pid").exists(), "the pid file goes with it");
}
