//! Reads, many at a time.

use crate::point::{Access, Point, Walk, times};
use crate::{ProbeError, Target};
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_device::{Done, Engine, Read, ReadQueue, Reads, WorkerQueue};

/// A drive that answers nothing for so long has failed.
const SILENCE: Duration = Duration::from_secs(60);

/// Reads blocks for `time`, always `depth` of them at once.
///
/// # Errors
/// The drive is smaller than a block, fails, or falls silent.
pub fn read(
    target: &Target,
    access: Access,
    block_bytes: usize,
    depth: u32,
    time: Duration,
) -> Result<Point, ProbeError> {
    let device = &target.device;
    let label = device.label().to_owned();
    let too_small = || ProbeError::Input(format!("{label} is smaller than a block"));
    let bytes = device.geometry().bytes;
    let mut walk = Walk::new(access, bytes, block_bytes, 1).ok_or_else(too_small)?;
    let failed = || ProbeError::io(&label);
    let drives = [Arc::clone(device)];
    let mut queue = WorkerQueue::open(&drives, Engine::Auto, depth).map_err(failed())?;
    let mut begun = vec![Instant::now(); depth as usize];
    let mut times = times();
    let start = Instant::now();
    for (token, begun) in (0..).zip(&mut begun) {
        let buf = queue.buffer(block_bytes);
        *begun = Instant::now();
        queue.submit(Read { device: 0, offset: walk.next() * block_bytes as u64, buf, token });
    }
    let mut done = Vec::<Done>::new();
    let mut heard = start;
    let is_remote = matches!(device.reads(), Reads::Own(_));
    // A drive that needs longer for one is slow, not dead.
    while start.elapsed() < time || times.is_empty() {
        queue.wait(&mut done, SILENCE).map_err(failed())?;
        let now = Instant::now();
        if !done.is_empty() {
            heard = now;
        } else if now - heard >= SILENCE {
            return Err(ProbeError::Input(format!("{label} does not answer")));
        }
        for Done { token, buf, result } in done.drain(..) {
            result.map_err(failed())?;
            let begun = &mut begun[token as usize];
            times.saturating_record((now - *begun).as_nanos() as u64);
            *begun = now;
            queue.submit(Read { device: 0, offset: walk.next() * block_bytes as u64, buf, token });
            // Alone: a drive that gets its reads in batches is idle between them. To send each alone over a network
            // costs more than that.
            if !is_remote {
                queue.flush().map_err(failed())?;
            }
        }
    }
    Ok(Point::of(block_bytes, depth, &times, start.elapsed()))
}
