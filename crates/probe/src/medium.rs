//! What is measured: a drive, or DRAM, behind one trait.

use crate::point::{Access, Operation, Point};
use crate::worker::Job;
use crate::{ProbeError, Target, read, write};
use std::fs::File;
use std::time::Duration;
use terrace_device::Reads;

/// A share of a medium for one of several processes: what it is told, and the file that it gets.
pub(crate) type Part = (Job, Option<File>);

/// Anything that blocks are read from and written to.
pub(crate) trait Medium: Sync {
    /// What it is called in tables.
    fn name(&self) -> &str;
    /// Its size.
    fn bytes(&self) -> u64;
    /// The smallest transfer.
    fn block_bytes(&self) -> usize;
    /// Whether it may be written.
    fn writable(&self) -> bool;
    /// Blocks read and written, always `at_once` at the same time.
    fn run(
        &self,
        operation: Operation,
        access: Access,
        block_bytes: usize,
        at_once: u32,
        time: Duration,
    ) -> Result<Point, ProbeError>;
    /// Shares for `processes` processes: each of its own, or all of one. `None` where the medium has
    /// no such thing.
    fn parts(&self, own: bool, processes: u32, job: Job) -> Result<Option<Vec<Part>>, ProbeError>;
}

impl Medium for Target {
    fn name(&self) -> &str {
        self.device.label()
    }

    fn bytes(&self) -> u64 {
        self.device.geometry().bytes
    }

    fn block_bytes(&self) -> usize {
        self.device.geometry().block_bytes as usize
    }

    fn writable(&self) -> bool {
        self.writable
    }

    fn run(
        &self,
        operation: Operation,
        access: Access,
        block_bytes: usize,
        at_once: u32,
        time: Duration,
    ) -> Result<Point, ProbeError> {
        match operation {
            Operation::Read => read(self, access, block_bytes, at_once, time),
            Operation::Write => write(self, access, block_bytes, at_once, time),
        }
    }

    fn parts(&self, own: bool, processes: u32, job: Job) -> Result<Option<Vec<Part>>, ProbeError> {
        if matches!(self.device.reads(), Reads::Own(_)) {
            return Ok(None);
        }
        let writes = job.operation == Operation::Write;
        let part = |seed: u32, target: &Target| -> Result<Part, ProbeError> {
            let file = target.file(writes)?;
            let bytes = target.device.geometry().bytes;
            Ok((Job { bytes, seed: seed.into(), ..job.clone() }, Some(file)))
        };
        if !own {
            return (0..processes).map(|seed| part(seed, self)).collect::<Result<_, _>>().map(Some);
        }
        let Some(files) = self.own_files()? else { return Ok(None) };
        let enough = files.iter().take(processes as usize);
        (0..).zip(enough).map(|(seed, file)| part(seed, file)).collect::<Result<_, _>>().map(Some)
    }
}
