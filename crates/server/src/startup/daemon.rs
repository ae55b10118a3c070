//! Running in the background (`-d`).
//!
//! The process starts itself again as a child, in a session of its own, and stays until the child
//! is ready to serve: so `terrace -d` prints what any start prints, and fails with the line and the
//! exit code of the child. (Starting anew instead of forking keeps `unsafe` out of this crate.)

use super::Failure;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use terrace::say;

/// Set for the child only.
const CHILD: &str = "TERRACE_DAEMON_CHILD";
/// The child's last line to its parent.
const READY: &str = "\u{4}ready";

/// Which side of `-d` this process is on.
pub(crate) enum Side {
    /// The one that was started by the user.
    Parent,
    /// The one that serves.
    Child(Child),
}

pub(crate) fn side() -> Side {
    match std::env::var_os(CHILD) {
        None => Side::Parent,
        Some(_) => Side::Child(Child(())),
    }
}

/// Starts the child, relays its lines, and returns with its fate: zero once it is ready.
pub(crate) fn start() -> Result<ExitCode, Failure> {
    let failed = |error| Failure::system(format!("-d: can't start in the background: {error}"));
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "terrace".into());
    let mut child = Command::new("/proc/self/exe")
        .arg0(name)
        .args(arguments)
        .env(CHILD, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            match line.map_err(failed)? {
                line if line == READY => return Ok(ExitCode::SUCCESS),
                line => say::line(line),
            }
        }
    }
    let status = child.wait().map_err(failed)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    match code {
        Some(code) => Ok(ExitCode::from(code)),
        None => Err(Failure::system(format!("-d: ended before it was ready: {status}"))),
    }
}

/// The serving side.
pub(crate) struct Child(());

impl Child {
    /// Leaves the terminal that the parent was started from.
    pub(crate) fn detach(&self) -> Result<(), Failure> {
        // It was started by the path /proc/self/exe, and would be called `exe` where `pgrep` looks.
        // A name that can't be set harms nobody.
        let _ = rustix::thread::set_name(c"terrace");
        match rustix::process::setsid() {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::system(format!("-d: can't leave the terminal: {error}"))),
        }
    }

    /// Lets the parent go. From here on nothing holds the directory that the server was started in
    /// or, with `keep_output` unset, its terminal.
    pub(crate) fn ready(self, keep_output: bool) -> std::io::Result<()> {
        say::line(READY);
        std::env::set_current_dir("/")?;
        let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdout(&null)?;
        if !keep_output {
            rustix::stdio::dup2_stderr(&null)?;
        }
        Ok(())
    }
}
