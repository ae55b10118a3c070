//! A server that is known to be right.
#![allow(dead_code, reason = "each test file uses a part")]

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_load::{Address, Plan, Process, Report, Workload, run};

pub(crate) struct Memcached {
    pub(crate) child: Child,
    pub(crate) address: Address,
    /// Holds its socket.
    _dir: TempDir,
}

impl Memcached {
    /// With these flags besides, on TCP; `None`, and a line that says so, where there is none.
    pub(crate) fn start(test: &str, flags: &[&str]) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let ports = dir.path().join("ports");
        let mut command = command(flags);
        command.args(["-l", "127.0.0.1", "-p", "-1"]).env("MEMCACHED_PORT_FILENAME", &ports);
        let child = spawn(test, &mut command)?;
        let mut server = Self { child, address: Address::Unix(PathBuf::new()), _dir: dir };
        let port = wait_for(|| port_in(&ports));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        wait_for(|| TcpStream::connect(address).ok());
        server.address = address.into();
        Some(server)
    }

    /// The same on a Unix socket.
    pub(crate) fn on_a_unix_socket(test: &str) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("socket");
        let child = spawn(test, command(&[]).arg("-s").arg(&path))?;
        let server = Self { child, address: Address::Unix(path.clone()), _dir: dir };
        wait_for(|| UnixStream::connect(&path).ok());
        Some(server)
    }

    /// 20,001 records, over connections and threads that don't divide them.
    pub(crate) fn plan(&self, workload: Workload) -> Plan {
        Plan {
            connections: 5,
            threads: 2,
            depth: 7,
            flags: 3,
            ..Plan::new(self.address.clone(), workload, 20_001)
        }
    }

    pub(crate) fn run(&self, plan: &Plan) -> Report {
        let process = Process::new(self.child.id());
        run(plan, process.as_ref()).expect("a run to its end")
    }
}

/// What a busy machine may spoil: the first of several tries that is good, or else the last.
pub(crate) fn first_good<T>(mut attempt: impl FnMut() -> T, is_good: impl Fn(&T) -> bool) -> T {
    for _ in 0..9 {
        let found = attempt();
        if is_good(&found) {
            return found;
        }
    }
    attempt()
}

fn command(flags: &[&str]) -> Command {
    let mut command = Command::new("memcached");
    command.args(["-u", "root", "-m", "64"]).args(flags).stderr(Stdio::null());
    command
}

fn spawn(test: &str, command: &mut Command) -> Option<Child> {
    let child = command.spawn().ok();
    if child.is_none() {
        terrace_e2e::skip(test, "memcached is not installed; make tools");
    }
    child
}

/// The port that the server chose itself: one found beforehand may be another's by now.
fn port_in(ports: &Path) -> Option<u16> {
    let text = std::fs::read_to_string(ports).ok()?;
    text.lines().find_map(|line| line.strip_prefix("TCP INET: "))?.trim().parse().ok()
}

pub(crate) fn wait_for<T>(mut ready: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = ready() {
            return found;
        }
        assert!(Instant::now() < end, "memcached does not answer");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
