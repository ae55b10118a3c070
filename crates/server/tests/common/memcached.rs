//! memcached itself, to compare with.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_e2e::PATIENCE;

/// A running memcached; killed when dropped.
pub struct Memcached {
    child: Child,
    pub address: SocketAddr,
    _dir: TempDir,
}

impl Memcached {
    /// The one that `TERRACE_MEMCACHED` names, or the one in the path; `None` if there is none. It chooses its
    /// port itself, and writes it to a file.
    pub fn start(flags: &[&str]) -> Option<Self> {
        let dir = TempDir::new().expect("a directory");
        let file = dir.path().join("port");
        // Without a configuration Debian's does not start with -S.
        let sasl = dir.path().join("memcached.conf");
        std::fs::write(&sasl, "mech_list: plain\n").expect("room for it");
        let binary = std::env::var_os("TERRACE_MEMCACHED").unwrap_or("memcached".into());
        let mut child = Command::new(binary)
            .args(["-l", "127.0.0.1", "-p", "-1", "-t", "1", "-u", "root"])
            .args(flags)
            .env("MEMCACHED_PORT_FILENAME", &file)
            .env("SASL_CONF_PATH", &sasl)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(port) = port_in(&file) {
                let address = SocketAddr::from(([127, 0, 0, 1], port));
                return Some(Self { child, address, _dir: dir });
            }
            let ended = child.try_wait().expect("a child can be waited for");
            assert!(ended.is_none(), "memcached {flags:?} ended: {ended:?}");
            assert!(Instant::now() < end, "memcached {flags:?} does not say its port");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Memcached {
    /// Which it is, as `1.6.45`.
    pub fn version(&self) -> String {
        let mut client = super::Client::connect(self.address);
        client.send("version\r\n");
        let line = client.receive_until("\r\n");
        line.trim_start_matches("VERSION ").trim_end().to_string()
    }
}

/// `TCP INET: 12345`; the file appears under its name once it is complete.
fn port_in(file: &Path) -> Option<u16> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix("TCP INET: ")?.trim().parse().ok())
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
