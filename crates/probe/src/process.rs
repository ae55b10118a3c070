//! Several processes that use a medium at the same time: the parent's side.

use crate::medium::Part;
use crate::point::{Point, times};
use crate::worker::{FLAG, Job, Outcome};
use crate::{ProbeError, worker};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A process that says nothing for so long, besides its measurement, has failed.
const SILENCE: Duration = Duration::from_secs(60);

/// How to start this program again as one of the processes.
pub(crate) struct Program {
    path: PathBuf,
    /// What stands before the flag: `probe`, where this is a tool of `terrace`.
    words: Vec<OsString>,
}

impl Program {
    /// This program.
    pub(crate) fn this() -> io::Result<Self> {
        let is_tool = |word: &OsString| word == "probe";
        let words = std::env::args_os().nth(1).filter(is_tool).into_iter().collect();
        Ok(Self { path: std::env::current_exe()?, words })
    }

    fn start(&self, (job, file): Part) -> Result<Process, ProbeError> {
        let failed = || ProbeError::io("a process");
        let job_text = serde_json::to_string(&job)
            .map_err(|error| ProbeError::Input(format!("{}: {error}", worker::FLAG)))?;
        let (parent, child) = UnixStream::pair().map_err(failed())?;
        parent.set_read_timeout(Some(SILENCE + job.time)).map_err(failed())?;
        let input = file.map_or_else(Stdio::null, Stdio::from);
        let child = Command::new(&self.path)
            .args(&self.words)
            .args([FLAG, &job_text])
            .stdin(input)
            .stdout(OwnedFd::from(child))
            .spawn()
            .map_err(failed())?;
        Ok(Process { child, stream: BufReader::new(parent), job })
    }
}

struct Process {
    child: Child,
    stream: BufReader<UnixStream>,
    job: Job,
}

impl Process {
    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => Err(io::Error::other("it ended early; what it said stands above")),
            Ok(_) => Ok(line),
            Err(error) => Err(error),
        }
    }

    fn outcome(&mut self) -> io::Result<Outcome> {
        let line = self.line()?;
        self.child.wait()?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended is not killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Has each of `parts` done by a process of its own, all at the same time.
pub(crate) fn run(program: &Program, parts: Vec<Part>) -> Result<Point, ProbeError> {
    let failed = || ProbeError::io("a process");
    let started = parts.into_iter().map(|part| program.start(part));
    let mut processes: Vec<Process> = started.collect::<Result<_, _>>()?;
    for process in &mut processes {
        process.line().map_err(failed())?;
    }
    for process in &mut processes {
        process.stream.get_mut().write_all(b"go\n").map_err(failed())?;
    }
    let (mut all, mut per_second) = (times(), 0.0);
    for process in &mut processes {
        let outcome = process.outcome().map_err(failed())?;
        let count: u64 = outcome.times.iter().map(|(_, count)| count).sum();
        per_second += count as f64 / outcome.elapsed.as_secs_f64();
        for (nanos, count) in outcome.times {
            all.saturating_record_n(nanos, count);
        }
    }
    let number = processes.len() as u32;
    let block_bytes = processes.first().map_or(0, |process| process.job.block_bytes);
    Ok(Point::at_rate(block_bytes, number, &all, per_second))
}
