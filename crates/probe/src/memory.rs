//! DRAM as a medium: blocks are copied out of it and into it by as many threads as are at once.

use crate::ProbeError;
use crate::medium::{Medium, Part};
use crate::point::{Access, Operation, Point, Walk, times};
use crate::worker::Job;
use hdrhistogram::Histogram;
use std::hint::black_box;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Smallest transfer that is measured; looking at the clock is part of each.
const BLOCK_BYTES: usize = 512;
/// Each process has this part of the memory, however many there are: what is divided among more of
/// them fits into their caches at last.
const OWN_PART: u64 = 8;

/// Memory of this process, all of it touched. What is read and what is written are halves of it, so
/// that both can go on at the same time.
pub(crate) struct Memory {
    read: Vec<u8>,
    written: Mutex<Vec<u8>>,
}

impl Memory {
    pub(crate) fn new(len: usize) -> Self {
        Self { read: touched(len / 2), written: Mutex::new(touched(len / 2)) }
    }
}

/// Pages that were never written are all the same one; zeroes would be such.
pub(crate) fn touched(len: usize) -> Vec<u8> {
    vec![1; len]
}

/// Copies blocks of `memory` out for `time`; none if it is smaller than a block.
pub(crate) fn copy_out(memory: &[u8], job: &Job) -> Option<Histogram<u64>> {
    let block = job.block_bytes;
    let mut walk = Walk::new(job.access, memory.len() as u64, block, job.seed)?;
    let mut buffer = vec![0_u8; block];
    Some(clocked(job.time, || {
        let from = walk.next() as usize * block;
        buffer.copy_from_slice(&memory[from..from + block]);
        black_box(&mut buffer);
    }))
}

/// Copies blocks into `memory` for `time`; none if it is smaller than a block.
pub(crate) fn copy_in(memory: &mut [u8], job: &Job) -> Option<Histogram<u64>> {
    let block = job.block_bytes;
    let mut walk = Walk::new(job.access, memory.len() as u64, block, job.seed)?;
    let buffer = vec![1_u8; block];
    Some(clocked(job.time, || {
        let to = walk.next() as usize * block;
        memory[to..to + block].copy_from_slice(black_box(&buffer));
        black_box(&mut memory[to]);
    }))
}

fn clocked(time: Duration, mut copy: impl FnMut()) -> Histogram<u64> {
    let mut times = times();
    let start = Instant::now();
    let mut begun = start;
    while begun - start < time {
        copy();
        let now = Instant::now();
        times.saturating_record((now - begun).as_nanos() as u64);
        begun = now;
    }
    times
}

impl Medium for Memory {
    fn name(&self) -> &str {
        "DRAM"
    }

    fn bytes(&self) -> u64 {
        self.read.len() as u64
    }

    fn block_bytes(&self) -> usize {
        BLOCK_BYTES
    }

    fn writable(&self) -> bool {
        true
    }

    fn run(
        &self,
        operation: Operation,
        access: Access,
        block_bytes: usize,
        at_once: u32,
        time: Duration,
    ) -> Result<Point, ProbeError> {
        // Each writer has a part of its own, which little memory makes smaller than a block.
        let block_bytes = match operation {
            Operation::Read => block_bytes,
            Operation::Write => block_bytes.min((self.read.len() / at_once as usize).max(1)),
        };
        let job = Job { operation, access, block_bytes, bytes: self.bytes(), seed: 0, time };
        let lock = || self.written.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut written = (operation == Operation::Write).then(lock);
        let start = Instant::now();
        let all: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = match operation {
                Operation::Read => (0..u64::from(at_once))
                    .map(|seed| Job { seed, ..job.clone() })
                    .map(|job| scope.spawn(move || copy_out(&self.read, &job)))
                    .collect(),
                // Each writes to a part of its own: two that write to one byte are no medium's matter.
                Operation::Write => {
                    let part = (self.read.len() / at_once as usize).max(1);
                    let parts = written.iter_mut().flat_map(|written| written.chunks_mut(part));
                    (0..)
                        .zip(parts.take(at_once as usize))
                        .map(|(seed, part)| (Job { seed, ..job.clone() }, part))
                        .map(|(job, part)| scope.spawn(move || copy_in(part, &job)))
                        .collect()
                }
            };
            threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
        });
        let elapsed = start.elapsed();
        let mut times = times();
        for part in all {
            let part = part.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let too_small = || ProbeError::Input("so little DRAM has no such block".into());
            // Fails only on histograms of other bounds.
            let _ = times.add(part.ok_or_else(too_small)?);
        }
        Ok(Point::of(block_bytes, at_once, &times, elapsed))
    }

    /// Processes have memory of their own only.
    fn parts(&self, own: bool, processes: u32, job: Job) -> Result<Option<Vec<Part>>, ProbeError> {
        let bytes = self.bytes() / (OWN_PART / 2);
        let part = |seed| (Job { bytes, seed, ..job.clone() }, None);
        Ok(own.then(|| (0..u64::from(processes)).map(part).collect()))
    }
}
