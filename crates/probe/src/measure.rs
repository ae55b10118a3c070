//! Everything that is measured of one medium, in its order and within its time.

use crate::medium::Medium;
use crate::point::{Access, Operation, Point};
use crate::process::{self, Program};
use crate::series::{By, Kind, LARGE, PAGE, Series};
use crate::worker::Job;
use crate::{ProbeError, Profile, show};
use serde::Serialize;
use std::time::Duration;

/// Larger blocks are moved with fewer at once, so that buffers stay below this.
const BUFFERS_BYTES: usize = 128 << 20;
/// At once, where the size of blocks changes.
const AT_ONCE_MAX: usize = 8;
/// Beside so many random reads in flight, writers stream.
const MIXED_DEPTH: u32 = 8;
const MIXED_WRITERS: [u32; 4] = [0, 1, 4, 16];

/// What the user knows of the medium.
#[derive(Clone, Copy)]
pub(crate) struct Told {
    pub(crate) lanes: Option<f64>,
    /// Bytes per second.
    pub(crate) max: Option<f64>,
}

/// Random reads beside writers.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Mixed {
    pub(crate) writers: u32,
    pub(crate) reads: Point,
    /// None without writers.
    pub(crate) writes: Option<Point>,
}

/// What came of a medium.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) series: Vec<Series>,
    pub(crate) mixed: Vec<Mixed>,
    pub(crate) profile: Profile,
}

/// Measures `medium` within about `total`; tables go to standard output, progress to standard error.
pub(crate) fn measure(
    medium: &dyn Medium,
    program: &Program,
    total: Duration,
    told: Told,
) -> Result<Measured, ProbeError> {
    let own = Job {
        operation: Operation::Read,
        access: Access::Random,
        block_bytes: PAGE,
        bytes: 0,
        seed: 0,
        time: Duration::ZERO,
    };
    let has_own = medium.parts(true, 1, own.clone())?.is_some();
    let has_shared = medium.parts(false, 1, own)?.is_some();
    let is_possible = |kind: &Kind| {
        let has = match kind.by {
            By::Own => has_own,
            By::Shared => has_shared,
            By::Block | By::InFlight => true,
        };
        has && (kind.operation == Operation::Read || medium.writable())
    };
    let kinds: Vec<Kind> = Kind::all().filter(is_possible).collect();
    let points: usize = kinds.iter().map(|kind| values(medium, *kind).len()).sum();
    let mixed = if medium.writable() { MIXED_WRITERS.len() } else { 0 };
    let time = total / (points + mixed).max(1) as u32;
    show::heading(medium, time);
    let mut series = Vec::new();
    let mut done = 0;
    for kind in kinds {
        let points = values(medium, kind)
            .into_iter()
            .map(|value| {
                done += 1;
                tell!("  {}: {}, {done} of {}", medium.name(), kind.title(), points + mixed);
                point(medium, program, kind, value, time)
            })
            .collect::<Result<_, _>>()?;
        let measured = Series::new(kind, points, told.lanes, told.max);
        show::series(&measured, told);
        series.push(measured);
    }
    let mixed = if medium.writable() { beside_writers(medium, time)? } else { Vec::new() };
    show::mixed(medium, &mixed);
    let profile = profile(medium, &series);
    show::knee(&profile);
    let (name, bytes) = (medium.name().to_owned(), medium.bytes());
    Ok(Measured { name, bytes, series, mixed, profile })
}

/// Those that the medium has room for.
fn values(medium: &dyn Medium, kind: Kind) -> Vec<usize> {
    let fits = |&block: &usize| block >= medium.block_bytes() && block as u64 <= medium.bytes();
    let all = kind.values().iter().copied();
    if kind.by == By::Block { all.filter(fits).collect() } else { all.collect() }
}

fn point(
    medium: &dyn Medium,
    program: &Program,
    kind: Kind,
    value: usize,
    time: Duration,
) -> Result<Point, ProbeError> {
    let Kind { operation, access, by } = kind;
    // A drive of less than a large block is still a drive.
    let block_bytes = kind.block_bytes().min(medium.bytes() as usize);
    match by {
        By::Block => {
            let room = BUFFERS_BYTES.min(medium.bytes() as usize);
            let at_once = (room / value).clamp(1, AT_ONCE_MAX) as u32;
            medium.run(operation, access, value, at_once, time)
        }
        By::InFlight => medium.run(operation, access, block_bytes, value as u32, time),
        By::Shared | By::Own => {
            let job = Job { operation, access, block_bytes, bytes: 0, seed: 0, time };
            let mut parts = medium.parts(by == By::Own, value as u32, job)?.unwrap_or_default();
            for (job, _) in &mut parts {
                job.block_bytes = job.block_bytes.min(job.bytes as usize);
            }
            process::run(program, parts)
        }
    }
}

/// Random reads while writers stream, as when segments are sealed.
fn beside_writers(medium: &dyn Medium, time: Duration) -> Result<Vec<Mixed>, ProbeError> {
    let large = LARGE.min(medium.bytes() as usize);
    let read = || medium.run(Operation::Read, Access::Random, PAGE, MIXED_DEPTH, time);
    let one = |writers: u32| {
        tell!("  {}: random reads beside {writers} writers", medium.name());
        if writers == 0 {
            return Ok(Mixed { writers, reads: read()?, writes: None });
        }
        let (reads, writes) = std::thread::scope(|scope| {
            let write = || medium.run(Operation::Write, Access::Sequential, large, writers, time);
            let writer = scope.spawn(write);
            let reads = read();
            (reads, writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        Ok(Mixed { writers, reads: reads?, writes: Some(writes?) })
    };
    MIXED_WRITERS.into_iter().map(one).collect()
}

fn profile(medium: &dyn Medium, series: &[Series]) -> Profile {
    let of = |operation, access| {
        let kind = Kind { operation, access, by: By::InFlight };
        series.iter().find(|series| series.kind == kind)
    };
    let reads = of(Operation::Read, Access::Random);
    let depth = reads.and_then(|series| series.knee).unwrap_or(1);
    let best = reads.and_then(|reads| reads.points.iter().find(|p| p.concurrency == depth));
    let writes = of(Operation::Write, Access::Sequential);
    Profile {
        terrace_device_profile: Profile::FORM,
        name: medium.name().to_owned(),
        capacity_bytes: medium.bytes() as f64,
        read_iops: best.map_or(0.0, |best| best.per_second),
        queue_depth: depth,
        read_us_p50: best.map_or(0.0, |best| best.p50_us),
        read_us_p99: best.map_or(0.0, |best| best.p99_us),
        write_bytes_per_second: writes
            .map(|writes| writes.points.iter().map(Point::bandwidth).fold(0.0, f64::max)),
    }
}
