//! One of several processes that use a medium at the same time: what it is told, and what it does.
//!
//! Its standard input is the file, opened by the parent, which knows whether it may be written; its
//! standard output is a socket to the parent: `ready` goes out, `go` comes in, the [`Outcome`] goes
//! out. Without a file it uses memory of its own.

use crate::ProbeError;
use crate::memory::{copy_in, copy_out, touched};
use crate::point::{Access, Operation, Walk, times};
use hdrhistogram::Histogram;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use terrace_device::AlignedBuf;

/// The argument that makes a program one of the processes; a [`Job`] as JSON follows.
pub(crate) const FLAG: &str = "--worker";

/// What a process does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) operation: Operation,
    pub(crate) access: Access,
    pub(crate) block_bytes: usize,
    /// Of the file, from its beginning; or of memory.
    pub(crate) bytes: u64,
    /// Other seeds begin elsewhere.
    pub(crate) seed: u64,
    pub(crate) time: Duration,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) elapsed: Duration,
    /// Nanoseconds, and how many transfers took so long.
    pub(crate) times: Vec<(u64, u64)>,
}

/// Runs the job that stands in `argument`.
pub(crate) fn main(argument: &str) -> Result<(), ProbeError> {
    let input = |error: serde_json::Error| ProbeError::Input(format!("{FLAG}: {error}"));
    let job: Job = serde_json::from_str(argument).map_err(input)?;
    let parent = || -> io::Result<UnixStream> {
        Ok(UnixStream::from(io::stdout().as_fd().try_clone_to_owned()?))
    };
    let mut parent = parent().map_err(ProbeError::io("standard output"))?;
    let outcome = carry_out(&job, &mut parent).map_err(ProbeError::io("a process"))?;
    let outcome = serde_json::to_string(&outcome).map_err(input)?;
    writeln!(parent, "{outcome}").map_err(ProbeError::io("standard output"))
}

fn carry_out(job: &Job, parent: &mut UnixStream) -> io::Result<Outcome> {
    let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    // `/dev/null`: no drive is a character device.
    let is_memory = file.metadata()?.file_type().is_char_device();
    let mut memory = if is_memory { touched(job.bytes as usize) } else { Vec::new() };
    writeln!(parent, "ready")?;
    BufReader::new(&*parent).read_line(&mut String::new())?;
    let start = Instant::now();
    let times = match (is_memory, job.operation) {
        (true, Operation::Read) => copy_out(&memory, job).ok_or(io::ErrorKind::InvalidInput)?,
        (true, Operation::Write) => copy_in(&mut memory, job).ok_or(io::ErrorKind::InvalidInput)?,
        (false, _) => transfer(&file, job)?,
    };
    if !is_memory && job.operation == Operation::Write {
        file.sync_data()?;
    }
    let elapsed = start.elapsed();
    let count = |value: hdrhistogram::iterators::IterationValue<u64>| {
        (value.value_iterated_to(), value.count_at_value())
    };
    Ok(Outcome { elapsed, times: times.iter_recorded().map(count).collect() })
}

fn transfer(file: &File, job: &Job) -> io::Result<Histogram<u64>> {
    let mut walk = Walk::new(job.access, job.bytes, job.block_bytes, job.seed)
        .ok_or(io::ErrorKind::InvalidInput)?;
    let mut buffer = AlignedBuf::zeroed(job.block_bytes);
    rand::rngs::SmallRng::seed_from_u64(job.seed).fill_bytes(&mut buffer);
    let mut times = times();
    let start = Instant::now();
    let mut begun = start;
    while begun - start < job.time {
        let offset = walk.next() * job.block_bytes as u64;
        match job.operation {
            Operation::Read => file.read_exact_at(&mut buffer, offset)?,
            Operation::Write => file.write_all_at(&buffer, offset)?,
        }
        let now = Instant::now();
        times.saturating_record((now - begun).as_nanos() as u64);
        begun = now;
    }
    Ok(times)
}
