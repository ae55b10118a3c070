//! One server process, with a directory of its own.

use crate::{Client, PATIENCE, state_dir, wait_until};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The first words of the last lines that a Terrace says before it serves.
const SERVES: &str = "listening on ";

/// Whether the server under test is Terrace itself.
pub fn is_terrace() -> bool {
    std::env::var_os("TERRACE_E2E_SERVER").is_none()
}

/// The binary under test, built if need be.
fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    let given =
        || std::env::var_os("TERRACE_E2E_SERVER").or(std::env::var_os("TERRACE_E2E_BINARY"));
    BINARY.get_or_init(|| given().map_or_else(build, PathBuf::from))
}

/// Cargo offers tests the binaries of their own package only, so this one is built here, with the
/// profile of the test, into the folder that the test itself lies in.
fn build() -> PathBuf {
    let this = std::env::current_exe().expect("a test knows its path");
    let profile = this.ancestors().nth(2).expect("a test lies in TARGET/PROFILE/deps");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // With the features that the whole workspace has: most of it was built with them for the tests.
    cargo.args(["build", "--quiet", "--workspace", "--bin", "terrace"]);
    cargo.arg("--target-dir").arg(profile.parent().expect("a profile lies in a target folder"));
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    assert!(cargo.status().expect("cargo runs").success(), "terrace does not build");
    profile.join("terrace")
}

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    port: u16,
    /// Files of this server; removed with it.
    pub dir: Arc<TempDir>,
    output: Arc<Mutex<String>>,
}

/// What is left of a server that ended by itself.
pub struct Failed {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// All it printed.
    pub output: String,
    /// How long it ran.
    pub took: Duration,
}

impl Server {
    /// Starts a server with `flags` (separated by blanks; `DIR` stands for a fresh directory) and
    /// waits until it answers.
    pub fn start(flags: &str) -> Self {
        let dir = Arc::new(TempDir::new().expect("a temporary directory"));
        match Self::try_start(flags, dir) {
            Ok(server) => server,
            Err(failed) => panic!("{flags}: exit code {:?}: {}", failed.code, failed.output),
        }
    }

    /// As [`Server::start`] in a directory that exists; says how it ended if it does not serve.
    pub fn try_start(flags: &str, dir: Arc<TempDir>) -> Result<Self, Failed> {
        Self::try_start_build(binary(), flags, dir)
    }

    /// As [`Server::try_start`], of this binary.
    pub fn try_start_build(binary: &Path, flags: &str, dir: Arc<TempDir>) -> Result<Self, Failed> {
        Self::try_start_command(command_of(binary, flags, &dir), flags, dir)
    }

    /// As [`Server::try_start`], with variables of the environment (`DIR` as in the flags).
    pub fn try_start_with(
        flags: &str,
        dir: Arc<TempDir>,
        environment: &[(&str, &str)],
    ) -> Result<Self, Failed> {
        let mut command = command(flags, &dir);
        let path = dir.path().to_str().expect("temporary paths are text");
        command.envs(environment.iter().map(|(name, value)| (name, value.replace("DIR", path))));
        Self::try_start_command(command, flags, dir)
    }

    fn try_start_command(
        mut command: Command,
        flags: &str,
        dir: Arc<TempDir>,
    ) -> Result<Self, Failed> {
        let port = free_port();
        command.args(["-l", "127.0.0.1", "-p", &port.to_string()]);
        let start = Instant::now();
        let mut child = command.spawn().expect("the binary under test starts");
        let output = Arc::new(Mutex::new(String::new()));
        let readers = [
            child.stdout.take().map(|pipe| collect(pipe, &output)),
            child.stderr.take().map(|pipe| collect(pipe, &output)),
        ];
        let mut server = Self { child, port, dir, output };
        let end = start + PATIENCE;
        loop {
            if let Some(status) = server.child.try_wait().expect("a child can be waited for") {
                for reader in readers.into_iter().flatten() {
                    let _ = reader.join();
                }
                let (code, took) = (status.code(), start.elapsed());
                return Err(Failed { code, output: server.output(), took });
            }
            // The system connects as soon as there is a listener, before anything is said of the start.
            let has_told = !is_terrace() || server.output().contains(SERVES);
            if TcpStream::connect(server.address()).is_ok() && has_told {
                return Ok(server);
            }
            assert!(Instant::now() < end, "{flags}: no answer; it said: {}", server.output());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Runs the binary with `flags` only, until it ends by itself.
    pub fn run(flags: &str) -> Failed {
        let dir = TempDir::new().expect("a temporary directory");
        Self::wait(command(flags, &dir))
    }

    /// As [`Server::run`], started by the command `wrapper` (such as `prlimit --fsize=1000`).
    pub fn run_under(wrapper: &str, flags: &str) -> Failed {
        let dir = TempDir::new().expect("a temporary directory");
        Self::wait(under(wrapper, &command(flags, &dir)))
    }

    /// As [`Server::try_start`] in a fresh directory, started by the command `wrapper`.
    pub fn try_start_under(wrapper: &str, flags: &str) -> Result<Self, Failed> {
        let dir = Arc::new(TempDir::new().expect("a temporary directory"));
        Self::try_start_command(under(wrapper, &command(flags, &dir)), flags, dir)
    }

    fn wait(mut command: Command) -> Failed {
        let start = Instant::now();
        let mut child = command.spawn().expect("the binary under test starts");
        let end = start + PATIENCE;
        while child.try_wait().expect("a child can be waited for").is_none() {
            if Instant::now() > end {
                let _ = child.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let result = child.wait_with_output().expect("output of a finished child");
        let text = [result.stdout, result.stderr].concat();
        let output = String::from_utf8_lossy(&text).into_owned();
        Failed { code: result.status.code(), output, took: start.elapsed() }
    }

    /// Has [`Server::address`] name another port of the server.
    pub fn use_port(&mut self, port: u16) {
        self.port = port;
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// A new connection.
    pub fn client(&self) -> Client {
        Client::connect(self.address())
    }

    /// Id of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it at once, as `kill -9` does, and gives back its directory.
    pub fn kill(mut self) -> Arc<TempDir> {
        self.child.kill().expect("a running child can be killed");
        self.child.wait().expect("a child can be waited for");
        Arc::clone(&self.dir)
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
        let kib = line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
        kib.expect("resident memory of a running server") * 1024
    }

    /// All it printed so far: of its start everything, of what came later what has been read yet.
    pub fn output(&self) -> String {
        self.output.lock().map(|text| text.clone()).unwrap_or_default()
    }

    /// Waits until it has printed `text`, and gives back all it printed.
    pub fn output_with(&self, text: &str) -> String {
        wait_until(&format!("a line with {text:?}"), || {
            let output = self.output();
            output.contains(text).then_some(output)
        })
    }

    /// Waits until this many connections are open, that of `client` among them. One that was closed
    /// counts until the server has noticed.
    pub fn wait_for_connections(&self, client: &mut Client, count: u64) {
        wait_until(&format!("{count} connections"), || {
            (client.stat("", "curr_connections") == count).then_some(())
        });
    }

    /// Panics unless the server still runs and answers a new client.
    pub fn assert_alive(&mut self) {
        self.assert_running();
        self.client().check("mn\r\n", "MN\r\n");
    }

    /// Panics unless the server still runs.
    pub fn assert_running(&mut self) {
        let ended = self.child.try_wait().expect("a child can be waited for");
        assert!(ended.is_none(), "the server ended: {ended:?}: {}", self.output());
    }

    /// Asks it to read its files again.
    pub fn hang_up(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("a signal");
    }

    /// Asks it to stop, as a service manager would, and gives back its exit code.
    pub fn stop(self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal");
        self.ended()
    }

    /// Waits for its end, which somebody asked for, and gives back its exit code.
    pub fn ended(mut self) -> Option<i32> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status.code();
            }
            assert!(Instant::now() < end, "did not stop; it said: {}", self.output());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A server that died under its test is worth more than the test's own complaint.
            let ended = self.child.try_wait();
            eprintln!("the server ({ended:?}) said:\n{}", self.output());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A bare process with `flags`, for tests that look after it themselves.
pub fn spawn(flags: &str, dir: &TempDir) -> Child {
    let mut command = command(flags, dir);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the binary under test starts")
}

/// As [`spawn`]; `change` sees the command before it starts, and its output can be piped.
pub fn spawn_with(flags: &str, dir: &TempDir, change: impl FnOnce(&mut Command)) -> Child {
    let mut command = command(flags, dir);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    change(&mut command);
    command.spawn().expect("the binary under test starts")
}

/// The binary under test, for those who start it in ways of their own.
pub fn program() -> &'static Path {
    binary()
}

fn command(flags: &str, dir: &TempDir) -> Command {
    command_of(binary(), flags, dir)
}

fn command_of(binary: &Path, flags: &str, dir: &TempDir) -> Command {
    let mut command = Command::new(binary);
    let path = dir.path().to_str().expect("temporary paths are text");
    let state = state_dir(dir.path());
    let state = state.to_str().expect("temporary paths are text");
    let with_state = flags.replace("--state DIR", &format!("--state {state}"));
    command.args(with_state.split_whitespace().map(|flag| flag.replace("DIR", path)));
    if rustix::process::geteuid().is_root() && !format!(" {flags}").contains(" -u") {
        command.args(["-u", "root"]);
    }
    let has_tier = flags.contains("--tier") || flags.contains("ext_path");
    if is_terrace() && has_tier && !flags.contains("--state") {
        // Not where it would outlive the test.
        command.args(["--state", state]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What `wrapper` starts `inner` with.
fn under(wrapper: &str, inner: &Command) -> Command {
    let mut words = wrapper.split_whitespace();
    let mut outer = Command::new(words.next().expect("a wrapper"));
    outer.args(words).arg(inner.get_program()).args(inner.get_args());
    outer.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    outer
}

fn collect(
    pipe: impl Read + Send + 'static,
    output: &Arc<Mutex<String>>,
) -> std::thread::JoinHandle<()> {
    let output = Arc::clone(output);
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if let Ok(mut text) = output.lock() {
                text.push_str(&line);
                text.push('\n');
            }
        }
    })
}

/// A port for this process alone: below the range from which the kernel takes the ports of clients,
/// reserved against every other test by a lock that is kept as long as the process lives, and with
/// nobody listening on it.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static RESERVED: Mutex<Vec<File>> = Mutex::new(Vec::new());
    const FIRST: u32 = 12_000;
    const COUNT: u32 = 20_000;
    let locks = std::env::temp_dir().join("terrace-test-ports");
    std::fs::create_dir_all(&locks).expect("a directory for the locks of ports");
    // Test processes that run at the same time begin at different places.
    let start = std::process::id().wrapping_mul(37);
    for _ in 0..COUNT {
        let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(FIRST + offset).expect("a port");
        let Ok(lock) = File::create(locks.join(port.to_string())) else { continue };
        let is_ours = lock.try_lock().is_ok();
        // Not found out by listening: a process that another thread starts at this moment would
        // have the listener too, and would take connections in the server's place until it runs.
        if is_ours && TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            RESERVED.lock().expect("no test panics here").push(lock);
            return port;
        }
    }
    panic!("no port is free; is {} another user's?", locks.display());
}

#[cfg(test)]
mod tests {
    use super::{Ipv4Addr, TcpStream, free_port};
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn nobody_listens_on_a_free_port_while_other_threads_start_processes() {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let _ = Command::new("true").status();
                    }
                });
            }
            let answered = (0..300)
                .filter(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, free_port())).is_ok())
                .count();
            done.store(true, Ordering::Relaxed);
            assert_eq!(answered, 0);
        });
    }
}
