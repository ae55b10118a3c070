//! Runs a program that asks a drive, for a limited time.

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A program that prints more is ended. Long answers have some 100 KiB.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The pause between two looks at the program.
const NAP: Duration = Duration::from_millis(10);
/// What the kernel has for ending a program that was killed.
const END_TIME: Duration = Duration::from_secs(1);

/// What a program printed.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) output: Vec<u8>,
    pub(super) errors: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// There is no such program.
    Missing,
    /// It could not be started or read.
    Failed(io::Error),
    /// It was ended, since it ran or printed for too long. With the process if the kernel has not let it go yet.
    Ended(Option<Child>),
}

impl From<io::Error> for NoAnswer {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            _ => Self::Failed(error),
        }
    }
}

/// Runs `command` until it ends, for at most `time`, and no longer than until `is_stopping`.
pub(super) fn ask(
    command: &mut Command,
    time: Duration,
    is_stopping: &dyn Fn() -> bool,
) -> Result<Answer, NoAnswer> {
    let end = Instant::now() + time;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // In a group of its own, so that what it starts is ended with it.
    let mut child = command.process_group(0).spawn()?;
    let pipes = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
    let [mut output, mut errors] = pipes.map(Pipe::new);
    while !is_stopping() && Instant::now() < end {
        // Looked at first: what it printed before it ended is in the pipes.
        let has_ended = !matches!(child.try_wait(), Ok(None));
        let has_room = output.read() & errors.read();
        if has_ended {
            return Ok(Answer { output: output.bytes, errors: errors.bytes });
        }
        if !has_room {
            break;
        }
        thread::sleep(NAP);
    }
    Err(NoAnswer::Ended(kill(child)))
}

/// Ends a program with all that it has started; returns it if it is in the kernel, in a command to a drive, which it
/// can't leave before the drive answers.
fn kill(mut child: Child) -> Option<Child> {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended by itself.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let end = Instant::now() + END_TIME;
    while Instant::now() < end {
        if !matches!(child.try_wait(), Ok(None)) {
            return None;
        }
        thread::sleep(NAP);
    }
    Some(child)
}

/// What comes through a pipe.
struct Pipe {
    file: Option<File>,
    bytes: Vec<u8>,
}

impl Pipe {
    fn new(pipe: Option<OwnedFd>) -> Self {
        // One that would block is not read.
        let pipe = pipe.filter(|pipe| fcntl_setfl(pipe, OFlags::NONBLOCK).is_ok());
        Self { file: pipe.map(File::from), bytes: Vec::new() }
    }

    /// Reads what is there; whether there may be more.
    fn read(&mut self) -> bool {
        let room = ANSWER_BYTES_MAX.saturating_sub(self.bytes.len());
        if let Some(file) = &self.file {
            // Ends with an error when the pipe is empty; what came before that is kept.
            let _ = file.take(room as u64).read_to_end(&mut self.bytes);
        }
        self.bytes.len() < ANSWER_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn answer_is_all_that_was_printed_whatever_the_exit_code() {
        let mut command = shell("seq 100000; echo why >&2; exit 3");
        let answer = ask(&mut command, LONG, &|| false).expect("it ends");
        assert!(answer.output.ends_with(b"99999\n100000\n"), "{}", answer.output.len());
        assert_eq!(answer.errors, b"why\n");
    }

    #[test]
    fn program_that_is_not_there_is_missing() {
        let mut command = Command::new("/no/such/program");
        assert!(matches!(ask(&mut command, LONG, &|| false), Err(NoAnswer::Missing)));
    }

    #[test]
    fn program_that_hangs_is_ended_with_what_it_started() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("pids");
        let mut command = shell(&format!("sleep 1000 & echo $$ $! > {}; wait", file.display()));
        // It is given up once it has started the other, however long that takes.
        let has_started = || std::fs::read_to_string(&file).is_ok_and(|pids| pids.ends_with('\n'));
        let answer = ask(&mut command, LONG, &has_started);
        assert!(matches!(answer, Err(NoAnswer::Ended(None))), "{answer:?}");
        for pid in std::fs::read_to_string(&file).expect("process ids").split_whitespace() {
            let is_running = || {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                // An orphan stays until its new parent has looked.
                !stat.is_empty() && !stat.contains(") Z ")
            };
            let end = Instant::now() + LONG;
            while is_running() {
                assert!(Instant::now() < end, "process {pid} is still there");
                thread::sleep(NAP);
            }
        }
    }

    #[test]
    fn program_that_prints_without_end_is_ended() {
        let mut command = shell("yes");
        let answer = ask(&mut command, LONG, &|| false);
        assert!(matches!(answer, Err(NoAnswer::Ended(None))), "{answer:?}");
    }

    #[test]
    fn program_that_takes_too_long_is_ended() {
        let answer = ask(&mut shell("sleep 1000"), Duration::ZERO, &|| false);
        assert!(matches!(answer, Err(NoAnswer::Ended(None))), "{answer:?}");
    }
}
