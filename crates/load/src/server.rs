//! A server that is started to be measured.

use crate::{Address, Client, LoadError, Process, cores, left};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START: Duration = Duration::from_secs(30);
const NAP: Duration = Duration::from_millis(20);
/// What this is called as a tool of `terrace`.
const TOOL: &str = "bench";

/// A running server with a folder of its own; ends, and takes the folder along, when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    dir: PathBuf,
    /// Where it listens.
    pub(crate) address: Address,
    /// As it was started.
    pub(crate) command: String,
}

impl Server {
    /// Starts `command` on these cores, and waits until it answers. `{dir}` in it stands for a
    /// folder within `parent`, `{socket}` for the path of a Unix socket; without `{socket}` the
    /// server is told to choose a port itself, as memcached's tests do.
    pub(crate) fn start(
        command: &str,
        parent: &Path,
        name: &str,
        on: &[usize],
    ) -> Result<Self, LoadError> {
        let dir = parent.join(format!("bench-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir)?;
        let (socket, ports) = (dir.join("socket"), dir.join("ports"));
        let has_socket = command.contains("{socket}");
        let mut command = command
            .replace("{dir}", &dir.to_string_lossy())
            .replace("{socket}", &socket.to_string_lossy());
        if !has_socket {
            command += " -l 127.0.0.1 -p -1";
        }
        if rustix::process::geteuid().is_root() && !command.contains(" -u ") {
            command += " -u root";
        }
        if command.contains(" --tier ") && !command.contains(" --state ") {
            command += &format!(" --state {}", dir.display());
        }
        let mut words = command.split_whitespace();
        let named = words.next().ok_or_else(|| LoadError::Plan("an empty command".into()))?;
        let program = &program(named);
        let log = fs::File::create(dir.join("log"))?;
        let failed = |error| LoadError::Plan(format!("{}: {error}", program.display()));
        let child = cores::start_on(on, || {
            Command::new(program)
                .args(words)
                .env("MEMCACHED_PORT_FILENAME", &ports)
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log)
                .spawn()
                .map_err(failed)
        });
        let child = child.inspect_err(|_| drop(fs::remove_dir_all(&dir)))?;
        left::note(child.id(), &dir);
        let address = Address::Unix(socket);
        let mut server = Self { child, dir, address, command };
        server.wait(has_socket, &ports)?;
        Ok(server)
    }

    fn wait(&mut self, has_socket: bool, ports: &Path) -> Result<(), LoadError> {
        let end = Instant::now() + START;
        loop {
            if let Some(port) = port_in(ports).filter(|_| !has_socket) {
                self.address = Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            }
            if Client::open(&self.address, None).is_ok() {
                return Ok(());
            }
            if self.child.try_wait()?.is_some() || Instant::now() > end {
                let said = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
                let text = format!("{} does not answer: {}", self.command, said.trim_end());
                return Err(LoadError::Plan(text));
            }
            std::thread::sleep(NAP);
        }
    }

    pub(crate) fn process(&self) -> Option<Process> {
        Process::new(self.child.id())
    }
}

/// A `terrace` without a path is this one, where this is one: nobody has to install it first. The word
/// behind the name tells, as programs may have any name.
fn program(named: &str) -> PathBuf {
    let is_terrace = std::env::args_os().nth(1).is_some_and(|word| word == TOOL);
    this_one(named, is_terrace).unwrap_or_else(|| named.into())
}

fn this_one(named: &str, is_terrace: bool) -> Option<PathBuf> {
    (named == "terrace" && is_terrace).then(|| std::env::current_exe().ok()).flatten()
}

fn port_in(ports: &Path) -> Option<u16> {
    let text = fs::read_to_string(ports).ok()?;
    text.lines().find_map(|line| line.strip_prefix("TCP INET: "))?.trim().parse().ok()
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already; a folder that is left is seen.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
        left::forget(self.child.id());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terrace_of_any_name_compares_itself() {
        // This test is called neither `terrace` nor anything alike.
        let this = std::env::current_exe().ok();
        assert_eq!(this_one("terrace", true), this);
        assert_eq!(this_one("terrace", false), None);
        assert_eq!(this_one("/usr/bin/terrace", true), None);
        assert_eq!(this_one("memcached", true), None);
    }
}
